"""Fluxes of volume and of momentum along a plane through the faces of cells in it, of an incompressible flow."""

import math
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from simjax.core.model import Measure
from simjax.grid import AXES, CENTER, LOWER, UPPER
from simjax.models.axisymmetric_grid import dimensions, lower_radii, ring_volumes
from simjax.models.face_fluxes import FacePlane, Flux, at_faces, inner, through_cells
from simjax.models.flow.axisymmetric_flow import volumes_around
from simjax.models.flow.sides import balance
from simjax.models.flow.sides.openings import with_first_line
from simjax.models.flow.sides.wall_model import friction
from simjax.models.measures import length_power
from simjax.ops import staggered
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.spacing import Spacing
from simjax.schema.units import product_of_units

VOLUME = "volume"
USUAL = "central2"


def flux_names(ndim: int) -> tuple[str, ...]:
    """What passes planes of a flow: volume, and momentum along each axis."""
    return (VOLUME, *(f"momentum_{axis}" for axis in AXES[:ndim]))


def measures(flow: Any) -> dict[str, Measure]:
    """The units of what passes, as of amounts inside."""
    volume = length_power(dimensions(flow.domain.grid))
    name, *along = flux_names(flow.domain.grid.ndim)
    momentum = product_of_units("m s-1", volume)
    return {name: Measure(volume, "volume")} | {one: Measure(momentum, f"{one[-1]}-momentum") for one in along}


def offset(flow: Any, name: str) -> tuple[float, ...]:
    """The place of a flux in its cells: that of momentum is where its component is."""
    component = name.removeprefix("momentum_")
    return flow.layouts[AXES.index(component)].offset if component != name else (CENTER,) * flow.domain.grid.ndim


def unknown(flow: Any, names: tuple[str, ...], plane: FacePlane) -> str:
    """Say which of these fluxes through a plane are not known, and what to write; "" if all are."""
    axis, inside = AXES[plane.axis], 0 < plane.number < flow.domain.grid.shape[plane.axis]
    if f"momentum_{axis}" in names:
        return (
            f"expected momentum along the plane, got momentum_{axis} across it, which pressure pushes through; read "
            "pressure with a slice"
        )
    if inside and flow.solid is not None and any(name != VOLUME for name in names):
        return "expected a side beside bodies, got a plane inside the grid, where bodies may close faces; name a side"
    along = any(name.startswith("momentum") for name in names)
    if along and crossed(flow, plane) and flow.momentum.advection != USUAL:
        return (
            f"expected physics.advection={USUAL} for momentum that the flow carries through a plane, got "
            f"{flow.momentum.advection}; name a wall"
        )
    if along and inside and flow.domain.grid.axisymmetric:
        return "expected a side of an axisymmetric grid, got a plane inside it; name a side"
    return ""


def through(flow: Any, t, state, params, plane: FacePlane) -> dict[str, Flux]:
    """Fluxes of volume, and of momentum along the other axes; `unknown` says of which planes."""
    domain, axis = flow.domain, plane.axis

    def normal(u: Array, _) -> Array:
        return inner(lax.slice_in_dim(u, 1, 2, axis=axis), axis, domain.grid.ndim)

    layout, dtype = flow.layouts_at(t, state)[axis], state.velocity[axis].dtype
    velocity = at_faces(domain, normal, (state.velocity[axis],), (layout,), 1, plane, t)
    cells = domain.spacing(flow.projection.layout, 0, dtype)
    found = {VOLUME: through_cells(domain, velocity, cells, plane)}
    modelled = dict(friction_of_walls(flow, t, state, params, plane))
    for component in range(domain.grid.ndim):
        if component == axis:
            continue
        if flow.momentum.has_eddies(params):
            density = flow.momentum.shear(t, state.velocity, flow.layouts_for(t, state), params, component, plane)
        else:
            density, _ = viscous(flow, t, state, params, component, plane)
        if component in modelled:
            density = density + modelled[component]
        if crossed(flow, plane):
            density = density + carried(flow, t, state, component, plane)
        found[f"momentum_{AXES[component]}"] = areas(flow, density, component, plane)
    return found


def crossed(flow: Any, plane: FacePlane) -> bool:
    """Tell whether a flow may come in or leave through a plane."""
    inside = 0 < plane.number < flow.domain.grid.shape[plane.axis]
    return inside or flow.projection.layout.is_periodic(plane.axis) or passes_sides(flow)


