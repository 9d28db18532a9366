"""Fluids of smoothed particles from a configuration."""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from simjax.grid import AXES
from simjax.models.capacities import Bounds, bounds_of, room_of_pairs, steps_in
from simjax.models.particle_model import ParticleFamily
from simjax.models.placement import Start, require_room
from simjax.models.sph.initial_conditions import LAYERS, tank
from simjax.models.sph.kernels import SMOOTHING_KERNELS, SmoothingKernel
from simjax.models.sph.keys import FluidConfig
from simjax.models.sph.pair_terms import FLUID
from simjax.models.sph.sph import Params, SmoothedParticles
from simjax.particles.neighbor_policy import Skin

SKIN = 0.2  # of the kernel's support
MACH = 0.13  # of the fastest particles: a fluid is weakly compressible up to 0.1, and waves come on top


class SmoothedFamily(ParticleFamily):
    """Weakly compressible fluids: fluid particles, and those of walls."""

    seconds = (2e-6, 2e-9)
    advice = "Try a smaller time.dt, a larger physics.sound_speed, or some physics.artificial_viscosity."
    shown = ("kinetic_energy", "density_deviation")
    species = ("fluid", "wall")
    scalars = ("density", "pressure")

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

    def first_room(self, start, parameters, blocks):
        spacing, skin = self._places.spacing, self._skin
        fastest = MACH * float(np.max(parameters["sound_speed"]))
        return room_of_pairs(
            self.config, self.bounds, start.position, blocks, reach=self._kernel.support + skin,
            number_density=spacing**-self.config.ndim, steps=steps_in(self.config, skin / 2, fastest),
        )  # fmt: skip

    def mass(self, start):
        return np.full(start.count, self.config.physics.rest_density * self._places.spacing**self.config.ndim)

    @property
    def _kernel(self) -> SmoothingKernel:
        physics = self.config.physics
        return SMOOTHING_KERNELS[physics.kernel](physics.smoothing_length * self._places.spacing, self.config.ndim)

    @property
    def _skin(self) -> float:
        given = self.config.arrangement.skin
        return SKIN * self._kernel.support if given is None else given

    def model(self, cells, room, values):
        physics, kernel = self.config.physics, self._kernel
        # Its domain is a property, which the checker of types takes for a field.
        model = SmoothedParticles(  # pyright: ignore[reportCallIssue]
            cells=cells, skin=Skin(kernel.support, self._skin, room.rows, room.columns), kernel=kernel,
            spacing=self._places.spacing, steps_per_arrangement=room.steps, exponent=physics.exponent,
            walls=physics.walls if self._places.placement == "tank" else "none", transport=physics.transport,
        )  # fmt: skip
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
