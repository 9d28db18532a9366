"""Sections of models of particles: the box, where particles start, and how they are kept sorted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from simjax.schema.config_errors import ConfigErrors
from simjax.schema.kinds import Choice, Flag, Integer, ListOf, Nested, OneOf, Real, Text, key
from simjax.schema.model_schema import AXES

LATTICES = {"fcc": 3, "sc": 3, "rocksalt": 3, "diamond": 3, "square": 2, "hexagonal": 2}
"""Lattice -> the dimensions of the space it fills."""
SIMPLE = {2: "square", 3: "sc"}
"""Dimensions -> the lattice on which chains start."""
PLACEMENTS = (*LATTICES, "random", "file")


@dataclass(frozen=True)
class BoxConfig:
    """The section `box`: where particles are."""

    upper: tuple[float, ...] = key(ListOf(Real(formula=True), 1, 3, noun="numbers, one per axis"), about="upper corner")
    lower: tuple[float, ...] | None = key(
        ListOf(Real(formula=True), 1, 3, optional=True, noun="numbers, one per axis"),
        None,
        about="lower corner; null: zero",
    )
    periodic: tuple[bool, ...] | None = key(
        ListOf(Flag(), 1, 3, optional=True, noun="values, one per axis"),
        None,
        about="whether each axis closes on itself; null: every one does",
    )


@dataclass(frozen=True)
class Region:
    """A part of the box, by its corners."""

    lower: tuple[float, ...] = key(ListOf(Real(formula=True), 1, 3, noun="numbers, one per axis"), about="lower corner")
    upper: tuple[float, ...] = key(ListOf(Real(formula=True), 1, 3, noun="numbers, one per axis"), about="upper corner")


MOST_CHOSEN = 10_000_000
CHOSEN = OneOf(
    {
        "every_nth": Integer(1),
        "ids": ListOf(Integer(0), 1, MOST_CHOSEN, noun="numbers of particles"),
        "region": Nested(Region),
    },
    optional=True,
)


class ParticlesSection:
    """The section `particles` of a model: a dataclass that says where its particles start.

    file: from which they come, where a model takes one.
    """

    file: str | None = None

    def check(self, box: BoxConfig) -> Iterator[tuple[str, str]]:
        """Sentences about keys that do not go together, each with its key path."""
        yield from ()


@dataclass(frozen=True)
class ParticlesConfig(ParticlesSection):
    """The section `particles`: how many there are, where they start, and how fast.

    Exactly one of `count`, `density` (number of particles per volume) and `file` is given.
    """

    placement: str = key(Choice(PLACEMENTS), "random", about="lattice or random places on which particles start")
    count: int | None = key(Integer(1, 2**30, optional=True), None, about="number of particles")
    density: float | None = key(
        Real(above=0.0, optional=True, formula=True), None, about="number per volume", fixed=True
    )
    distance: float | None = key(
        Real(low=0.0, optional=True), None, about="least distance of random places; null: 0.8 of the mean", fixed=True
    )
    file: str | None = key(
        Text(optional=True, described="a file of particles"), None, about="file of positions to start from"
    )
    fractions: tuple[float, ...] = key(
        ListOf(Real(above=0.0, high=1.0), 1, 100, noun="shares, one per species"),
        (1.0,),
        about="shares of the species, of whole chains",
    )
    temperature: float = key(Real(low=0.0, formula=True), 0.0, about="temperature of the first velocities, an energy")
    chain_length: int | None = key(
        Integer(2, 2**20, optional=True), None, about="particles in a chain, each bonded to the next; null: no chains"
    )

    def check(self, box):
        ndim = len(box.upper)
        yield from check_number(self, ("count", "density", "file"))
        fills = LATTICES.get(self.placement, ndim)
        if fills != ndim:
            here = [name for name, dimensions in LATTICES.items() if dimensions == ndim]
            yield (
                "particles.placement",
                f"particles.placement = {self.placement!r}: a lattice of {fills} axes, the box has {ndim}; "
                f"write {' or '.join(here)}, or random",
            )
        if abs(sum(self.fractions) - 1) > 1e-9:
            total = f"{sum(self.fractions):g}"
            yield (
                "particles.fractions",
                f"particles.fractions = {list(self.fractions)}: expected a sum of 1, not {total}",
            )
        if self.chain_length is not None:
            yield from self._check_chains(ndim, self.chain_length)
        if self.placement == "rocksalt" and self.fractions != (0.5, 0.5):
            yield (
                "particles.fractions",
                f"particles.fractions = {list(self.fractions)}: a lattice of rock salt has two species in turn; write "
                "[0.5, 0.5], or another particles.placement",
            )

    def _check_chains(self, ndim: int, length: int) -> Iterator[tuple[str, str]]:
        """Chains go from place to place on a simple lattice, and are whole."""
        simple = SIMPLE.get(ndim)
        if self.placement not in (simple, "file"):
            yield (
                "particles.placement",
                f"particles.placement = {self.placement}: expected {simple or 'a box of 2 or 3 axes'} or file with "
                "particles.chain_length, chains start as walks on a simple lattice",
            )
        if self.count is not None and self.count % length:
            fewer = max(length, self.count - self.count % length)
            yield (
                "particles.count",
                f"particles.count = {self.count}: expected a multiple of particles.chain_length = {length}; write "
                f"{fewer} or {fewer + length}",
            )


def check_number(section: Any, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Sentences about how many particles there are, which one of the keys says, and about their file."""
    given = [name for name in names if getattr(section, name) is not None]
    if len(given) != 1:
        listed = " and ".join(f"particles.{name}" for name in given) or "none of them"
        yield "particles.count", f"particles: expected one of {', '.join(names[:-1])} and {names[-1]}, got {listed}"
    if (section.file is not None) != (section.placement == "file"):
        yield "particles.placement", "particles.placement = 'file' and particles.file go together; write both or none"


