"""Solid bodies in incompressible flow: no slip along grid lines, mass by the open parts of faces.

Beside a surface the Laplacian of a velocity has what is linear along grid lines from the surface (Gibou, Fedkiw, Cheng
and Kang 2002, J. Comput. Phys. 176, 205): by ghost values in bodies, and, the nearer a face is to the surface, by a
friction that grows without bound. What flows through a face counts with the part of it that is open (Ng, Min and Gibou
2009, J. Comput. Phys. 228, 8807) and with the profile of the velocity beside. Every weight goes to nothing where its
rule ends, so that a flow does not jump as a body moves across the grid, and its derivative by place and shape is that
of its change. The pressure of the last step drives the next one, so that the projection adds its change only, and a
steady flow hardly depends on the time step.
"""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import CENTER
from simjax.models.flow.bodies.body_box import Box, Known, all_of
from simjax.models.flow.bodies.ring_geometry import means_over_faces, open_part_of, rings_of, shares_of_neighbours
from simjax.models.flow.bodies.solid_geometry import (
    OF_CELLS,
    Bends,
    Friction,
    at_faces,
    at_nodes,
    bends,
    between,
    counted,
    face_offset,
    followed,
    friction,
    ghost_depth,
    held,
    inverse,
    inverse_squares,
    mirrored,
    neighbour_sum,
    on_block,
    open_part,
    peeled,
    shares_of,
    weights_below,
)
from simjax.models.flow.bodies.solid_moments import displaced, moments
from simjax.ops import staggered
from simjax.ops.difference import shift
from simjax.ops.spacing import Spacing
from simjax.solvers.elliptic import Elliptic, cut, elliptic
from simjax.solvers.multigrid import Approximate
from simjax.stencil.formulation import stores_values
from simjax.stencil.materialise import held_if_stored

Distances = tuple[Array, Bends, Sequence[Spacing], Sequence[Array]]


class Faces(eqx.Module):
    """Geometry of bodies at the faces of each component, in their box.

    depth: of the faces in the fluid, below zero in bodies, with one more all around. closed: the part in bodies of the
    volumes around them. velocity: V, of the bodies, on all faces; None: they are at rest. centre: that torques are
    about.
    """

    depth: tuple[Array, ...]
    closed: tuple[Array, ...]
    velocity: tuple[Array, ...] | None
    centre: Array
    box: Box = eqx.field(static=True)

    @property
    def fluid(self) -> list[Array]:
        """Masks of the faces whose centres lie in the fluid."""
        return [shift(depth, depth.ndim) > 0 for depth in self.depth]


class Reach(eqx.Module):
    """Reach of friction: the viscosity times the time since the last stage, and times the step before.

    Of a rate over the viscosity the share 1 / (1 + z)^2, z the rate times that of a step, is explicit: as steps become
    short it is all, so that the order of the scheme stays; it takes a quarter of what there is at most; and it goes to
    nothing where the rate grows without bound, as in bodies, so that nothing jumps as a face comes out of one. The rest
    is implicit, and all of it before the first step.
    """

    now: Array
    step: Array

    def slowed(self, u: Array, rate: Array) -> Array:
        """A field after friction, so far as it is implicit."""
        return u / (1 + self.now * (rate - self.explicit(rate)))

    def explicit(self, rate: Array) -> Array:
        """The part of a rate that is explicit."""
        lower = 1 + self.step * rate
        return jnp.where(self.step > 0, rate / lower / lower, 0.0)


