"""Fluxes through sides, planes and boxes: the scheme's own, and the numbers that are made of them."""

import jax
import numpy as np
import pytest
from configurations import changed

import simjax as sj
from simjax.config import validate
from simjax.errors import ConfigurationError

QUIET = {"report": False, "animation": False}
DT = 0.004
HEATED = {
    "model": "boussinesq",
    "physics": {"viscosity": 0.05, "diffusivity": 0.02, "expansion": 1.0, "gravity": [0, -1]},
    "grid": {"shape": [16, 8], "lower": [0, 0], "upper": [2, 1]},
    "boundaries": {
        "x": {"lower": {"kind": "no_slip", "temperature": 1.0}, "upper": {"kind": "no_slip", "temperature": "0.5*y"}},
        "y": "no_slip",
    },
    "initial": {"velocity": ["sin(pi*x/2)**2*sin(2*pi*y)", "-sin(pi*x)*sin(pi*y)**2"], "temperature": "cos(x + y)"},
    "time": {"end": 3 * DT, "output_every": DT, "dt": DT, "integrator": "euler"},
    "precision": "float64",
    "output": QUIET,
}
GAS = {
    "model": "compressible",
    "physics": {"gamma": 1.4, "viscosity": 0.02, "conductivity": 0.03, "reconstruction": "mc"},
    "grid": {"shape": [16, 8], "lower": [0, 0], "upper": [2, 1]},
    "boundaries": {
        "x": {"lower": {"kind": "inflow", "density": 1, "velocity": [0.3, 0], "pressure": 1}, "upper": "outflow"},
        "y": {"lower": {"kind": "no_slip", "temperature": 1.5}, "upper": "no_slip"},
    },
    "initial": {"density": "1 + 0.2*sin(pi*x)*cos(pi*y)", "velocity": [0.3, 0], "pressure": "1 + 0.2*cos(pi*x)"},
    "time": {"end": 3 * DT, "output_every": DT, "dt": DT, "integrator": "euler"},
    "precision": "float64",
    "output": QUIET,
}
DYE = {
    "model": "advection_diffusion",
    "physics": {"diffusivity": 0.05, "velocity": [0.4, 0.3]},
    "grid": {"shape": [16, 8], "lower": [0, 0], "upper": [2, 1]},
    "boundaries": {"x": {"lower": {"kind": "inflow", "value": 1.0}, "upper": "outflow"}},
    "initial": {"concentration": "1 + sin(pi*x)*cos(2*pi*y)"},
    "time": {"end": 3 * DT, "output_every": DT, "dt": DT, "integrator": "euler"},
    "precision": "float64",
    "output": QUIET,
}
STRETCHED = {"grid.stretch": {"x": {"geometric": {"ratio": 1.1, "fine": "lower"}}, "y": {"tanh": {"strength": 1.2}}}}
# Amounts of order one, of which differences are taken over steps of 4e-3: some hundred roundings.
ROUNDING = 1e-12


def run(folder, outputs, base=HEATED, **changes):
    place = {"output.root": str(folder.parent), "output.folder": str(folder), "outputs": outputs}
    sj.Simulation(validate(changed(base, {**place, **changes}))).run()
    return folder


def read(folder, name="flux"):
    with sj.open_output(folder, name) as found:
        return found.load()


def refused(outputs, base=HEATED, **changes):
    with pytest.raises(ConfigurationError) as told:
        sj.Simulation(validate(changed(base, {"outputs": outputs, **changes}))).run()
    return str(told.value)


# ---------------------------------------------------------------------- the scheme's own


def through_sides(tmp_path, base, quantities, sides, **changes):
    """Fluxes through sides, and how fast their accounts grow in steps by Euler's method, which takes those at the
    beginning of the step."""
    outputs = [{"flux": {"through": side}, "of": [*of], "every": "step", "name": side} for side, of in sides.items()]
    folder = run(tmp_path / "run", [*outputs, {"balance": quantities, "every": "step"}], base, **changes)
    balance = read(folder, "balance")
    for side, of in sides.items():
        flux = read(folder, side)
        for name in of:
            growth = np.diff(balance[f"{name}_in_{side}"].values) / DT
            yield name, side, flux[f"{name}_flux"].values[:-1], growth


