"""Particles under their own gravity, built from a configuration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from simjax.grid import Grid
from simjax.models.capacities import Capacities, capacities_in, capacities_of_pairs, multiple, steps_in
from simjax.models.gravity.cosmology import FlatLambdaCDM
from simjax.models.gravity.force_solvers import (
    DirectSummation,
    GravitySolver,
    Params,
    ParticleMeshGravity,
    PeriodicGravity,
)
from simjax.models.gravity.gravity import Gravity, conserved_names
from simjax.models.gravity.masses_of_file import start_from_file
from simjax.models.measures import of_particles
from simjax.models.particle_model import ParticleFamily, particle_model, standard_normals
from simjax.models.placement import Start, evenly, require_room
from simjax.particles.cells import Cells, cells_for
from simjax.particles.ewald import MeshSum, mesh_sum
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.schema.kinds import Choice, Integer, ListOf, Real, Text, key
from simjax.schema.model_schema import FieldSchema
from simjax.schema.particles import (
    ParticlesSection,
    check_beside,
    check_mesh_cells,
    check_mesh_length,
    check_number,
    check_unlisted,
)

CONSISTENT = 1e-6  # of a mean density: total_mass may be written with nine digits


@dataclass(frozen=True)
class MassesConfig(ParticlesSection):
    """The section `particles`: how many of equal mass, and where, or a file with masses of their own.

    even: as evenly as a sequence of low discrepancy, in one dimension at equal distances; sphere: at random in a ball
    (a disc, a line) about the middle of the box. `initial.displacement` and `initial.velocity` come on top.
    """

    count: int | None = key(Integer(1, 2**30, optional=True), None, about="number of particles, or null with a file")
    placement: str = key(Choice(("even", "random", "sphere", "file")), "even", about="how particles are placed")
    file: str | None = key(
        Text(optional=True, described="a file of particles"), None, about="file of places, velocities and masses"
    )
    radius: float | None = key(Real(above=0.0, optional=True), None, about="radius of the sphere, a length", fixed=True)
    dispersion: float = key(
        Real(low=0.0, formula=True), 0.0, about="deviation of the velocities along each axis, normal"
    )

    def check(self, box):
        assert box.lower is not None
        yield from check_number(self, ("count", "file"))
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

    forces: str = key(
        Choice(("direct", "mesh", "p3m")),
        about="direct: all pairs, no images; mesh: periodic; p3m: mesh and near pairs, periodic",
    )
    gravitational_constant: float = key(Real(above=0.0), 1.0, about="G")
    total_mass: float = key(Real(above=0.0, formula=True), 1.0, about="mass of all particles")
    softening: float = key(Real(low=0.0), 0.0, about="length within which pairs attract each other less")
    mesh_cells: tuple[int, ...] | None = key(
        ListOf(Integer(2, 2**20), 1, 3, optional=True, noun="cell counts, one per axis"),
        None,
        about="cells of the mesh; with p3m no longer than the cutoff",
    )
    cutoff: float | None = key(
        Real(above=0.0, optional=True), None, about="cutoff of near pairs of p3m, a length", fixed=True
    )
    hubble_rate: float | None = key(
        Real(above=0.0, optional=True), None, about="H0, where a = 1; null: nothing expands", fixed=True
    )
    omega_matter: float = key(
        Real(above=0.0, high=1.0), 1.0, about="M, of the density where a = 1; the rest is a constant", fixed=True
    )
    initial_scale_factor: float | None = key(
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
    if (physics.mesh_cells is None) != direct:
        wanted = "null" if direct else "cell counts, one per axis"
        yield "physics.mesh_cells", f"physics.mesh_cells: expected {wanted} with physics.forces={physics.forces}"
    elif not direct:
        yield from check_mesh_cells(config)
    if (physics.cutoff is None) == p3m:
        wanted = "a length" if p3m else "null"
        yield "physics.cutoff", f"physics.cutoff: expected {wanted} with physics.forces={physics.forces}"
    if p3m and config.ndim != 3:
        yield "physics.forces", f"physics.forces = p3m: expected a box of 3 axes, got {config.ndim}; write mesh"
    elif p3m and physics.mesh_cells is not None and physics.cutoff is not None:
        yield from check_mesh_length(config, "physics.mesh_cells", physics.mesh_cells, physics.cutoff, "physics.cutoff")
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
    if (physics.hubble_rate is None) != (physics.initial_scale_factor is None):
        yield (
            "physics.initial_scale_factor",
            "physics.initial_scale_factor and physics.hubble_rate go together; write both or none",
        )
    if physics.hubble_rate is None:
        if physics.omega_matter != 1:
            path = "physics.omega_matter"
            yield path, f"{path} = {physics.omega_matter:g}: expected 1 without physics.hubble_rate"
        return
    if physics.forces == "direct":
        yield (
            "physics.forces",
            "physics.forces = direct: expected mesh or p3m with physics.hubble_rate, what expands fills a periodic box",
        )
    volume = math.prod(b - a for a, b in zip(box.lower, box.upper, strict=True))
    critical = 3 * physics.hubble_rate**2 / (8 * math.pi * physics.gravitational_constant)
    wanted = critical * physics.omega_matter * volume
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


SKIN = 0.15  # of the cutoff
STRAY = 0.5  # mesh cells out of their cells
TOLERANCE = 1e-3  # of what pairs beyond the cutoff leave to the mesh
FEW = 8  # particles in a mesh cell, below which two along each axis share their slots
MARGIN = 2.0  # of the speeds that a collapse gives, over those at the start


@particle_model(
    "gravity",
    fields=(FieldSchema("displacement", vector=True), FieldSchema("velocity", vector=True)),
    check=_check,
    balanced=lambda ndim, counts: conserved_names(ndim),
    given_at_start=("position", "velocity"),
)
class GravityFamily(ParticleFamily):
    """Masses under their own gravity."""

    Keys = GravityPhysics
    Section = MassesConfig

    seconds = (1e-6, 1e-9)
    mass_keys = ("physics.total_mass",)
    advice = "Try a smaller time.dt, or a larger physics.softening."
    at_start = "two particles may stand at the same place: check initial, or write physics.softening"

    @property
    def measures(self):
        expands = self.config.physics.hubble_rate is not None
        more = {"scale_factor": "scale factor"} if expands else {"energy": "energy"}
        shown = {"kinetic_energy": "kinetic energy", "potential_energy": "potential energy", **more}
        return of_particles(shown, _steady(self.config))

    @property
    def on_mesh(self):
        return self.config.physics.forces != "direct"

    @property
    def _expansion(self) -> FlatLambdaCDM | None:
        physics = self.config.physics
        if physics.hubble_rate is None:
            return None
        return FlatLambdaCDM(physics.hubble_rate, physics.omega_matter, physics.initial_scale_factor)

    @property
    def _particles(self) -> MassesConfig:
        particles = self.config.particles
        assert isinstance(particles, MassesConfig)
        return particles

    def start(self):
        particles, bounds, ndim = self._particles, self.bounds, self.config.ndim
        if particles.file is not None:
            return start_from_file(self.config)
        assert particles.count is not None
        require_room(particles.count)
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

    def first_capacities(self, start, parameters, blocks):
        config, bounds, physics = self.config, self.bounds, self.config.physics
        lengths = [b - a for a, b in zip(bounds.lower, bounds.upper, strict=True)]
        if physics.forces == "direct":
            # Particles keep their slots, so none are spare.
            grid = Grid(tuple(blocks), bounds.lower, bounds.upper)
            found = capacities_in(
                config, grid, start.position, blocks, max_neighbors=0, steps=steps_in(config, math.inf, 1.0)
            )
            return dataclasses.replace(found, cell_capacity=multiple(self._fullest(grid, start)))
        speed = MARGIN * self._speed(lengths, start)
        if physics.forces == "p3m":
            skin = self._skin
            return capacities_of_pairs(
                config,
                bounds,
                start.position,
                blocks,
                reach=physics.cutoff + skin,
                number_density=self._densest(start, physics.cutoff + skin),
                steps=steps_in(config, skin / 2, speed),
            )
        cells = physics.mesh_cells
        pairs = all(n % (2 * k) == 0 for n, k in zip(cells, blocks, strict=True))
        few = start.count < FEW * math.prod(cells)
        grid = Grid(tuple(n // 2 for n in cells) if few and pairs else cells, bounds.lower, bounds.upper)
        way = STRAY * min(length / n for length, n in zip(lengths, cells, strict=True))
        return capacities_in(config, grid, start.position, blocks, max_neighbors=0, steps=steps_in(config, way, speed))

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

    def _speed(self, lengths: list[float], start: Start) -> float:
        """At which all that there is crosses the box by its gravity, and the largest of those at the start.

        In an expanding background comoving, where growing waves are the fastest at the start.
        """
        physics, particles = self.config.physics, self._particles
        density = physics.total_mass / math.prod(lengths)
        rate = math.sqrt(4 * math.pi * physics.gravitational_constant * density)
        a = 1.0 if physics.initial_scale_factor is None else physics.initial_scale_factor
        warm = particles.dispersion * math.sqrt(2 * math.log(start.count + 1))
        given = float(np.max(np.linalg.norm(start.others["thrown"], axis=0))) if "thrown" in start.others else 0.0
        return 0.1 * rate * max(lengths) / math.sqrt(a) + (warm + given) / a**2

    @property
    def _skin(self) -> float:
        given = self.config.neighbor_list.skin
        return SKIN * self.config.physics.cutoff if given is None else given

    def mass(self, start):
        total = self.config.physics.total_mass
        return total * start.others["share"] if "share" in start.others else np.full(start.count, total / start.count)

    def model(self, cells, capacities, values):
        # Its domain is a property, which the checker of types takes for a field.
        attraction = self._attraction(cells, capacities)
        model = Gravity(cells, attraction, capacities.rebuild_every, expansion=self._expansion)  # pyright: ignore[reportCallIssue]
        return model, Params(values["gravitational_constant"], values["softening"])

    def _attraction(self, cells: Cells, capacities: Capacities) -> GravitySolver:
        physics = self.config.physics
        if physics.forces == "direct":
            return DirectSummation()
        mesh = physics.mesh_cells
        if physics.forces == "mesh":
            return ParticleMeshGravity(MeshSum(0.0, mesh, "tsc", STRAY))
        spacing = min(length / n for length, n in zip(cells.domain.grid.lengths, mesh, strict=True))
        skin = NeighborPolicy(physics.cutoff, self._skin, capacities.max_neighbors, capacities.max_particles)
        stray = max(STRAY, self._skin / 2 / spacing)
        return PeriodicGravity(skin, mesh_sum(physics.cutoff, TOLERANCE, mesh, "tsc", stray))

    def state(self, model, params, values, files, member):
        place = files["position"]
        moving, displaced = (self.formula(name, values, place) for name in ("velocity", "displacement"))
        assert moving is not None and displaced is not None
        count = place.shape[1]
        normal = standard_normals(self.config, (self.config.ndim, count), place.dtype, member)
        total = values["total_mass"]
        mass = total * files["share"] if "share" in files else jnp.broadcast_to(total / count, (count,))
        velocity = files.get("velocity", moving + values["start_dispersion"] * normal)
        if "thrown" in files and "velocity" not in files:
            velocity = velocity + files["thrown"]
        state, lost = model.state_from(place + displaced, velocity, mass, params)
        # Its diagnostics tell where there is too little room for pairs.
        return state, lost, jnp.zeros((), jnp.int32)