@dataclass(frozen=True)
class NeighborListConfig:
    """The section `neighbor_list`: how particles are kept sorted. What is null is chosen, and grows where too small."""

    skin: float | None = key(
        Real(above=0.0, optional=True),
        None,
        about="length by which listed pairs may be further apart than the cutoff; null: a share of it",
    )
    rebuild_every: int | None = key(
        Integer(1, optional=True), None, about="steps between two rebuilds of the list; null: what the skin allows"
    )
    cell_capacity: int | None = key(
        Integer(1, 2**20, optional=True), None, about="particles that a cell can hold; null: what fits"
    )
    max_neighbors: int | None = key(
        Integer(0, 2**20, optional=True), None, about="entries of a list; 0: no list; null: what fits"
    )


def check_box(box: BoxConfig, problems: ConfigErrors) -> BoxConfig | None:
    """The box with every default filled in; None after telling what is wrong with it."""
    ndim, before = len(box.upper), len(problems)
    lower = box.lower if box.lower is not None else (0.0,) * ndim
    periodic = box.periodic if box.periodic is not None else (True,) * ndim
    for name, values in (("lower", lower), ("periodic", periodic)):
        if len(values) != ndim:
            problems.add(f"box.{name}", list(values), f"{ndim} value(s), one per axis of box.upper={list(box.upper)}")
    if len(problems) == before:
        for axis, (a, b) in enumerate(zip(lower, box.upper, strict=True)):
            if b <= a:
                problems.add(f"box.upper[{axis}]", b, f"a number above box.lower[{axis}]={a:g}")
    return BoxConfig(box.upper, lower, periodic) if len(problems) == before else None


def check_beside(config: Any) -> Iterator[tuple[str, str]]:
    """Find the sections that do not go with a model of particles."""
    if config.steps_per_exchange:
        yield (
            "steps_per_exchange",
            f"steps_per_exchange = {config.steps_per_exchange}: expected 0 for model={config.model}, whose particles "
            "move together for neighbor_list.rebuild_every steps",
        )
    for axis, name in enumerate(AXES):
        devices = getattr(config.mesh, name)
        if axis >= config.ndim and devices > 1:
            yield f"mesh.{name}", f"mesh.{name} = {devices}: expected 1, the box has no axis {name}"


def check_unlisted(config: Any) -> Iterator[tuple[str, str]]:
    """Keys of lists of partners, where particles have none."""
    for name in ("skin", "max_neighbors"):
        value = getattr(config.neighbor_list, name)
        if value is not None:
            path = f"neighbor_list.{name}"
            yield path, f"{path} = {value:g}: expected null, particles of this model have no lists of partners"


def check_mesh_cells(config: Any) -> Iterator[tuple[str, str]]:
    """A mesh of as many axes as the box, which is cut evenly over devices."""
    yield from check_mesh_shape(config, "physics.mesh_cells", config.physics.mesh_cells)


def check_mesh_shape(config: Any, path: str, cells: Sequence[int]) -> Iterator[tuple[str, str]]:
    """The same of the mesh that the key `path` gives."""
    if len(cells) != config.ndim:
        yield path, f"{path} = {list(cells)}: expected {config.ndim} number(s), one per axis of box.upper"
        return
    for axis, (name, n) in enumerate(zip(AXES, cells, strict=False)):
        devices = getattr(config.mesh, name)
        if n % devices:
            fewer = max(devices, n - n % devices)
            yield (
                f"{path}[{axis}]",
                f"{path}[{axis}] = {n} is not divisible by mesh.{name}={devices}; write {fewer} or {fewer + devices}",
            )


def check_mesh_length(
    config: Any, path: str, cells: Sequence[int], longest: float, why: str
) -> Iterator[tuple[str, str]]:
    """Cells of a mesh that are longer than what is summed over near pairs leaves to it."""
    for axis, (a, b, n) in enumerate(zip(config.box.lower, config.box.upper, cells, strict=False)):
        if (b - a) / n > longest * (1 + 1e-9):
            needed = math.ceil((b - a) / longest * (1 - 1e-9))
            yield (
                f"{path}[{axis}]",
                f"{path}[{axis}] = {n}: cells of {(b - a) / n:.3g} are longer than the {longest:.3g} that {why} asks "
                f"for; write {needed} or more",
            )
