"""Fields that formulas make of those of a run, at the centres of cells, to second order.

What lies on faces is averaged to centres first. A derivative is a central difference; beside a side, of the cubic
through the four nearest cells, so that it needs no boundary condition of the formula, and has the same leading error
there as inside: a derivative of a derivative is of second order up to the side. On a stretched axis it is the
ratio of two such differences, of the field and of the places of the centres, which is of second order where widths
change smoothly. A mean over an axis is weighed with the volumes of cells.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import Boundary, Periodic, center_layout, lines
from simjax.core.domain import Domain
from simjax.grid import AXES, CENTER
from simjax.models.axisymmetric_grid import relative_volumes
from simjax.ops.difference import shift
from simjax.schema.field_formula import FieldFormula

REACH = 3
"""Ghost cells of a difference, so that a side sees the four cells beside it."""


class _Cubic(Boundary):
    """Ghosts on the cubic through the four values nearest to the side."""

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        first, second, third, fourth = (lines(edge, axis - len(spacing), k, 1) for k in range(4))
        slope, bend = first - second, first - 2 * second + third
        twist = bend - (second - 2 * third + fourth)
        ghosts = [
            first + k * (slope + (k + 1) / 2 * (bend + (k + 2) / 3 * twist)) for k in range(1, width + 1)
        ]  # Newton's formula for equal distances
        return jnp.concatenate(ghosts, axis=edge.ndim + axis - len(spacing))


class FieldOperators:
    """The functions of the grammar of `schema.field_formula` on this block of a run.

    periodic: whether fields wrap, by axis. dtype: of the fields.
    """

    def __init__(self, domain: Domain, periodic: Sequence[bool], dtype):
        self.domain, self.ndim, self.dtype = domain, domain.grid.ndim, dtype
        self.layout = center_layout([(Periodic(),) * 2 if wraps else (_Cubic(),) * 2 for wraps in periodic])
        self.places = domain.coordinates((CENTER,) * self.ndim, dtype)

    def whole(self, value: Any) -> Array:
        """A number, or an array that broadcasts to this block, as a field of it."""
        return jnp.broadcast_to(jnp.asarray(value, self.dtype), self.domain.block_shape)

    def d(self, value: Any, axis: int) -> Array:
        """The derivative along an axis."""
        change, h = self._change(self.whole(value), axis), self.domain.grid.mean_spacing[axis]
        if axis not in self.domain.grid.stretched:
            return change * (0.5 / h)
        width = self._change(self.whole(self.places[axis]), axis)
        if self.layout.is_periodic(axis):
            width = jnp.mod(width, self.domain.grid.lengths[axis])
        return change / width

    def _change(self, u: Array, axis: int) -> Array:
        def stencil(padded: Array) -> Array:
            return shift(padded, self.ndim, axis, 1, REACH) - shift(padded, self.ndim, axis, -1, REACH)

        return self.domain.apply(stencil, u, self.layout, REACH)

    def mean(self, value: Any, axis: int) -> Array:
        """The mean over an axis, in every cell of this block."""
        u = self.whole(value)
        widths = self.domain.spacing(self.layout, 0, self.dtype)
        volumes = self.whole(relative_volumes(self.domain, self.layout, widths, self.dtype))
        sums = [jnp.sum(part, axis, keepdims=True) for part in (u * volumes, volumes)]
        gained, volume = self.domain.total(jnp.stack(sums), (axis,))
        return self.whole(gained / volume)

    def grad(self, value: Any) -> tuple[Array, ...]:
        return tuple(self.d(value, axis) for axis in range(self.ndim))

    def div(self, vector: Sequence[Array]) -> Array:
        """The divergence; of a flow around an axis with the radius."""
        if self.domain.grid.axisymmetric:
            r, (outwards, along) = self.places[0], vector
            return self.d(self.whole(r) * outwards, 0) / self.whole(r) + self.d(along, 1)
        parts = [self.d(u, axis) for axis, u in enumerate(vector)]
        return sum(parts[1:], parts[0])

    def curl(self, vector: Sequence[Array]) -> Array | tuple[Array, ...]:
        """The curl: in a plane the number d(v_y, x) - d(v_x, y)."""

        def turn(a: int, b: int) -> Array:
            return self.d(vector[b], a) - self.d(vector[a], b)

        return turn(0, 1) if self.ndim == 2 else (turn(1, 2), turn(2, 0), turn(0, 1))

    def dot(self, one: Sequence[Array], other: Sequence[Array]) -> Array:
        parts = [a * b for a, b in zip(one, other, strict=True)]
        return sum(parts[1:], parts[0])

    def norm(self, vector: Sequence[Array]) -> Array:
        """The length of a vector, whose derivative is zero where it is."""
        square = self.dot(vector, vector)
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)

    def by_name(self) -> dict[str, Callable]:
        """Every function, those along an axis once for each."""
        found: dict[str, Callable] = {name: getattr(self, name) for name in ("grad", "div", "curl", "dot", "norm")}
        for number, axis in enumerate(AXES[: self.ndim]):
            found[f"d_{axis}"] = lambda value, number=number: self.d(value, number)
            found[f"mean_{axis}"] = lambda value, number=number: self.mean(value, number)
            found[f"part_{axis}"] = lambda vector, number=number: vector[number]
        return found


def field_of_formula(
    formula: FieldFormula,
    domain: Domain,
    periodic: Sequence[bool],
    variable: Callable[[str], Array],
    vectors: Mapping[str, Sequence[str]],
    values: Mapping[str, Array],
    t: Array,
) -> Array:
    """The field that a formula gives on this block.

    variable: a field of the run at the centres of cells, by its name. vectors: names of components, by those of
    vectors. values: numbers by name.
    """
    known: dict[str, Any] = {
        name: variable(name) for name in formula.names if name not in (*AXES, "t", *vectors, *values)
    }
    for name in formula.names & {*vectors}:
        known[name] = tuple(variable(part) for part in vectors[name])
    dtypes = [part.dtype for value in known.values() for part in (value if isinstance(value, tuple) else (value,))]
    dtype = jnp.result_type(*dtypes, *(() if dtypes else (jnp.asarray(t).dtype,)))
    operators = FieldOperators(domain, periodic, dtype)
    numbers = {name: jnp.asarray(values[name], dtype) for name in formula.names & {*values}}
    places = dict(zip(AXES, map(operators.whole, operators.places), strict=False))
    namespace = {"t": jnp.asarray(t, dtype)} | numbers | places | known
    return operators.whole(formula(namespace, jnp, operators.by_name()))
