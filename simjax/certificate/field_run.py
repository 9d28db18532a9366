"""What is differentiated to certify an experiment: a short run of it, away from where it has no derivative."""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.certificate.certificate import Objective
from simjax.certificate.directions import Unknowns, smooth_waves
from simjax.certificate.meshes import blocks_of_grid, meshes_to_compare
from simjax.core.domain import Domain
from simjax.core.model import GridModel
from simjax.driver.differentiable_run import SECTIONS, Rollout
from simjax.errors import ConfigurationError
from simjax.grid import CENTER
from simjax.parallel import distribute
from simjax.schema.config import Config, EnsembleConfig, MeshConfig
from simjax.status import OK
from simjax.stepping.checkpointing.plan import Binomial, Checkpoint

PLANS: tuple[Checkpoint, ...] = ("none", "two_level", Binomial(3))
FRAMES = 2
# Of the step that the start allows: half of the experiment's Courant number, as the start is moved and speeds up.
COURANT_SHARE = 0.5
# How far fields are moved off their start, which may lie on kinks (uniform, symmetric), in units of their size: the
# further, the further are the kinks. Coefficients have fewer, and with them the stable step changes.
OFFSET, COEFFICIENT_OFFSET = 0.1, 0.01
# A field that is zero everywhere has no other kinks than those of what it is moved by.
NOTHING_OFFSET = 0.3
DIGITS = 13