class Immersion(eqx.Module):
    """Coefficients of bodies at one time, in their box but for those of the pressure solve.

    ghosts: see `solid_geometry.ghost_weights`. rate: of `solid_geometry.friction`. open: beta, the open part of faces.
    profile: what the slope of the velocity beside a face counts with in the flow through it, beyond
    beta u + (1 - beta) V. blocked: (1 - beta) V - profile . V. seeping: the part of faces through which fluid follows
    the pressure, as the velocity there does not. projected: the share of the pressure's gradient that acts on faces.
    uncut: whether cells have no face with a profile or one that seeps. active: whether cells have a pressure: where a
    face of theirs is open. fill: in other cells, one over the number of neighbours that have one. operator:
    -div(beta grad), on the block. inverse: near its inverse. spread: what is taken of each cell, on the block, of a
    unit that flows too much in total; None where the flow may change its volume. solid: the part of each cell in bodies
    that have a velocity, else None.
    """

    faces: Faces
    ghosts: tuple[Array, ...]
    rate: tuple[Array, ...]
    open: tuple[Array, ...]
    profile: tuple[Array, ...]
    blocked: tuple[Array, ...] | None
    seeping: tuple[Array, ...]
    projected: tuple[Array, ...]
    uncut: Array
    active: Array
    fill: Array
    operator: Elliptic
    inverse: Approximate
    spread: Array | None
    solid: Array | None = None

    @property
    def box(self) -> Box:
        """The box around bodies."""
        return self.faces.box

    def join(
        self, domain: Domain, velocity: Sequence[Array], layouts: Sequence[FieldLayout], t, reach: Reach
    ) -> tuple[Array, ...]:
        """The velocity slowed by bodies beside their surface, and in bodies that which follows from it."""
        found = self._with_ghosts(domain, velocity, layouts, t, reach)
        if self.faces.velocity is not None:
            carried = self.carried(domain, layouts[0], self.faces.velocity, t, reach)
            found = tuple(map(jnp.add, found, carried))
        return tuple(map(self.box.put, velocity, found))

    def carried(
        self, domain: Domain, layout: FieldLayout, velocity: Sequence[Array], t, reach: Reach
    ) -> tuple[Array, ...]:
        """Part of `join` in the box that a velocity of the bodies adds; `layout` tells which axes are periodic."""
        kinds = [mirrored(layout)] * domain.grid.ndim
        kept = self._with_ghosts(domain, velocity, kinds, t, reach)
        return tuple(self.box.cut(v) - other for v, other in zip(velocity, kept, strict=True))

    def _with_ghosts(self, domain: Domain, velocity: Sequence[Array], layouts, t, reach: Reach) -> tuple[Array, ...]:
        """In the box the velocity after friction, and in bodies their ghost values."""
        ndim, box = domain.grid.ndim, self.box
        slowed = [reach.slowed(box.cut(u), rate) for u, rate in zip(velocity, self.rate, strict=True)]
        around = box.changed_with_neighbours(domain, velocity, slowed, layouts, t)
        parts = zip(slowed, around, self.faces.depth, self.ghosts, strict=True)
        return tuple(
            jnp.where(shift(depth, ndim) > 0, u, weight * followed(wide, depth)) for u, wide, depth, weight in parts
        )

    def through(
        self, domain: Domain, velocity: Sequence[Array], layouts: Sequence[FieldLayout], t
    ) -> tuple[Array, ...]:
        """Volume per time and area that flows in the box through faces with the velocity, over their whole area."""
        ndim, around = domain.grid.ndim, self.box.with_neighbours(domain, velocity, layouts, t)
        parts = zip(self.open, around, self.profile, self.faces.depth, strict=True)
        found = tuple(share * shift(u, ndim) + weight * followed(u, depth) for share, u, weight, depth in parts)
        return found if self.blocked is None else tuple(map(jnp.add, found, self.blocked))

    def blocked_by(self, domain: Domain, layout: FieldLayout, velocity: Sequence[Array], t) -> tuple[Array, ...]:
        """`blocked` of a velocity of the bodies; `layout` tells along which axes fields are periodic."""
        kinds = [mirrored(layout)] * domain.grid.ndim
        ndim, around = domain.grid.ndim, self.box.with_neighbours(domain, velocity, kinds, t)
        parts = zip(self.open, around, self.profile, self.faces.depth, strict=True)
        return tuple((1 - share) * shift(v, ndim) - weight * followed(v, depth) for share, v, weight, depth in parts)

    def moved_by(self, blocked: tuple[Array, ...]) -> "Immersion":
        """The coefficients of the same bodies where another velocity of theirs blocks faces."""
        return dataclasses.replace(self, blocked=blocked)


