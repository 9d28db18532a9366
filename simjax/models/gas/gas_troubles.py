"""Cells of a gas that trouble: where it is kept positive, where entropy faults show, and what walls take."""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from simjax.core.boundary import Dirichlet
from simjax.grid import LOWER, UPPER
from simjax.models.face_fluxes import FacePlane
from simjax.models.gas.gas_diagnostics import at_floor as cells_at_floor
from simjax.models.gas.gas_diagnostics import conserved_of, limited_by_axis
from simjax.ops import riemann
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.reconstruction import pad_only
from simjax.ops.riemann import Conserved
from simjax.schema.troubles import trouble

RESOLVED = 0.01
"""Change of the velocity between two cells, over the speed of sound, up to which a sonic point is resolved: a fan of a
hundred cells has as much, an entropy fault ten times that."""
WALLS = ("slip", "no_slip")


def _without_floors(config: Any) -> str | None:
    physics = config.physics
    if physics.density_floor is None and physics.pressure_floor is None:
        return "a gas with physics.density_floor or physics.pressure_floor"
    return None


def _without_walls(config: Any) -> str | None:
    kinds = {side.kind for pair in config.boundaries for side in (pair.lower, pair.upper)}
    return None if kinds & {*WALLS} else f"a gas with walls ({' or '.join(WALLS)})"


def _ideal(config: Any) -> str | None:
    physics = config.physics
    varied = {variation.path for variation in config.ensemble.vary}
    if physics.viscosity or physics.conductivity or physics.prandtl:
        return _without_walls(config)
    if varied & {"physics.viscosity", "physics.conductivity"}:
        return _without_walls(config)
    return "a gas with physics.viscosity or physics.conductivity, as no energy passes the walls of an ideal one"


@trouble("share of the faces with a limited flux", having="a limited flux")
def limited(model, t, state, params):
    """The share of a cell's faces at which the limiter that keeps density and pressure positive acts: it draws the
    values at the face to those of the cell, or mixes the flux with one of first order (`ops.positivity`)."""
    faces, ndim = jnp.zeros(state.density.shape, state.density.dtype), model.domain.grid.ndim
    for axis, found in enumerate(limited_by_axis(model, t, state, params)):
        faces = faces + sum(side.astype(faces.dtype) for side in _both_faces(found, axis))
    return model.within(faces / (2 * ndim), 0.0, t)


@trouble(
    "density or pressure at its floor (1: at it)", having="a density or pressure at its floor", check=_without_floors
)
def at_floor(model, t, state, params):
    """One where density or pressure is at its floor, to a thousandth, else zero."""
    w = riemann.primitive(conserved_of(state), params.gamma)
    return model.within(cells_at_floor(w, params).astype(state.density.dtype), 0.0, t)


@trouble("change of velocity over the speed of sound at a sonic point", having="a sonic point", above=RESOLVED)
def sonic(model, t, state, params):
    """The change of the velocity u across a face of the cell, over the speed of sound c, where the gas expands through
    the speed of sound: along that axis u rises, and u - c or u + c goes from below zero to above. There entropy faults
    show, as jumps that no gas has (Toro 2009, ch. 11)."""

    def jumps(heat, velocity, *_):
        ndim = model.domain.grid.ndim
        worst = None
        for axis in range(ndim):
            (u0, u1), (c0, c1) = (
                _both_faces(pad_only(v, axis, ndim, 1), axis) for v in (velocity[axis], jnp.sqrt(params.gamma * heat))
            )
            passes = [(u0 + sign * c0 <= 0) & (u1 + sign * c1 >= 0) for sign in (-1, 1)]
            rise = (u1 - u0) / (0.5 * (c0 + c1))
            worst = _largest(worst, *_both_faces(jnp.where(passes[0] | passes[1], jnp.maximum(rise, 0), 0), axis))
        return worst

    return _beside(model, jumps, t, state, params)


