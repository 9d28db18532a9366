"""Sides of wave problems, and absorbing layers in front of them."""

import abc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.arguments import require_at_least
from simjax.core.boundary import Boundary, Dirichlet, FieldLayout, Neumann, Periodic, Side, SlipWall, center_layout
from simjax.core.domain import Domain
from simjax.grid import AXES, FACE, LOWER
from simjax.jaxpr.linear_map import fixed_linear_map
from simjax.schema.config_errors import raise_first
from simjax.schema.side_declarations import side
from simjax.stencil.materialise import formed_once

SOUND, LIGHT = ("sound",), ("light",)

GRADING, REFLECTION, SHIFT = 3, 1e-6, 0.5
"""Of the layer's profiles: power of the depth, the reflection at normal incidence that the damping is laid out for, and
the largest frequency shift in units of pi c / thickness. Of what was tried, the least reflection at 12 cells, for waves
of 4 to 40 cells and at all angles; a stretching kappa > 1 made it worse."""


side("rigid", groups=SOUND, about="a wall: no velocity across it")(SlipWall)
side("conductor", groups=LIGHT, about="a perfect conductor: no electric field along it")(SlipWall)


class OpenFace(Boundary):
    """A field on faces that a side leaves free, mirrored evenly; the upper wall face, not stored, reads as zero."""

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        array_axis = edge.ndim + axis - len(spacing)
        if side == LOWER:
            return lax.slice_in_dim(edge, 1, width + 1, axis=array_axis)
        inside = lax.slice_in_dim(edge, 0, width, axis=array_axis)
        wall = jnp.zeros_like(lax.slice_in_dim(inside, 0, 1, axis=array_axis))
        return jnp.concatenate([wall, lax.slice_in_dim(inside, 0, width - 1, axis=array_axis)], axis=array_axis)


@side("free", groups=SOUND, about="a surface without pressure")
class FreeSurface(Side):
    """A surface without pressure: p = 0 on it; the normal velocity there is an unknown of its own.

    Examples:
        >>> sea = sj.Acoustic(sj.Domain(sj.Grid((64,))), [(sj.AbsorbingSide(), sj.FreeSurface())])
    """

    def velocity_boundary(self, component, axis):
        return OpenFace() if component == axis else Neumann(0.0)

    def scalar_boundary(self):
        return Dirichlet(0.0)


@side("absorbing", groups=(*SOUND, *LIGHT), about="a layer of `physics.layer_cells` cells in which waves die away")
class AbsorbingSide(SlipWall):
    """A rigid wall (or conductor) behind a layer of the grid that absorbs waves at every angle.

    Examples:
        >>> sides = [(sj.AbsorbingSide(), sj.AbsorbingSide())]
        >>> line = sj.Acoustic(sj.Domain(sj.Grid((64,))), sides, layer_cells=12)
    """

    solid, passable = False, True  # as open as it looks from inside


def mirrored_layout(layout: FieldLayout) -> FieldLayout:
    """A layout at cell centres for a property of the medium: it goes on beyond walls as its mirror image."""
    return center_layout(
        [pair if isinstance(pair[LOWER], Periodic) else (Neumann(), Neumann()) for pair in layout.boundaries]
    )


class Profile(eqx.Module):
    """A layer's coefficients on its lines along one axis, shaped to broadcast; zero on lines outside of the layer.

    The memory of a derivative g obeys psi <- exp(-rate dt) psi + gain (exp(-rate dt) - 1) g; the stretched derivative
    is g + weight psi.
    """

    rate: Array
    gain: Array
    weight: Array


class Term(eqx.Module):
    """One derivative of an update: its axis, its value on the lines of the layer, memory and profile, and what the
    update multiplies it by, a scalar or on these lines."""

    axis: int = eqx.field(static=True)
    slope: Array
    memory: Array
    profile: Profile
    factor: Array


@dataclass(frozen=True)
class Lines:
    """Reading lines of a field, `(field, lines)` of it; the transpose adds to them in the field's own memory.

    Read and added by slices, both would be passes over the whole field in reverse mode. where: the axis, counted from
    the last one. slabs: first line and last + 1 of each part.
    """

    where: int
    slabs: tuple[tuple[int, int], ...]

    def forward(self, u: Array, /) -> tuple[Array, Array]:
        return u, jnp.concatenate([lax.slice_in_dim(u, *slab, axis=self.where) for slab in self.slabs], self.where)

    def transpose(self, both: tuple[Array, Array], /) -> Array:
        u, lines = both
        begin = 0
        for first, last in self.slabs:
            end = begin + last - first
            added = lax.slice_in_dim(lines, begin, end, axis=self.where)
            sums = formed_once(lax.slice_in_dim(u, first, last, axis=self.where) + added)
            u, begin = lax.dynamic_update_slice_in_dim(u, sums, first, self.where), end
        return formed_once(u)