SIDES_OF = {
    "heat": (HEATED, {"x_lower": ("temperature", "momentum_y"), "y_upper": ("momentum_x",)}, {}),
    "stretched heat": (HEATED, {"x_upper": ("temperature", "momentum_y"), "y_lower": ("momentum_x",)}, STRETCHED),
    "gas": (GAS, {"x_lower": ("mass", "energy"), "x_upper": ("momentum_x",), "y_lower": ("energy", "momentum_x")}, {}),
    "dye": (DYE, {"x_lower": ("concentration",), "x_upper": ("concentration",)}, {}),
}


@pytest.mark.parametrize("kind", SIDES_OF)
@pytest.mark.slow
def test_a_flux_through_a_side_is_what_its_account_gains(tmp_path, kind):
    base, sides, changes = SIDES_OF[kind]
    quantities = sorted({name for of in sides.values() for name in of})
    for name, side, flux, growth in through_sides(tmp_path, base, quantities, sides, **changes):
        assert np.abs(flux).max() > 1e-3, (name, side)
        np.testing.assert_allclose(flux, growth, rtol=0, atol=ROUNDING * max(1, np.abs(flux).max()), err_msg=name)


BOX = {"lower": [0.5, 0.25], "upper": [1.5, 1.0]}


def inside(data, name):
    """Amounts in `BOX` of a field at centres, by time."""
    part = data[name].sel(x=slice(0.5, 1.5), y=slice(0.25, 1.0))
    return part.sum(["x", "y"]).values / 64


OUT_OF = {
    "heat": (HEATED, "temperature", {}),
    "heat by van Leer": (HEATED, "temperature", {"physics.scheme": "van_leer"}),
    "heat with eddies": (HEATED, "temperature", {"physics.turbulence": "smagorinsky"}),
    "gas by WENO5": (GAS, "mass", {"physics.reconstruction": "weno5"}),
    "gas": (GAS, "mass", {}),
    "dye": (DYE, "concentration", {}),
    "dye upwind": (DYE, "concentration", {"physics.scheme": "upwind"}),
}


@pytest.mark.parametrize("kind", OUT_OF)
@pytest.mark.slow
def test_what_leaves_a_box_is_what_is_lost_in_it(tmp_path, kind):
    base, name, changes = OUT_OF[kind]
    field = {"mass": "density"}.get(name, name)
    folder = run(tmp_path / "run", [{"flux": {"through": BOX}, "of": name}], base, **changes)
    data, flux = sj.open_run(folder).load(), read(folder)[f"{name}_flux"].values
    lost = -np.diff(inside(data, field)) / DT
    assert np.abs(flux).max() > 1e-3
    np.testing.assert_allclose(flux[:-1], lost, rtol=0, atol=ROUNDING)