class Solid(eqx.Module):
    """Bodies in a flow, given by the distance from their surface, and their velocity.

    distance: positive in the fluid, negative in bodies; an array at the centres of this block's cells, or a function
    `(t, *coordinates)`. It needs to be a distance near the surface only, up to a factor: only its ratios between
    neighbours count. velocity: of the material of the bodies, for each axis an array on the faces normal to it, a
    function or None; it goes on smoothly for a cell into the fluid. Where it is left out they are at rest. moving:
    whether any of these depends on time. beside: about how many cells lie along the surface, where that is known
    before anything is compiled; None: they are counted where the distance is. free: of one rigid body, which motions
    the forces of the fluid change, of "x", "y", "z" and "turn"; its distance is a function, that at the start, and it
    lies inside of the box. None: bodies move as given. about: the point that torques are about, `(ndim,)`; None: the
    centroid of all bodies. known: what is known of the distance where that is an array of traced values.

    Examples:
        >>> def distance(t, x, y):
        ...     return jnp.hypot(x - 0.5, y - 0.5) - 0.2
        >>> domain = sj.Domain(sj.Grid((32, 32)))
        >>> sides = [(sj.PeriodicSide(), sj.PeriodicSide())] * 2
        >>> model = sj.Incompressible(domain, sides, solid=sj.Solid(distance))
    """

    distance: Array | Callable
    velocity: tuple[Array | Callable | None, ...] | None = None
    moving: bool = eqx.field(static=True, default=False)
    beside: int | None = eqx.field(static=True, default=None)
    free: tuple[str, ...] | None = eqx.field(static=True, default=None)
    about: Array | None = None
    known: Known | None = eqx.field(static=True, default=None)

    @property
    def fixed(self) -> bool:
        """Tell whether the surface stays where it is, with its velocity."""
        return not self.moving and self.free is None

    def immersion(
        self, domain: Domain, layout: FieldLayout, t, dtype, approximate: Callable[..., Approximate], box: Box
    ) -> Immersion:
        """The coefficients at time `t`.

        layout: of the pressure. approximate: `(operator, layout)` -> what is near the inverse of the operator. box:
        around bodies.
        """
        ndim, block, rings = domain.grid.ndim, domain.block_shape, rings_of(domain, layout, dtype)
        _, bent, below, here = distances = self._distances(domain, layout, t, dtype)
        # Where pressure moves the flow at all: not on walls, where its normal velocity is given.
        inner = [k > 0 for k in elliptic(domain, layout, [jnp.ones((), dtype)] * ndim).conductances]
        area, profile, seeping, ghosts = [], [], [], []
        for axis, depth in enumerate(here):
            own, holds, squares = shift(depth, ndim), held(depth), inverse_squares(depth)
            volume = open_part(bent.less(shares_of(ndim, axis, 1 / 3, OF_CELLS)), axis, below)
            mean, whole = means_over_faces(bent.less(shares_of(ndim, axis, 1 / 2, OF_CELLS)), axis, below, rings)
            # That of the face's centre where all of it is open, though the surface is curved.
            mean = mean + volume * (own - whole)
            # In the fluid the mean of what grows from zero at the surface, over its value here; beside the surface and
            # in bodies the rest of that mean is with the neighbours.
            beta = jnp.where(volume < 1, (1 - holds) * mean * inverse(own) + holds * volume, 1.0)
            rest = inner[axis] & (volume < 1) & (holds > 0)
            area.append(beta)
            behind = ghost_depth(depth, squares)
            profile.append(jnp.where(rest, (mean - beta * behind) * squares, 0.0))
            seeping.append(jnp.where(inner[axis], holds * beta, 0.0))
            ghosts.append(jnp.minimum(behind, 0.0) * squares)
        area, profile, seeping, ghosts = held_if_stored((area, profile, seeping, ghosts))
        operator = elliptic(domain, layout, area)
        active = operator.diagonal(0.0) > 0
        uncut = active
        for axis, n in enumerate(block):
            whole = (profile[axis] == 0) & (seeping[axis] == 0)
            uncut = uncut & cut(whole, axis, 0, n) & cut(whole, axis, 1, n + 1)

        def lower(on_faces):
            """The lower faces of this block's cells."""
            return tuple(cut(on_faces[axis], axis, 0, n) for axis, n in enumerate(block))

        faces = self._faces_at(domain, layout, t, distances, box)
        rate = tuple(frictions(domain, layout, faces, axis).rate for axis in range(ndim))
        lowest = map(lower, (area, profile, seeping, ghosts))
        area, profile, seeping, ghosts = (tuple(map(box.cut, one)) for one in lowest)
        projected = _shares_projected(area, faces.depth, min(domain.grid.mean_spacing))
        padded = domain.pad(active.astype(dtype), mirrored(layout), 1)
        fill = box.cut(jnp.where(active, 0.0, inverse(neighbour_sum(padded, ndim))))
        still = Immersion(
            faces,
            ghosts,
            rate,
            area,
            profile,
            None,
            seeping,
            projected,
            uncut,
            active,
            fill,
            operator,
            approximate(operator, layout),
            _spread(domain, operator, active, uncut, dtype) if operator.closed else None,
        )
        if (v := faces.velocity) is None:
            return still
        nodes = at_nodes(bent.less((OF_CELLS,) * ndim), below)
        part = box.cut(1 - open_part_of(nodes, range(ndim), None if rings is None else rings.cells))
        return dataclasses.replace(still, blocked=still.blocked_by(domain, layout, v, t), solid=part)

    def _distances(self, domain: Domain, layout: FieldLayout, t, dtype) -> Distances:
        """Distances at centres, two cells more around; their curvature, one more; `weights_below`; those on faces."""
        ndim = domain.grid.ndim
        distance = domain.pad(on_block(self.distance, domain, (CENTER,) * ndim, t, dtype), mirrored(layout), 3)
        below = weights_below(domain, layout, 3, dtype)
        near, bent = held_if_stored((peeled(distance, range(ndim)), bends(distance, below)))
        here = held_if_stored([at_faces(bent, axis, below) for axis in range(ndim)])
        if not stores_values():  # slices of wider arrays would be written and read once more
            return near, bends(near, below), below, here
        return near, jax.tree.map(lambda one: peeled(one, range(ndim)), bent), below, here

    def faces(self, domain: Domain, layout: FieldLayout, t, dtype) -> Faces:
        """The geometry at faces at time `t`; `layout` is that of the pressure."""
        return self._faces_at(domain, layout, t, self._distances(domain, layout, t, dtype), all_of(domain))

    def _faces_at(self, domain: Domain, layout: FieldLayout, t, distances: Distances, box: Box) -> Faces:
        """The geometry at faces in a box, from `_distances`."""
        near, bent, below, here = distances
        depth, closed, dtype = [], [], near.dtype
        rings = rings_of(domain, layout, dtype)
        for axis, (n, one) in enumerate(zip(domain.block_shape, here, strict=True)):
            depth.append(box.cut(cut(one, axis, 0, n + 2), 1))
            # Along the axis the corners of the volume around a face are centres of cells.
            corners = bent.less(shares_of(near.ndim, axis, 1 / 3, OF_CELLS))
            for k in range(near.ndim):
                corners = corners if k == axis else between(corners, k, below[k])
            part = open_part_of(corners, range(near.ndim), None if rings is None else rings.around(axis))
            closed.append(box.cut(1 - cut(part, axis, 0, n)))
        centre = self.about
        if centre is None:
            centre = displaced(domain, layout, peeled(near, (*range(near.ndim),) * 2)).centre
        return held_if_stored(Faces(tuple(depth), tuple(closed), self._velocities(domain, t, dtype), centre, box))

    def _velocities(self, domain: Domain, t, dtype) -> tuple[Array, ...] | None:
        """The velocity of the bodies on this block's lower faces; None: they are at rest."""
        if self.velocity is None:
            return None
        found = (self.velocity_on_faces(domain, axis, t, dtype) for axis in range(domain.grid.ndim))
        return tuple(jnp.zeros(domain.block_shape, dtype) if one is None else one for one in found)

    def velocity_on_faces(self, domain: Domain, axis: int, t, dtype) -> Array | None:
        """A component of the velocity of the bodies on this block's lower faces; None: they are at rest."""
        given = None if self.velocity is None else self.velocity[axis]
        return None if given is None else on_block(given, domain, face_offset(domain, axis), t, dtype)

    def inertia(self, domain: Domain, layout: FieldLayout, faces: Faces, t, dt) -> tuple[Array, Array]:
        """Force and torque over density that move fluid in the place of the bodies as they move: volumes times DV/Dt.

        DV/Dt is the difference of V along the way of a point in the step `dt` that ends at `t`; arrays do not change.
        """
        ndim, dtype, rate = domain.grid.ndim, dt.dtype, inverse(dt)
        given, gains = (None,) * ndim if self.velocity is None else self.velocity, []
        for axis, (v, closed) in enumerate(zip(given, faces.closed, strict=True)):
            if not callable(v):
                gains.append(jnp.zeros(faces.box.shape, dtype))
                continue
            now = domain.coordinates(face_offset(domain, axis), dtype)
            before = [x - dt * one(t, *now) if callable(one) else x for x, one in zip(now, given, strict=True)]
            gained = jnp.broadcast_to(v(t, *now) - v(t - dt, *before), domain.block_shape)
            gains.append(rate * closed * faces.box.cut(gained))
        return moments(domain, layout, gains, faces.centre, faces.box)


