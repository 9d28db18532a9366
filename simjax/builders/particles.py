"""Models of particles from a configuration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.builders.formulas import Values
from simjax.config import Config
from simjax.models import molecular
from simjax.models.dynamics import Dynamics, VelocityVerlet
from simjax.models.potentials import ForceShifted, LennardJones, PairPotential, Shifted
from simjax.models.stochastic import BathParams, Langevin
from simjax.models.thermostats import NoseHooverChain, ThermostatParams
from simjax.particles.arrangement import Skin
from simjax.particles.cells import Cells, cells_for
from simjax.particles.neighbours import GROUP

SKIN = 0.12  # of the cutoff
SPARE_ROWS = 1.3  # of the mean number of partners


@dataclasses.dataclass(frozen=True)
class Room:
    """What the shapes of a run of particles depend on. cells: per axis; capacity: of one; rows: of a list of partners;
    columns: particles of a device; steps: between two arrangements."""

    cells: tuple[int, ...]
    capacity: int
    rows: int
    columns: int
    steps: int


POTENTIALS: dict[str, Callable[[Any, Values], tuple[PairPotential, Any]]] = {
    "lennard_jones": lambda physics, values: (LennardJones(), (values["epsilon"], values["sigma"])),
}
"""Name -> `(physics, values)` -> (potential, its parameters)."""
ENDINGS: dict[str, Callable[..., PairPotential]] = {
    "shifted": Shifted, "force_shifted": ForceShifted,
}  # fmt: skip


def _newton(config: Config, values: Values) -> tuple[Dynamics, Any]:
    return VelocityVerlet(), None


def _langevin(config: Config, values: Values) -> tuple[Dynamics, Any]:
    seed = jnp.asarray(config.seed, jnp.int32)
    return Langevin(), BathParams(values["bath_temperature"], values["friction"], seed)


def _nose_hoover(config: Config, values: Values) -> tuple[Dynamics, Any]:
    return NoseHooverChain(), ThermostatParams(values["bath_temperature"], values["period"])


DYNAMICS: dict[str, Callable[[Config, Values], tuple[Dynamics, Any]]] = {
    "nve": _newton, "langevin": _langevin, "nose_hoover": _nose_hoover,
}  # fmt: skip
"""Name -> `(config, values)` -> (dynamics, its parameters)."""


def _molecular_dynamics(config: Config, cells: Cells, skin: Skin, steps: int, values: Values):
    physics, particles = config.physics, config.particles
    assert particles is not None
    potential, parameters = POTENTIALS[physics.potential](physics, values)
    if physics.mode != "truncated":
        potential = ENDINGS[physics.mode](potential=potential, cutoff=physics.cutoff)
    dynamics, moved_by = DYNAMICS[physics.dynamics](config, values)
    mass = np.broadcast_to(np.asarray(physics.mass), len(particles.fractions))
    # Its domain is a property, which the checker of types takes for a field.
    model = molecular.MolecularDynamics(  # pyright: ignore[reportCallIssue]
        cells=cells, skin=skin, potential=potential, steps_per_arrangement=steps, dynamics=dynamics
    )
    return model, molecular.Params(parameters, jnp.asarray(mass, jnp.dtype(config.precision)), moved_by)


BUILDERS: dict[str, Callable] = {"molecular_dynamics": _molecular_dynamics}
"""Model name -> `(config, cells, skin, steps per arrangement, values)` -> (model, params)."""


def skin_length(config: Config) -> float:
    """The length by which listed pairs may be further apart than the cutoff."""
    return config.arrangement.skin if config.arrangement.skin is not None else SKIN * config.physics.cutoff


def skin_of(config: Config, room: Room) -> Skin:
    """How particles are arranged in this room."""
    return Skin(config.physics.cutoff, skin_length(config), room.rows, room.columns)


def first_room(config: Config, position: np.ndarray, temperature: float, blocks: Sequence[int]) -> Room:
    """Room for particles that start at `position` `(ndim, particles)`, if they stay about as dense.

    Raises:
        ConfigurationError: the box, or a device's block of it, is thinner than the reach of the particles.
    """
    box, given = config.box, config.arrangement
    assert box is not None and box.lower is not None and box.periodic is not None
    reach = config.physics.cutoff + skin_length(config)
    grid = cells_for(box.lower, box.upper, reach, box.periodic, blocks)
    count, ndim = position.shape[1], len(box.lower)
    index = [
        np.floor((x - a) / h).astype(int) % n
        for x, a, h, n in zip(position, box.lower, grid.spacing, grid.shape, strict=True)
    ]
    inside = np.bincount(np.ravel_multi_index(tuple(index), grid.shape), minlength=grid.cells)
    mean = count / grid.cells
    fullest = max(float(inside.max()), mean + 3 * math.sqrt(mean))
    ball = {2: math.pi * reach**2, 3: 4 / 3 * math.pi * reach**3}[ndim]
    partners = count / float(np.prod(grid.lengths)) * ball
    rows = min(count, math.ceil(SPARE_ROWS * partners + 8))
    rows = rows if given.rows is None else given.rows
    capacity = fullest + 1 if given.capacity is None else max(given.capacity, int(inside.max()))
    steps = _steps(config, count, temperature) if given.steps is None else given.steps
    return Room(tuple(grid.shape), multiple(capacity), rows, _columns(inside.reshape(grid.shape), blocks, count), steps)


def _columns(inside: np.ndarray, blocks: Sequence[int], count: int) -> int:
    """Particles that a device has at most, of `count` with `inside` in each cell: a tenth and some chance more."""
    cut = [size for n, k in zip(inside.shape, blocks, strict=True) for size in (k, n // k)]
    of_blocks = inside.reshape(cut).sum(axis=tuple(range(1, len(cut), 2)))
    most = float(of_blocks.max())
    return min(count, math.ceil(1.1 * most + 3 * math.sqrt(most)))


def multiple(capacity: float) -> int:
    """The least number of slots not below `capacity` that the loops over cells can take."""
    return GROUP * math.ceil(capacity / GROUP)


def _steps(config: Config, count: int, temperature: float) -> int:
    """Steps in which the fastest particle goes half the skin, of those that divide a frame."""
    time = config.time
    assert time.dt is not None
    lightest = min(config.physics.mass)
    # The largest of so many normal speeds.
    fastest = math.sqrt(temperature / lightest) * math.sqrt(2 * math.log(count + 1) + config.ndim)
    # Even particles at rest are pushed.
    allowed = skin_length(config) / 2 / (max(fastest, 1e-3) * time.dt)
    frame = max(1, math.ceil(min(time.output_every, max(time.end, time.dt)) / time.dt * (1 - 1e-12)))
    return divisor(frame, allowed)


def divisor(whole: int, most: float) -> int:
    """The largest divisor of `whole` up to `most`, unless it is less than half of that; at least 1."""
    most = max(1, min(whole, math.floor(most)))
    found = max(d for d in range(1, most + 1) if whole % d == 0)
    return found if 2 * found > most else most


def start_velocity(config: Config, values: Values, mass: Array, member: Array | int) -> Array:
    """Velocities `(ndim, particles)` at random, of no total momentum and exactly the temperature.

    mass: `(particles,)`. A particle's velocity follows from the seed, the member and its number alone.
    """
    dtype, count, ndim = mass.dtype, mass.shape[0], config.ndim
    key = jax.random.key(config.seed)
    if config.ensemble.noise == "per_member":
        key = jax.random.fold_in(key, member)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(count, dtype=jnp.int32))
    normal = jax.vmap(lambda key: jax.random.normal(key, (ndim,), dtype))(keys).T
    velocity = normal / jnp.sqrt(mass)[None]
    velocity = velocity - (jnp.sum(mass[None] * velocity, axis=1) / jnp.sum(mass))[:, None]
    twice = jnp.sum(mass[None] * velocity**2)
    freedom = ndim * (count - 1)
    wanted = values["start_temperature"] * freedom
    warm = (wanted > 0) & (twice > 0)
    # At rest no derivative is formed: that of the root is infinite.
    ratio = jnp.where(warm, wanted, 1) / jnp.where(warm, twice, 1)
    return velocity * jnp.where(warm, jnp.sqrt(ratio), 0)