def test_parts_of_a_plane_add_up_and_a_map_is_their_density(tmp_path):
    plane = {"x": 0.5}
    outputs = [
        {"flux": {"through": plane}, "of": ["temperature", "volume"], "name": "whole"},
        {"flux": {"through": plane, "part": {"y": [0, 0.3]}}, "of": "temperature", "name": "low"},
        {"flux": {"through": plane, "part": {"y": [0.3, 1]}}, "of": "temperature", "name": "high"},
        {"flux": {"through": plane, "give": "mean", "part": {"y": [0.3, 1]}}, "of": "temperature", "name": "mean"},
        {"flux": {"through": plane, "give": "map"}, "of": ["temperature", "momentum_y"], "name": "map"},
        {"surface_integral": plane, "of": "velocity", "name": "surface"},
        {"flux": {"through": "x_upper", "give": "map"}, "of": "temperature", "name": "beyond"},
    ]
    folder = run(tmp_path / "run", outputs)
    whole, low, high = (read(folder, name).temperature_flux.values for name in ("whole", "low", "high"))
    np.testing.assert_allclose(low + high, whole, rtol=1e-13)
    assert min(np.abs(low).min(), np.abs(high).min()) > 1e-3
    np.testing.assert_allclose(read(folder, "mean").temperature_flux.values, high / 0.7, rtol=1e-13)
    found = read(folder, "map")
    assert found.temperature_flux.dims == ("time", "y") and found.momentum_y_flux.dims == ("time", "y_face")
    assert found.x.values == 0.5 and found.temperature_flux.attrs["units"] == "K m s-1"
    np.testing.assert_allclose(found.temperature_flux.sum("y").values / 8, whole, rtol=1e-13)
    # Through a plane a volume passes along the axis, whichever instrument says so.
    volume = read(folder, "whole").volume_flux.values
    np.testing.assert_allclose(volume, read(folder, "surface").velocity_flux.values, atol=1e-15)
    # Through the upper side heat enters against the axis: k dT/dx there, half a cell from the side to the first centre.
    data = sj.open_run(folder).load()
    slope = (0.5 * data.y.values - data.temperature.isel(x=-1).values) / (2 / 16 / 2)
    assert np.abs(slope).max() > 0.1
    np.testing.assert_allclose(read(folder, "beyond").temperature_flux.values, 0.02 * slope, rtol=1e-12)


# ---------------------------------------------------------------------- friction


CHANNEL = {
    "model": "incompressible",
    "physics": {"viscosity": 0.02},
    "grid": {"shape": [8, 8, 4], "lower": [0, 0, 0], "upper": [2, 1, 1]},
    "boundaries": {"y": "no_slip"},
    "initial": {"velocity": ["4*y*(1 - y) + 0.3*sin(pi*x)*sin(2*pi*z)*sin(pi*y)", "0", "y*(1 - y)*(0.5 + cos(pi*x))"]},
    "forcing": {"velocity": ["0.3", "0", "0"]},
    "time": {"end": 3 * DT, "output_every": DT, "dt": DT, "integrator": "euler"},
    "precision": "float64",
    "output": QUIET,
}
FRICTION_OF = {
    "viscous": {},
    "smagorinsky": {"physics.turbulence": "smagorinsky"},
    "vreman": {"physics.turbulence": "vreman", "grid.stretch": {"y": {"tanh": {"strength": 1.2}}}},
    "dynamic": {"physics.turbulence": "dynamic_smagorinsky"},
    "modelled": {"physics.turbulence": "smagorinsky", "boundaries.y": "wall_model"},
    "one modelled": {"boundaries.y": {"lower": "wall_model", "upper": "no_slip"}, "physics.viscosity": 1e-4},
}


@pytest.mark.parametrize("kind", FRICTION_OF)
@pytest.mark.slow
def test_friction_of_walls_is_what_the_flow_loses_of_momentum(tmp_path, kind):
    sides = ("y_lower", "y_upper")
    outputs = [
        {"flux": {"through": side}, "of": ["momentum_x", "momentum_z"], "every": "step", "name": side} for side in sides
    ]
    mean = {"box_mean": {"lower": [0, 0, 0], "upper": [2, 1, 1]}, "of": "velocity", "every": "step", "name": "mean"}
    folder = run(tmp_path / "run", [*outputs, mean], CHANNEL, **FRICTION_OF[kind])
    entering = sum(read(folder, side) for side in sides)
    found, volume = read(folder, "mean"), 2.0
    for axis, force in (("x", 0.3), ("z", 0.0)):
        gained = np.diff(found[f"velocity_{axis}"].values) * volume / DT
        flux = entering[f"momentum_{axis}_flux"].values[:-1]
        assert np.abs(flux).max() > 1e-4, axis
        np.testing.assert_allclose(flux + force * volume, gained, rtol=0, atol=ROUNDING, err_msg=axis)


