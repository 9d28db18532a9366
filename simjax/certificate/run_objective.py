"""Objective of an experiment: a short run of it, away from where it has no derivative."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from simjax.certificate.certificate import Objective
from simjax.certificate.directions import Unknowns
from simjax.certificate.field_run import FieldRun
from simjax.certificate.meshes import meshes_to_compare
from simjax.certificate.particle_run import ParticleRun
from simjax.certificate.short_run import FRAMES, ShortRun, numbers_and_arrays
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.errors import ConfigurationError
from simjax.parallel import distribute
from simjax.schema.config import Config
from simjax.schema.model_schema import FIELDS, PARTICLES
from simjax.status import OK
from simjax.stepping.checkpointing.plan import Binomial, Checkpoint

PLANS: tuple[Checkpoint, ...] = ("none", "two_level", Binomial(3))


SHORT_RUNS: dict[str, type[ShortRun]] = {FIELDS: FieldRun, PARTICLES: ParticleRun}
"""The class of short runs of each family of models."""


def short_run_class(config: Config) -> type[ShortRun]:
    """The class of short runs of a configuration."""
    return SHORT_RUNS[config.schema.family]


def run_objective(config: Config, *, steps: int, devices: int | None = None) -> Objective:
    """A smooth function of the first `steps` steps of an experiment, by its numbers and by what it begins with.

    The function is the mean over cells, or particles, of w (sqrt(1 + q^2) - 1 + 0.3 sin q), in which no peak drowns the
    rest, summed over two frames and over what is observed: q is that in units of its size, w a weight that differs from
    place to place. Steps have one length; of an ensemble the base values are taken.

    Of fields all variables that have an initial field are observed. Initial fields and coefficients are given as arrays
    and start a tenth of their size away from the configuration's, since a uniform or symmetric field lies on kinks of
    limiters and upwind fluxes. Where a run goes by Courant number, whose steps count as given, a step is half of the
    first one.

    Of particles displacement, velocity and what else the model tells of each are observed. Unknown are all numbers, and
    what is added to positions and velocities at the start ("initial.position", "initial.velocity"), which begins
    pseudo-random, off every lattice. Particles are sorted anew and their partners found at least once in a frame, with
    as much room as every mesh needs.

    Raises:
        ConfigurationError: nothing can be differentiated so.
        NumericalError: a run of particles stops, or needs ever more room.
    """
    if steps < FRAMES or steps % FRAMES:
        raise ConfigurationError(f"steps={steps}: expected an even number of at least {FRAMES}; write --steps 6.")
    short = short_run_class(config)(config, steps)

    @functools.cache
    def on(items: tuple[tuple[str, int], ...], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        return _function(short, short.rollout(dict(items), plan))

    def function(mesh: Mapping[str, int], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        return on(tuple(mesh.items()), plan)

    # What cannot be cut so is refused before anything is compiled.
    meshes, untested, said = meshes_to_compare(
        config, short.start, function, devices, blocks=short.blocks, most=short.meshes
    )
    return Objective(
        short.start, function, meshes, PLANS, across=short.across(), notes=(*short.notes, *said), untested=untested
    )


def _function(short: ShortRun, rollout: DifferentiableRun) -> Callable[[Unknowns], Array]:
    """The objective as a function of the unknowns, on a mesh and with a checkpoint plan."""

    def loss(values, arrays) -> Array:
        values, fields, state, status = short.begin(rollout, values, arrays)
        trajectory, _ = rollout.advance(values, fields, state, short.measure(rollout, fields))
        # A run that stopped on a fault is that of its last good state.
        good = rollout.domain.max(trajectory.clock.status | status) == OK
        return jnp.where(good, jnp.sum(trajectory.observed), jnp.nan)

    arrays = short.array_specs(rollout)
    run = distribute(loss, rollout.mesh, in_specs=(PartitionSpec(), arrays), out_specs=PartitionSpec())
    return lambda unknowns: run(*numbers_and_arrays(unknowns, arrays))
