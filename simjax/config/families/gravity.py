"""Keys of particles that attract each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simjax.config.families.plasma import check_field_cells
from simjax.config.kinds import Choice, Integer, ListOf, Real, entry
from simjax.config.model_schema import DIRECT, FieldSchema, ModelSchema
from simjax.config.particle_sections import ParticlesSection, check_beside, check_unlisted


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
    """d^2 x/dt^2 = -grad phi, lap(phi) = 4 pi G rho, less the mean of rho in a periodic box."""

    forces: str = entry(
        Choice(("direct", "mesh", "p3m")),
        about="direct: all pairs, no images; mesh: periodic; p3m: mesh and near pairs, periodic",
    )
    gravitational_constant: float = entry(Real(above=0.0), 1.0, about="G")
    total_mass: float = entry(Real(above=0.0), 1.0, about="of all particles")
    softening: float = entry(Real(low=0.0), 0.0, about="length within which pairs attract each other less")
    field_cells: tuple[int, ...] | None = entry(
        ListOf(Integer(2, 2**20), 1, 3, optional=True, noun="cell counts, one per axis"),
        None,
        about="of the mesh; with p3m at least so many",
    )
    cutoff: float | None = entry(Real(above=0.0, optional=True), None, about="of near pairs of p3m", fixed=True)


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
        steady=lambda config: ("energy", "momentum"),
    ),
)