def test_a_laminar_channel_has_the_friction_that_drives_it(tmp_path):
    """At rest between force and friction, tau = f H / 2 at each wall to rounding of the steady profile."""
    steady = {
        "grid": {"shape": [4, 8], "lower": [0, 0], "upper": [1, 1]},
        # The discrete parabola: that of the centres, and h^2/4 more at all of them.
        "initial.velocity": ["(0.3/(2*0.02))*(y*(1 - y) + 0.25/64)", "0"],
        "forcing.velocity": ["0.3", "0"],
    }
    outputs = [{"wall": {"side": side, "speed": 2.0}, "name": side} for side in ("y_lower", "y_upper")]
    folder = run(tmp_path / "run", outputs, CHANNEL, **steady)
    for side in ("y_lower", "y_upper"):
        found = read(folder, side)
        speed = np.sqrt(0.3 / 2)
        np.testing.assert_allclose(found.friction_velocity.values, speed, rtol=1e-12)
        np.testing.assert_allclose(found.y_plus.values, speed / 16 / 0.02, rtol=1e-12)
        np.testing.assert_allclose(found.y_plus_largest.values, speed / 16 / 0.02, rtol=1e-12)
        np.testing.assert_allclose(found.friction_coefficient.values, 2 * 0.15 / 4, rtol=1e-12)
        assert found.friction_velocity.attrs["units"] == "m s-1"
    told = (
        f"y+ of the first cells at the start: {speed / 16 / 0.02:.3g} at y_lower, {speed / 16 / 0.02:.3g} at y_upper."
    )
    assert told in (folder / "run.log").read_text()


@pytest.mark.slow
def test_a_gas_has_friction_over_its_own_density(tmp_path):
    """Of a shear u = s y between walls that stand, mu s at the first instant by the cell beside the wall."""
    sheared = {
        "initial": {"density": "2", "velocity": ["0.4*y", "0"], "pressure": "1"},
        "boundaries": {"y": {"lower": "no_slip", "upper": "slip"}},
        "physics": {"gamma": 1.4, "viscosity": 0.02},
    }
    folder = run(tmp_path / "run", [{"wall": {"side": "y_lower"}}], GAS, **sheared)
    found = read(folder, "wall").isel(time=0)
    speed = np.sqrt(0.02 * 0.4 / 2)
    np.testing.assert_allclose(found.friction_velocity.values, speed, rtol=1e-10)
    np.testing.assert_allclose(found.y_plus.values, speed / 16 / 0.01, rtol=1e-10)


# ---------------------------------------------------------------------- numbers


CAVITY = {
    "physics": {"viscosity": 0.71, "diffusivity": 1.0, "expansion": 710.0, "gravity": [0, -1]},
    "grid.lower": [0, 0],
    "grid.upper": [1, 1],
    "boundaries": {
        "x": {"lower": {"kind": "no_slip", "temperature": 0.5}, "upper": {"kind": "no_slip", "temperature": -0.5}},
        "y": "no_slip",
    },
    "initial": {"velocity": ["0", "0"], "temperature": "0.5 - x"},
    "time": {"end": 0.6, "output_every": 0.6, "courant": 0.8},
}


