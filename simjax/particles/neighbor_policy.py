"""Particles sorted into cells and their pairs listed, for as many steps as a skin allows."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.arguments import require_at_least, require_kind
from simjax.notebook import all_in_a_line
from simjax.particles.cells import Cells
from simjax.particles.migration import rebin, strayed
from simjax.particles.neighbor_list import Neighbours, neighbours_within
from simjax.particles.pairs import Pairs
from simjax.status import OK


class Particles(eqx.Module):
    """Arrays that every set of particles has; a model's state extends it by further per-particle arrays.

    position: `(ndim, *cells.shape)`, length, from the centre of the cell. image: the same int32, how often a particle
    has gone round the periodic axes. ids: `cells.shape` int32, `EMPTY` where there is none.
    """

    position: Array
    image: Array
    ids: Array

    __repr__ = all_in_a_line


class Arrangement(eqx.Module):
    """Pairs listed when particles stood at `position`."""

    neighbours: Neighbours | None
    position: Array


class NeighborPolicy(eqx.Module):
    """Arrangement of particles that interact over at most `cutoff`.

    skin: length by which listed pairs may be further apart than `cutoff`; as long as no particle has moved by half of
    it, no pair is missing. max_neighbors: the length of a list; 0 makes none and looks at all particles around, which
    accelerators without fast gathers prefer. max_particles: the most particles on a device, for lists; 0: as many as
    there are slots.

    Examples:
        >>> sj.NeighborPolicy(cutoff=2.5, skin=0.3).reach
        2.8
    """

    cutoff: float = eqx.field(static=True)
    skin: float = eqx.field(static=True)
    max_neighbors: int = eqx.field(static=True, default=0)
    max_particles: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        numbers = {name: getattr(self, name) for name in ("cutoff", "skin", "max_neighbors", "max_particles")}
        for name, number in numbers.items():
            require_kind(f"NeighborPolicy.{name}", number, (int, float, np.number), "a number of at least 0, such as 2")
        require_at_least("NeighborPolicy", numbers)

    @property
    def reach(self) -> float:
        """The least length of a cell."""
        return self.cutoff + self.skin

    def arrange(self, cells: Cells, state: Any) -> tuple[Any, Arrangement, Array]:
        """A state (a `Particles`, all other arrays per particle) in its cells, its pairs, and bits of `status`."""
        state, fault = self.sort(cells, state)
        arrangement, full = self.listed(cells, state)
        return state, arrangement, fault | full

    def sort(self, cells: Cells, state: Any) -> tuple[Any, Array]:
        """A state with every particle in the cell that contains it, and bits of `status`."""
        others = {
            field.name: getattr(state, field.name)
            for field in dataclasses.fields(state)
            if field.name not in ("position", "image", "ids")
        }
        position, image, ids, others, fault = rebin(cells, state.position, state.image, state.ids, others)
        return dataclasses.replace(state, position=position, image=image, ids=ids, **others), fault

    def listed(self, cells: Cells, particles: Particles) -> tuple[Arrangement, Array]:
        """The pairs of particles that stand in their cells, or beyond them by less than half the skin, and bits of
        `status`. Of particles beyond their cells it has all pairs nearer than the cutoff, but not all within the reach.
        """
        where, none = jax.lax.stop_gradient(particles.position), jnp.asarray(OK, jnp.int32)
        if not self.max_neighbors:
            return Arrangement(None, where), none
        ids = particles.ids
        neighbours, full = neighbours_within(cells, where, ids, self.reach, self.max_neighbors, self.max_particles)
        return Arrangement(neighbours, where), full

    def strayed(self, cells: Cells, particles: Particles) -> Array:
        """Bits of `status`, whether on any device a particle is beyond its cell by more than half the skin allows, or
        beyond the sides of the box."""
        return strayed(cells, particles.position, particles.ids, self.cutoff)

    def skin_used(self, state: Particles, arrangement: Arrangement) -> Array:
        """Twice the longest displacement of a particle of this block since it was arranged, in skins."""
        square = jnp.sum((state.position - arrangement.position) ** 2, axis=0)
        longest = jnp.max(jnp.where(state.ids >= 0, square, 0))
        # Without gradient, but the root of nothing must not become one that is not a number.
        return 2 * jnp.sqrt(longest) / self.skin

    def pairs(self, cells: Cells, state: Particles, arrangement: Arrangement) -> Pairs:
        """The pairs nearer than the cutoff where particles stand now."""
        return Pairs(cells, state.position, state.ids, self.cutoff, arrangement.neighbours)
