"""Keys of fluids of smoothed particles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simjax.schema.kinds import Choice, Flag, ListOf, Real, entry
from simjax.schema.model_schema import DIRECT, FieldSchema, ModelSchema
from simjax.schema.particles import ParticlesSection, check_beside

KERNEL_REACH = {"wendland_c2": 2.0, "wendland_c4": 2.0, "cubic_spline": 2.0, "quintic_spline": 3.0}
"""Kernel -> the smoothing lengths after which it is zero."""
WALL_LAYERS = 4
LARGEST_SHARE = 1e-6  # of a spacing that lengths may be off its multiples


@dataclass(frozen=True)
class FluidConfig(ParticlesSection):
    """The section `particles`: fluid on a lattice that fills a periodic box, or in a tank with walls of particles.

    A tank's box is what its walls enclose; these stand outside it, below, at the sides and, with a `lid`, above.
    """

    spacing: float = entry(Real(above=0.0, formula=True), about="of particles at rest, a length", fixed=True)
    placement: str = entry(Choice(("lattice", "tank")), "lattice")
    fluid: tuple[float, ...] | None = entry(
        ListOf(Real(above=0.0, formula=True), 1, 3, optional=True, noun="lengths, one per axis"),
        None,
        about="of the block of fluid in the lower corner of a tank; null: all of it",
    )
    lid: bool = entry(Flag(), False)
    headroom: float = entry(Real(low=0.0), 0.0, about="length over open walls into which fluid may fly", fixed=True)
    scatter: float = entry(Real(low=0.0, high=0.9), 0.0, about="spacings off the lattice, at random", fixed=True)

    def check(self, box):
        assert box.lower is not None and box.periodic is not None
        tank, ndim = self.placement == "tank", len(box.upper)
        for axis, periodic in enumerate(box.periodic):
            if periodic == tank:
                place = f"box.periodic[{axis}]"
                wanted = "false, a tank has walls" if tank else "true, or particles.placement=tank for walls"
                yield place, f"{place} = {str(periodic).lower()}: expected {wanted}"
        if self.fluid is not None and not tank:
            yield "particles.fluid", "particles.fluid goes with particles.placement=tank; leave it out"
        elif self.fluid is not None and len(self.fluid) != ndim:
            yield "particles.fluid", f"particles.fluid = {list(self.fluid)}: expected {ndim} length(s), one per axis"
        elif self.fluid is not None:
            for axis, (length, a, b) in enumerate(zip(self.fluid, box.lower, box.upper, strict=True)):
                if length > (b - a) * (1 + 1e-9):
                    place = f"particles.fluid[{axis}]"
                    yield place, f"{place} = {length:g}: expected at most {b - a:g}, the length of the box"
                yield from self._whole(f"particles.fluid[{axis}]", length)
        for axis, (a, b) in enumerate(zip(box.lower, box.upper, strict=True)):
            yield from self._whole(f"box.upper[{axis}]", b - a)

    def _whole(self, path: str, length: float) -> Iterator[tuple[str, str]]:
        count = round(length / self.spacing)
        if abs(count * self.spacing - length) > LARGEST_SHARE * self.spacing or not count:
            near = max(1, count) * self.spacing
            yield (
                path,
                f"{path}: expected a length that is a multiple of particles.spacing={self.spacing:g}, {length:g} came; "
                f"write one of {near:g}",
            )


@dataclass(frozen=True)
class SmoothedParticlesPhysics:
    """d rho/dt = -rho div v, dv/dt = -grad p / rho + nu lap v + g, p = c^2 rho_0 / gamma ((rho / rho_0)^gamma - 1)."""

    sound_speed: float = entry(Real(above=0.0), about="c, ten times the largest velocity or more")
    rest_density: float = entry(Real(above=0.0), 1.0, about="rho_0, at no pressure")
    viscosity: float = entry(Real(low=0.0), 0.0, about="nu, kinematic, length^2/time")
    artificial_viscosity: float = entry(Real(low=0.0), 0.0, about="alpha, for free surfaces about 0.02")
    density_diffusion: float = entry(Real(low=0.0), 0.1, about="delta, evens out noise of the pressure")
    gravity: tuple[float, ...] | None = entry(
        ListOf(Real(), 1, 3, optional=True, noun="numbers, one per axis", per_axis=True), None, about="null: none"
    )
    exponent: float = entry(Real(low=1.0), 7.0, about="gamma; 1 is a linear law", fixed=True)
    kernel: str = entry(Choice(tuple(KERNEL_REACH)), "wendland_c2")
    smoothing_length: float = entry(Real(low=0.5, high=4.0), 1.5, about="in spacings", fixed=True)
    walls: str = entry(Choice(("slip", "no_slip")), "no_slip", about="of a tank")
    transport: bool = entry(Flag(), False, about="even out distances of particles; without free surfaces")


def _check(config: Any) -> Iterator[tuple[str, str]]:
    yield from check_beside(config)
    physics, particles = config.physics, config.particles
    tank = particles.placement == "tank"
    reach = KERNEL_REACH[physics.kernel] * physics.smoothing_length
    if tank and reach > WALL_LAYERS * (1 + 1e-9):
        yield (
            "physics.smoothing_length",
            f"physics.smoothing_length = {physics.smoothing_length:g}: {physics.kernel} reaches {reach:g} spacings, "
            f"walls are {WALL_LAYERS} thick; write at most {WALL_LAYERS / KERNEL_REACH[physics.kernel]:.3g}",
        )
    fluid = particles.fluid
    full = fluid is None or all(
        abs(length - (b - a)) < LARGEST_SHARE * particles.spacing
        for length, a, b in zip(fluid, config.box.lower, config.box.upper, strict=True)
    )
    if physics.transport and tank and not (full and particles.lid):
        yield (
            "physics.transport",
            "physics.transport = true: expected a flow without a free surface, in a periodic box or a full tank with "
            "particles.lid=true; write false",
        )
    if particles.lid and particles.headroom:
        yield "particles.headroom", f"particles.headroom = {particles.headroom:g}: expected 0 with particles.lid=true"
    across = (physics.gravity or ())[:-1]
    if tank and any(across):
        yield (
            "physics.gravity",
            f"physics.gravity = {list(physics.gravity)}: expected zeros but for the last axis, the tank's upward",
        )


def _steady(config: Any) -> tuple[str, ...]:
    """What a periodic box without gravity does not change."""
    closed = all(config.box.periodic) and not any(config.physics.gravity or ())
    return ("momentum",) if closed else ()


SCHEMAS: tuple[ModelSchema, ...] = (
    ModelSchema(
        "smoothed_particles",
        SmoothedParticlesPhysics,
        fields=(
            FieldSchema("velocity", vector=True),
            FieldSchema("pressure", default=None, optional=True),
        ),
        walls={},
        diagnosed=lambda ndim: ("position", "velocity", "density", "pressure", "image"),
        least_axes=2,
        integrators=DIRECT,
        limited=False,
        forced=(),
        check=_check,
        particles=FluidConfig,
        steady=_steady,
    ),
)
