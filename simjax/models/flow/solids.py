"""Solid bodies in incompressible flow: no slip by interpolation along grid lines, mass by the open parts of faces.

Faces of a velocity component whose centre lies within half a cell of a surface, on either side, take the value that
makes the velocity linear on the way to the next face in the fluid, and that of the body at the surface (Fadlun,
Verzicco, Orlandi and Mohd-Yusof 2000, J. Comput. Phys. 161, 35). What flows through a face counts with the part of it
that is open (Ng, Min and Gibou 2009, J. Comput. Phys. 228, 8807) and with this profile of the velocity. The pressure of
the last step drives the next one, so that the projection adds its change only, and a steady flow does not depend on the
time step.
"""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.grid import CENTER
from simjax.jaxpr.parts import part
from simjax.models.axisymmetric import relative_volumes
from simjax.models.flow.solid_geometry import (
    at_faces,
    combined,
    face_offset,
    interpolation,
    inverse,
    mean_positive,
    mirrored,
    neighbour_sum,
    on_block,
    open_part,
    peeled,
    products,
    weights_below,
)
from simjax.models.flow.solid_moments import displaced, moments, planes
from simjax.ops.spacing import scaled
from simjax.solvers.elliptic import Elliptic, crop, cut, elliptic
from simjax.solvers.multigrid import Approximate, solve_elliptic

MOST_ITERATIONS = 100


class Reaction(eqx.Module):
    """Pressure, and the force and torque of the fluid on bodies, of the last stage; zero before the first one.

    pressure: kinematic, at cell centres. force: of the fluid on all bodies, over its density, one number per axis.
    torque: the same, one number in a plane and three in space. impulse, elapsed: integrals of the pressure and of one
    over the time since the last stage, zero after each.
    """

    pressure: Array
    force: tuple[Array, ...]
    torque: tuple[Array, ...]
    impulse: Array
    elapsed: Array


