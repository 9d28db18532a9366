"""Means over pairs of points that lie apart along a periodic axis: structure functions and correlations."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.instruments.operators import Instrumental, View
from simjax.instruments.places import require_cartesian
from simjax.instruments.sampling import volumes
from simjax.jaxpr.varying import vary_like


class StructureFunction(Instrumental):
    """The mean of (u(x + r) - u(x))^`order` at separations of `cells` along an axis: (separations,).

    Of several components, which lie each at its own place, the mean of theirs. Odd orders keep the sign.
    """

    variable: str = eqx.field(static=True)
    components: tuple[str, ...] = eqx.field(static=True)
    axis: int = eqx.field(static=True)
    cells: tuple[int, ...] = eqx.field(static=True)
    order: int = eqx.field(static=True, default=2)

    def read(self, view):
        _require_even_cells(self, view)

        def increments(here: Array, there: Array) -> Array:
            return (there - here) ** self.order

        fields = [view.variables[name] for name in self.components]
        means = [
            _means(view.domain, u, u, self.axis, self.cells, increments, _volumes(view, name, u))
            for name, u in zip(self.components, fields, strict=True)
        ]
        return sum(means[1:], means[0]) / len(means)

    def check(self, grid):
        _check_cells(self, grid)
        if self.order < 1:
            raise ConfigurationError(f"StructureFunction.order={self.order}: expected a whole number from 1 on.")

    def shape(self, grid):
        return (len(self.cells),)


class Correlation(Instrumental):
    """The mean of u'(x) v'(x + r) at separations of `cells` along an axis: (separations,).

    u' and v' are the fields without their means; with one field v is u. normalised: over the product of their standard
    deviations, zero where one of them vanishes.
    """

    variable: str = eqx.field(static=True)
    components: tuple[str, ...] = eqx.field(static=True)
    axis: int = eqx.field(static=True)
    cells: tuple[int, ...] = eqx.field(static=True)
    normalised: bool = eqx.field(static=True, default=True)

    def read(self, view):
        _require_even_cells(self, view)
        first, last = self.components[0], self.components[-1]
        if view.offsets[first] != view.offsets[last]:
            raise ConfigurationError(
                f"Correlation of '{first}' and '{last}', which lie at other places of a cell: expected fields at the "
                "same places, such as two at the centres."
            )
        domain = view.domain
        each = _volumes(view, first, view.variables[first])

        def mean(u: Array) -> Array:
            return domain.mean(u if each is None else u * each)

        u, v = (view.variables[name] - mean(view.variables[name]) for name in (first, last))
        found = _means(domain, u, v, self.axis, self.cells, jnp.multiply, each)
        if not self.normalised:
            return found
        product = mean(u**2) * mean(v**2)
        # The argument of the root is replaced, or its slope at zero would be infinite.
        return jnp.where(product > 0, found / jnp.sqrt(jnp.where(product > 0, product, 1)), 0)

    def check(self, grid):
        _check_cells(self, grid)

    def shape(self, grid):
        return (len(self.cells),)


def _volumes(view: View, name: str, u: Array) -> Array | None:
    """Volumes that the values of a variable stand for, over the mean of all; None: all are the same."""
    return volumes(view.domain, view.offsets[name], view.periodic, u.dtype)


def _means(
    domain: Domain,
    here: Array,
    there: Array,
    axis: int,
    cells: Sequence[int],
    of: Callable[[Array, Array], Array],
    each: Array | None,
) -> Array:
    """The mean over all values of `of(here(x), there(x + r))` at each separation: (separations,).

    each: volumes that values stand for, which do not vary along the axis; None: they are the same.
    Each device holds the whole lines of `there` along the axis, in all other directions its own.
    """
    block, n = domain.block_shape[axis], domain.grid.shape[axis]
    start = domain.block_index(axis) * block
    lines = there
    if domain.split[axis] is not None:
        along = Domain(domain.grid, [entry if k == axis else None for k, entry in enumerate(domain.split)])
        shape = tuple(n if k == axis else size for k, size in enumerate(there.shape))
        empty = vary_like(jnp.zeros(shape, there.dtype), there)
        lines = along.total(lax.dynamic_update_slice_in_dim(empty, there, start, axis))
    beyond = lax.slice_in_dim(lines, 0, max(cells), axis=axis)
    lines = jnp.concatenate([lines, beyond], axis=axis)

    @jax.checkpoint  # else reverse mode keeps the differences of every separation
    def one(shift: Array) -> Array:
        values = of(here, lax.dynamic_slice_in_dim(lines, start + shift, block, axis))
        return jnp.sum(values if each is None else values * each)

    sums = lax.map(one, jnp.asarray(cells, jnp.int32))
    return domain.total(sums) / domain.grid.cells


def _require_even_cells(operator: StructureFunction | Correlation, view: View) -> None:
    if not view.periodic[operator.axis]:
        raise ConfigurationError(
            f"{type(operator).__name__} of '{operator.variable}' along {AXES[operator.axis]}: expected a periodic axis."
        )


def _check_cells(operator: StructureFunction | Correlation, grid: Grid) -> None:
    name, axis = type(operator).__name__, operator.axis
    require_cartesian(f"{name} of '{operator.variable}'", grid)
    if axis in grid.stretched:
        raise ConfigurationError(
            f"{name} of '{operator.variable}' along {AXES[axis]}: expected cells of one width along it, and the grid "
            "is stretched there."
        )
    if not all(0 <= cells <= grid.shape[axis] for cells in operator.cells) or not operator.cells:
        raise ConfigurationError(
            f"{name}.cells={operator.cells}: expected separations from 0 to the {grid.shape[axis]} cells along "
            f"{AXES[axis]}."
        )