def passes_sides(flow: Any) -> bool:
    """Tell whether the flow comes in or leaves through any side."""
    return bool(flow.openings or balance.open_sides(flow.layouts))


def viscous(flow: Any, t, state, params, component: int, plane: FacePlane) -> tuple[Array, Array]:
    """Friction of a component in a plane along it, towards larger coordinates, and its value there."""
    domain, axis = flow.domain, plane.axis
    ndim = domain.grid.ndim

    def near(padded, h):
        below, above = (lax.slice_in_dim(padded, k, k + 1, axis=axis) for k in (0, 1))
        width = h[axis]
        if isinstance(width, Array):
            first, second = (lax.slice_in_dim(width, k, k + 1, axis=axis) for k in (0, 1))
            width = 0.5 * (first + second)
        slope = -params.viscosity * (above - below) / width
        return inner(slope, axis, ndim), inner(0.5 * (above + below), axis, ndim)

    return at_faces(domain, near, (state.velocity[component],), (flow.layouts[component],), 1, plane, t)


def carried(flow: Any, t, state, component: int, plane: FacePlane) -> Array:
    """Momentum of a component that the flow through a plane along it carries, as in `ops.staggered.advection`."""
    axis, ndim, layouts = plane.axis, flow.domain.grid.ndim, flow.layouts_at(t, state, 2)

    def near(a, u, h):
        a, u, *h = (inner(x, axis, ndim) if isinstance(x, Array) else x for x in (a, u, *h))
        below, above = (lax.slice_in_dim(u, k, k + 1, axis=axis) for k in (1, 2))
        across = staggered.carried_across(a, component, axis, 0, h)  # through lower faces of the inner two lines
        return inner(0.25 * (below + above), axis, ndim) * lax.slice_in_dim(across, 1, 2, axis=axis)

    fields, kinds = (state.velocity[axis], state.velocity[component]), (layouts[axis], layouts[component])
    return at_faces(flow.domain, near, fields, kinds, 2, plane, t)


def friction_of_walls(flow: Any, t, state, params, plane: FacePlane) -> list[tuple[int, Array]]:
    """The components that a modelled wall in a plane slows, each with its friction, towards larger coordinates."""
    side = {0: LOWER, flow.domain.grid.shape[plane.axis]: UPPER}.get(plane.number)
    if side is None or (plane.axis, side) not in flow.walls:
        return []
    layouts = flow.layouts_at(t, state)
    parts = friction(flow.domain, layouts, (plane.axis, side), t, state.velocity, params.viscosity)
    return [(component, (1 if side == UPPER else -1) * rate * line) for component, rate, line in parts]


def areas(flow: Any, density: Array, component: int, plane: FacePlane) -> Flux:
    """A flux of a component with the areas of its own cells in a plane; none where it is on a lower wall."""
    if component != plane.axis and not flow.is_closed(component):
        density = with_first_line(flow.domain, density, component, jnp.zeros((), density.dtype))
    product = jnp.ones((), density.dtype)
    for factor in extents(flow, component, density.dtype, plane):
        product = product * factor
    return Flux(density, product)


def extents(flow: Any, component: int, dtype, plane: FacePlane | None = None) -> list[Spacing]:
    """Factors of the volumes around a component's faces, or of the areas of their own cells in a plane.

    They are widths along the axes, and the lengths of rings.
    """
    grid, axis = flow.domain.grid, None if plane is None else plane.axis
    widths = volumes_around(flow.domain, flow.projection.layout, (component,), dtype)[: grid.ndim]
    pairs = enumerate(zip(widths, grid.mean_spacing, strict=True))
    found: list[Spacing] = [jnp.asarray(h * mean, dtype) for k, (h, mean) in pairs if k != axis]
    if grid.axisymmetric and plane is not None and axis == RADIAL:
        radius = {0: grid.lower[RADIAL], grid.shape[RADIAL]: grid.upper[RADIAL]}.get(plane.number)
        radius = plane.faces(flow.domain, lower_radii(flow.domain, dtype)) if radius is None else radius
        found.append(jnp.asarray(2 * math.pi * radius, dtype))
    elif grid.axisymmetric:
        found.append(jnp.asarray(ring_volumes(1.0, flow.domain, flow.layouts[component], dtype), dtype))
    return found
