"""Means over pairs of points that lie apart along a periodic axis: structure functions and correlations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.domain import Domain
from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.instruments.instrument import Coordinate, Instrument, Layout, View
from simjax.instruments.places import require_cartesian
from simjax.instruments.sampling import volumes
from simjax.jaxpr.varying import vary_like
from simjax.schema.instrument_declarations import OF, instrument
from simjax.schema.instruments import InstrumentConfig
from simjax.schema.kinds import Flag, Integer, ListOf, Real, key
from simjax.schema.site import AxisName, Refusal, Site, vectors_refusals
from simjax.schema.units import product_of_units, to_the_power

SEPARATION = "separation"
MOST_SEPARATIONS, MOST_ORDER = 100_000, 20
SAME = 1e-6
"""Part of a cell by which a separation may miss a multiple of it."""


@dataclass(frozen=True)
class ApartKeys:
    """Along which axis two points lie apart, and how far."""

    along: str = key(AxisName(even=True), about="axis along which points lie apart")
    separations: tuple[float, ...] | None = key(
        ListOf(Real(low=0.0, formula=True), 1, MOST_SEPARATIONS, optional=True, noun="lengths"),
        None,
        units="m",
        about="multiples of a cell; null: all up to half the axis",
    )


class Apart(Instrument):
    """A mean over pairs of points that lie apart along an axis by some numbers of cells: (separations,)."""

    axis: eqx.AbstractVar[int]
    cells: eqx.AbstractVar[tuple[int, ...]]

    at_kind = OF

    def check(self, grid):
        _check_cells(self, grid)

    def shape(self, grid):
        return (len(self.cells),)

    def layout(self, source, output, grid, units):
        about = {"long_name": f"separation along {source.given['along']}", "units": units}
        lengths = np.asarray(source.given["separations"])
        return Layout((SEPARATION,), (Coordinate(SEPARATION, (SEPARATION,), lengths, about),))

    @classmethod
    def completed(cls, given, site):
        if "separations" in given or site.shape is None:
            return given
        count, width = _cells_along(given["along"], site)
        return {**given, "separations": tuple(number * width for number in range(count // 2 + 1))}

    @classmethod
    def refusals(cls, of, given, site):
        yield from vectors_refusals(of, site)
        if site.shape is None:
            return
        count, width = _cells_along(given["along"], site)
        for i, length in enumerate(given["separations"]):
            number = round(length / width)
            if abs(length - number * width) > SAME * width or number > count:
                expected = f"a multiple of the {width:g} of a cell up to {count * width:g}"
                yield Refusal(f"separations[{i}]", expected, length, f"the nearest is {min(number, count) * width:g}")

    @staticmethod
    def apart(source: InstrumentConfig, grid: Grid) -> dict[str, Any]:
        """The `axis` along which points lie apart, and by how many `cells`."""
        axis = AXES.index(source.given["along"])
        width = grid.lengths[axis] / grid.shape[axis]
        return {"axis": axis, "cells": tuple(round(length / width) for length in source.given["separations"])}


@instrument("structure_function")
class StructureFunction(Apart):
    """The mean of (u(x + r) - u(x))^`order` at separations of `cells` along an axis: (separations,).

    Of several components, which lie each at its own place, the mean of theirs. Odd orders keep the sign.
    """

    variable: str = eqx.field(static=True)
    components: tuple[str, ...] = eqx.field(static=True)
    axis: int = eqx.field(static=True)
    cells: tuple[int, ...] = eqx.field(static=True)
    order: int = eqx.field(static=True, default=2)

    @dataclass(frozen=True)
    class Keys(ApartKeys):
        """The points and the power."""

        order: int = key(Integer(1, MOST_ORDER), 2, about="order p")

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
        super().check(grid)
        if self.order < 1:
            raise ConfigurationError(f"StructureFunction.order={self.order}: expected a whole number from 1 on.")

    @classmethod
    def readings(cls, source, written):
        found: dict[str, tuple[str, ...]] = {}
        for name in source.of:
            parts, along = written[name], f"{name}_{source.given['along']}"
            if len(parts) == 1:
                found[f"{name}_structure_function"] = parts
            else:
                found[f"{name}_longitudinal_structure_function"] = (along,)
                found[f"{name}_transverse_structure_function"] = tuple(part for part in parts if part != along)
        return found

    @classmethod
    def made(cls, source, run):
        grid, order, found = run.domain.grid, source.given["order"], {}
        for name, parts in cls.readings(source, run.config.schema.written(grid.ndim, run.config.counts)).items():
            first, field = run.outputs_named(parts)[0], name.removesuffix("_structure_function").replace("_", " ")
            about = f"{field}, structure function of order {order}"
            operator = cls(variable=name, components=parts, order=order, **cls.apart(source, grid))
            found[name] = operator, Output(name, first.offset, to_the_power(first.units, order), about)
        return found


@instrument("correlation")
class Correlation(Apart):
    """The mean of u'(x) v'(x + r) at separations of `cells` along an axis: (separations,).

    u' and v' are the fields without their means; with one field v is u. normalised: over the product of their standard
    deviations, zero where one of them vanishes.
    """

    variable: str = eqx.field(static=True)
    components: tuple[str, ...] = eqx.field(static=True)
    axis: int = eqx.field(static=True)
    cells: tuple[int, ...] = eqx.field(static=True)
    normalised: bool = eqx.field(static=True, default=True)

    @dataclass(frozen=True)
    class Keys(ApartKeys):
        """The points and the mean."""

        normalised: bool = key(Flag(), True, about="whether it is over the product of standard deviations")

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

    @classmethod
    def refusals(cls, of, given, site):
        for name in of:
            parts = site.written.get(name, (name,))
            if len(parts) > 1:
                yield Refusal("of", f"a scalar, or one component such as {parts[0]}", name)
                return
        if len(of) > 2:
            yield Refusal("of", f"one field or two, got {len(of)}")
        yield from super().refusals(of, given, site)

    @classmethod
    def readings(cls, source, written):
        return {f"{'_'.join(source.of)}_correlation": tuple(one for name in source.of for one in written[name])}

    @classmethod
    def made(cls, source, run):
        grid, normalised, found = run.domain.grid, source.given["normalised"], {}
        for name, parts in cls.readings(source, run.config.schema.written(grid.ndim, run.config.counts)).items():
            own = {output.name: output for output in run.outputs_named(parts)}
            first, last = own[parts[0]], own[parts[-1]]
            units = "1" if normalised else product_of_units(first.units, last.units)
            about = f"correlation of {' and '.join(part.replace('_', ' ') for part in parts)}"
            operator = cls(variable=name, components=parts, normalised=normalised, **cls.apart(source, grid))
            found[name] = operator, Output(name, first.offset, units, about)
        return found


def _cells_along(axis: str, site: Site) -> tuple[int, float]:
    """The number of cells along an axis of a grid, and their width."""
    assert site.shape is not None and site.lower is not None and site.upper is not None
    number = site.axes.index(axis)
    count = site.shape[number]
    return count, (site.upper[number] - site.lower[number]) / count


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


def _require_even_cells(operator: Apart, view: View) -> None:
    if not view.periodic[operator.axis]:
        raise ConfigurationError(
            f"{type(operator).__name__} of '{operator.variable}' along {AXES[operator.axis]}: expected a periodic axis."
        )


def _check_cells(operator: Apart, grid: Grid) -> None:
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