class Immersion(eqx.Module):
    """Coefficients of bodies at one time.

    free: whether the fluid alone moves a face of each component. follows: the neighbours that other ones follow, as
    bits (`solid_geometry.interpolation`). weights: what counts of their sum. carried: V - weights . V, of the velocity
    V of the bodies; none where they are at rest. open: beta, the open part of faces between two cells with a pressure,
    else zero. profile: as weights, what flows through faces beyond beta u + (1 - beta) V by the profile of the velocity
    across them. blocked: (1 - beta) V - profile . V. projected: whether beta > 0. uncut: whether cells have no face
    with a profile. active: whether cells have a pressure: where a face of theirs is free. fill: in other cells, one
    over the number of neighbours that have one. handed: in cells that only touch such cells, one over their number.
    operator: -div(beta grad). inverse: what is near its inverse.
    """

    free: tuple[Array, ...]
    follows: tuple[Array, ...]
    weights: tuple[Array, ...]
    carried: tuple[Array, ...] | None
    open: tuple[Array, ...]
    profile: tuple[Array, ...]
    blocked: tuple[Array, ...] | None
    projected: tuple[Array, ...]
    uncut: Array
    active: Array
    fill: Array
    handed: Array
    operator: Elliptic
    inverse: Approximate
    centre: Array

    def join(self, domain: Domain, velocity: Sequence[Array], layouts: Sequence[FieldLayout], t) -> tuple[Array, ...]:
        """The velocity with faces near surfaces and in bodies given by those in the fluid: V + r (u' - V').

        u' is the velocity on the next face in the fluid, r the ratio of the distances of both from the surface.
        """
        return combined(domain, velocity, layouts, t, self.free, self.follows, self.weights, self.carried)

    def through(
        self, domain: Domain, velocity: Sequence[Array], layouts: Sequence[FieldLayout], t
    ) -> tuple[Array, ...]:
        """Volume per time and area that flows through faces, over their whole area."""
        return combined(domain, velocity, layouts, t, self.open, self.follows, self.profile, self.blocked)

    def moved_by(self, carried: tuple[Array, ...] | None, blocked: tuple[Array, ...]) -> "Immersion":
        """The coefficients of the same bodies with another velocity."""
        return dataclasses.replace(self, carried=carried, blocked=blocked)

    def carrying(
        self, domain: Domain, layout: FieldLayout, velocity: Sequence[Array], t
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """`carried` and `blocked` of a velocity of the bodies, on this block's faces; `layout` is of the pressure."""

        def less(shares, weights):
            kinds, turned = [mirrored(layout)] * domain.grid.ndim, [-one for one in weights]
            return combined(domain, velocity, kinds, t, shares, self.follows, turned, None)

        return less([~one for one in self.free], self.weights), less([1 - one for one in self.open], self.profile)

    def gathered(self, domain: Domain, divergence: Array, layout: FieldLayout) -> Array:
        """The divergence with that of cells without a pressure given to their neighbours, so that no region of the
        fluid gains or loses mass; `layout` is that of the pressure."""

        volumes = relative_volumes(domain, layout, domain.spacing(layout, 0, divergence.dtype), divergence.dtype)

        def around(given: Array) -> Array:
            return domain.apply(lambda padded: neighbour_sum(padded, domain.grid.ndim), given, mirrored(layout), 1)

        touching, lost = self.fill > 0, scaled(divergence, volumes)
        lost = lost + jnp.where(touching, around(self.handed * lost), 0.0)
        return scaled(lost + jnp.where(self.active, around(self.fill * lost), 0.0), 1 / volumes)


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
    centroid of all bodies.

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

    @property
    def fixed(self) -> bool:
        """Tell whether the surface stays where it is, with its velocity."""
        return not self.moving and self.free is None

    def immersion(
        self, domain: Domain, layout: FieldLayout, t, dtype, approximate: Callable[..., Approximate]
    ) -> Immersion:
        """The coefficients at time `t`.

        layout: of the pressure. approximate: `(operator, layout)` -> what is near the inverse of the operator.
        """
        ndim, beside, block = domain.grid.ndim, mirrored(layout), domain.block_shape
        distance = domain.pad(on_block(self.distance, domain, (CENTER,) * ndim, t, dtype), beside, 2)
        near, below = peeled(distance, range(ndim)), weights_below(domain, layout, 2, dtype)
        here = [at_faces(distance, axis, below[axis]) for axis in range(ndim)]
        free, follows, slopes = zip(*map(interpolation, here), strict=True)
        here = [peeled(d, range(ndim)) for d in here]
        # Where pressure moves the flow at all: not on walls, where its normal velocity is given.
        inner = [k > 0 for k in elliptic(domain, layout, [jnp.ones((), dtype)] * ndim).conductances]
        active = jnp.zeros(block, bool)
        for axis, n in enumerate(block):
            moved = free[axis] & inner[axis]
            active = active | cut(moved, axis, 0, n) | cut(moved, axis, 1, n + 1)
        padded = domain.pad(active.astype(dtype), beside, 1)
        rim = ~active & (neighbour_sum(padded, ndim) > 0)
        rims = neighbour_sum(domain.pad(rim.astype(dtype), beside, 1), ndim)
        beyond = ~active & ~rim & (rims > 0)
        passed = domain.pad((active | rim | beyond).astype(dtype), beside, 1)
        area, profile = [], []
        for axis in range(ndim):
            mean = mean_positive(near, axis, below)
            part = open_part(near, axis, below)
            # The mean of what grows from zero at the surface, over its value here.
            part = jnp.where(free[axis] & (part < 1), mean * inverse(here[axis]), part)
            part = part * products(crop(padded, ndim, axis), axis)
            area.append(part)
            # Cells farther from those with a pressure are closed, as nothing takes up what they gain or lose.
            mean = mean * products(crop(passed, ndim, axis), axis)
            profile.append((mean - part * here[axis]) * slopes[axis])
        uncut = active
        for axis, n in enumerate(block):
            whole = profile[axis] == 0
            uncut = uncut & cut(whole, axis, 0, n) & cut(whole, axis, 1, n + 1)
        weights = [d * slope for d, slope in zip(here, slopes, strict=True)]

        def own(on_faces):
            """The lower faces of this block's cells."""
            return tuple(cut(on_faces[axis], axis, 0, n) for axis, n in enumerate(block))

        operator = elliptic(domain, layout, area)
        free, follows, weights, part, profile = map(own, (free, follows, weights, area, profile))
        fill = jnp.where(active, 0.0, inverse(neighbour_sum(padded, ndim)))
        handed = jnp.where(beyond, inverse(rims), 0.0)
        centre = displaced(domain, layout, peeled(near, range(ndim))).centre if self.about is None else self.about
        still = Immersion(
            free, follows, weights, None, part, profile, None, tuple(one > 0 for one in part),
            uncut & (neighbour_sum(passed, ndim) == neighbour_sum(padded, ndim)), active, fill, handed,
            operator, approximate(operator, layout), centre,
        )  # fmt: skip
        if self.velocity is None:
            return still
        v = [self.velocity_on_faces(domain, axis, t, dtype) for axis in range(ndim)]
        given = [jnp.zeros(block, dtype) if one is None else one for one in v]
        return still.moved_by(*still.carrying(domain, layout, given, t))

    def velocity_on_faces(self, domain: Domain, axis: int, t, dtype) -> Array | None:
        """A component of the velocity of the bodies on this block's lower faces; None: they are at rest."""
        given = None if self.velocity is None else self.velocity[axis]
        return None if given is None else on_block(given, domain, face_offset(domain, axis), t, dtype)

    def inertia(self, domain: Domain, layout: FieldLayout, t, dt, centre: Array) -> tuple[Array, Array]:
        """Force and torque over density that move fluid in the place of the bodies as they move: volumes times DV/Dt.

        DV/Dt is the difference of V along the way of a point in the step `dt` that ends at `t`; arrays do not change.
        """
        ndim, dtype, rate = domain.grid.ndim, dt.dtype, inverse(dt)
        distance = domain.pad(on_block(self.distance, domain, (CENTER,) * ndim, t, dtype), mirrored(layout), 1)
        given = (None,) * ndim if self.velocity is None else self.velocity
        below, gains = weights_below(domain, layout, 1, dtype), []
        for axis, (n, v) in enumerate(zip(domain.block_shape, given, strict=True)):
            if not callable(v):
                gains.append(jnp.zeros(domain.block_shape, dtype))
                continue
            now = domain.coordinates(face_offset(domain, axis), dtype)
            before = [x - dt * one(t, *now) if callable(one) else x for x, one in zip(now, given, strict=True)]
            gained = jnp.broadcast_to(v(t, *now) - v(t - dt, *before), domain.block_shape)
            gains.append(rate * (1 - cut(open_part(distance, axis, below), axis, 0, n)) * gained)
        return moments(domain, layout, gains, centre)


@part("pressure solve")
def potential(immersion: Immersion, domain: Domain, divergence: Array, impulse: Array) -> Array:
    """phi with div(beta grad phi) = divergence, zero in bodies and of zero mean in the fluid.

    It changes the impulse of the pressure, and is as exact as that needs: to a hundred roundings of their sum.
    Bodies may cut the fluid into regions that nothing joins, of which each has a constant of its own: a term of a
    hundred roundings of the operator holds these constants, whose gradient vanishes, and changes phi by no more.
    What flows by the profile of the velocity follows the neighbours of a face, and their correction by phi is left out:
    it vanishes with the change of the pressure, and the operator stays symmetric.
    """
    operator = immersion.operator
    connected = operator.diagonal(0.0) > 0
    volumes = jnp.where(connected, operator.mass, 0.0)
    eps = float(jnp.finfo(divergence.dtype).eps)
    shift = 100 * eps * sum(1 / h**2 for h in domain.grid.mean_spacing)

    def without_mean(u: Array) -> Array:
        mean = domain.sum(volumes * jnp.where(connected, u, 0.0)) / domain.sum(volumes)
        return jnp.where(connected, u - mean, 0.0)

    right = jnp.where(connected, divergence, 0.0)
    if operator.closed:
        # What profiles let through in total is taken from the cells that they belong to, where there are any.
        cut_cells = connected & ~immersion.uncut
        some = domain.sum(cut_cells.astype(right.dtype)) > 0
        taken = jnp.where(some, cut_cells, connected).astype(right.dtype)
        right = without_mean(right - taken * (domain.sum(volumes * right) / domain.sum(volumes * taken)))
    known = operator(lax.stop_gradient(impulse), 0.0)
    found = solve_elliptic(
        operator, immersion.inverse, -volumes * right, shift,
        tolerance=100 * eps, limit=MOST_ITERATIONS, scale=jnp.sqrt(domain.dot(known, known)),
    ).solution  # fmt: skip
    return without_mean(found) if operator.closed else jnp.where(connected, found, 0.0)


def reaction(
    immersion: Immersion, domain: Domain, layout: FieldLayout, before: Reaction, free: Sequence[Array],
    joined: Sequence[Array], phi: Array, gradients: Sequence[Array],
) -> Reaction:  # fmt: skip
    """The pressure, and the force and torque of the fluid on the bodies: the momentum that it loses to them in a stage.

    before: the reaction with the impulse of the pressure that acted in the stage. free, joined: the velocity before and
    after `join`. The gradient of that pressure acted everywhere and adds up to what is on the sides of the domain; that
    of phi acts on open faces only, so that its sum over the other ones is the bodies'. So the momentum in a periodic
    box changes by what drives the flow less this force, to rounding. In bodies the pressure is that of the fluid
    beside.
    """
    rate = inverse(before.elapsed)
    lost = [
        u - v - jnp.where(open_, 0.0, slope)
        for u, v, open_, slope in zip(free, joined, immersion.projected, gradients, strict=True)
    ]
    force, torque = moments(domain, layout, lost, immersion.centre)
    pressure = rate * jnp.where(immersion.active, before.impulse + phi, 0.0)
    pressure = pressure + immersion.fill * neighbour_sum(domain.pad(pressure, layout, 1), domain.grid.ndim)
    return Reaction(
        pressure, tuple(rate * force), tuple(rate * torque), jnp.zeros_like(phi), jnp.zeros_like(before.elapsed)
    )


def with_more(reaction: Reaction, force: Array, torque: Array) -> Reaction:
    """The reaction with more of a force and a torque."""
    both = tuple(map(jnp.add, reaction.force, force)), tuple(map(jnp.add, reaction.torque, torque))
    return dataclasses.replace(reaction, force=both[0], torque=both[1])


def still(domain: Domain, like: Array) -> Reaction:
    """The reaction before any step."""
    ndim, zero = domain.grid.ndim, jnp.zeros((), like.dtype)
    force, torque = (zero,) * ndim, (zero,) * len(planes(ndim))
    return Reaction(jnp.zeros_like(like), force, torque, jnp.zeros_like(like), zero)


def acting(reaction: Reaction) -> Reaction:
    """The rate of change of a reaction while its pressure acts."""
    none = jax.tree.map(jnp.zeros_like, reaction)
    return dataclasses.replace(none, impulse=reaction.pressure, elapsed=jnp.ones_like(reaction.elapsed))