def _spread(domain: Domain, operator: Elliptic, active: Array, uncut: Array, dtype) -> Array:
    """The part that is taken of each cell, of a unit that flows too much into all of them; see `Immersion`.

    What profiles let through in total is taken from the cells that they belong to, where there are any, as far as they
    are open: one that hardly is would need a pressure without bound to let it pass.
    """
    cut_cells = active & ~uncut
    some = domain.sum(cut_cells.astype(dtype)) > 0
    taken = jnp.where(some, jnp.where(cut_cells, operator.diagonal(0.0), 0.0), active.astype(dtype))
    return taken / domain.sum(operator.mass * taken)


def _around_box(box: Box, widths: Sequence[Spacing]) -> tuple[Spacing, ...]:
    """Widths of the cells of a box with one more all around, of those of a block with one more."""
    return tuple(box.cut(h, 1) if isinstance(h, Array) else h for h in widths)


def _shares_projected(area: Sequence[Array], depths: Sequence[Array], cell: float) -> tuple[Array, ...]:
    """Shares of the pressure's gradient that act on faces: all in the fluid, less and less of it behind a surface.

    There it vanishes with the open part. depths: with one more all around.
    """
    behind = [jnp.maximum(-shift(depth, depth.ndim) / cell, 0.0) for depth in depths]
    return tuple(part * inverse(part + more) for part, more in zip(area, behind, strict=True))


