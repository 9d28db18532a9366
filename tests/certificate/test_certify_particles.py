"""Certificates of experiments of particles."""

import dataclasses

import configurations
import jax
import numpy as np
import pytest

from simjax.certificate.certify import STEPS, certify
from simjax.certificate.derivative_programs import COMPILED_SOON
from simjax.certificate.directions import moved
from simjax.certificate.particle_run import MOST
from simjax.certificate.prepared_objective import prepared_objective
from simjax.certificate.run_objective import run_objective
from simjax.config import load_config
from simjax.driver.start.build import named_values
from simjax.errors import ConfigurationError, NumericalError
from simjax.models.molecular.pair_potentials import LennardJones
from simjax.models.particle_model import family_of
from simjax.models.registry import MODELS

NAMES = [name for name, model in configurations.models().items() if MODELS[model].of_particles]
# A crystal of two axes whose box eight devices can share.
FLAT = ["box.upper=[11.5,11.5]", "particles.placement=hexagonal", "particles.count=110"]


@pytest.fixture(scope="module")
def flat():
    return run_objective(load_config("lennard_jones", FLAT), steps=2, devices=1)


@pytest.mark.slow
def test_the_objective_of_an_experiment(flat):
    numbers = named_values(load_config("lennard_jones", FLAT)).keys()
    assert numbers == {"potential_epsilon", "potential_sigma", "start_temperature"}
    assert set(flat.start) == numbers | {"initial.position", "initial.velocity"}
    assert flat.start["initial.position"].shape == flat.start["initial.velocity"].shape == (2, 110)
    assert flat.notes[0] == (
        "2 steps of 0.005 in float64 in place of float32 with mode=force_shifted in place of truncated, whose force "
        "has a step at the cutoff"
    )
    assert flat.notes[1] == "110 particles start up to 0.03 of their mean distance off their places"
    assert flat.meshes == () and flat.untested == {}


@pytest.mark.slow
def test_forward_mode_is_the_derivative(flat):
    function = flat.on({}, "every_step")
    random = np.random.default_rng(1)
    direction = {name: 0.1 * random.normal(size=np.shape(u)) for name, u in flat.start.items()}
    both = jax.jit(lambda u, d: jax.jvp(function, (u,), (d,))).lower(flat.start, direction).compile(COMPILED_SOON)
    slope, step = float(both(flat.start, direction)[1]), 1e-5
    ahead, behind = (float(both(moved(flat.start, direction, k * step), direction)[0]) for k in (1, -1))
    # Of the 1e-16 by which a value is rounded a step makes 1e-11, of the slope 3e-8; what is cut off is the square of
    # the step times a third derivative, which is a thousand slopes as forces of near particles are steep.
    assert abs(slope) > 1e-4 and (ahead - behind) / (2 * step) == pytest.approx(slope, rel=1e-6)


@pytest.mark.long
def test_a_force_without_derivative_is_found(monkeypatch):
    evaluate = LennardJones.evaluate

    def constant(potential, pairs, species, params):
        return jax.lax.stop_gradient(evaluate(potential, pairs, species, params))

    monkeypatch.setattr("simjax.models.molecular.pair_potentials.PairPotential.evaluate", constant)
    objective = run_objective(load_config("lennard_jones", FLAT), steps=2, devices=1)
    certificate = certify(dataclasses.replace(objective, plans=()))
    failed = {check.name for check in certificate.checks if not check.passed}
    assert "Taylor remainder, all unknowns" in failed
    assert any(name.startswith("zero gradient") for name in failed)


@pytest.mark.slow
def test_a_run_that_is_cut_off_is_an_error():
    config = load_config("lennard_jones", [*FLAT, "time.dt=0.5", "time.output_every=1", "time.end=5"])
    with pytest.raises(NumericalError, match="stopped, as particles moved further between two arrangements than the"):
        run_objective(config, steps=2, devices=1).on({}, "every_step")


def test_steps_are_shared_by_frames():
    with pytest.raises(ConfigurationError, match="steps=3: expected an even number of at least 2"):
        run_objective(load_config("lennard_jones", FLAT), steps=3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_fewer_particles_show_the_same(name):
    config = load_config(name)
    family = family_of(config)
    fewer = family_of(family.fewer(MOST))
    # Lattices fill a part of a box with whole cells.
    assert fewer.start().count <= min(family.start().count, 1.1 * MOST)
    assert list(fewer.config.schema.check(fewer.config)) == []
    assert dataclasses.replace(fewer.config, box=config.box, particles=config.particles) == config


@pytest.mark.slow
def test_walls_stay():
    config = load_config("dam_break")
    family = family_of(config)
    start = family.start()
    inside = np.all((config.box.lower < start.position.T) & (config.box.upper > start.position.T), axis=1)
    assert 0 < inside.sum() < start.count
    np.testing.assert_array_equal(family.moving(start), np.flatnonzero(inside))


@pytest.mark.slow
def test_only_fluid_is_displaced():
    objective = run_objective(load_config("dam_break"), steps=2, devices=1)
    moving = objective.start["initial.position"].shape
    assert moving == objective.start["initial.velocity"].shape == (2, 72)
    assert objective.notes[1].startswith("472 particles in place of 2714, of which the 72 that move start up to 0.03")


@pytest.mark.slow
@pytest.mark.parametrize("assignment", ["cic", "tsc"])
def test_a_plasma_passes_over_devices(assignment):
    changes = ["particles.count=64", "physics.mesh_cells=[16]", f"physics.assignment={assignment}"]
    objective = prepared_objective(load_config("two_stream", changes), steps=2)
    assert objective.meshes == ({"x": 8},)
    certificate = certify(dataclasses.replace(objective, plans=()))
    assert certificate.passed, str(certificate)


@pytest.mark.long
def test_a_flat_crystal_passes_on_every_mesh():
    objective = prepared_objective(load_config("lennard_jones", FLAT), steps=STEPS)
    assert objective.meshes == ({"x": 2, "y": 4}, {"x": 4, "y": 2})
    certificate = certify(objective)
    assert certificate.passed, str(certificate)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_passes(name):
    objective = prepared_objective(load_config(name), steps=STEPS)
    assert objective.start["initial.position"].shape[1] <= 1.1 * MOST
    certificate = certify(objective)
    assert certificate.passed, str(certificate)
    assert any("one device against" in check.name for check in certificate.checks)
