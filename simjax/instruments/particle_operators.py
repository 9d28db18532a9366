"""Instruments that look at particles: values of each of them, and distances between them."""

import functools
import itertools
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.errors import ConfigurationError
from simjax.instruments.operators import Instrumental
from simjax.particles.diffusion import closest_images
from simjax.particles.radial_distribution import smooth_radial_distribution


class EveryParticle(Instrumental):
    """A variable of all particles by their numbers: `(particles,)`, of a vector `(axes, particles)`.

    Positions go on beyond the box where a particle passes through it; those that were measured may lie in any image.
    """

    variable: str = eqx.field(static=True)
    values: tuple[int, ...] = eqx.field(static=True)
    lengths: tuple[float, ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)

    def read(self, view):
        u = view.variables[self.variable]
        if self.variable != "position":
            return u
        return u + jnp.asarray(self.lengths, u.dtype)[:, None] * view.variables["image"].astype(u.dtype)

    def check(self, grid):
        pass

    def shape(self, grid):
        return self.values

    def nearest(self, measured, reading):
        return (
            closest_images(self.lengths, self.periodic, measured, reading) if self.variable == "position" else measured
        )


class Tracks(Instrumental):
    """A vector of the particles with these numbers: `(axes, particles)`; positions go on beyond the box."""

    variable: str = eqx.field(static=True)
    ids: tuple[int, ...] = eqx.field(static=True)
    lengths: tuple[float, ...] = eqx.field(static=True)

    def read(self, view):
        chosen = np.asarray(self.ids)
        u = view.variables[self.variable][..., chosen]
        if self.variable != "position":
            return u
        return u + jnp.asarray(self.lengths, u.dtype)[:, None] * view.variables["image"][..., chosen].astype(u.dtype)

    def check(self, grid):
        pass

    def shape(self, grid):
        return (grid.ndim, len(self.ids))


class OnMesh(Instrumental):
    """A property of the particles on a mesh of `cells` over the box: `(cells along x, along y, ...)`.

    Each particle is shared linearly among the cells whose centres are around it; beyond the outermost centres of an
    axis with walls all of it is in the last cell. Particles outside of the box are in none. Hockney and Eastwood
    (1988), Computer Simulation Using Particles, sec. 5.3.
    """

    cells: eqx.AbstractVar[tuple[int, ...]]

    def check(self, grid):
        pass

    def shape(self, grid):
        return self.cells

    def sums(self, view, values):
        """Sums over particles of `values`, `(rows, particles)`, times their shares: `(rows, *cells)`."""
        grid, position = view.domain.grid, view.variables["position"]
        ndim, dtype = grid.ndim, position.dtype
        around, inside = [], jnp.ones(position.shape[1:], bool)
        for axis, n in enumerate(self.cells):
            share = (position[axis] - jnp.asarray(grid.lower[axis], dtype)) / jnp.asarray(grid.lengths[axis], dtype)
            inside &= (share >= 0) & (share <= 1)  # also not those that are no numbers
            place = jnp.where(jnp.isfinite(share), jnp.clip(share, 0, 1), 0) * n - 0.5
            below = jnp.floor(place)
            fraction, first = place - below, below.astype(jnp.int32)
            pair = []
            for cell, weight in ((first, 1 - fraction), (first + 1, fraction)):
                pair.append((jnp.mod(cell, n) if view.periodic[axis] else jnp.clip(cell, 0, n - 1), weight))
            around.append(pair)
        found = jnp.zeros((len(values), *self.cells), dtype)
        for corner in itertools.product((0, 1), repeat=ndim):
            chosen = [pair[k] for pair, k in zip(around, corner, strict=True)]
            weight = functools.reduce(jnp.multiply, (w for _, w in chosen))
            added = jnp.where(inside[None], weight[None] * values, 0)
            found = found.at[:, *(cell for cell, _ in chosen)].add(added)
        return found


