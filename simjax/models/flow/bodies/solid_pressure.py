"""Solvers of the pressure around bodies, chosen where their distance is known before anything is compiled."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import CENTER
from simjax.models.flow.bodies.body_box import Box, Known, all_of, box_around
from simjax.models.flow.bodies.solid_geometry import OF_CELLS, STEEPEST, shares_of
from simjax.models.flow.bodies.solids import Solid
from simjax.solvers.capacitance import SinglePrecision, most_sources, unobstructed
from simjax.solvers.elliptic import Elliptic
from simjax.solvers.multigrid import Approximate, multigrid
from simjax.solvers.poisson import has_transforms

CERTAIN = 0.05
"""Share of what the distance changes by in a cell, from which on a face is open for certain."""
ROUNDING = 1e-3
"""The same for what rounding and the place of a corner may change: it adds few cells to those that are counted."""


class SolidPressure(eqx.Module):
    """The way to the pressure around bodies, and what is known of them before anything is compiled.

    method: `spectral`: the direct solve without bodies, which `capacity` sources in cells beside them make the inverse
    to rounding; or `multigrid`: one V-cycle in each iteration of conjugate gradients. capacity: zero where there are
    too many such cells, or their number is not known beforehand. joined: whether the fluid is known to be one region,
    so that sources serve and nothing is iterated. box: outside of which nothing is known of bodies.
    """

    method: str = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    joined: bool = eqx.field(static=True)
    box: Box = eqx.field(static=True)

    @property
    def direct(self) -> bool:
        """Tell whether one direct solve is enough, whatever the flow."""
        return self.capacity > 0 and self.joined

    def sentence(self) -> str:
        """The method in words."""
        if self.capacity:
            return f"The pressure around bodies is solved for directly, with up to {self.capacity} sources beside them."
        by = "multigrid V-cycles" if self.method == "multigrid" else "the direct solve without bodies"
        return f"The pressure around bodies is solved for by conjugate gradients with {by}."

    def approximate(self, operator: Elliptic, layout: FieldLayout) -> Approximate:
        """The approximate inverse of an operator, without a gradient; in single precision if without sources."""
        if self.capacity:
            within = (self.box.start, self.box.stop) if self.box.inset else None
            return unobstructed(operator, layout, self.capacity, self.joined, within)
        domain, low = operator.domain, jnp.float32
        if jnp.result_type(*operator.conductances) == low:
            return self._without_sources(operator, layout)
        single = jax.tree.map(lambda k: jax.lax.stop_gradient(jnp.asarray(k)).astype(low), operator)
        return SinglePrecision(domain, self._without_sources(single, layout))

    def _without_sources(self, operator: Elliptic, layout: FieldLayout) -> Approximate:
        return unobstructed(operator, layout) if self.method == "spectral" else multigrid(operator)


def solid_pressure(domain: Domain, layout: FieldLayout, solid: Solid, method: str) -> SolidPressure:
    """Choose for `pressure_solver` = `method`; `layout` is that of the pressure.

    `auto` is spectral with sources, where these are known and few enough, else multigrid: alone the direct solve needs
    twice the iterations around one body, and the more the narrower the fluid between bodies is.
    """
    known = solid.known or _known(domain, layout, solid)
    box = all_of(domain) if known is None else known.box
    if method == "multigrid" or domain.grid.stretched:
        return SolidPressure("multigrid", 0, False, box)
    count = 0 if known is None else known.beside
    count = count if solid.beside is None or not solid.fixed else solid.beside
    capacity = count if 0 < count <= most_sources(domain) and has_transforms(domain, layout) else 0
    joined = capacity > 0 and known is not None and known.joined and capacity >= known.beside
    return SolidPressure("spectral" if capacity or method == "spectral" else "multigrid", capacity, joined, box)


def _known(domain: Domain, layout: FieldLayout, solid: Solid) -> Known | None:
    """Knowledge of bodies whose distance is known; None: it moves, or has traced values."""
    if not solid.fixed:
        return None
    distance = solid.distance
    if callable(distance):
        with jax.ensure_compile_time_eval():
            places = domain.unsplit().coordinates((CENTER,) * domain.grid.ndim)
            distance = distance(jnp.zeros(()), *places)
    if isinstance(distance, Tracer | jax.ShapeDtypeStruct) or np.ndim(distance) and distance.shape != domain.grid.shape:
        return None
    whole = np.broadcast_to(np.asarray(distance), domain.grid.shape)
    return known_of(domain, whole, [layout.is_periodic(axis) for axis in range(domain.grid.ndim)])


def known_of(domain: Domain, distance: np.ndarray, periodic: Sequence[bool]) -> Known:
    """Knowledge of bodies by the distance of the cells of the whole grid."""
    beside, box = cells_beside(distance, periodic), box_around(domain, distance, periodic)
    return Known(beside, is_one_region(distance, periodic), box)


def is_one_region(distance: np.ndarray, periodic: Sequence[bool]) -> bool:
    """Tell whether the fluid is one region, whose parts are joined by faces that are open for certain.

    Single cells that hang on by less count as no region: their rows of the capacitance matrix scale with what they
    hang on by.
    """
    numbers, ndim = np.arange(distance.size).reshape(distance.shape), distance.ndim
    steps = [np.abs(distance - np.roll(distance, 1, axis)) for axis in range(ndim)]
    within = distance > CERTAIN * np.maximum.reduce(steps)
    ends = []
    for axis, wrapped in enumerate(periodic):
        both = within & np.roll(within, -1, axis)
        if not wrapped:
            both[tuple(-1 if k == axis else slice(None) for k in range(ndim))] = False
        ends.append(np.stack([numbers[both], np.roll(numbers, -1, axis)[both]]))
    first, second = np.concatenate(ends, axis=1)
    joined = coo_array((np.ones(len(first), np.int8), (first, second)), (distance.size,) * 2)
    _, region = connected_components(joined, directed=False)
    return int(np.sum(np.bincount(region) > 1)) == 1


def cells_beside(distance: np.ndarray, periodic: Sequence[bool]) -> int:
    """At least the number of cells with a pressure of which a face is cut or closed, as `Solid.immersion` has them."""
    ndim = distance.ndim
    for axis in range(ndim):
        width = [(3 * (k == axis),) * 2 for k in range(ndim)]
        distance = np.pad(distance, width, mode="wrap" if periodic[axis] else "symmetric")
    touched = np.zeros(distance.shape, bool)
    active = touched.copy()
    ways = [(np.roll(distance, 1, axis), np.roll(distance, -1, axis)) for axis in range(ndim)]
    excess = [0.25 * (below - 2 * distance + above) for below, above in ways]
    most = STEEPEST * sum(0.5 * np.abs(above - below) for below, above in ways)
    margin = ROUNDING * np.maximum.reduce([np.abs(distance - below) for below, _ in ways])
    for axis in range(ndim):
        # Along the axis the parts of volumes are straightened by less than the means of faces are.
        for own in (1 / 3, 1 / 2):
            shares = shares_of(ndim, axis, own, OF_CELLS)
            taken = sum(share * one for share, one in zip(shares, excess, strict=True))
            corners = distance - np.clip(taken, -most, most)
            for k in range(ndim):
                corners = corners if k == axis else 0.5 * (corners + np.roll(corners, 1, k))
            open_, cut = corners > -margin, corners <= margin
            # Of the volume around a face the corners: the centres beside it along the axis, and edges along the others.
            for k in range(ndim):
                by = 1 if k == axis else -1
                open_, cut = open_ | np.roll(open_, by, k), cut | np.roll(cut, by, k)
            active |= open_ | np.roll(open_, -1, axis)
            touched |= cut | np.roll(cut, -1, axis)
    return int(np.sum((touched & active)[(slice(3, -3),) * ndim]))
