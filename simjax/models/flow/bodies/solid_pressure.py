"""Solvers of the pressure around bodies, chosen where their distance is known before anything is compiled."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import CENTER
from simjax.models.flow.bodies.solids import Solid
from simjax.solvers.capacitance import SinglePrecision, most_sources, unobstructed
from simjax.solvers.elliptic import Elliptic
from simjax.solvers.multigrid import Approximate, multigrid
from simjax.solvers.poisson import has_transforms

ROUND = 0.05
"""Share of what the distance changes by in a cell: more than a surface's curvature over three cells takes off it."""


class SolidPressure(eqx.Module):
    """The approximate inverse that conjugate gradients take around bodies.

    method: `spectral`: the direct solve without bodies, which `capacity` sources in cells beside them make the inverse
    to rounding, so that one iteration serves; or `multigrid`: one V-cycle. capacity: zero where there are too many such
    cells, or their number is not known beforehand.
    """

    method: str = eqx.field(static=True)
    capacity: int = eqx.field(static=True)

    def sentence(self) -> str:
        """The method in words."""
        if self.capacity:
            return f"The pressure around bodies is solved for directly, with up to {self.capacity} sources beside them."
        by = "multigrid V-cycles" if self.method == "multigrid" else "the direct solve without bodies"
        return f"The pressure around bodies is solved for by conjugate gradients with {by}."

    def approximate(self, operator: Elliptic, layout: FieldLayout) -> Approximate:
        """The approximate inverse of an operator, without a gradient; in single precision if without sources."""
        if self.capacity:
            return unobstructed(operator, layout, self.capacity)
        domain, low = operator.domain, jnp.float32
        if jnp.result_type(*operator.conductances) == low:
            return self._without_sources(operator, layout)
        single = jax.tree.map(lambda k: jax.lax.stop_gradient(k).astype(low), operator)
        return SinglePrecision(domain, self._without_sources(single, layout))

    def _without_sources(self, operator: Elliptic, layout: FieldLayout) -> Approximate:
        return unobstructed(operator, layout) if self.method == "spectral" else multigrid(operator)


def solid_pressure(domain: Domain, layout: FieldLayout, solid: Solid, method: str) -> SolidPressure:
    """Choose for `pressure_solver` = `method`; `layout` is that of the pressure.

    `auto` is spectral with sources, where these are known and few enough, else multigrid: alone the direct solve needs
    twice the iterations around one body, and the more the narrower the fluid between bodies is.
    """
    if method == "multigrid" or domain.grid.stretched:
        return SolidPressure("multigrid", 0)
    count = _count(domain, layout, solid)
    capacity = count if 0 < count <= most_sources(domain) and has_transforms(domain, layout) else 0
    return SolidPressure("spectral" if capacity or method == "spectral" else "multigrid", capacity)


def _count(domain: Domain, layout: FieldLayout, solid: Solid) -> int:
    """The number of cells beside bodies that do not move; zero where it is not known beforehand."""
    if not solid.fixed or solid.beside is not None:
        return solid.beside or 0
    distance = solid.distance
    if callable(distance):
        with jax.ensure_compile_time_eval():
            places = domain.unsplit().coordinates((CENTER,) * domain.grid.ndim)
            distance = distance(jnp.zeros(()), *places)
    if isinstance(distance, Tracer | jax.ShapeDtypeStruct) or np.ndim(distance) and distance.shape != domain.grid.shape:
        return 0
    whole = np.broadcast_to(np.asarray(distance), domain.grid.shape)
    return cells_beside(whole, [layout.is_periodic(axis) for axis in range(domain.grid.ndim)])


def cells_beside(distance: np.ndarray, periodic: Sequence[bool]) -> int:
    """At least the number of cells with a pressure of which a face is cut or closed, as `Solid.immersion` has them."""
    ndim = distance.ndim
    for axis in range(ndim):
        width = [(3 * (k == axis),) * 2 for k in range(ndim)]
        distance = np.pad(distance, width, mode="wrap" if periodic[axis] else "edge")
    touched = np.zeros(distance.shape, bool)
    active = touched.copy()
    steps = [np.abs(distance - np.roll(distance, 1, axis)) for axis in range(ndim)]
    # `straightened` moves what is round by less than this.
    margin = ROUND * np.maximum.reduce(steps)
    for axis in range(ndim):
        corners = distance
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
