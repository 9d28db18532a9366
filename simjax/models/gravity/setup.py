"""Particles that attract each other, from a configuration."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from simjax.grid import Grid
from simjax.models.capacities import Room, multiple, room_in, room_of_pairs, steps_in
from simjax.models.gravity.cosmology import FlatUniverse
from simjax.models.gravity.force_solvers import Attraction, DirectSummation, MeshAttraction, Params, PeriodicAttraction
from simjax.models.gravity.gravity import Gravity
from simjax.models.gravity.keys import MassesConfig
from simjax.models.particle_model import ParticleFamily, standard_normals
from simjax.models.placement import Start, evenly, require_room
from simjax.particles.cells import Cells, cells_for
from simjax.particles.ewald import MeshSum, mesh_sum
from simjax.particles.neighbor_policy import Skin

SKIN = 0.15  # of the cutoff
STRAY = 0.5  # mesh cells out of their cells
TOLERANCE = 1e-3  # of what pairs beyond the cutoff leave to the mesh
FEW = 8  # particles in a mesh cell, below which two along each axis share their slots
MARGIN = 2.0  # of the speeds that a collapse gives, over those at the start


class GravityFamily(ParticleFamily):
    """Masses under their own gravity."""

    seconds = (1e-6, 1e-9)
    advice = "Try a smaller time.dt, or a larger physics.softening."
    at_start = "two particles may stand at the same place: check initial, or write physics.softening"

    @property
    def shown(self):
        expands = self.config.physics.hubble_rate is not None
        return ("scale_factor", "kinetic_energy") if expands else ("kinetic_energy", "energy_drift")

    @property
    def on_mesh(self):
        return self.config.physics.forces != "direct"

    @property
    def _expansion(self) -> FlatUniverse | None:
        physics = self.config.physics
        if physics.hubble_rate is None:
            return None
        return FlatUniverse(physics.hubble_rate, physics.matter_share, physics.first_scale_factor)

    @property
    def _particles(self) -> MassesConfig:
        particles = self.config.particles
        assert isinstance(particles, MassesConfig)
        return particles

    def start(self):
        require_room(self._particles.count)
        particles, bounds, ndim = self._particles, self.bounds, self.config.ndim
        lower, upper = np.asarray(bounds.lower)[:, None], np.asarray(bounds.upper)[:, None]
        rng = np.random.default_rng(self.config.seed)
        if particles.placement == "sphere":
            assert particles.radius is not None
            direction = rng.normal(size=(ndim, particles.count))
            direction /= np.linalg.norm(direction, axis=0)
            place = (lower + upper) / 2 + particles.radius * rng.random(particles.count) ** (1 / ndim) * direction
        else:
            even = particles.placement == "even"
            shares = evenly(particles.count, ndim) if even else rng.random((ndim, particles.count))
            place = lower + shares * (upper - lower)
        return Start(place, np.zeros(particles.count, np.int32))

    def first_room(self, start, parameters, blocks):
        config, bounds, physics = self.config, self.bounds, self.config.physics
        lengths = [b - a for a, b in zip(bounds.lower, bounds.upper, strict=True)]
        if physics.forces == "direct":
            # Particles keep their slots, so none are spare.
            grid = Grid(tuple(blocks), bounds.lower, bounds.upper)
            room = room_in(config, grid, start.position, blocks, rows=0, steps=steps_in(config, math.inf, 1.0))
            return Room(room.cells, multiple(self._fullest(grid, start)), 0, room.columns, room.steps)
        speed = MARGIN * self._speed(lengths)
        if physics.forces == "p3m":
            skin = self._skin
            return room_of_pairs(
                config, bounds, start.position, blocks, reach=physics.cutoff + skin,
                number_density=self._densest(start, physics.cutoff + skin), steps=steps_in(config, skin / 2, speed),
            )  # fmt: skip
        cells = physics.field_cells
        pairs = all(n % (2 * k) == 0 for n, k in zip(cells, blocks, strict=True))
        few = start.count < FEW * math.prod(cells)
        grid = Grid(tuple(n // 2 for n in cells) if few and pairs else cells, bounds.lower, bounds.upper)
        way = STRAY * min(length / n for length, n in zip(lengths, cells, strict=True))
        return room_in(config, grid, start.position, blocks, rows=0, steps=steps_in(config, way, speed))

    def _fullest(self, grid: Grid, start: Start) -> int:
        """Particles in the fullest cell."""
        index = [
            np.clip(np.floor((x - a) / h).astype(int), 0, n - 1)
            for x, a, h, n in zip(start.position, grid.lower, grid.spacing, grid.shape, strict=True)
        ]
        return int(np.bincount(np.ravel_multi_index(tuple(index), grid.shape)).max())

    def _densest(self, start: Start, reach: float) -> float:
        """Number per volume in the fullest cell: masses need not fill the box."""
        grid = cells_for(self.bounds.lower, self.bounds.upper, reach, self.bounds.periodic)
        return self._fullest(grid, start) / grid.cell_volume

    def _speed(self, lengths: list[float]) -> float:
        """At which all that there is crosses the box by its gravity, and the largest of those at the start.

        In an expanding background comoving, where growing waves are the fastest at the start.
        """
        physics, particles = self.config.physics, self._particles
        density = physics.total_mass / math.prod(lengths)
        rate = math.sqrt(4 * math.pi * physics.gravitational_constant * density)
        a = 1.0 if physics.first_scale_factor is None else physics.first_scale_factor
        warm = particles.dispersion * math.sqrt(2 * math.log(particles.count + 1))
        return 0.1 * rate * max(lengths) / math.sqrt(a) + warm / a**2

    @property
    def _skin(self) -> float:
        given = self.config.arrangement.skin
        return SKIN * self.config.physics.cutoff if given is None else given

    def mass(self, start):
        return np.full(start.count, self.config.physics.total_mass / start.count)

    def model(self, cells, room, values):
        # Its domain is a property, which the checker of types takes for a field.
        attraction = self._attraction(cells, room)
        model = Gravity(cells, attraction, room.steps, expansion=self._expansion)  # pyright: ignore[reportCallIssue]
        return model, Params(values["gravitational_constant"], values["softening"])

    def _attraction(self, cells: Cells, room: Room) -> Attraction:
        physics = self.config.physics
        if physics.forces == "direct":
            return DirectSummation()
        finer = max(math.ceil(n / k) for n, k in zip(physics.field_cells, room.cells, strict=True))
        if physics.forces == "mesh":
            return MeshAttraction(MeshSum(0.0, finer, "tsc", STRAY))
        spacing = min(cells.domain.grid.spacing) / finer
        skin = Skin(physics.cutoff, self._skin, room.rows, room.columns)
        stray = max(STRAY, self._skin / 2 / spacing)
        return PeriodicAttraction(skin, mesh_sum(physics.cutoff, TOLERANCE, finer, "tsc", stray))

    def state(self, model, params, values, files, member):
        place = files["position"]
        moving, displaced = (self.formula(name, values, place) for name in ("velocity", "displacement"))
        assert moving is not None and displaced is not None
        normal = standard_normals(self.config, (self.config.ndim, self._particles.count), place.dtype, member)
        mass = jnp.broadcast_to(values["total_mass"] / self._particles.count, place.shape[1:])
        velocity = moving + values["start_dispersion"] * normal
        state, lost = model.state_from(place + displaced, velocity, mass, params)
        # Its diagnostics tell where there is too little room for pairs.
        return state, lost, jnp.zeros((), jnp.int32)
