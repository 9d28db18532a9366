"""Expressions: fields made of those of a run by formulas, wherever fields are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from configurations import changed

import simjax as sj
from simjax.config import validate
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid, Lines
from simjax.models.field_expressions import field_of_formula
from simjax.schema.field_formula import FieldFormula

WARM = {
    "model": "boussinesq",
    "physics": {"viscosity": 3e-3, "diffusivity": 3e-3, "expansion": 1.0, "gravity": [0, -1]},
    "grid": {"shape": [16, 8], "lower": [0, 0], "upper": [2, 1]},
    "boundaries": {
        "y": {"lower": {"kind": "no_slip", "temperature": 0.5}, "upper": {"kind": "no_slip", "temperature": -0.5}}
    },
    "initial": {"velocity": [0, 0], "temperature": "0.5 - y + 0.1*cos(3*pi*x)*sin(pi*y)"},
    "time": {"end": 0.2, "output_every": 0.1, "dt": 0.02},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}
FLUX = "velocity_y*temperature - diffusivity*d(temperature, y)"
# Of a sum of four terms of order one.
ROUNDING = 1e-14


def run(folder, changes, base=WARM):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    sj.Simulation(validate(changed(base, {**place, **changes}))).run()
    return sj.open_run(folder).load()


def refused(changes, base=WARM):
    with pytest.raises(ConfigurationError) as told:
        validate(changed(base, changes))
    return str(told.value)


# ---------------------------------------------------------------------- order


def stretched(cells):
    ends = np.linspace(0, 1, cells + 1)
    return Lines(ends + 0.1 * np.sin(2 * np.pi * ends) / (2 * np.pi))


@pytest.mark.parametrize("periodic", [True, False], ids=["periodic", "sides"])
@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
def test_derivatives_are_of_second_order(periodic, uneven):
    """Of sines in a periodic box, and of half as long ones between sides, where a kink would be of first order."""
    waves = 2 * np.pi * (1.0 if periodic else 0.4)

    def error(cells):
        grid = Grid((cells, 8), stretch=[stretched(cells), None] if uneven else ())
        x = grid.coordinates(0, 0.5)[:, None] + np.zeros((1, 8))
        field = jnp.asarray(np.sin(waves * x + 0.3))
        formula = FieldFormula("d(f*f, x) + d(dx(f), x)")
        found = field_of_formula(formula, Domain(grid), (periodic, True), lambda name: field, {}, {}, 0.0)
        phase = waves * x + 0.3
        return np.abs(found - (waves * np.sin(2 * phase) - waves**2 * np.sin(phase))).max(), np.abs(
            field_of_formula(FieldFormula("d(f, x)"), Domain(grid), (periodic, True), lambda name: field, {}, {}, 0.0)
            - waves * np.cos(phase)
        ).max()

    (twice, once), (finer_twice, finer_once) = error(64), error(128)
    assert np.log2(once / finer_once) > 1.9
    # A ghost of a parabola would leave a second derivative of first order beside a side.
    assert np.log2(twice / finer_twice) > 1.9


def test_vectors_obey_their_identities():
    grid = Grid((12, 10, 8))
    rng = np.random.default_rng(0)
    fields = {name: jnp.asarray(rng.normal(size=grid.shape)) for name in ("f", "v_x", "v_y", "v_z")}
    vectors = {"v": ("v_x", "v_y", "v_z")}

    def of(text):
        return np.asarray(
            field_of_formula(FieldFormula(text), Domain(grid), (True,) * 3, fields.__getitem__, vectors, {}, 0.0)
        )

    assert np.abs(of("div(curl(v))")).max() < 1e-10 * np.abs(of("part(curl(v), x)")).max()
    assert np.abs(of("norm(curl(grad(f)))")).max() < 1e-10 * np.abs(of("norm(grad(f))")).max() * 12
    np.testing.assert_allclose(of("norm(v)**2"), of("dot(v, v)"), atol=1e-13)
    np.testing.assert_allclose(of("part(curl(v), z)"), of("d(v_y, x) - d(v_x, y)"), atol=0)
    np.testing.assert_allclose(of("mean(f - mean(f, x, z), x, z)"), 0, atol=ROUNDING)


def test_a_mean_is_weighed_with_widths():
    grid = Grid((64, 8), stretch=[stretched(64), None])
    square = jnp.asarray(grid.coordinates(0, 0.5)[:, None] ** 2 + np.zeros((1, 8)))
    found = field_of_formula(FieldFormula("mean(f, x)"), Domain(grid), (False, True), lambda name: square, {}, {}, 0.0)
    # The error of the midpoint rule, a twelfth of the square of a width. The plain mean is 0.005 off.
    np.testing.assert_allclose(found, 1 / 3, atol=1e-4)
    assert abs(float(jnp.mean(square)) - 1 / 3) > 0.004


# ---------------------------------------------------------------------- in a run


def test_formulas_stand_wherever_fields_are_named(tmp_path):
    outputs = [
        {"box_mean": {"lower": [0, 0], "upper": [2, 1]}, "of": {"flux": FLUX}, "name": "whole"},
        {"probe": {"points": [[0.5, 0.5]]}, "of": ["flux", "plume"], "every": "step", "name": "point"},
    ]
    changes = {
        "expressions": {"plume": "temperature - mean(temperature, x)", "twice": "plume + plume"},
        "outputs": outputs,
        "statistics": [{"of": ["flux"], "kinds": ["mean"], "over": ["x"], "name": "profile"}],
        "output.fields": ["temperature", "twice", {"turning": "curl(velocity)"}, "velocity", "flux"],
    }
    ds = run(tmp_path / "run", changes)
    assert [ds[name].attrs["units"] for name in ("flux", "twice", "turning")] == ["m s-1 K", "K", "s-1"]
    np.testing.assert_allclose(ds.twice, 2 * (ds.temperature - ds.temperature.mean("x")), atol=ROUNDING)
    whole, point = (xr.load_dataset(tmp_path / "run" / "outputs" / name / "samples.h5") for name in ("whole", "point"))
    np.testing.assert_allclose(np.ravel(whole.flux), ds.flux.mean(("x", "y")), atol=ROUNDING)
    assert point.sizes["time"] == 11 and point.flux.attrs["units"] == "m s-1 K"
    profile = xr.load_dataset(tmp_path / "run" / "statistics" / "profile" / "samples.h5")
    assert np.isfinite(profile.flux_mean).all() and profile.flux_mean.shape[-1] == 8
    config = validate(changed(WARM, changes))
    assert [*config.expressions] == ["plume", "twice", "flux", "turning"]
    assert config.write()["expressions"]["flux"] == FLUX and validate(config.write()) == config


@pytest.mark.parametrize(
    "mesh", [{"x": 2, "y": 4}, pytest.param({"x": 4, "y": 2}, marks=pytest.mark.slow)], ids=["2x4", "4x2"]
)
def test_devices_and_members_have_the_same(tmp_path, mesh):
    shape = [16, 16]  # four cells of a block see its side
    changes = {
        "grid.shape": shape,
        "output.fields": [{"flux": FLUX, "plume": "temperature - mean(temperature, x, y)", "turn": "curl(velocity)"}],
        "ensemble.size": 2,
        "ensemble.vary.physics.diffusivity": {"values": [3e-3, 6e-3]},
    }
    alone = run(tmp_path / "one", changes)
    cut = run(tmp_path / "cut", {**changes, "mesh": mesh})
    for name in ("flux", "plume", "turn"):
        # Pressure solves whose sums have other orders.
        np.testing.assert_allclose(cut[name], alone[name], atol=1e-12)
    # Each member has its own number: at the start the flux is that of conduction.
    start = alone.flux.isel(time=0).mean(("x", "y")).values
    assert start[0] > 1e-3
    np.testing.assert_allclose(start[1] / start[0], 2.0, rtol=1e-12)


def test_a_number_in_a_formula_has_its_derivative():
    config = changed(
        WARM,
        {
            "outputs": [{"box_mean": {"lower": [0, 0], "upper": [2, 1]}, "of": {"scaled": "gain*temperature**2"}}],
            "parameters": {"gain": 2.0},
            "expressions": {"scaled": {"formula": "gain*temperature**2", "units": "K2"}},
        },
    )
    config["outputs"][0]["of"] = ["scaled"]
    function = sj.Simulation(validate(config)).differentiable(variables=["box_mean"])
    loss = lambda gain: jnp.sum(function({"gain": gain}).observed["box_mean"]["scaled"][-1])  # noqa: E731
    value, slope = jax.value_and_grad(loss)(2.0)
    # Proportional to the number; of a temperature between -0.6 and 0.6 over an area of 2, not zero.
    assert float(value) > 0.1
    np.testing.assert_allclose(slope, value / 2.0, rtol=1e-12)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"expressions": {"f": "velocity*2"}}, "expected a number in *, and got a vector; write norm(...)"),
        ({"expressions": {"f": "d(temperature, z)"}}, "d is along z, and the run has the axes x, y"),
        ({"expressions": {"f": "d(temperature)"}}, "d takes an axis after its first argument, such as d(f, x)"),
        ({"expressions": {"f": "temprature + 1"}}, "unknown name 'temprature'; did you mean 'temperature'?"),
        ({"expressions": {"f": "curl(velocity) + velocity"}}, "expected a number in +, and got a vector"),
        ({"expressions": {"f": "velocity"}}, "the formula gives a vector"),
        ({"expressions": {"temperature": "1"}}, "'temperature' already names a variable"),
        ({"expressions": {"d": "temperature"}}, "none of the formulas' own"),
        (
            {"expressions": {"f": {"formule": "1"}}},
            "expressions.f.formule: unknown key; did you mean 'expressions.f.form",
        ),
        (
            {"expressions": {"f": "pressure"}, "output.fields": [{"f": "temperature"}]},
            "expected one formula for this name, and got 'pressure' and 'temperature'",
        ),
    ],
)
def test_what_cannot_be_is_told(changes, told):
    assert told in refused(changes)


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        ("temperature + pressure", "terms of a sum have unlike units, K and "),
        ("temperature - x", "terms of a sum have unlike units, K and m"),
        ("gain*temperature", "the units of gain are not known; write {formula: ..., units: ...}"),
        ("minimum(temperature, velocity_x)", "terms of minimum have unlike units, K and m s-1"),
    ],
)
def test_units_that_do_not_fit_are_told(tmp_path, formula, told):
    changes = {"parameters": {"gain": 1.0}, "output.fields": [{"f": formula}]}
    with pytest.raises(ConfigurationError, match="expressions.f: ") as error:
        run(tmp_path / "run", changes)
    assert told in str(error.value) and not (tmp_path / "run").exists()


def test_particles_have_no_fields():
    assert "expected none for a model of particles" in refused(
        {"expressions": {"f": "1"}}, {**sj.load("lennard_jones").config.write(), "outputs": []}
    )
