"""Fluids of smoothed particles from a configuration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from simjax.grid import AXES
from simjax.models.capacities import Bounds, bounds_of, capacities_of_pairs, steps_in
from simjax.models.measures import of_particles
from simjax.models.particle_model import ParticleFamily, particle_model
from simjax.models.placement import Start, require_room
from simjax.models.sph.initial_conditions import LARGEST_SHARE, LAYERS, multiple_refusals, tank
from simjax.models.sph.kernels import SMOOTHING_KERNELS, SmoothingKernel
from simjax.models.sph.pair_terms import FLUID
from simjax.models.sph.sph import Params, WeaklyCompressibleSPH, conserved_names
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.schema.kinds import Choice, Flag, ListOf, Real, key
from simjax.schema.model_schema import FieldSchema
from simjax.schema.particles import ParticlesSection, check_beside

KERNEL_REACH = {"wendland_c2": 2.0, "wendland_c4": 2.0, "cubic_spline": 2.0, "quintic_spline": 3.0}
"""Kernel -> the smoothing lengths after which it is zero."""
WALL_LAYERS = 4


@dataclass(frozen=True)
class FluidConfig(ParticlesSection):
    """The section `particles`: fluid on a lattice that fills a periodic box, or in a tank with walls of particles.

    A tank's box is what its walls enclose; these stand outside it, below, at the sides and, with a `lid`, above.
    """

    spacing: float = key(Real(above=0.0, formula=True), about="distance of particles at rest, a length", fixed=True)
    placement: str = key(
        Choice(("lattice", "tank")), "lattice", about="whether fluid fills the box or stands in a tank"
    )
    fluid: tuple[float, ...] | None = key(
        ListOf(Real(above=0.0, formula=True), 1, 3, optional=True, noun="lengths, one per axis"),
        None,
        about="size of the block of fluid in the lower corner of a tank; null: all of it",
    )
    lid: bool = key(Flag(), False, about="whether a tank is closed above")
    headroom: float = key(Real(low=0.0), 0.0, about="length over open walls into which fluid may fly", fixed=True)
    scatter: float = key(Real(low=0.0, high=0.9), 0.0, about="spacings off the lattice, at random", fixed=True)

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
                yield from multiple_refusals(f"particles.fluid[{axis}]", length, self.spacing)
        for axis, (a, b) in enumerate(zip(box.lower, box.upper, strict=True)):
            yield from multiple_refusals(f"box.upper[{axis}]", b - a, self.spacing)


@dataclass(frozen=True)
class SPHPhysics:
    """d rho/dt = -rho div v, dv/dt = -grad p / rho + nu lap v + g, p = c^2 rho_0 / gamma ((rho / rho_0)^gamma - 1)."""

    sound_speed: float = key(Real(above=0.0), about="c, ten times the largest velocity or more")
    rest_density: float = key(Real(above=0.0), 1.0, about="rho_0, at no pressure")
    viscosity: float = key(Real(low=0.0), 0.0, about="nu, kinematic, length^2/time")
    artificial_viscosity: float = key(Real(low=0.0), 0.0, about="alpha, for free surfaces about 0.02")
    density_diffusion: float = key(Real(low=0.0), 0.1, about="delta, evens out noise of the pressure")
    gravity: tuple[float, ...] | None = key(
        ListOf(Real(), 1, 3, optional=True, noun="numbers, one per axis", per_axis=True), None, about="null: none"
    )
    exponent: float = key(Real(low=1.0), 7.0, about="gamma; 1 is a linear law", fixed=True)
    kernel: str = key(Choice(tuple(KERNEL_REACH)), "wendland_c2", about="smoothing kernel")
    smoothing_length: float = key(Real(low=0.5, high=4.0), 1.5, about="smoothing length in spacings", fixed=True)
    walls: str = key(Choice(("slip", "no_slip")), "no_slip", about="friction at the walls of a tank")
    transport: bool = key(Flag(), False, about="even out distances of particles; without free surfaces")


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
    """Names of the quantities that a periodic box without gravity conserves."""
    closed = all(config.box.periodic) and not any(config.physics.gravity or ())
    return ("momentum",) if closed else ()


SKIN = 0.2  # of the kernel's support
MACH = 0.13  # of the fastest particles: a fluid is weakly compressible up to 0.1, and waves come on top


@particle_model(
    "sph",
    fields=(
        FieldSchema("velocity", vector=True),
        FieldSchema("pressure", default=None, optional=True),
    ),
    diagnosed=lambda ndim: ("position", "velocity", "density", "pressure", "image"),
    least_axes=2,
    check=_check,
    balanced=lambda ndim, counts: conserved_names(ndim),
)
class SmoothedFamily(ParticleFamily):
    """Weakly compressible fluids: fluid particles, and those of walls."""

    Keys = SPHPhysics
    Section = FluidConfig

    seconds = (2e-6, 2e-9)
    mass_keys = ("physics.rest_density",)
    advice = "Try a smaller time.dt, a larger physics.sound_speed, or some physics.artificial_viscosity."
    species = ("fluid", "wall")
    scalars = ("density", "pressure")

    @property
    def measures(self):
        shown = {"kinetic_energy": "kinetic energy", "density_deviation": "density deviation", "front_x": "front"}
        return of_particles(shown, _steady(self.config))

    @property
    def _places(self) -> FluidConfig:
        places = self.config.particles
        assert isinstance(places, FluidConfig)
        return places

    @property
    def bounds(self) -> Bounds:
        inside, places = bounds_of(self.config), self._places
        if places.placement != "tank":
            return inside
        wall = LAYERS * places.spacing
        above = [wall] * (len(inside.upper) - 1) + [wall if places.lid else places.headroom]
        lower = tuple(a - wall for a in inside.lower)
        return Bounds(lower, tuple(b + more for b, more in zip(inside.upper, above, strict=True)), inside.periodic)

    def start(self) -> Start:
        inside, places = bounds_of(self.config), self._places
        lengths = [b - a for a, b in zip(inside.lower, inside.upper, strict=True)]
        require_room(math.prod(length / places.spacing + 2 * LAYERS for length in lengths))
        origin = np.asarray(inside.lower)[:, None]
        if places.placement == "tank":
            one, down = jnp.ones(()), jnp.zeros((len(lengths),)).at[-1].set(-1)
            begin = tank(
                places.fluid or lengths, lengths, places.spacing, one, down, lid=places.lid, headroom=places.headroom
            )
            # At unit density and gravity the pressure of a fluid at rest is the depth.
            others = {"depth": np.asarray(begin.pressure)}
            return Start(np.asarray(begin.position, np.float64) + origin, np.asarray(begin.species), others)
        points = [(np.arange(round(length / places.spacing)) + 0.5) * places.spacing for length in lengths]
        position = np.stack(np.meshgrid(*points, indexing="ij")).reshape(len(lengths), -1)
        off = np.random.default_rng(self.config.seed).uniform(-0.5, 0.5, position.shape)
        position = position + places.scatter * places.spacing * off + origin
        count = position.shape[1]
        return Start(position, np.zeros(count, np.int32), {"depth": np.zeros(count)})

    def first_capacities(self, start, parameters, blocks):
        spacing, skin = self._places.spacing, self._skin
        fastest = MACH * float(np.max(parameters["sound_speed"]))
        return capacities_of_pairs(
            self.config,
            self.bounds,
            start.position,
            blocks,
            reach=self._kernel.support + skin,
            number_density=spacing**-self.config.ndim,
            steps=steps_in(self.config, skin / 2, fastest),
        )

    def mass(self, start):
        return np.full(start.count, self.config.physics.rest_density * self._places.spacing**self.config.ndim)

    @property
    def _kernel(self) -> SmoothingKernel:
        physics = self.config.physics
        return SMOOTHING_KERNELS[physics.kernel](physics.smoothing_length * self._places.spacing, self.config.ndim)

    @property
    def _skin(self) -> float:
        given = self.config.neighbor_list.skin
        return SKIN * self._kernel.support if given is None else given

    def model(self, cells, capacities, values):
        physics, kernel = self.config.physics, self._kernel
        skin = NeighborPolicy(kernel.support, self._skin, capacities.max_neighbors, capacities.max_particles)
        # Its domain is a property, which the checker of types takes for a field.
        model = WeaklyCompressibleSPH(  # pyright: ignore[reportCallIssue]
            cells=cells,
            skin=skin,
            kernel=kernel,
            spacing=self._places.spacing,
            steps_per_arrangement=capacities.rebuild_every,
            exponent=physics.exponent,
            walls=physics.walls if self._places.placement == "tank" else "none",
            transport=physics.transport,
        )
        gravity = jnp.stack([values[f"gravity_{axis}"] for axis in AXES[: self.config.ndim]])
        names = ("sound_speed", "viscosity", "artificial_viscosity", "density_diffusion")
        return model, Params(density=values["rest_density"], gravity=gravity, **{name: values[name] for name in names})

    def state(self, model, params, values, files, member):
        position = files["position"]
        velocity = self.formula("velocity", values, position)
        pressure = self.formula("pressure", values, position)
        pressure = -params.density * params.gravity[-1] * files["depth"] if pressure is None else pressure[0]
        assert velocity is not None
        return model.begun(position, velocity, pressure, files["species"], params)

    def fewer(self, most):
        """Further apart, by as much as all lengths remain multiples of their distance."""
        config, places, inside = self.config, self._places, bounds_of(self.config)
        lengths = [b - a for a, b in zip(inside.lower, inside.upper, strict=True)]
        common = math.gcd(*(round(length / places.spacing) for length in [*lengths, *(places.fluid or ())]))
        count = self.start().count
        if count <= most:
            return config
        # Of walls fewer are saved than of the fluid.
        for parts in range(int(common * (most / count) ** (1 / len(lengths))), 0, -1):
            fewer = dataclasses.replace(places, spacing=places.spacing * common / parts)
            config = dataclasses.replace(self.config, particles=fewer)
            if SmoothedFamily(config).start().count <= most:
                break
        return config

    def moving(self, start):
        """Walls stay."""
        return np.flatnonzero(start.species == FLUID).astype(np.int32)

    def arrays(self, model, state, params):
        return {"velocity": state.velocity, "density": state.density, "pressure": model.pressure(state, params)}