class NumberDensity(OnMesh):
    """Particles per volume; see `OnMesh`."""

    cells: tuple[int, ...] = eqx.field(static=True)
    variable: str = eqx.field(static=True, default="number_density")

    def read(self, view):
        position = view.variables["position"]
        count = self.sums(view, jnp.ones((1, position.shape[1]), position.dtype))[0]
        return count * (math.prod(self.cells) / math.prod(view.domain.grid.lengths))


class MeshVelocity(OnMesh):
    """A component of sum(m v) / sum(m), zero where no particle is; see `OnMesh`. mass: of every particle."""

    cells: tuple[int, ...] = eqx.field(static=True)
    axis: int = eqx.field(static=True)
    mass: np.ndarray
    variable: str = eqx.field(static=True)

    def read(self, view):
        velocity = view.variables["velocity"][self.axis]
        mass = jnp.asarray(self.mass, velocity.dtype)
        total, momentum = self.sums(view, jnp.stack([mass, mass * velocity]))
        return _share_of(momentum, total)


class MeshTemperature(OnMesh):
    """sum(m (v - V)^2) / (d sum(1)) with V as `MeshVelocity` and d components of v: k T where particles move at random
    about V. Zero where no particle is, and where one is alone; see `OnMesh`. mass: of every particle.
    """

    cells: tuple[int, ...] = eqx.field(static=True)
    mass: np.ndarray
    variable: str = eqx.field(static=True, default="temperature")

    def read(self, view):
        velocity = view.variables["velocity"]
        mass = jnp.asarray(self.mass, velocity.dtype)
        # About the mean velocity of all: a common motion would leave few digits of the rest.
        v = velocity - (jnp.sum(mass[None] * velocity, axis=1) / jnp.sum(mass))[:, None]
        one, total, square, *momenta = self.sums(
            view, jnp.stack([jnp.ones_like(mass), mass, mass * jnp.sum(v**2, axis=0), *(mass[None] * v)])
        )
        ordered = sum((p * _share_of(p, total) for p in momenta), jnp.zeros_like(total))
        return _share_of(jnp.maximum(square - ordered, 0), len(v) * one)


def _share_of(part: Array, whole: Array) -> Array:
    """`part` / `whole`, zero where there is nothing."""
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), 0)


class MeanSquareDisplacement(Instrumental):
    """The mean over particles of the squared distance from where each started, beyond the box where it went on."""

    lengths: tuple[float, ...] = eqx.field(static=True)
    variable: str = eqx.field(static=True, default="mean_square_displacement")

    def read(self, view):
        u = view.variables["position"]
        assert view.start is not None
        lengths = jnp.asarray(self.lengths, u.dtype)[:, None]
        # The differences first: they are small against positions far outside.
        moved = u - view.start.astype(u.dtype) + lengths * view.variables["image"].astype(u.dtype)
        return jnp.mean(jnp.sum(moved**2, axis=0))

    def check(self, grid):
        pass

    def shape(self, grid):
        return ()


class RadialDistribution(Instrumental):
    """g at `radii`, each a mean over distances nearer than `width` to it; see `smooth_radial_distribution`."""

    radii: tuple[float, ...] = eqx.field(static=True)
    width: float = eqx.field(static=True)
    variable: str = eqx.field(static=True, default="radial_distribution")

    def read(self, view):
        assert view.cells is not None
        return smooth_radial_distribution(view.cells, view.particles, np.asarray(self.radii), self.width)

    def check(self, grid):
        reach, length = max(self.radii) + self.width, min(grid.spacing)
        if reach > length * (1 + 1e-12):
            raise ConfigurationError(
                f"radial_distribution reaches to {reach:g}, its largest distance and width: expected at most "
                f"{length:g}, the length of a cell, which follows from the cutoff and the skin; observe smaller "
                "distances, or write a larger skin."
            )

    def shape(self, grid):
        return (len(self.radii),)
