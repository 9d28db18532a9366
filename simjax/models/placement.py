"""Places of particles at the start: lattices, random places, chains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from simjax.errors import ConfigurationError
from simjax.io.memory import host_memory, require_memory
from simjax.particles.random_walks import walks
from simjax.schema.config import Config
from simjax.schema.particles import ParticlesConfig

# Lattice -> (edges of its unit cell, places in the cell in units of its edges).
FACE_CENTRED = [[0.25, 0.25, 0.25], [0.75, 0.75, 0.25], [0.75, 0.25, 0.75], [0.25, 0.75, 0.75]]
CELLS: dict[str, tuple[tuple[float, ...], np.ndarray]] = {
    "sc": ((1.0, 1.0, 1.0), np.full((1, 3), 0.5)),
    "fcc": (
        (1.0, 1.0, 1.0),
        np.array(FACE_CENTRED),
    ),
    "rocksalt": ((1.0, 1.0, 1.0), np.concatenate([FACE_CENTRED, np.add(FACE_CENTRED, 0.5) % 1])),
    "diamond": ((1.0, 1.0, 1.0), np.concatenate([FACE_CENTRED, np.add(FACE_CENTRED, 0.25) % 1])),
    "square": ((1.0, 1.0), np.full((1, 2), 0.5)),
    "hexagonal": ((1.0, math.sqrt(3.0)), np.array([[0.25, 0.25], [0.75, 0.75]])),
}
SPECIES = {"rocksalt": np.repeat([0, 1], 4)}
"""Lattice -> species of the places in its cell, where it has several."""
DISTANCE = 0.8  # of random places, in mean distances: a quarter of the volume in spheres, where places are found fast
ROUNDS = 100
FURTHEST = 1.2  # of places on which a chain starts, in lengths of a bond at rest


BYTES_PER_PARTICLE = 320
"""Memory to place a particle in three dimensions: 30 to 315 bytes were measured, the most of chains."""


def require_room(count: float) -> None:
    """Refuse a number of particles that this machine cannot place, before a place is made.

    Raises:
        ResourceError: with the memory that they need, and how many would fit.
    """
    most = 0.5 * host_memory() / BYTES_PER_PARTICLE
    require_memory(
        count * BYTES_PER_PARTICLE,
        f"{count:.4g} particles",
        f"write a smaller particles.count or particles.density (larger particles.spacing), or a smaller box; about "
        f"{most:.1g} particles fit",
    )


@dataclass(frozen=True)
class Start:
    """Particles before anything moves: position `(ndim, particles)`, species int32, and whatever else is known of each,
    such as a velocity `(ndim, particles)`. notes: sentences about where they are from."""

    position: np.ndarray
    species: np.ndarray
    others: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return self.position.shape[1]


def chosen_particles(config: Config, start: Start) -> np.ndarray | None:
    """Numbers of the particles that `output.particles` chooses, in increasing order; None: all.

    Raises ConfigurationError for numbers that there are not, and for a region in which none starts.
    """
    if config.output.particles is None:
        return None
    kind, value = config.output.particles
    if kind == "every_nth":
        return np.arange(0, start.count, value)
    if kind == "ids":
        numbers = np.unique(np.asarray(value, np.int64))
        if numbers[-1] >= start.count:
            raise ConfigurationError(
                f"output.particles.ids: {numbers[-1]}: expected numbers from 0 to {start.count - 1}, as there are "
                f"{start.count} particles."
            )
        return numbers
    lower, upper = (np.asarray(corner)[:, None] for corner in (value.lower, value.upper))
    numbers = np.flatnonzero(np.all((start.position >= lower) & (start.position <= upper), axis=0))
    if not len(numbers):
        raise ConfigurationError(
            f"output.particles.region from {list(value.lower)} to {list(value.upper)}: no particle starts there; write "
            "a larger one."
        )
    return numbers


def place(config: Config, bond: float = 1.0) -> Start:
    """The particles of a section `particles` without a file, float64. bond: about the length of chains' bonds at rest.

    Raises:
        ConfigurationError: they do not fit.
    """
    particles, box = config.particles, config.box
    assert isinstance(particles, ParticlesConfig) and box is not None and box.lower is not None
    lower, upper = np.asarray(box.lower), np.asarray(box.upper)
    volume = float(np.prod(upper - lower))
    require_room(particles.count or (particles.density or 0.0) * volume)
    if particles.chain_length is not None:
        return _chains(config, particles.chain_length, bond)
    if particles.placement == "random":
        count = particles.count or max(1, round((particles.density or 0.0) * volume))
        position = _at_random(config, count, lower, upper)
    else:
        position, within = _lattice(particles.placement, particles.count, particles.density, lower, upper)
        if particles.placement in SPECIES:
            return Start(position, SPECIES[particles.placement][within].astype(np.int32))
    return Start(position, species_of(position.shape[1], particles.fractions, config.seed))


def species_of(count: int, fractions: Sequence[float], seed: int) -> np.ndarray:
    """Assign to every species as many particles as its share says, in random order."""
    ends = np.rint(np.cumsum(fractions) * count).astype(int)
    species = np.searchsorted(ends, np.arange(count), side="right").astype(np.int32)
    return species if len(fractions) == 1 else np.random.default_rng(seed).permutation(species)


def _shape(wanted: float, least: int, lengths: np.ndarray, edges: np.ndarray, in_cell: int) -> np.ndarray:
    """Unit cells along each axis of a box for about the `wanted` places, and not fewer than `least`."""
    constant = (in_cell * float(np.prod(lengths / edges)) / wanted) ** (1 / len(lengths))
    ideal = lengths / (edges * constant)
    candidates = [sorted({max(1, math.floor(n + 1e-9)), max(1, math.ceil(n - 1e-9))}) for n in ideal]
    shapes = [np.asarray(shape) for shape in itertools.product(*candidates)]
    enough = [shape for shape in shapes if in_cell * np.prod(shape) >= least]
    return min(enough, key=lambda shape: abs(in_cell * np.prod(shape) - wanted))


def _lattice(
    name: str, count: int | None, density: float | None, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A lattice that fills the box: all its places for a density, `count` of them with evenly spread vacancies.

    Also which place of its unit cell each one is.
    """
    edges, basis = np.asarray(CELLS[name][0]), CELLS[name][1]
    lengths = upper - lower
    wanted = count if count is not None else (density or 0.0) * float(np.prod(lengths))
    shape = _shape(wanted, count or 0, lengths, edges, len(basis))
    corners = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), -1).reshape(-1, 1, len(shape))
    places = ((corners + basis) / shape * lengths + lower).reshape(-1, len(shape))
    chosen = np.arange(len(places))
    if count is not None and count < len(places):
        chosen = np.arange(count) * len(places) // count
    return places[chosen].T, chosen % len(basis)