@trouble("relative jump of pressure between neighbours")
def steep(model, t, state, params):
    """The largest difference of pressure between the cell and its neighbours, over the lower of the two pressures."""

    def jumps(heat, velocity, pressure, *_):
        worst = None
        for axis in range(model.domain.grid.ndim):
            below, above = _both_faces(pad_only(pressure, axis, model.domain.grid.ndim, 1), axis)
            worst = _largest(worst, *_both_faces(jnp.abs(above - below) / jnp.minimum(above, below), axis))
        return worst

    return _beside(model, jumps, t, state, params)


@trouble("flux of energy through a wall", units="W m-2", check=_ideal)
def wall_flux(model, t, state, params):
    """The size of the flux of energy through the walls beside the cell, by conduction and by the work of friction."""
    return _at_walls(model, lambda flux: jnp.abs(flux.energy), t, state, params)


@trouble("force on a wall per area", units="Pa", check=_without_walls)
def wall_stress(model, t, state, params):
    """The size of the flux of momentum through the walls beside the cell: pressure and friction, a force per area."""

    def size(flux: Conserved) -> Array:
        return riemann.smooth_root(riemann.squared_norm(flux.momentum))

    return _at_walls(model, size, t, state, params)


@trouble("density", units="kg m-3", lowest=True)
def low_density(model, t, state, params):
    """The density."""
    return model.within(state.density, jnp.inf, t)


@trouble("pressure", units="Pa", lowest=True)
def low_pressure(model, t, state, params):
    """The pressure."""
    return model.within(riemann.primitive(conserved_of(state), params.gamma).pressure, jnp.inf, t)


TROUBLES = (limited, at_floor, sonic, steep, wall_flux, wall_stress, low_density, low_pressure)


def _both_faces(u: Array, axis: int) -> tuple[Array, Array]:
    """Values along an axis but the last, and but the first: of faces those below and above each cell."""
    return lax.slice_in_dim(u, 0, u.shape[axis] - 1, axis=axis), lax.slice_in_dim(u, 1, u.shape[axis], axis=axis)


def _largest(worst: Array | None, below: Array, above: Array) -> Array:
    largest = jnp.maximum(below, above)
    return largest if worst is None else jnp.maximum(worst, largest)


def _beside(model: Any, stencil: Callable, t, state, params) -> Array:
    """A stencil of one ghost cell on the fields that fluxes read, in cells of the gas."""
    fields, layouts, _ = model.read(state, params, t)
    return model.within(model.domain.apply(stencil, fields, layouts, 1, t), 0.0, t)


def _walls(model: Any) -> Iterator[tuple[int, int]]:
    """Axis and side of every wall, but for the axis of an axisymmetric grid."""
    grid = model.domain.grid
    for axis, layout in enumerate(model.layouts.velocity):
        for side in (LOWER, UPPER):
            at_axis = grid.axisymmetric and (axis, side) == (RADIAL, LOWER) and grid.lower[RADIAL] == 0
            if isinstance(layout.boundaries[axis][side], Dirichlet) and not at_axis:
                yield axis, side


def _at_walls(model: Any, size: Callable[[Conserved], Array], t, state, params) -> Array:
    """The largest size of a flux through the walls beside a cell; zero in cells beside none."""
    domain, worst = model.domain, jnp.zeros(state.density.shape, state.density.dtype)
    for axis, side in _walls(model):
        found = size(model.conserved_fluxes(t, state, params, FacePlane.of_side(domain, axis, side)))
        n = domain.block_shape[axis]
        along = domain.first_index(axis) + jnp.arange(n, dtype=jnp.int32)
        along = along.reshape(tuple(n if k == axis else 1 for k in range(domain.grid.ndim)))
        beside = along == (0 if side == LOWER else domain.grid.shape[axis] - 1)
        worst = jnp.maximum(worst, jnp.where(beside, found, 0))
    return model.within(worst, 0.0, t)