@pytest.mark.slow
def test_nusselt_number_of_a_heated_cavity(tmp_path):
    """de Vahl Davis (1983), Ra = 1e3: 1.118 on the hot wall, and the same through the middle and the cold wall."""
    places = {"hot": ("x_lower", 1.0), "middle": ({"x": 0.5}, 1.0), "cold": ("x_upper", -1.0)}
    outputs = [
        {"nusselt": {"through": through, "difference": difference, "length": 1.0}, "name": name}
        for name, (through, difference) in places.items()
    ]
    local = {"flux": {"through": "x_lower", "give": "map"}, "of": "temperature", "name": "local"}
    found = {}
    for cells in (16, 32):
        folder = run(tmp_path / f"{cells}", [*outputs, local], HEATED, **CAVITY, **{"grid.shape": [cells, cells]})
        hot, middle, cold = (read(folder, name).nusselt.values[-1] for name in places)
        np.testing.assert_allclose([middle, cold], hot, rtol=2e-5)  # steady to this
        along = read(folder, "local").temperature_flux.isel(time=-1)
        assert abs(float(along.idxmax("y")) - 0.092) < 1 / cells
        found[cells] = hot, float(along.max())
    # Without the error of second order there are left the reference's digits, and a share of that error.
    mean, largest = ((4 * fine - coarse) / 3 for fine, coarse in zip(found[32], found[16], strict=True))
    assert abs(mean - 1.118) < 1e-3 and abs(found[32][0] - mean) > 1e-3
    assert abs(largest - 1.505) < 2e-3


@pytest.mark.slow
def test_coefficients_of_a_body_are_those_of_its_force(tmp_path):
    flow = {
        "model": "incompressible",
        "physics": {"viscosity": 0.02},
        "grid.upper": [2, 1],
        "boundaries": {"y": "slip"},
        "coefficients": {"solid": {"ball": {"center": [0.8, 0.45], "radius": 0.2}}},
        "initial": {"velocity": ["1", "0"]},
    }
    given = {"speed": 1.5, "size": 0.4, "density": 1.2}
    outputs = [
        {"force_coefficients": given, "name": "along"},
        {"force_coefficients": {**given, "stream": [3, 4]}, "name": "turned"},
    ]
    folder = run(tmp_path / "run", outputs, HEATED, **flow)
    told = sj.open_run(folder).load()
    x, y = (told[f"force_{axis}"].values * 2 / (1.2 * 1.5**2 * 0.4) for axis in "xy")
    along, turned = read(folder, "along"), read(folder, "turned")
    np.testing.assert_allclose(along.drag_coefficient.values, x, rtol=1e-12)
    np.testing.assert_allclose(along.lift_coefficient.values, y, rtol=1e-12)
    np.testing.assert_allclose(turned.drag_coefficient.values, 0.6 * x + 0.8 * y, rtol=1e-12)
    np.testing.assert_allclose(turned.lift_coefficient.values, -0.8 * x + 0.6 * y, rtol=1e-12)


# ---------------------------------------------------------------------- devices and derivatives


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [[2, 4], [4, 2]], ids=["2x4", "4x2"])
@pytest.mark.parametrize("base", [HEATED, GAS], ids=["heat", "gas"])
def test_fluxes_are_those_of_one_device_on_any_mesh(tmp_path, base, mesh):
    name = "temperature" if base is HEATED else "energy"
    outputs = [
        {"flux": {"through": {"x": 1.0}}, "of": [name, "momentum_y"], "name": "plane"},  # between two devices
        {"flux": {"through": {"y": 0.5}, "give": "map"}, "of": [name, "momentum_x"], "name": "map"},
        {"flux": {"through": {"lower": [0.25, 0], "upper": [1.5, 0.5]}}, "of": name, "name": "box"},
        {"flux": {"through": "y_upper", "part": {"x": [0.3, 1.1]}, "give": "mean"}, "of": "momentum_x", "name": "part"},
        {"wall": {"side": "y_lower"}, "name": "wall"},
    ]
    wide = {"grid.shape": [32, 16]}
    alone = run(tmp_path / "one", outputs, base, **wide)
    cut = run(tmp_path / "cut", outputs, base, **wide, **{"mesh.x": mesh[0], "mesh.y": mesh[1]})
    for one in outputs:
        first, second = read(alone, one["name"]), read(cut, one["name"])
        for variable in first.data_vars:
            size = np.abs(first[variable].values).max()
            assert size > 0, variable
            # Sums over some hundred cells in another order.
            np.testing.assert_allclose(second[variable].values, first[variable].values, rtol=0, atol=1e-12 * size)