def _chains(config: Config, length: int, bond: float) -> Start:
    """Chains on a simple lattice that they fill, or where they are dilute on one with places a bond apart."""
    particles, box = config.particles, config.box
    assert isinstance(particles, ParticlesConfig) and box is not None and box.lower is not None
    assert box.periodic is not None
    lower, lengths = np.asarray(box.lower), np.subtract(box.upper, box.lower)
    ndim, volume = config.ndim, float(np.prod(lengths))
    count = particles.count or length * max(1, round((particles.density or 0.0) * volume / length))
    shape = _shape(count, count, lengths, np.ones(ndim), 1)
    if max(lengths / shape) > FURTHEST * bond:
        shape = np.maximum(shape, np.ceil(lengths / bond).astype(int))
    places = walks(shape.tolist(), box.periodic, count // length, length, config.seed)
    position = lower[:, None] + (places.T + 0.5) / shape[:, None] * lengths[:, None]
    species = species_of(count // length, particles.fractions, config.seed)
    return Start(position, species.repeat(length))


def _at_random(config: Config, count: int, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Places at random, none nearer to another than the least distance; those that are too near are drawn again."""
    from simjax.particles.overlaps import too_near

    particles, box = config.particles, config.box
    assert isinstance(particles, ParticlesConfig) and box is not None and box.periodic is not None
    lengths, ndim = upper - lower, len(lower)
    mean = (float(np.prod(lengths)) / count) ** (1 / ndim)
    distance = DISTANCE * mean if particles.distance is None else particles.distance
    rng = np.random.default_rng(config.seed)
    position = rng.random((count, ndim)) * lengths
    for _ in range(ROUNDS if distance > 0 else 0):
        again = too_near(position, lengths, box.periodic, distance)
        if not again.any():
            break
        position[again] = rng.random((int(again.sum()), ndim)) * lengths
    else:
        if distance > 0:
            raise ConfigurationError(
                f"particles: no places were found for {count} at random with {distance:g} between them; write a "
                "smaller particles.distance, or a lattice as particles.placement."
            )
    return (position + lower).T


def evenly(count: int, ndim: int) -> np.ndarray:
    """Points that fill a unit cube evenly, `(ndim, count)`: one axis in equal steps, the others with irrational ones.

    Roberts (2018), The Unreasonable Effectiveness of Quasirandom Sequences: steps are powers of the root of
    x^(d + 1) = x + 1.
    """
    others = ndim - 1
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (others + 1))
    steps = root ** -np.arange(1.0, others + 1)
    number = np.arange(count) + 0.5
    return np.concatenate([number[None] / max(count, 1), np.mod(number[None] * steps[:, None], 1.0)])
