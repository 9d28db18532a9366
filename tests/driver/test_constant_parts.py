"""What bodies at rest give is formed once in a run, on every mesh and for all members that share it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.driver.start.build import plan_frames


def past_a_cylinder(**sections):
    sections = {"physics": {"viscosity": 0.01}, "parameters": {"radius": 0.13}, **sections}
    return sj.configure(
        "incompressible",
        precision="float64",
        grid={"shape": [32, 16], "upper": [2, 1]},
        boundaries={"x": {"lower": {"kind": "inflow", "velocity": [1, 0]}, "upper": "outflow"}, "y": "slip"},
        coefficients={"solid": "sqrt((x - 0.6)**2 + (y - 0.47)**2) - radius"},
        initial={"velocity": ["1", "0"]},
        time={"end": 0.03, "output_every": 0.03, "dt": 0.01},
        output={"report": False, "animation": False},
        **sections,
    )


def last_of(simulation):
    ds = simulation.run().ds.isel(time=-1)
    return {name: ds[name].values for name in ("velocity_x", "pressure", "force_x")}


@pytest.mark.slow
def test_a_decomposed_run_has_the_parts_of_one_device():
    one, cut = last_of(past_a_cylinder()), last_of(past_a_cylinder(mesh={"x": 2, "y": 4}))
    for name, values in one.items():
        # Three steps of rounding; pressures are solved for to a hundred roundings.
        np.testing.assert_allclose(cut[name], values, rtol=0, atol=1e-11 * np.abs(values).max())


def step_of(programs, files):
    schedule = plan_frames(programs.config, 1).schedule
    until = jax.ShapeDtypeStruct((), jnp.int32)
    return programs.single_step(schedule).lower(programs.values, files, *programs.template({}), until).as_text()


@pytest.mark.slow
def test_programs_take_the_matrix_of_sources_in_place_of_inverting_it():
    programs = compiled_run(past_a_cylinder().config)
    assert "getrf" in step_of(programs, programs.fields)  # formed anew without the parts
    assert "getrf" not in step_of(programs, programs.files)


@pytest.mark.slow
def test_members_share_the_parts_unless_their_bodies_differ():
    """In either case a member is what it is alone."""
    for section, name, numbers in (("physics", "viscosity", [0.01, 0.02]), ("parameters", "radius", [0.13, 0.2])):
        vary = {f"{section}.{name}": {"values": numbers}}
        members = past_a_cylinder(ensemble={"size": 2, "vary": vary})
        assert ("parts" in compiled_run(members.config).files) == (name == "viscosity")
        together = members.run().ds.isel(time=-1, member=1).force_x.values
        alone = past_a_cylinder(**{section: {name: numbers[1]}}).run().ds.isel(time=-1).force_x.values
        assert np.all(alone > 0)
        np.testing.assert_allclose(together, alone, rtol=1e-10)  # the tolerance of the pressure, over the step