def experiment_objective(config: Config, *, steps: int, devices: int | None = None) -> Objective:
    """A smooth function of the first `steps` steps of an experiment, by its numbers, initial fields and coefficients.

    The function is the mean over cells of w (sqrt(1 + q^2) - 1 + 0.3 sin q), in which no peak drowns the rest, summed
    over the variables that have an initial field and over two frames: q is the variable in units of its largest size
    in the run, w a weight that differs from cell to cell. All fields are given as arrays and start a tenth of their
    size away from the configuration's, since a uniform or symmetric field lies on kinks of limiters and upwind fluxes.
    Steps have one length: where a run goes by Courant number, whose steps count as given, half of the first one. Of
    an ensemble the base values are taken.

    Raises ConfigurationError where nothing can be differentiated so.
    """
    check_steps(steps)
    short, notes = _shortened(config, steps)
    given = [f"{section}.{name}" for section in SECTIONS for name in getattr(short, section)]
    rollout = Rollout(short, sizes={}, given=given)
    sizes = _sizes(rollout)
    start: Unknowns = {name: np.asarray(value) for name, value in rollout.start_values().items()}
    fields = jax.device_get(rollout.start_fields())
    for path in given:
        section, name = path.split(".", 1)
        start[path] = _moved_off(path, fields[section][name], sizes.get(path))

    @functools.cache
    def on(items: tuple[tuple[str, int], ...], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        return _function(Rollout(short, sizes=dict(items), given=given, checkpoint=plan), sizes)

    def function(mesh: Mapping[str, int], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        return on(tuple(mesh.items()), plan)

    blocks = blocks_of_grid(config)
    meshes, untested, said = meshes_to_compare(config, start, function, devices, blocks=blocks)
    return Objective(start, function, meshes, PLANS, notes=(*notes, *said), untested=untested)


def check_steps(steps: int) -> None:
    """Raises ConfigurationError for a number of steps that frames cannot share."""
    if steps < FRAMES or steps % FRAMES:
        raise ConfigurationError(f"steps={steps}: expected an even number of at least {FRAMES}; write --steps 6.")


def bounded(q: Array) -> Array:
    """sqrt(1 + q^2) - 1 + 0.3 sin q, of which no peak drowns the rest: smooth, and nowhere symmetric."""
    return jnp.sqrt(1 + q**2) - 1 + 0.3 * jnp.sin(q)


# ---------------------------------------------------------------------- the short run


def _shortened(config: Config, steps: int) -> tuple[Config, list[str]]:
    """Two frames in float64 with `steps` steps of one length, and what was changed."""
    time, physics = config.time, config.physics
    plain = dataclasses.replace(
        config,
        precision="float64",
        ensemble=EnsembleConfig(),
        mesh=MeshConfig(overlap=config.mesh.overlap),
        resume=None,
    )
    if hasattr(physics, "digits"):
        # Derivatives of implicit solves are those of the exact solution.
        plain = dataclasses.replace(plain, physics=dataclasses.replace(physics, digits=DIGITS))
    once = dataclasses.replace(time, end=time.output_every, dt=time.output_every, courant=None)
    dt = time.dt
    if dt is None:
        assert time.courant is not None
        limit = COURANT_SHARE * time.courant * Rollout(dataclasses.replace(plain, time=once), sizes={}).stable_dt()
        dt = limit if math.isfinite(limit) else time.output_every / steps
    every = steps // FRAMES * dt
    short = dataclasses.replace(plain, time=dataclasses.replace(once, end=FRAMES * every, output_every=every, dt=dt))
    changed = [
        f"{steps} steps of {dt:.3g} on a grid of {' x '.join(map(str, config.grid_of_fields().shape))} in float64"
    ]
    if config.precision != "float64":
        changed.append(f"in place of {config.precision}")
    if config.ensemble.size > 1 or config.ensemble.vary:
        changed.append("without the ensemble")
    if hasattr(physics, "digits") and physics.digits < DIGITS:
        changed.append(f"with solves to {DIGITS} digits in place of {physics.digits}")
    return short, [" ".join(changed)]


def _observed(rollout: Rollout) -> dict[str, str]:
    """Variables that have an initial field -> the path of that field."""
    config = rollout.config
    return {
        variable: f"initial.{field.name}"
        for field in config.fields
        if field.name in config.initial
        for variable in field.components(config.ndim, config.counts.get(field.name, 0))
    }


def _sizes(rollout: Rollout) -> dict[str, float]:
    """The largest root mean square of every observed field (all its components) from the start to the end, by path."""
    variables = _observed(rollout)

    def squares(model: GridModel, t, state, params) -> dict[str, Array]:
        found, domain = model.observe(t, state, params), model.domain
        return {name: domain.mean(found[name] ** 2) for name in variables if name in found}

    def history(values, fields):
        trajectory, start = rollout.run(values, fields, squares)
        return trajectory.observed, start

    specs = PartitionSpec(), rollout.field_specs()
    run = distribute(history, rollout.mesh, in_specs=specs, out_specs=PartitionSpec())
    later, start = jax.device_get(run(rollout.start_values(), rollout.start_fields()))
    totals: dict[str, np.ndarray] = {}
    for name, means in later.items():
        path = variables[name]
        totals[path] = totals.get(path, 0.0) + np.append(means, start[name])
    return {path: float(np.sqrt(np.max(total))) or 1.0 for path, total in totals.items()}


def _moved_off(path: str, components: tuple[np.ndarray, ...], size: float | None) -> tuple[np.ndarray, ...]:
    """A field moved smoothly by a share of its size; what is positive stays so, coefficients that are zero stay it."""
    coefficient = path.startswith("coefficients")
    share = COEFFICIENT_OFFSET if coefficient else OFFSET
    if size is None:
        size = float(np.sqrt(np.mean(np.square(components)))) or 1.0
    moved = []
    for number, u in enumerate(components):
        wave = smooth_waves(u.shape, zlib.crc32(f"{path} {number}".encode()))
        keeps_sign = np.all(u >= 0) if coefficient else np.all(u > 0)
        moved.append(u + wave * (share * u if keeps_sign else size * (share if np.any(u) else NOTHING_OFFSET)))
    return tuple(moved)


def _function(rollout: Rollout, sizes: Mapping[str, float]) -> Callable[[Unknowns], Array]:
    """The objective's function of one rollout."""
    variables = _observed(rollout)
    specs = rollout.field_specs()

    def measure(model: GridModel, t, state, params) -> Array:
        found, domain = model.observe(t, state, params), model.domain
        total = jnp.zeros((), rollout.dtype)
        for number, name in enumerate(sorted(variables.keys() & found.keys())):
            q = found[name] / sizes[variables[name]]
            total += domain.mean(_weight(domain, number) * bounded(q))
        return total

    def loss(values, fields) -> Array:
        trajectory, _ = rollout.run(values, fields, measure)
        # A run that stopped on a fault is that of its last good state.
        good = rollout.domain.max(trajectory.clock.status) == OK
        return jnp.where(good, jnp.sum(trajectory.observed), jnp.nan)

    run = distribute(loss, rollout.mesh, in_specs=(PartitionSpec(), specs), out_specs=PartitionSpec())

    def function(unknowns: Unknowns) -> Array:
        fields = {section: {name: unknowns[f"{section}.{name}"] for name in specs[section]} for section in SECTIONS}
        return run({name: value for name, value in unknowns.items() if "." not in name}, fields)

    return function


def _weight(domain: Domain, number: int) -> Array:
    """Waves over the box, others for every number."""
    grid = domain.grid
    positions = domain.coordinates((CENTER,) * grid.ndim, jnp.float64)
    shares = [(x - low) / length for x, low, length in zip(positions, grid.lower, grid.lengths, strict=True)]
    return 1 + 0.3 * sum((jnp.sin((k + 5.1) * share + 1.7 * number) for k, share in enumerate(shares)), jnp.zeros(()))