def frictions(domain: Domain, layout: FieldLayout, faces: Faces, axis: int) -> Friction:
    """The friction of bodies on a component of the velocity beside their surface, in their box. layout: of pressure."""
    depth, box = faces.depth[axis], faces.box
    rings = shares_of_neighbours(domain, layout, axis, depth.dtype)
    widths = _around_box(box, domain.spacing(layout, 1, depth.dtype))
    return friction(depth, widths, axis, None if rings is None else box.lines(rings))


def slowing(
    domain: Domain,
    layout: FieldLayout,
    faces: Faces,
    velocity: Sequence[Array],
    layouts: Sequence[FieldLayout],
    t,
    reach: Reach,
) -> tuple[Array, ...]:
    """The explicit part of the friction of bodies in the Laplacian of each component, less ghost values in its place.

    layout: of the pressure. layouts: of the velocity, whose values in bodies are those of `Immersion.join`. The result
    is in the box of the bodies.
    """
    ndim, box = domain.grid.ndim, faces.box
    relative = box.with_neighbours(domain, velocity, layouts, t)
    if faces.velocity is not None:
        given = box.with_neighbours(domain, faces.velocity, (mirrored(layout),) * ndim)
        relative = tuple(map(jnp.subtract, relative, given))
    found = []
    for axis, u in enumerate(relative):
        by = frictions(domain, layout, faces, axis)
        found.append(-counted(u, by) - reach.explicit(by.rate) * shift(u, ndim))
    return tuple(found)


def seepage(
    immersion: Immersion, domain: Domain, layout: FieldLayout, pressure: Array, time: Array
) -> tuple[Array, ...]:
    """Flow in the box through faces whose velocity the surface holds, by the gradient of the pressure over a time.

    Cells with such faces alone would else have a pressure that nothing bounds, as no velocity yields to it. It is of
    the order of what flows within a cell of the surface by that gradient, of second order; where the surface holds
    faces more and more, it takes over from their own velocity.
    """
    box, parts = immersion.box, enumerate(immersion.seeping)
    (around,) = box.with_neighbours(domain, (pressure,), (layout,))
    lines = _around_box(box, domain.spacing(layout, 1, pressure.dtype))
    widths = [jnp.broadcast_to(h, around.shape) if isinstance(h, Array) else h for h in lines]
    return tuple(-time * part * staggered.diff_to_face(around, axis, widths) for axis, part in parts)