@dataclass(frozen=True)
class Adding:
    """Adding to lines of a field: the transpose of reading them, as a map of its own."""

    lines: Lines

    def forward(self, both: tuple[Array, Array], /) -> Array:
        return self.lines.transpose(both)

    def transpose(self, u: Array, /) -> tuple[Array, Array]:
        return self.lines.forward(u)


def layer_refusals(shape: Sequence[int], cells: int, sides: Sequence[Sequence[bool]]) -> Iterator[tuple[str, str]]:
    """Sentences on layers of `cells` that leave nothing between them; sides: which ones of each axis have a layer."""
    for axis, (n, ends) in enumerate(zip(shape, sides, strict=True)):
        needed = cells * sum(ends)
        if needed >= n:
            found = f"grid.shape[{axis}]={n} leaves nothing between the layers along {AXES[axis]}"
            use = f"use more than {needed} cells or a smaller physics.layer_cells"
            yield "physics.layer_cells", f"physics.layer_cells = {cells}: {found}; {use}"


class AbsorbingLayer(eqx.Module):
    """Convolutional perfectly matched layer (CPML): d/dx becomes d/dx + psi, with a memory psi that decays in time.

    The coordinate normal to a side is stretched by 1 + sigma / (alpha + i omega) over the outermost `cells` cells;
    sigma grows with the third power of the depth, alpha falls to zero at the wall. Memories are fields of the whole
    grid, so that every block is equal, but only the lines of the layer are read and written, and loops over steps carry
    these alone (`condensed`). With 12 cells less than
    1e-4 comes back of waves of 4 to 40 cells up to 86 degrees from the normal, at 88 degrees 1e-3; what does not
    oscillate, such as the pressure left by a volume injected for good, is not absorbed. Roden and Gedney (2000),
    Microw. Opt. Technol. Lett. 27, 334; profiles as in Komatitsch and Martin (2007), Geophysics 72, SM155.
    """

    domain: Domain
    cells: int = eqx.field(static=True)
    sides: tuple[tuple[bool, bool], ...] = eqx.field(static=True)

    def __init__(self, domain: Domain, cells: int, sides: Sequence[tuple[Side, Side]]):
        require_at_least("AbsorbingLayer", {"cells": cells}, 1)
        self.domain = domain
        self.cells = cells
        self.sides = tuple(
            (isinstance(lower, AbsorbingSide), isinstance(upper, AbsorbingSide)) for lower, upper in sides
        )
        raise_first(layer_refusals(domain.grid.shape, cells, self.sides))

    def absorbs(self, axis: int) -> bool:
        return any(self.sides[axis])

    def irreversible(self) -> str:
        """See `Model.irreversible`."""
        return "an absorbing side" if any(map(any, self.sides)) else ""

    def profile(self, axis: int, offset: float, speed: Array) -> Profile | None:
        """Coefficients for derivatives along `axis` that live at `offset`, for waves of about `speed`; or None."""
        if not self.absorbs(axis):
            return None
        grid = self.domain.grid
        lower, upper = self._thickness(axis)
        x = self.domain.coordinates((offset,) * grid.ndim, speed.dtype)[axis]
        beyond_lower = (grid.lower[axis] + lower - x) if self.sides[axis][0] else jnp.zeros_like(x)
        beyond_upper = (x - grid.upper[axis] + upper) if self.sides[axis][1] else jnp.zeros_like(x)
        thickness = lower
        if grid.stretch[axis] is not None:
            thickness = jnp.where(beyond_lower > beyond_upper, *(jnp.asarray(v, x.dtype) for v in (lower, upper)))
        depth = jnp.maximum(beyond_lower, beyond_upper) / thickness
        # The wall face itself is at rest: the layer must not move it. Elsewhere rounding may not decide.
        least = float(grid.widths(axis).min())
        at_wall = (jnp.abs(x - grid.lower[axis]) < 0.25 * least) & (offset == FACE)
        cells = self.cells if grid.stretch[axis] is None else thickness / least
        inside = (depth * cells > 0.25) & ~at_wall
        depth = jnp.clip(depth, 0.0, 1.0)
        damping = -math.log(REFLECTION) * (GRADING + 1) / (2 * thickness)
        sigma = damping * speed * depth**GRADING
        alpha = SHIFT * math.pi / thickness * speed * (1 - depth)
        zero = jnp.zeros_like(depth)
        # sigma + alpha is above zero throughout.
        return Profile(
            rate=self.lines(jnp.where(inside, sigma + alpha, zero), axis),
            gain=self.lines(jnp.where(inside, sigma / (sigma + alpha), zero), axis),
            weight=self.lines(inside.astype(x.dtype), axis),
        )

    def _thickness(self, axis: int) -> tuple[float, float]:
        """Thickness of the layers at both sides of an axis."""
        grid = self.domain.grid
        if grid.stretch[axis] is None:
            return self.cells * grid.mean_spacing[axis], self.cells * grid.mean_spacing[axis]
        widths = grid.widths(axis)
        return float(widths[: self.cells].sum()), float(widths[-self.cells :].sum())

    def of_side(self, change, axis: int, side: int):
        """The part of a change of the state, a tree of fields of this block, that the layer at one side makes."""
        n, cells = self.domain.block_shape[axis], self.domain.grid.shape[axis]
        shape = tuple(n if k == axis else 1 for k in range(self.domain.grid.ndim))
        place = (self.domain.first_index(axis) + jnp.arange(n, dtype=jnp.int32)).reshape(shape)
        # Layers reach over as many cells from either side; a layer without another one may reach further.
        in_lower_half = 2 * place < cells
        own = True if not all(self.sides[axis]) else in_lower_half == (side == LOWER)
        return jax.tree.map(lambda u: jnp.where(own, u, jnp.zeros_like(u)), change)

    def slabs(self, axis: int) -> tuple[tuple[int, int], ...]:
        """Lines (first, last + 1) of every block that hold the layer of some block."""
        n = self.domain.block_shape[axis]
        lower, upper = self.sides[axis]
        if self.cells * (lower + upper) >= n:
            return ((0, n),)
        return ((0, self.cells),) * lower + ((n - self.cells, n),) * upper

    def lines(self, u: Array, axis: int) -> Array:
        """A field on the lines of this block's layers along an axis, one after the other; a scalar as it is."""
        return self.read(u, axis)[1] if u.ndim else u

    def read(self, u: Array, axis: int) -> tuple[Array, Array]:
        """A field, which goes on from here, and its `lines`."""
        return fixed_linear_map(self._places(axis), u)

    def added(self, u: Array, lines: Array, axis: int) -> Array:
        """A field with more on the lines of layers along an axis."""
        return fixed_linear_map(Adding(self._places(axis)), (u, lines))

    def _places(self, axis: int) -> Lines:
        return Lines(axis - self.domain.grid.ndim, self.slabs(axis))

    def condensed(self, memory: Array, axis: int) -> Array:
        """A memory on the lines of layers alone."""
        return self.lines(memory, axis) if self._is_whole(memory, axis) else memory

    def expanded(self, lines: Array, memory: Array, axis: int) -> Array:
        """The memory, a field of the whole block, with other values on the lines of layers."""
        where, begin = axis - self.domain.grid.ndim, 0
        for first, last in self.slabs(axis):
            part = lax.slice_in_dim(lines, begin, begin + last - first, axis=where)
            memory, begin = lax.dynamic_update_slice_in_dim(memory, part, first, where), begin + last - first
        return memory

    def _is_whole(self, memory: Array, axis: int) -> bool:
        return memory.shape[axis - self.domain.grid.ndim] == self.domain.block_shape[axis]

    def correct(self, u: Array, terms: Sequence[Term], dt) -> tuple[Array, list[Array]]:
        """`u`, already advanced by the plain slopes, and the memories, whole or condensed, brought up to date.

        The slope of a term carries the term's sign.
        """
        memories = []
        for term in terms:
            p, kept = term.profile, self.condensed(term.memory, term.axis)
            decay = jnp.exp(-p.rate * dt)
            kept = decay * kept + p.gain * (decay - 1) * term.slope
            u = self.added(u, layer_change(term.factor, p.weight, kept), term.axis)
            whole = self._is_whole(term.memory, term.axis)
            memories.append(self.expanded(kept, term.memory, term.axis) if whole else kept)
        return u, memories

    def change(self, like: Array, factor: Array, profile: Profile, memory: Array, axis: int) -> Array:
        """A layer's part in an update by `factor`, as `Term` has it: zero outside of the layer."""
        change = layer_change(factor, profile.weight, self.condensed(memory, axis))
        return self.added(jnp.zeros_like(like), change, axis)


def layer_change(factor: Array, weight: Array, memory: Array) -> Array:
    """A layer's part in a field that is advanced by `factor` times a slope, of which it holds the memory."""
    return factor * (weight * memory)


class Layered(eqx.Module):
    """A model with absorbing layers, whose memories loops over steps carry on the lines of layers alone."""

    layer: AbsorbingLayer

    @abc.abstractmethod
    def with_memories(self, form: Callable[..., Array], state: Any, *others: Any) -> Any:
        """The state with memories `form(axis, memory, ...)`, of its own and those of the others."""

    def condensed(self, state):
        return self.with_memories(lambda axis, memory: self.layer.condensed(memory, axis), state)

    def expanded(self, condensed, state):
        return self.with_memories(
            lambda axis, lines, memory: self.layer.expanded(lines, memory, axis), condensed, state
        )
