"""Sides at which the ghost cells of a field depend on other fields too, as those of waves that several fields carry."""

import abc
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.boundary import Boundary, FieldLayout, Neumann, Periodic, center_layout
from simjax.core.given_values import Value, evaluate
from simjax.grid import LOWER


class Beside(NamedTuple):
    """Lines of fields beside a side, by the names of the fields.

    lines: `(..., lines, ...)` of each field, as `Boundary.ghost` has them. slopes: of each axis along the side the
    derivatives of their first lines, central, and one-sided at the ends of the axis. axis, side, width, spacing, t and
    positions: as `Boundary.ghost` has them.
    """

    lines: dict[str, Array]
    slopes: dict[int, dict[str, Array]]
    axis: int
    side: int
    width: int
    spacing: tuple[float | Array, ...]
    t: Array | float
    positions: functools.partial

    def evaluate(self, value: Value) -> Array:
        """A value on the side, in the dtype of the fields."""
        return evaluate(value, self.t, self.positions, next(iter(self.lines.values())))


class JointRule(eqx.Module):
    """The ghost cells of several fields at a side, as a function of all of them beside it."""

    @abc.abstractmethod
    def ghosts(self, beside: Beside) -> dict[str, Array]:
        """The `width` ghost lines beyond the side of every field by its name, nearest to it first."""


class Joint(Boundary):
    """The condition on one field at a side with a rule for several: `name` is what the rule calls it.

    All fields of the rule are padded together; they are centred.
    """

    name: str = eqx.field(static=True)
    rule: JointRule

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        raise AssertionError("A joint side has a rule for several fields, which `joint_ghosts` evaluates.")


def joint_ghosts(
    domain: Any, edges: Sequence[Array], layouts: Sequence[FieldLayout], axis: int, side: int, width: int, t
) -> dict[int, Array]:
    """Ghost lines, nearest to the side first, of the fields that have a rule in common there, by their numbers.

    domain: the `Domain` that asks. edges: of all fields the lines nearest to the side, in their order in the block.
    """
    members = {k: b for k, layout in enumerate(layouts) if isinstance(b := layout.boundaries[axis][side], Joint)}
    if not members:
        return {}
    where = axis - domain.grid.ndim
    lines = {
        b.name: edges[k] if side == LOWER else lax.rev(edges[k], (edges[k].ndim + where,)) for k, b in members.items()
    }
    (first, boundary), *_ = members.items()
    layout = layouts[first]
    beside = Beside(
        lines,
        _slopes(domain, lines, layout, axis),
        axis,
        side,
        width,
        domain.side_spacing(edges[first], layout, axis, side, width),
        t,
        functools.partial(domain.side_positions, edges[first], layout, axis, side),
    )
    found = boundary.rule.ghosts(beside)
    return {k: found[b.name] for k, b in members.items()}


def _slopes(domain: Any, lines: dict[str, Array], layout: FieldLayout, axis: int) -> dict[int, dict[str, Array]]:
    """Derivatives of the first lines along all other axes, with the ghost cells that the lines have along these."""
    ndim = domain.grid.ndim
    plain = center_layout(
        [(Periodic(), Periodic()) if layout.is_periodic(k) else (Neumann(), Neumann()) for k in range(ndim)]
    )
    example = next(iter(lines.values()))
    ghosts = [(example.shape[k - ndim] - domain.block_shape[k]) // 2 for k in range(ndim)]
    ghosts[axis] = 0
    own = [_own(lax.slice_in_dim(u, 0, 1, axis=u.ndim + axis - ndim), ghosts) for u in lines.values()]
    result = {}
    for k in range(ndim):
        if k == axis:
            continue
        slopes = [_slope(domain, u, plain, k) for u in _with_ghosts(domain, own, plain, k, 1)]
        for earlier in range(axis):  # as they are within: the neighbours' are the same at any cut
            slopes = _with_ghosts(domain, slopes, plain, earlier, ghosts[earlier])
        result[k] = dict(zip(lines, slopes, strict=True))
    return result


def _own(line: Array, ghosts: Sequence[int]) -> Array:
    """A line without its ghost cells."""
    for k, count in enumerate(ghosts):
        along = line.ndim - len(ghosts) + k
        line = lax.slice_in_dim(line, count, line.shape[along] - count, axis=along)
    return line


def _with_ghosts(domain: Any, lines: list[Array], layout: FieldLayout, axis: int, width: int) -> list[Array]:
    """Lines with `width` ghost cells along one axis."""
    if not width:
        return lines
    ends = domain.beside(lines, layout, axis, width)
    where = axis - domain.grid.ndim
    return [jnp.concatenate([below, u, above], axis=where) for u, (below, above) in zip(lines, ends, strict=True)]


def _slope(domain: Any, line: Array, layout: FieldLayout, axis: int) -> Array:
    """The derivative along an axis of a line with one ghost cell at both ends of it."""
    ndim, n = domain.grid.ndim, domain.block_shape[axis]
    widths = domain.spacing(layout, 1, line.dtype)[axis]

    def pairs(u: Array) -> tuple[Array, Array]:
        where = u.ndim - ndim + axis
        count = u.shape[where] - 1
        return lax.slice_in_dim(u, 0, count, axis=where), lax.slice_in_dim(u, 1, count + 1, axis=where)

    below, above = pairs(line)
    rises = (above - below) / (0.5 * sum(pairs(widths)) if isinstance(widths, Array) else widths)
    below, above = pairs(rises)
    if layout.is_periodic(axis):
        return 0.5 * (below + above)
    number = domain.first_index(axis) + jnp.arange(n, dtype=jnp.int32)
    number = number.reshape(tuple(n if k == axis else 1 for k in range(ndim)))
    last = domain.grid.shape[axis] - 1
    return jnp.where(number == 0, above, jnp.where(number == last, below, 0.5 * (below + above)))
