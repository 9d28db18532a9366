"""Keys of plasmas of particles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simjax.schema.kinds import Choice, Integer, ListOf, Real, entry
from simjax.schema.model_schema import AXES, DIRECT, FieldSchema, ModelSchema
from simjax.schema.particles import ParticlesSection, check_beside, check_unlisted

LARGEST_STEP = 0.5  # of the inverse plasma frequency
PER_SPECIES = "numbers, one per species"


@dataclass(frozen=True)
class ChargedParticlesConfig(ParticlesSection):
    """Keys of the section `particles` of every plasma: how many, of which species, how warm.

    quiet: evenly spread places and velocities, of sequences of low discrepancy, each species for itself; random: with
    the noise of so many particles. `initial.displacement` and `initial.velocity` come on top.
    """

    count: int = entry(Integer(1, 2**30), about="particles of all species")
    placement: str = entry(Choice(("quiet", "random")), "quiet")
    fractions: tuple[float, ...] = entry(
        ListOf(Real(above=0.0, high=1.0), 1, 100, noun="shares, one per species"), (1.0,)
    )
    temperature: tuple[float, ...] = entry(
        ListOf(Real(low=0.0), 1, 100, noun=PER_SPECIES), (0.0,), about="an energy"
    )  # fmt: skip

    def check(self, box):
        assert box.periodic is not None
        for axis, periodic in enumerate(box.periodic):
            if not periodic:
                yield f"box.periodic[{axis}]", f"box.periodic[{axis}] = false: expected true for a plasma"
        if abs(sum(self.fractions) - 1) > 1e-9:
            total = f"{sum(self.fractions):g}"
            yield (
                "particles.fractions",
                f"particles.fractions = {list(self.fractions)}: expected a sum of 1, not {total}",
            )
        for name in ("temperature", "drift"):
            yield from one_per_species(f"particles.{name}", getattr(self, name), len(self.fractions))


@dataclass(frozen=True)
class PlasmaParticlesConfig(ChargedParticlesConfig):
    """The section `particles` of an electrostatic plasma: also how fast along x."""

    drift: tuple[float, ...] = entry(ListOf(Real(), 1, 100, noun=PER_SPECIES), (0.0,), about="velocity along x")


@dataclass(frozen=True)
class ChargedPhysics:
    """Keys of the physics of every plasma."""

    field_cells: tuple[int, ...] = entry(
        ListOf(Integer(2, 2**20), 1, 3, noun="cell counts, one per axis"), about="of the mesh of the field"
    )
    charge: tuple[float, ...] = entry(ListOf(Real(), 1, 100, noun=PER_SPECIES), (-1.0,), about="of a particle")
    mass: tuple[float, ...] = entry(ListOf(Real(above=0.0), 1, 100, noun=PER_SPECIES), (1.0,), about="of a particle")
    number_density: float = entry(
        Real(above=0.0), 1.0, about="of all species, 1/length^ndim; a simulated particle stands for many"
    )  # fmt: skip
    permittivity: float = entry(Real(above=0.0), 1.0, about="eps")
    magnetic_field: tuple[float, ...] | None = entry(
        ListOf(Real(), 3, 3, optional=True, noun="components"), None, about="B, uniform; null: none"
    )


@dataclass(frozen=True)
class PlasmaPhysics(ChargedPhysics):
    """dx/dt = v, m dv/dt = q (E + v x B), E = -grad phi, eps lap(phi) = -(rho - mean of rho)."""

    assignment: str = entry(Choice(("cic", "tsc")), "tsc", about="of charges to the mesh: a cloud in cell or smoother")


def one_per_species(path: str, given: tuple, species: int) -> Iterator[tuple[str, str]]:
    """A sentence about a list that has neither one entry nor as many as there are species."""
    if len(given) not in (1, species):
        yield path, f"{path} = {list(given)}: expected 1 or {species} number(s), one per species of particles.fractions"


def of_each(given: tuple, species: int) -> tuple:
    """As many entries as there are species."""
    return given if len(given) == species else given * species


def plasma_frequency(config: Any) -> float:
    """omega_p, with omega_p^2 = sum over species of n q^2 / (eps m)."""
    physics, shares = config.physics, config.particles.fractions
    charge, mass = (of_each(u, len(shares)) for u in (physics.charge, physics.mass))
    total = sum(s * q * q / m for s, q, m in zip(shares, charge, mass, strict=True))
    return math.sqrt(total * physics.number_density / physics.permittivity)


def fastest(config: Any) -> float:
    """About the largest of the speeds with which particles start."""
    physics, particles = config.physics, config.particles
    species = len(particles.fractions)
    mass, temperature, drift = (
        of_each(u, species) for u in (physics.mass, particles.temperature, particles.drift)
    )  # fmt: skip
    largest = math.sqrt(2 * math.log(particles.count + 1))  # of so many normal numbers
    return max(
        abs(v) + largest * math.sqrt(t / m) for v, t, m in zip(drift, temperature, mass, strict=True)
    )  # fmt: skip


def check_field_cells(config: Any) -> Iterator[tuple[str, str]]:
    """A mesh of as many axes as the box, which is cut evenly over devices."""
    cells = config.physics.field_cells
    if len(cells) != config.ndim:
        yield (
            "physics.field_cells",
            f"physics.field_cells = {list(cells)}: expected {config.ndim} number(s), one per axis of box.upper",
        )
        return
    for axis, (name, n) in enumerate(zip(AXES, cells, strict=False)):
        devices = getattr(config.mesh, name)
        if n % devices:
            fewer = max(devices, n - n % devices)
            yield (
                f"physics.field_cells[{axis}]",
                f"physics.field_cells[{axis}] = {n} is not divisible by mesh.{name}={devices}; write {fewer} or "
                f"{fewer + devices}",
            )


def check_charged(config: Any) -> Iterator[tuple[str, str]]:
    """What every plasma asks for: lists that fit the species, a mesh that fits the box, steps that follow its waves."""
    yield from check_beside(config)
    yield from check_unlisted(config)
    yield from check_field_cells(config)
    species = len(config.particles.fractions)
    charge, mass = config.physics.charge, config.physics.mass
    uneven = [
        *one_per_species("physics.charge", charge, species),
        *one_per_species("physics.mass", mass, species),
    ]
    yield from uneven
    dt = config.time.dt
    if uneven or dt is None:
        return
    frequency = plasma_frequency(config)
    if frequency * dt > LARGEST_STEP:
        yield (
            "time.dt",
            f"time.dt = {dt:g}: a plasma of frequency {frequency:.3g} needs steps of at most {LARGEST_STEP:g} of its "
            f"inverse; write {LARGEST_STEP / frequency:.2g} or less",
        )


def _check(config: Any) -> Iterator[tuple[str, str]]:
    found = list(check_charged(config))
    yield from found
    dt, cells = config.time.dt, config.physics.field_cells
    uneven = {"physics.charge", "physics.mass", "physics.field_cells"} & {path for path, _ in found}
    if uneven or dt is None:
        return
    box = config.box
    cell = min((b - a) / n for a, b, n in zip(box.lower, box.upper, cells, strict=True))
    speed = fastest(config)
    if speed * dt > cell:
        yield (
            "time.dt",
            f"time.dt = {dt:g}: particles as fast as {speed:.3g} cross more than a cell of {cell:.3g} in a step; write "
            f"{cell / speed:.2g} or less, or fewer physics.field_cells",
        )


def _steady(config: Any) -> tuple[str, ...]:
    """A magnetic field turns momenta."""
    return ("energy",) if config.physics.magnetic_field is not None else ("energy", "momentum")


SCHEMAS: tuple[ModelSchema, ...] = (
    ModelSchema(
        "plasma",
        PlasmaPhysics,
        fields=(FieldSchema("displacement", vector=True), FieldSchema("velocity", vector=True)),
        walls={},
        diagnosed=lambda ndim: ("position", "velocity", "image"),
        integrators=DIRECT,
        limited=False,
        forced=(),
        check=_check,
        particles=PlasmaParticlesConfig,
        steady=_steady,
    ),
)
