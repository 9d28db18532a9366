"""A stage of a flow around bodies: no slip, the motion of a free body, the projection, and what the bodies take."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.core.model import Measure
from simjax.grid import AXES, CENTER, Grid
from simjax.models.axisymmetric_grid import dimensions
from simjax.models.flow.bodies import free_body, solid_reaction, solids
from simjax.models.flow.bodies.body_potential import potential
from simjax.models.flow.bodies.free_body import Body, Bulk
from simjax.models.flow.bodies.solid_geometry import inverse, mirrored, on_block
from simjax.models.flow.bodies.solid_moments import Displaced, moments
from simjax.models.flow.sides.openings import with_outlets

SEEPAGE = 0.25
"""Steps over which flow through faces that the surface holds follows the pressure: as long as the first stage of any
scheme or shorter, so that the pressure of cells with such faces alone settles."""

GAP = 2
"""Cells between a free body and a side that is not periodic, at least."""


def constrained(flow: Any, t, dt, state: Any, params: Any):
    """Velocity, outlets, reaction and body after a stage that ends at `t`, once sides are imposed.

    flow: of `models.flow.incompressible`; see `models.flow.bodies.solids` and `models.flow.bodies.free_body`.
    """
    domain, projection, before, body = flow.domain, flow.projection, state.reaction, state.body
    layout, now = projection.layout, jnp.asarray(t, state.velocity[0].dtype)
    # With its coefficients known, a free body is at the start of the run: no time passes, and it moves as it did.
    pushed = body is not None and flow.immersion is None
    solid = _solid_at(flow, body, params) if pushed else None
    immersion, layouts = flow.immersion_at(now, solid), flow.layouts_at(t, state)
    reach = reach_of(domain, params.viscosity, before)
    joined = immersion.join(domain, state.velocity, layouts, t, reach)
    motion, moves, bulk = jnp.zeros(()), jnp.zeros((), bool), flow.bulk
    if body is not None and not pushed:
        moving = free_body.velocities(domain, layout, immersion.faces.centre, body.motion)
        joined = tuple(map(jnp.add, joined, immersion.carried(domain, layout, moving, t, reach)))
        immersion = immersion.moved_by(immersion.blocked_by(domain, layout, moving, t))
    elif body is not None:
        # Outside of steps, as at the start: no time passes, or the virtual mass is that of a disk.
        bulk = free_body.round_bulk(displaced_of(flow, params)) if bulk is None else bulk
        moves = free_body.moving(flow.solid.free, domain.grid.ndim, before.elapsed)
        motions = free_body.motions(immersion, domain, layout, t, reach)
        offered = [u - v for u, v in zip(state.velocity, joined, strict=True)]
        offered = moments(domain, layout, offered, immersion.faces.centre, immersion.box)
        offered = jnp.concatenate(offered) + jnp.stack(before.beside)
        motion = free_body.next_motion(body, params.body, bulk, moves, offered, motions.taken)
        motion = _of_all_blocks(domain, motion)
        carried, blocked = (free_body.together(one, motion) for one in (motions.carried, motions.blocked))
        joined, immersion = tuple(map(jnp.add, joined, carried)), immersion.moved_by(blocked)
    joined = domain.impose(joined, flow.layouts, t)
    step, known = jnp.asarray(dt, now.dtype), inverse(before.elapsed) * before.impulse
    seeping = solids.seepage(immersion, domain, layout, known, SEEPAGE * step)
    flowing = _flowing(domain, immersion, joined, layouts, t, seeping)
    divergence, gained = projection.divergence(flowing, t, layouts), swelling(flow, immersion, t)
    phi = potential(immersion, domain, divergence, gained, before.impulse)
    slopes = projection.gradient(phi)
    after = solid_reaction.reaction(immersion, domain, layout, before, state.velocity, joined, phi, slopes, step)
    if body is not None and pushed:
        taken = before.elapsed * jnp.stack([*after.force, *after.torque])
        found = free_body.after_stage(body, params.body, bulk, moves, motion, taken, before.elapsed)
        body, more = _of_all_blocks(domain, found)
        after = solid_reaction.with_more(after, *jnp.split(more, [domain.grid.ndim]))
    elif flow.solid.moving:
        length = jnp.asarray(dt, now.dtype)
        after = solid_reaction.with_more(after, *flow.solid.inertia(domain, layout, immersion.faces, now, length))
    box = immersion.box
    parts = zip(joined, immersion.projected, slopes, strict=True)
    around = tuple(box.put(u - slope, box.cut(u) - share * box.cut(slope)) for u, share, slope in parts)
    return around, projection.outlets_after(state.outlets, phi), after, body


def _flowing(
    domain: Domain,
    immersion: solids.Immersion,
    velocity: Sequence[Array],
    layouts: Sequence[FieldLayout],
    t,
    seeping: Sequence[Array] | None = None,
) -> tuple[Array, ...]:
    """Volume per time and area that flows through faces, with what seeps in the box of the bodies."""
    within = immersion.through(domain, velocity, layouts, t)
    within = within if seeping is None else tuple(map(jnp.add, within, seeping))
    return tuple(map(immersion.box.put, velocity, within))


def reach_of(domain: Domain, viscosity: Array, reaction: solid_reaction.Reaction) -> solids.Reach:
    """Reach of the friction of bodies in a stage, on a velocity or on a scalar with a diffusivity.

    What a run starts from is slowed as by a time in which it diffuses through a cell: a start that does not know of
    the bodies would change at once where their surface passes a face.
    """
    begun = reaction.elapsed + reaction.step > 0
    first = min(domain.grid.mean_spacing) ** 2
    return solids.Reach(jnp.where(begun, viscosity * reaction.elapsed, first), viscosity * reaction.step)


def displaced_of(flow: Any, params: Any) -> Displaced:
    """The fluid that a free body displaces: found before the steps, or now."""
    if flow.bulk is not None:
        return flow.bulk.displaced
    return free_body.displaced_at_start(
        flow.solid, flow.domain, flow.projection.layout, params.body.initial_velocity.dtype
    )


def size_note(flow: Any) -> list[str]:
    """A sentence on what the grid has of a free body, where its shape is known before anything is compiled.

    The errors are those of discs and balls at any place: a cell's part in the body is that of a plane surface.
    """
    if flow.solid is None or flow.solid.free is None:
        return []
    # Numbers of its shape may be unknowns.
    if any(isinstance(leaf, Tracer | jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(flow.solid)):
        return []
    domain, dtype = flow.domain.unsplit(), jnp.result_type(float)
    volume = jax.jit(lambda: free_body.displaced_at_start(flow.solid, domain, flow.projection.layout, dtype).volume)()
    ndim, h = domain.grid.ndim, math.prod(domain.grid.mean_spacing) ** (1 / domain.grid.ndim)
    across = 2 * (float(volume) / (math.pi if ndim == 2 else 4 / 3 * math.pi)) ** (1 / ndim) / h
    # Of spheres the errors of many cut cells cancel sooner. Fewer than 5.5 cells do not have the shape.
    weight = 0.1 if across >= (11 if ndim == 2 else 7.5) else 0.5
    weight, inertia = (weight, 60 / across**2) if across >= 5.5 else (10, 15)
    return [
        f"The body displaces {float(volume):.4g} m{ndim} on this grid, as a {'disc' if ndim == 2 else 'ball'} "
        f"{across:.3g} cells across: its weight is right to {weight:g} %, its moments of inertia to {inertia:.2g} %, "
        "where it is round."
    ]


def _solid_at(flow: Any, body: Body | None, params: Any) -> solids.Solid | None:
    """The solid of a free body at its present place."""
    if body is None:
        return None
    centre = displaced_of(flow, params).centre
    return free_body.moved(flow.solid, flow.domain, flow.projection.layout, centre, body)


def parts_at_start(flow: Any, params: Any) -> tuple[solids.Immersion, Bulk]:
    """Coefficients of a free body where it starts, and its properties with the virtual mass of a disk."""
    dtype = params.body.initial_velocity.dtype
    bulk = free_body.round_bulk(displaced_of(flow, params))
    body = free_body.at_start(flow.domain.grid.ndim, params.body)
    solid = _solid_at(flow.with_parts((None, bulk)), body, params)
    return flow.immersion_at(jnp.zeros((), dtype), solid), bulk


def bulk_of(flow: Any, params: Any) -> Bulk:
    """Properties of a free body that follow from its shape, found once before the steps."""
    domain, layout, dtype = flow.domain, flow.projection.layout, params.body.initial_velocity.dtype
    start = jnp.zeros((), dtype)
    still = flow.state_from({"velocity": (jnp.zeros(domain.block_shape, dtype),) * domain.grid.ndim}, params)
    flow = flow if flow.immersion is not None else flow.with_parts(parts_at_start(flow, params))
    immersion = flow.immersion
    # Without friction, as in a push that lasts no time, faces would be held or free as the surface lies.
    reach = reach_of(domain, params.viscosity, still.reaction)
    motions = free_body.motions(immersion, domain, layout, start, reach)
    walls = with_outlets(domain, flow.projection.still_walls(), still.outlets, start)

    def taken(motion) -> Array:
        """Momenta that the pressure takes up when the body gains a unit of momentum in one motion."""
        carried, blocked = motion
        through = immersion.moved_by(blocked).through(domain, carried, walls, start)
        divergence = flow.projection.divergence(through, start, walls)
        phi = potential(immersion, domain, divergence, None, jnp.zeros_like(divergence))
        slopes = zip(immersion.projected, flow.projection.gradient(phi), strict=True)
        pushed = [(1 - share) * slope for share, slope in slopes]
        return jnp.concatenate(moments(domain, layout, pushed, immersion.faces.centre, immersion.box))

    every = (tuple(map(jnp.stack, zip(*part, strict=True))) for part in (motions.carried, motions.blocked))
    return Bulk(displaced_of(flow, params), jax.lax.map(taken, tuple(every)).T)


def longest_step(flow: Any, params: Any) -> Array:
    """The longest step that springs of a free body allow."""
    return free_body.longest_step(params.body, displaced_of(flow, params))


def acting(
    flow: Any, t, state: Any, params: Any, forcing: Sequence[Array]
) -> tuple[Callable[[Sequence[Array]], list[Array]], solid_reaction.Reaction, Body | None]:
    """Effect of bodies between stages.

    forcing: the acceleration of the fluid by forces, of each component.

    Returns:
        What adds the acceleration by bodies, beside that by ghost values, to that of each component; the rates of
        change of the reaction, and those of a free body before the fluid acts.
    """
    domain, layout, u = flow.domain, flow.projection.layout, state.velocity
    solid, now = _solid_at(flow, state.body, params) or flow.solid, jnp.asarray(t, u[0].dtype)
    faces = solid.faces(domain, layout, now, now.dtype) if flow.immersion is None else flow.immersion.faces
    if state.body is not None:
        moving = free_body.velocities(domain, layout, faces.centre, state.body.motion)
        faces = dataclasses.replace(faces, velocity=moving)
    reach = reach_of(domain, params.viscosity, state.reaction)
    rates = solids.slowing(domain, layout, faces, u, flow.layouts_at(t, state), t, reach)
    slowed = tuple(params.viscosity * rate for rate in rates)
    # Forces act on the fluid alone: what they give to faces in the place of bodies is no force of the fluid.
    beside = [-a - closed * faces.box.cut(f) for a, closed, f in zip(slowed, faces.closed, forcing, strict=True)]
    beside = jnp.concatenate(moments(domain, layout, beside, faces.centre, faces.box))
    body = None if state.body is None else free_body.rates(state.body, params.body, displaced_of(flow, params))

    def slowed_by(slopes: Sequence[Array]) -> list[Array]:
        return list(map(faces.box.added, slopes, slowed))

    return slowed_by, solid_reaction.acting(state.reaction, list(beside)), body


def _of_all_blocks(domain: Domain, tree: Any) -> Any:
    """Numbers that are the same in all blocks, typed as such: their mean."""
    count = domain.total(jnp.ones(()))
    return jax.tree.map(lambda one: one / count.astype(one.dtype), domain.total(tree))


def flow_through_faces(
    flow: Any, t, state: Any, layouts: Sequence[FieldLayout]
) -> tuple[tuple[Array, ...], Array | None]:
    """Volume per time and area that flows through faces around bodies that move as given, over their whole area.

    Its divergence is the second result: `swelling`.
    """
    immersion = flow.immersion_at(jnp.asarray(t, state.velocity[0].dtype))
    reaction = state.reaction
    length = SEEPAGE * reaction.step
    seeping = solids.seepage(immersion, flow.domain, flow.projection.layout, reaction.pressure, length)
    return _flowing(flow.domain, immersion, state.velocity, layouts, t, seeping), swelling(flow, immersion, t)


def pressure(flow: Any, t, state: Any) -> Array:
    """The pressure of the last stage, of zero mean in the fluid unless it is given at a side."""
    found = state.reaction.pressure
    if not flow.around.direct:
        return found
    immersion, domain = flow.immersion_at(jnp.asarray(t, found.dtype)), flow.domain
    if not immersion.operator.closed:
        return found
    volumes = jnp.where(immersion.active, immersion.operator.mass, 0.0)
    of_fluid = immersion.active | (immersion.box.spread(immersion.fill) > 0)
    return jnp.where(of_fluid, found - domain.sum(volumes * found) / domain.sum(volumes), found)


def swelling(flow: Any, immersion: solids.Immersion, t) -> Array | None:
    """The divergence of the velocity of bodies, times the part of each cell in them: what they gain by themselves.

    What flows into a cell by that velocity, through its closed parts, is what its surface pushes out and this. It is
    zero for rigid bodies, and None for those at rest. A cell that hardly opens would else have to let out all that the
    body in it gains.
    """
    if immersion.solid is None:
        return None
    velocity = immersion.faces.velocity
    assert velocity is not None
    kinds = (mirrored(flow.projection.layout),) * len(velocity)
    gained = flow.projection.divergence(velocity, t, kinds)
    return immersion.box.spread(immersion.solid * immersion.box.cut(gained))


def divergence(flow: Any, t, state: Any, params: Any) -> Array:
    """div(u), beside bodies that of `Immersion.through`; zero in cells that their surface cuts.

    There it is of the order of what the pressure changes by in a step: see `body_potential.potential`.
    """
    layouts, domain, layout = flow.layouts_at(t, state), flow.domain, flow.projection.layout
    if flow.solid is None:
        return flow.projection.divergence(state.velocity, t, layouts)
    now = jnp.asarray(t, state.velocity[0].dtype)
    immersion = flow.immersion_at(now, _solid_at(flow, state.body, params))
    if state.body is not None:
        still = jnp.zeros((), now.dtype)
        motions = free_body.motions(immersion, domain, layout, t, solids.Reach(still, still))
        immersion = immersion.moved_by(free_body.together(motions.blocked, state.body.motion))
    flowing = _flowing(domain, immersion, state.velocity, layouts, t)
    found, gained = flow.projection.divergence(flowing, t, layouts), swelling(flow, immersion, t)
    found = found if gained is None else found - gained
    return jnp.where(immersion.uncut, found, 0.0)


def unphysical(flow: Any, state: Any, params: Any) -> dict[str, Array]:
    """Cells near sides into which a free body reaches; all, where its centroid is beyond a side.

    Narrower gaps are not resolved: what the pressure in them takes of the body's momentum grows without bound, and soon
    by more than the virtual mass allows.
    """
    domain, layout, centre = flow.domain, flow.projection.layout, displaced_of(flow, params).centre
    solid, dtype = _solid_at(flow, state.body, params), state.velocity[0].dtype
    assert solid is not None
    beside, beyond = jnp.zeros(domain.block_shape, bool), jnp.zeros((), bool)
    for axis, n in enumerate(domain.block_shape):
        if layout.is_periodic(axis):
            continue
        shape = tuple(n if k == axis else 1 for k in range(len(domain.block_shape)))
        index = (domain.first_index(axis) + jnp.arange(n, dtype=jnp.int32)).reshape(shape)
        beside = beside | (index < GAP) | (index >= domain.grid.shape[axis] - GAP)
        place = centre[axis] + state.body.displacement[axis]
        beyond = beyond | (place < domain.grid.lower[axis]) | (place > domain.grid.upper[axis])
    distance = on_block(solid.distance, domain, (CENTER,) * domain.grid.ndim, jnp.zeros((), dtype), dtype)
    return {f"body within {GAP} cells of a side of the box": (beside & (distance <= 0)) | beyond}


def distance_by_numbers(flow: Any, params: Any, numbers: Mapping[str, Array]) -> Array:
    """The distance from a free body at cell centres, where its `diagnosed` numbers have it."""
    dtype, start = params.body.initial_velocity.dtype, free_body.at_start(flow.domain.grid.ndim, params.body)
    displaced = displaced_of(flow, params)
    body = free_body.placed(start, numbers, displaced.centre)
    solid = free_body.moved(flow.solid, flow.domain, flow.projection.layout, displaced.centre, body)
    return on_block(solid.distance, flow.domain, (CENTER,) * flow.domain.grid.ndim, jnp.zeros((), dtype), dtype)


def diagnosed(flow: Any, state: Any, params: Any) -> dict[str, Array]:
    """Force and torque on bodies, and where a free one is."""
    if state.reaction is None:
        return {}
    acting = state.reaction
    found = {f"force_{axis}": force for axis, force in zip(AXES, acting.force, strict=False)}
    found |= {f"torque_{axis}": torque for axis, torque in zip(AXES[-len(acting.torque) :], acting.torque, strict=True)}
    known = measures(flow.domain.grid, flow.solid)
    found = {name: number for name, number in found.items() if name in known}
    return found if state.body is None else found | free_body.diagnosed(state.body, displaced_of(flow, params).centre)


def measures(grid: Grid, solid: solids.Solid | None) -> dict[str, Measure]:
    """Units and meanings of `diagnosed`."""
    if solid is None:
        return {}
    along, about = _axes_of_forces(grid)
    force, torque = ("m3 s-2", "m4 s-2") if dimensions(grid) == 2 else ("m4 s-2", "m5 s-2")
    found = {f"force_{axis}": Measure(force, f"{axis}-force on the bodies") for axis in along}
    found |= {f"torque_{axis}": Measure(torque, f"{axis}-torque on the bodies") for axis in about}
    return found if solid.free is None else found | free_body.measures(grid.ndim)


def _axes_of_forces(grid: Grid) -> tuple[str, str]:
    """Axes along which bodies have a force, and about which a torque: around an axis all others vanish."""
    if grid.axisymmetric:
        return AXES[1], ""
    return ("xy", "z") if grid.ndim == 2 else ("xyz", "xyz")