@pytest.mark.slow
def test_fluxes_have_derivatives():
    outputs = [{"nusselt": {"through": "x_lower", "difference": 1, "length": 1}}, {"wall": {"side": "y_lower"}}]
    config = validate(changed(HEATED, {"outputs": outputs}))
    function = sj.Simulation(config).differentiable(variables=["nusselt", "wall"])

    def at(viscosity):
        found = function({"viscosity": viscosity}).observed
        return found["nusselt"]["nusselt"][-1] + found["wall"]["friction_velocity"][-1]

    slope = jax.grad(at)(0.05)
    # Central differences: their own error and rounding are some 1e-9.
    assert abs(slope - (at(0.05 + 1e-5) - at(0.05 - 1e-5)) / 2e-5) < 1e-6 * abs(slope)
    assert abs(slope) > 1e-3


@pytest.mark.slow
def test_a_wall_at_rest_has_a_derivative():
    """The root of no friction has none by itself; here it is zero, and not NaN, whatever the loss is made of."""
    resting = {
        "initial": {"velocity": ["0", "0"], "temperature": "0"},
        "boundaries": {"y": "no_slip"},
    }
    config = validate(changed(HEATED, {"outputs": [{"wall": {"side": "y_lower"}}], **resting}))
    function = sj.Simulation(config).differentiable(variables=["wall"])

    def loss(viscosity):
        found = function({"viscosity": viscosity}).observed["wall"]
        return viscosity**2 + found["friction_velocity"][-1] + found["y_plus_largest"][-1]

    np.testing.assert_allclose(jax.grad(loss)(0.05), 0.1, rtol=1e-6)


# ---------------------------------------------------------------------- what is refused


def test_what_has_no_flux_is_refused_in_a_sentence():
    def flux(through, of="temperature", **more):
        return [{"flux": {"through": through, **more}, "of": of}]

    assert "expected a side, and x is periodic" in refused(flux("x_lower"), **{"boundaries": {"y": "no_slip"}})
    assert "write 0.5 or 0.625" in refused(flux({"x": 0.55}))
    assert "momentum along the plane, got momentum_x across it" in refused(flux({"x": 0.5}, "momentum_x"))
    assert "one of" in refused(flux("x_lower", "salt"))
    assert "expected ends along the plane, not along x" in refused(flux("x_lower", part={"x": [0, 1]}))
    assert "two ends, the lower one first" in refused(flux("x_lower", part={"y": [0.5, 0.2]}))
    assert "of what leaves a box" in refused(flux(BOX, give="mean"))
    assert "through is missing" in refused([{"flux": {}, "of": "temperature"}])
    assert "does not tell what passes" in refused(
        [{"flux": {"through": "x_lower"}, "of": "u"}],
        {
            "model": "allen_cahn",
            "grid": {"shape": [8, 8]},
            "physics": {"epsilon": 0.1},
            "initial": {"u": "x"},
            "time": HEATED["time"],
        },
    )
    ring = {"grid.axisymmetric": True, "boundaries.x": {"lower": "slip", "upper": "no_slip"}}
    ring |= {"physics.gravity": [0, -1], "boundaries.y": "no_slip"}
    assert "no part of its ring" in refused(flux("y_lower", part={"x": [0, 1]}), **ring)
    wall = [{"wall": {"side": "y_lower"}}]
    assert "expected physics.viscosity" in refused(wall, GAS, physics={"gamma": 1.4})
    number = {"through": "y_lower", "difference": 0, "length": 1}
    assert "not zero" in refused([{"nusselt": number}])
    number = {"through": "y_lower", "difference": 1, "length": 1}
    assert "a model with a coefficient of conduction" in refused([{"nusselt": number}], GAS, physics={"gamma": 1.4})
    assert "write coefficients.solid" in refused([{"force_coefficients": {"speed": 1, "size": 1}}])
