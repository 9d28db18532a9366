"""Keys of particles that attract each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simjax.models.plasma.keys import check_field_cells
from simjax.schema.kinds import Choice, Integer, ListOf, Real, entry
from simjax.schema.model_schema import DIRECT, FieldSchema, ModelSchema
from simjax.schema.particles import ParticlesSection, check_beside, check_unlisted

CONSISTENT = 1e-6  # of a mean density: total_mass may be written with nine digits


@dataclass(frozen=True)
class MassesConfig(ParticlesSection):
    """The section `particles`: how many of equal mass, and where.

    even: as evenly as a sequence of low discrepancy, in one dimension at equal distances; sphere: at random in a ball
    (a disc, a line) about the middle of the box. `initial.displacement` and `initial.velocity` come on top.
    """

    count: int = entry(Integer(1, 2**30))
    placement: str = entry(Choice(("even", "random", "sphere")), "even")
    radius: float | None = entry(Real(above=0.0, optional=True), None, about="of the sphere", fixed=True)
    dispersion: float = entry(Real(low=0.0, formula=True), 0.0, about="of the velocities along each axis, normal")

    def check(self, box):
        assert box.lower is not None
        sphere = self.placement == "sphere"
        if (self.radius is not None) != sphere:
            yield "particles.radius", "particles.radius and particles.placement=sphere go together; write both or none"
        elif self.radius is not None:
            most = min(b - a for a, b in zip(box.lower, box.upper, strict=True)) / 2
            if self.radius > most:
                yield "particles.radius", f"particles.radius = {self.radius:g}: expected at most {most:g}, half the box"


@dataclass(frozen=True)
class GravityPhysics:
    """d^2 x/dt^2 = -grad phi, lap(phi) = 4 pi G rho, less the mean of rho in a periodic box.

    With a Hubble rate the background expands, (da/dt)^2 = H0^2 (M / a + (1 - M) a^2): x are comoving, velocities are
    a^2 dx/dt, and d(a^2 dx/dt)/dt = -grad phi / a.
    """

    forces: str = entry(
        Choice(("direct", "mesh", "p3m")),
        about="direct: all pairs, no images; mesh: periodic; p3m: mesh and near pairs, periodic",
    )
    gravitational_constant: float = entry(Real(above=0.0), 1.0, about="G")
    total_mass: float = entry(Real(above=0.0, formula=True), 1.0, about="of all particles")
    softening: float = entry(Real(low=0.0), 0.0, about="length within which pairs attract each other less")
    field_cells: tuple[int, ...] | None = entry(
        ListOf(Integer(2, 2**20), 1, 3, optional=True, noun="cell counts, one per axis"),
        None,
        about="of the mesh; with p3m at least so many",
    )
    cutoff: float | None = entry(Real(above=0.0, optional=True), None, about="of near pairs of p3m", fixed=True)
    hubble_rate: float | None = entry(
        Real(above=0.0, optional=True), None, about="H0, where a = 1; null: nothing expands", fixed=True
    )
    matter_share: float = entry(
        Real(above=0.0, high=1.0), 1.0, about="M, of the density where a = 1; the rest is a constant", fixed=True
    )
    first_scale_factor: float | None = entry(
        Real(above=0.0, optional=True), None, about="a at the start, with hubble_rate", fixed=True
    )


def _check(config: Any) -> Iterator[tuple[str, str]]:
    yield from check_beside(config)
    physics, box = config.physics, config.box
    direct, p3m = physics.forces == "direct", physics.forces == "p3m"
    for axis, periodic in enumerate(box.periodic):
        if periodic == direct:
            place = f"box.periodic[{axis}]"
            yield place, f"{place} = {str(periodic).lower()}: expected the other with physics.forces={physics.forces}"
    if not p3m:
        yield from check_unlisted(config)
    if (physics.field_cells is None) != direct:
        wanted = "null" if direct else "cell counts, one per axis"
        yield "physics.field_cells", f"physics.field_cells: expected {wanted} with physics.forces={physics.forces}"
    elif not direct:
        yield from check_field_cells(config)
    if (physics.cutoff is None) == p3m:
        wanted = "a length" if p3m else "null"
        yield "physics.cutoff", f"physics.cutoff: expected {wanted} with physics.forces={physics.forces}"
    if p3m and config.ndim != 3:
        yield "physics.forces", f"physics.forces = p3m: expected a box of 3 axes, {config.ndim} came; write mesh"
    if physics.forces == "mesh" and physics.softening:
        yield (
            "physics.softening",
            f"physics.softening = {physics.softening:g}: expected 0 with physics.forces=mesh, which softens over two "
            "of its cells; write p3m for another",
        )
    yield from _check_expansion(config)


def _check_expansion(config: Any) -> Iterator[tuple[str, str]]:
    """Keys of an expanding background, whose mean density is that of the particles."""
    physics, box = config.physics, config.box
    if (physics.hubble_rate is None) != (physics.first_scale_factor is None):
        yield (
            "physics.first_scale_factor",
            "physics.first_scale_factor and physics.hubble_rate go together; write both or none",
        )
    if physics.hubble_rate is None:
        if physics.matter_share != 1:
            path = "physics.matter_share"
            yield path, f"{path} = {physics.matter_share:g}: expected 1 without physics.hubble_rate"
        return
    if physics.forces == "direct":
        yield (
            "physics.forces",
            "physics.forces = direct: expected mesh or p3m with physics.hubble_rate, what expands fills a periodic box",
        )
    volume = math.prod(b - a for a, b in zip(box.lower, box.upper, strict=True))
    critical = 3 * physics.hubble_rate**2 / (8 * math.pi * physics.gravitational_constant)
    wanted = critical * physics.matter_share * volume
    if abs(physics.total_mass / wanted - 1) > CONSISTENT:
        yield (
            "physics.total_mass",
            f"physics.total_mass = {physics.total_mass:g}: expected {wanted:.9g}, the mean density 3 H0^2 M / (8 pi G) "
            "of the expansion times the volume of the box",
        )
    for variation in config.ensemble.vary:
        if variation.path in ("physics.total_mass", "physics.gravitational_constant"):
            path = f"ensemble.vary.{variation.path}"
            yield path, f"{path}: expected one value with physics.hubble_rate, which the mean density follows from"


def _steady(config: Any) -> tuple[str, ...]:
    """Expansion takes energy from peculiar motion."""
    return ("energy", "momentum") if config.physics.hubble_rate is None else ("momentum",)


SCHEMAS: tuple[ModelSchema, ...] = (
    ModelSchema(
        "gravity",
        GravityPhysics,
        fields=(FieldSchema("displacement", vector=True), FieldSchema("velocity", vector=True)),
        walls={},
        diagnosed=lambda ndim: ("position", "velocity", "image"),
        integrators=DIRECT,
        limited=False,
        forced=(),
        check=_check,
        particles=MassesConfig,
        steady=_steady,
    ),
)
