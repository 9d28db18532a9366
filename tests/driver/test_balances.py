"""What is in a box is what was in, what came through its sides and what was made, to rounding, however a run is cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from configurations import DYE, changed, refusal
from process_groups import kill_after_a_checkpoint, outputs, start_run

import simjax as sj
from simjax.config import validate
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.integrators.table import INTEGRATORS
from simjax.models.balances import BalancedScheme, with_balances
from simjax.models.flow.passive_scalar import PassiveScalar
from simjax.models.scalar.transport import Transport

OPEN = {
    "model": "transport",
    "grid": {"shape": [12, 8]},
    "physics": {"scheme": "van_leer", "velocity_factor": "cos(3*t)"},
    "parameters": {"height": 0.5},
    "coefficients": {"velocity": ["1 + 0.2*sin(3*x + y)", "0.3*x"], "diffusivity": "0.02*(1 + x)", "source": "x*y"},
    "forcing": {"concentration": "sin(5*t)*x"},
    "initial": {"concentration": "height*exp(-20*((x - 0.4)**2 + (y - 0.5)**2))"},
    "boundaries": {
        "x": {"lower": {"kind": "inflow", "value": "1 + sin(9*t)"}, "upper": "outflow"},
        "y": {"lower": {"kind": "neumann", "slope": 2.0}, "upper": {"kind": "dirichlet", "value": "x"}},
    },
    "outputs": [{"balance": "concentration", "every": "step"}],
    "time": {"end": 0.06, "output_every": 0.03, "dt": 0.005, "integrator": "ssprk2"},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}
SIDES = [f"in_{axis}_{side}" for axis in "xy" for side in ("lower", "upper")]


def run(folder, changes, base=OPEN, **options):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    sj.Simulation(validate(changed(base, {**place, **changes}))).run(**options)
    return folder


def read(folder, name="balance"):
    with sj.open_output(folder, name) as dataset:
        return dataset.load()


def check(found, quantities, sides, tolerance):
    """Each balance closes at every sample, and the residual is what it says."""
    for name in quantities:
        came = sum(found[f"{name}_{part}"].values for part in (*sides, "made"))
        residual = found[f"{name}_now"].values - found[f"{name}_at_start"].values - came
        # Sums of numbers of order one, added up in another order: a few roundings at each step.
        np.testing.assert_allclose(residual, 0, atol=tolerance)
        np.testing.assert_allclose(found[f"{name}_residual"], residual, atol=tolerance)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("balances")
    return root, read(run(root / "whole", {}))


@pytest.mark.slow
def test_an_open_box_with_sources_closes_at_every_step(whole):
    _, found = whole
    assert found.sizes["time"] == 13 and found.concentration_now.units == "m2"
    check(found, ["concentration"], SIDES, 1e-14)
    last = found.isel(time=-1)
    # Nothing is too small to be missed, and each has the sign of what its side says.
    came = [float(last[f"concentration_{part}"]) for part in (*SIDES, "made")]
    assert came[0] > 0.01 and came[1] < -1e-4 and came[2] > 1e-3 and abs(came[3]) > 1e-3 and came[4] > 1e-3
    assert float(last.concentration_at_start) == float(found.concentration_now[0])


@pytest.mark.slow
def test_each_side_has_what_passes_it(tmp_path):
    """A constant 2 carried at speed 3 along x, fed at a rate 1.5: what passes each side and is made is known."""
    sides = {"x": {"lower": {"kind": "inflow", "value": 2.0}, "upper": "outflow"}, "y": "slip"}
    told = {
        "coefficients": {"velocity": ["3", "0"], "diffusivity": "0", "source": "0"},
        "physics": {},
        "forcing": {},
        "initial.concentration": "2",
        "boundaries": sides,
        "grid.upper": [1.0, 0.5],
        "outputs": [{"balance": ["concentration"], "name": "budget"}],
    }
    last = read(run(tmp_path / "plain", told), "budget").isel(time=-1)
    through = [float(last[f"concentration_{part}"]) for part in (*SIDES, "made")]
    # Rounding of sums of numbers of order one; what does not pass is zero to a tenth of a rounding of these.
    np.testing.assert_allclose(through, [3 * 2 * 0.5 * 0.06, -3 * 2 * 0.5 * 0.06, 0, 0, 0], rtol=1e-13, atol=1e-16)


def same(found, wanted, tolerance=0.0):
    for name in wanted.data_vars:
        np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=tolerance, err_msg=str(name))


@pytest.mark.slow
def test_a_run_that_goes_on_has_the_same_balances(whole):
    folder = run(whole[0] / "twice", {"time.end": 0.03, "checkpoint.every_frames": 1})
    run(folder, {}, resume=folder)
    same(read(folder), whole[1])  # the same programs: bit for bit
    assert sj.check_files(folder) == []


@pytest.mark.slow
def test_members_over_devices_have_the_balances_of_each_alone(whole):
    several = {"ensemble.size": 2, "ensemble.vary": {"parameters.height": {"values": [0.1, 0.5]}}}
    found = read(run(whole[0] / "members", {**several, "mesh.ensemble": 2, "mesh.x": 2, "mesh.y": 2}))
    assert found.concentration_now.dims == ("member", "time")
    same(found.isel(member=1, drop=True), whole[1], 1e-14)  # devices add up in another order
    check(found, ["concentration"], SIDES, 1e-14)
    assert float(found.concentration_now[0, 0]) < 0.5 * float(found.concentration_now[1, 0])


@pytest.mark.slow
def test_a_scalar_in_a_flow_closes_where_it_is_carried_in_and_out():
    """Through sides with a flow of their own, which both carry and conduct; and a source makes some."""
    flow = 1.0, 0.0
    ends = sj.Inflow(flow, scalar=lambda t, x, y: 1 + y + jnp.sin(20 * t)), sj.Outflow()
    domain = sj.Domain(sj.Grid((12, 8)))
    bare = PassiveScalar(
        domain, [ends, (sj.NoSlipWall(), sj.SlipWall())], "van_leer", source=lambda t, x, params: 3 * t + x[0] * x[1]
    )
    with pytest.raises(sj.ConfigurationError, match="balance of kinetic_energy: expected sides that nothing flows"):
        with_balances(bare)
    names = "concentration", "momentum_x", "momentum_y"
    model, scheme = with_balances(bare, names), BalancedScheme(INTEGRATORS["ssprk2"])
    params = bare.Params(jnp.asarray(0.01), jnp.asarray(0.0), jnp.asarray(0.02))
    x, y = domain.coordinates(bare.layout.offset, jnp.dtype("float64"))
    given = {"velocity": (jnp.ones((12, 8)), jnp.zeros((12, 8))), "concentration": (jnp.exp(-x) * (1 + 0 * y),)}

    @jax.jit
    def run(params):
        state = model.constrain(0.0, 0.0, model.state_from(given, params), params)
        return model.readings(sj.integrate(model, scheme, params, state, dt=0.01, steps=20), params)

    found = {name: float(value) for name, value in run(params).items()}
    came = [found[f"concentration_{part}"] for part in (*SIDES, "made")]
    assert came[0] > 0.1 and came[1] < -0.05 and came[4] > 0.05
    assert came[2] == came[3] == 0  # walls
    # A few roundings of sums of order one at each of 20 steps.
    assert found["concentration_now"] - found["concentration_at_start"] == pytest.approx(sum(came), abs=1e-14)
    assert all(abs(found[f"{name}_residual"]) < 1e-14 for name in names)
    # Through the centres of the first cells about u^2 = 1 comes in for a time of 0.2; the lower wall slows.
    assert found["momentum_x_in_x_lower"] == pytest.approx(0.2, rel=0.2) and found["momentum_x_in_y_lower"] < -1e-3
    assert abs(found["momentum_y_in_x_upper"]) > 1e-5


TUBE = {
    "model": "compressible",
    "grid": {"shape": [24]},
    "physics": {
        "viscosity": 0.01,
        "gravity": [0.5],
        "reconstruction": "mc",
        "variables": "primitive",
        "flux": "rusanov",
        "pressure_floor": 0.97,
    },
    "initial": {"density": "1", "velocity": ["0.3"], "pressure": "1 + 0.1*sin(6*x)", "scalars": ["x"]},
    "boundaries": {
        "x": {"lower": {"kind": "inflow", "density": 1.0, "velocity": ["0.5"], "pressure": 1.0}, "upper": "outflow"}
    },
    "outputs": [{"balance": ["mass", "momentum_x", "energy", "scalar_0"]}],
    "time": {"end": 0.05, "output_every": 0.025, "courant": 0.4},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}
OF_GAS = ["mass", "momentum_x", "energy", "scalar_0"]


@pytest.mark.slow
def test_a_gas_closes_with_gravity_and_floors(tmp_path):
    found = read(run(tmp_path / "tube", {}, base=TUBE))
    check(found, OF_GAS, ["in_x_lower", "in_x_upper"], 1e-14)
    last = found.isel(time=-1)
    # Gravity g = 0.5 pulls the mass for 0.05, but for half of the first and of the last cell, which the sides carry.
    # Mass itself is never made, and energy is where pressure is raised.
    mass = float(found.mass_now.mean()) * (1 - 1 / 24)  # it changes by a part in ten: exact to one in 50
    assert float(last.momentum_x_made) == pytest.approx(0.5 * 0.05 * mass, rel=0.02) and float(last.mass_made) == 0
    assert float(last.energy_made) > 1e-3


def test_a_run_without_is_compiled_as_it_was():
    programs = compiled_run(validate(changed(OPEN, {"outputs": None})))
    assert type(programs.model) is Transport and programs.integrator is INTEGRATORS["ssprk2"]
    with_balances = compiled_run(validate(changed(OPEN, {})))
    assert programs.structure() != with_balances.structure()  # no run takes the programs of the other


REFUSED = {
    "another quantity": ({"outputs": [{"balance": "mass"}]}, ["outputs[0].balance[0] = 'mass'", "concentration"]),
    "none": ({"outputs": [{"balance": []}]}, ["outputs[0].balance is missing", "concentration"]),
    "variables": ({"outputs": [{"balance": "concentration", "of": "concentration"}]}, ["outputs[0].of"]),
    "a family without": (
        {"model": "vorticity", "physics": {"viscosity": 0.1}, "outputs": [{"balance": "energy"}]},
        ["model=vorticity does not tell what passes its sides", "maxwell_te, maxwell, transport, burgers", "sph"],
    ),
    "steps between exchanges": (
        {"outputs": [{"balance": "concentration"}], "steps_per_exchange": 2, "time.dt": 0.001},
        ["outputs[0].balance", "write steps_per_exchange=0"],
    ),
    "a closure": (
        {"outputs": [{"balance": "concentration"}], "closure": {"concentration": "-concentration"}},
        ["outputs[0].balance", "no section closure"],
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_with_what_to_write(what):
    changes, told = REFUSED[what]
    message = refusal(changed(DYE, changes))
    assert all(part in message for part in told), message


RINGS = {
    "transport": {
        "grid": {"shape": [16, 8], "axisymmetric": True, "lower": [0.5, 0.0]},
        "coefficients.velocity": ["1/x", "0.3"],
    },
    "compressible": {
        "grid": {"shape": [16, 12], "axisymmetric": True},
        "mesh.x": 2,
        "mesh.y": 2,
        "physics": {"gravity": [0.0, -1.0], "reconstruction": "mc"},
        "initial": {
            "density": "1 + 0.2*x",
            "velocity": ["0.3*x*(1 - x)", "0.1"],
            "pressure": "1 + x*y",
            "scalars": ["x"],
        },
        "boundaries": {"x": {"lower": "slip", "upper": "outflow"}, "y": {"lower": "slip", "upper": "outflow"}},
        "outputs": [{"balance": ["mass", "momentum_x", "momentum_y", "energy", "scalar_0"]}],
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("model", RINGS)
def test_cells_that_are_rings_close(tmp_path, model):
    found = read(run(tmp_path / "run", RINGS[model], base=OPEN if model == "transport" else TUBE))
    quantities = [str(key).removesuffix("_residual") for key in found.data_vars if str(key).endswith("_residual")]
    # Roundings of sums of numbers of order ten, at some tens of steps.
    check(found, quantities, SIDES, 1e-13)
    assert found[f"{quantities[0]}_now"].units == ("m3" if model == "transport" else "kg")
    last = found.isel(time=-1)
    if model == "compressible":  # the axis has no area; the pressure on the rings is momentum made along r
        assert float(last.mass_in_x_lower) == 0 and float(last.momentum_x_made) > 0.1


STRETCHED = {"x": {"geometric": {"ratio": 1.05, "fine": "lower"}}, "y": {"tanh": {"strength": 1.2, "fine": "both"}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"time.integrator": "rk4", "physics.scheme": "weno5", "grid.shape": [24, 16], "mesh.x": 4, "mesh.y": 2},
        {"time.integrator": "williamson3", "grid.stretch": STRETCHED, "boundaries.y.upper": "no_slip"},
        {"time.integrator": "ars343", "physics.digits": 13},
        {
            "model": "burgers",
            "physics": {"viscosity": 0.01},
            "coefficients": {},
            "forcing": {},
            "grid.stretch": STRETCHED,
        },
        {
            "model": "passive_scalar",
            "physics": {"viscosity": 0.05, "diffusivity": 0.02, "scheme": "weno5"},
            "coefficients": {},
            "forcing": {"concentration": "sin(50*t)*x", "velocity": ["y", "0"]},
            "time.dt": 0.0015,
            "grid": {"shape": [24, 16], "stretch": STRETCHED},
            "initial.velocity": ["sin(pi*y)", "0"],
            "boundaries": {"x": "slip", "y": "no_slip"},
            "mesh.x": 4,
            "mesh.y": 2,
        },
        {
            "model": "advection_diffusion",
            "physics": {"diffusivity": 0.02, "velocity": [1.0, 0.5]},
            "coefficients": {},
            "forcing": {},
        },
    ],
)
def test_other_schemes_equations_and_grids_close(tmp_path, changes):
    # An implicit solve is converged to 1e-13 of sums of order one, at each of three stages of twelve steps.
    tolerance = 1e-12 if "physics.digits" in changes else 1e-14
    check(read(run(tmp_path / "run", changes)), ["concentration"], SIDES, tolerance)


@pytest.mark.slow
def test_a_gas_in_a_stretched_box_with_moving_walls_closes(tmp_path):
    flow = {
        "grid": {"shape": [12, 12], "stretch": STRETCHED},
        "physics": {"viscosity": 0.01, "conductivity": 0.01, "gravity": [0.5, -1.0]},
        "initial": {
            "density": "1",
            "velocity": ["0.3 + 0.2*y", "0.1*sin(3*x)"],
            "pressure": "1 + 0.1*x",
            "scalars": ["x"],
        },
        "boundaries.x.lower.velocity": ["0.5 + 0.2*sin(20*t)", "0"],
        "boundaries.y": {"lower": {"kind": "no_slip", "velocity": ["0.3", "0"], "temperature": 1.2}, "upper": "slip"},
        "outputs": [{"balance": [*OF_GAS, "momentum_y"]}],
        "mesh.x": 2,
        "mesh.y": 2,
        "time.end": 0.025,
    }
    check(read(run(tmp_path / "box", flow, base=TUBE)), [*OF_GAS, "momentum_y"], SIDES, 1e-13)


@pytest.mark.slow
def test_a_killed_run_has_the_balances_of_one_that_was_not_and_a_table(tmp_path):
    path = tmp_path / "conf" / "experiment" / "box.yaml"
    path.parent.mkdir(parents=True)
    changes = {
        "time.end": 6.0,
        "checkpoint.every_frames": 10,
        "output.root": str(tmp_path),
        "output.report": True,
        "outputs": [{"balance": "concentration"}],
    }
    path.write_text("# @package _global_\n# A box\n" + yaml.safe_dump(changed(OPEN, changes)))
    told = ["--config-dir", str(tmp_path / "conf"), "experiment=box"]
    outputs(start_run([*told, f"output.folder={tmp_path / 'long'}"], count=1))
    folder = tmp_path / "killed"
    (process,) = start_run([*told, f"output.folder={folder}"], count=1)
    kill_after_a_checkpoint(process, folder)
    outputs(start_run([f"resume={folder}"], count=1))
    same(read(folder), read(tmp_path / "long"))
    page = (folder / "report.html").read_text()
    assert "<h2>Balances</h2>" in page and "<td>concentration [m2]</td>" in page and "<th>in x lower</th>" in page
