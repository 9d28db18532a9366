"""Units and meanings: declared once for configurations and once for models, and the same in both and in the files."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.config import validate
from simjax.core.domain import Domain
from simjax.driver.output.frame_files import describe_numbers
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.driver.programs.used_names import used_names
from simjax.driver.start.build import describe_model, plan_frames
from simjax.grid import Grid
from simjax.models.faces import output_layouts
from simjax.models.registry import MODELS
from simjax.schema.kinds import ListOf
from simjax.schema.numbers import number_attributes
from simjax.schema.units import squared

NAMES = sorted(name for name, schema in MODELS.items() if not schema.of_particles)
# Grids on which every place of a component is another one, where the model has several.
AXES = {name: max(MODELS[name].least_axes, min(2, MODELS[name].most_axes)) for name in NAMES}


def smallest(name):
    """A configuration of a model with nothing but what it needs."""
    schema, ndim = MODELS[name], AXES[name]

    def components(field):
        count = len(field.components(ndim, 1))
        return 1.0 if count == 1 else [1.0] * count

    needed = [f for f in dataclasses.fields(schema.physics) if f.default is dataclasses.MISSING]
    physics = {f.name: [0.1] * ndim if isinstance(f.metadata["kind"], ListOf) else 0.1 for f in needed}
    kinds = {f.name: f.metadata["kind"] for f in dataclasses.fields(schema.physics)}
    physics |= {key: [0.1] for key, kind in kinds.items() if isinstance(kind, ListOf) and kind.numbered}
    if name == "kuramoto_sivashinsky":
        physics["form"] = "height"
    time = {"end": 0.1, "output_every": 0.1} | ({} if schema.limited else {"dt": 0.05})
    return validate(
        {
            "model": name,
            "grid": {"shape": [8] * ndim},
            "physics": physics,
            "time": time,
            "precision": "float64",
            "initial": {f.name: components(f) for f in schema.fields if f.default is None or f.free},
            "coefficients": {
                f.name: components(f) for f in schema.coefficients if f.default is None and not f.optional
            },
        }
    )


@pytest.mark.parametrize("name", NAMES)
def test_units_of_fields_are_those_of_the_configuration(name):
    config = smallest(name)
    model, _ = describe_model(config, Domain(Grid(config.grid.shape)))
    layouts, outputs = model.component_layouts(), {output.name: output for output in model.outputs()}
    for field in config.fields:
        assert {layout.units for layout in layouts[field.name]} <= {field.units}, field.name
        for variable in field.components(config.ndim, config.counts.get(field.name, 0)):
            assert outputs[variable].units == field.units, variable
    assert {n: outputs[n].units for n in output_layouts(model) if n in outputs} == {
        n: layout.units for n, layout in output_layouts(model).items() if n in outputs
    }
    assert getattr(model, "dimensionless", False) == config.schema.dimensionless
    if config.schema.dimensionless:  # nothing has units where lengths and times have none
        declared = {field.metadata["units"] for field in dataclasses.fields(config.physics)}
        measured = {measure.units for measure in model.measures().values()}
        assert declared | measured | {output.units for output in outputs.values()} == {"1"}


QUICK = ("acoustic", "burgers", "gray_scott", "kuramoto_sivashinsky")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_every_diagnostic_has_units_and_a_meaning(name):
    programs = compiled_run(smallest(name))
    about = describe_numbers(programs)
    for diagnostic in programs.observed_shapes()[1]:
        assert about[diagnostic]["units"] and about[diagnostic]["long_name"], diagnostic
    lengths = (MODELS[name].time_units, MODELS[name].length_units)
    assert lengths == (("1", "1") if MODELS[name].dimensionless else ("s", "m"))


def test_units_of_parameters_are_those_of_their_keys():
    about = number_attributes(MODELS["passive_scalar"].physics, 2)
    assert about["viscosity"] == {"units": "m2 s-1", "long_name": "kinematic viscosity nu"}
    about = number_attributes(MODELS["advection_diffusion"].physics, 2)
    assert about["velocity_y"] == {"units": "m s-1", "long_name": "constant velocity a, y"}
    assert [squared(units) for units in ("1", "K", "m s-1", "m2 s-2")] == ["1", "K2", "m2 s-2", "m4 s-4"]


def test_names_that_results_depend_on():
    def program(values, x):
        def step(carry, _):
            return carry * values["in a loop"], None

        inner = jax.jit(lambda a, b: (a * x, b * x))
        kept, dropped = inner(values["in a call"], values["dropped by the caller"])
        branch = jax.lax.cond(x > 0, lambda: values["in a branch"], lambda: x)
        _ = values["dead"] * x, dropped
        return jax.lax.scan(step, x, length=2)[0] + kept + branch + 1.0

    names = ("in a loop", "in a call", "in a branch", "dropped by the caller", "dead", "never read")
    values = {name: jnp.ones(()) for name in names}
    assert used_names(jax.jit(program), values, jnp.ones(())) == {"in a loop", "in a call", "in a branch"}


def test_a_run_lists_the_keys_that_it_used():
    config = smallest("kuramoto_sivashinsky")
    config = dataclasses.replace(config, parameters={"amplitude": 2.0})
    programs = compiled_run(config)
    schedule = plan_frames(config, 2).schedule
    assert set(programs.used_parameters(schedule)) == {"instability", "damping", "amplitude"}


@pytest.mark.slow
def test_particles_list_the_keys_of_their_own_potential_and_dynamics():
    config = validate(
        {
            "model": "molecular_dynamics",
            "box": {"upper": [7.0, 7.0]},
            "particles": {"count": 16, "placement": "square"},
            "physics": {"thermostat": "langevin"},
            "time": {"end": 0.1, "output_every": 0.1, "dt": 0.01},
            "ensemble": {"size": 2, "vary": {"particles.temperature": {"values": [1.0, 2.0]}}},
        }
    )
    programs = compiled_run(config)
    used = programs.used_parameters(plan_frames(config, 10).schedule)
    assert set(used) == {
        "potential_epsilon",
        "potential_sigma",
        "thermostat_temperature",
        "thermostat_friction",
        "start_temperature",
    }
    np.testing.assert_array_equal(used["start_temperature"], [1.0, 2.0])
