"""Solid bodies in incompressible flow: no slip by interpolation along grid lines, mass by the open parts of faces.

Faces of a velocity component whose centre lies within half a cell of a surface, on either side, take the value that
makes the velocity on the way to the next face in the fluid linear and that of the body at the surface (Fadlun, Verzicco,
Orlandi and Mohd-Yusof 2000, J. Comput. Phys. 161, 35). What flows through a face counts with the part of it that is open
(Ng, Min and Gibou 2009, J. Comput. Phys. 228, 8807). The pressure of the last step drives the next one, so that the
projection adds its change only and takes nothing of the order of the step from the condition of no slip.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.boundary import FieldLayout, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.grid import CENTER, FACE
from simjax.ops.difference import shift
from simjax.solvers.elliptic import Elliptic, crop, cut, elliptic
from simjax.solvers.multigrid import Multigrid, multigrid, solve_elliptic

MOST_ITERATIONS = 100


class Reaction(eqx.Module):
    """What bodies and the fluid do to each other: pressure and force of the last stage, zero before the first one.

    pressure: kinematic, at cell centres. force: of the fluid on all bodies, over its density, one number per axis.
    impulse, elapsed: integrals of the pressure and of one over the time since the last stage, zero after each.
    """

    pressure: Array
    force: tuple[Array, ...]
    impulse: Array
    elapsed: Array


class Immersion(eqx.Module):
    """Coefficients of bodies at one time.

    free: one on the faces of each component that the fluid alone moves, else zero. weights: for each component of its
    neighbours below and above along every axis. carried: V - weights . V, of the velocity V of the bodies; none where
    they are at rest. open: beta, the open part of faces that mass flows through. blocked: (1 - beta) V. projected: one
    where beta > 0. operator: -div(beta grad), with its hierarchy. fill: for cells without a pressure of their own, the
    weight of each neighbour that has one.
    """

    free: tuple[Array, ...]
    weights: tuple[tuple[tuple[Array, Array], ...], ...]
    carried: tuple[Array, ...] | None
    open: tuple[Array, ...]
    blocked: tuple[Array, ...] | None
    projected: tuple[Array, ...]
    operator: Elliptic
    hierarchy: Multigrid
    fill: Array

    def through(self, velocity: Sequence[Array]) -> tuple[Array, ...]:
        """What flows through faces, over their whole area: beta u + (1 - beta) V."""
        flowing = tuple(beta * u for beta, u in zip(self.open, velocity, strict=True))
        return flowing if self.blocked is None else tuple(map(jnp.add, flowing, self.blocked))


class Solid(eqx.Module):
    """Bodies in a flow, given by the distance from their surface, and their velocity.

    distance: positive in the fluid, negative in bodies; an array at the centres of this block's cells, or a function
    `(t, *coordinates)`. It needs to be a distance near the surface only, up to a factor: only its ratios between
    neighbours count. velocity: of the material of the bodies, for each axis an array on the faces normal to it, a
    function or None; it goes on smoothly for a cell into the fluid. Where it is left out they are at rest. moving:
    whether any of these depends on time.

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

    def immersion(self, domain: Domain, layout: FieldLayout, t, dtype) -> Immersion:
        """The coefficients at time `t`; `layout` is that of the pressure."""
        ndim, beside = domain.grid.ndim, _mirrored(layout)
        distance = domain.pad(_on_block(self.distance, domain, (CENTER,) * ndim, t, dtype), beside, 2)
        # Where pressure moves the flow at all: not on walls, where its normal velocity is given.
        inner = [k > 0 for k in elliptic(domain, layout, [jnp.ones((), dtype)] * ndim).conductances]
        free, weights, area = [], [], []
        for axis in range(ndim):
            alone, towards = _interpolation(_at_faces(distance, axis, ndim), ndim)
            free.append(alone)
            weights.append(towards)
            area.append(_open_part(_peeled(distance, ndim), axis))
        active = jnp.zeros(domain.block_shape, bool)
        for axis, n in enumerate(domain.block_shape):
            moved = free[axis] & inner[axis]
            active = active | cut(moved, axis, 0, n) | cut(moved, axis, 1, n + 1)
        padded = domain.pad(active.astype(dtype), beside, 1)
        for axis in range(ndim):
            line = crop(padded, ndim, axis)
            n = line.shape[axis]
            area[axis] = area[axis] * cut(line, axis, 0, n - 1) * cut(line, axis, 1, n)
        operator = elliptic(domain, layout, area)
        own = [cut(beta, axis, 0, n) for axis, (beta, n) in enumerate(zip(area, domain.block_shape, strict=True))]
        free = [cut(one, axis, 0, n).astype(dtype) for axis, (one, n) in enumerate(zip(free, domain.block_shape, strict=True))]
        weights = [
            tuple(tuple(cut(w, axis, 0, n) for w in pair) for pair in towards)
            for axis, (towards, n) in enumerate(zip(weights, domain.block_shape, strict=True))
        ]
        carried, blocked = self._of_bodies(domain, beside, free, weights, own, t, dtype)
        return Immersion(
            tuple(free), tuple(weights), carried, tuple(own), blocked,
            tuple((beta > 0).astype(dtype) for beta in own), operator, multigrid(operator),
            _fill(domain, beside, operator, dtype),
        )  # fmt: skip

    def _velocity(self, domain: Domain, axis: int, t, dtype) -> Array | None:
        given = None if self.velocity is None else self.velocity[axis]
        return None if given is None else _on_block(given, domain, _face(domain, axis), t, dtype)

    def _of_bodies(self, domain: Domain, layout: FieldLayout, free, weights, area, t, dtype):
        """What the velocity of bodies adds to joined faces, and to what flows through faces."""
        if self.velocity is None:
            return None, None
        carried, blocked = [], []
        for axis in range(domain.grid.ndim):
            v = self._velocity(domain, axis, t, dtype)
            v = jnp.zeros(domain.block_shape, dtype) if v is None else v
            carried.append((1 - free[axis]) * v - _weighted(domain.pad(v, layout, 1), weights[axis]))
            blocked.append((1 - area[axis]) * v)
        return tuple(carried), tuple(blocked)

    def momentum(self, domain: Domain, layout: FieldLayout, t, dtype) -> tuple[Array, ...]:
        """The momentum of fluid in the place of the bodies that moves as they do, over its density."""
        ndim = domain.grid.ndim
        distance = domain.pad(_on_block(self.distance, domain, (CENTER,) * ndim, t, dtype), _mirrored(layout), 1)
        total = []
        for axis, n in enumerate(domain.block_shape):
            v = self._velocity(domain, axis, t, dtype)
            if v is None:
                total.append(jnp.zeros((), dtype))
                continue
            share = 1 - cut(_open_part(distance, axis), axis, 0, n)
            total.append(domain.sum(share * v) * domain.grid.cell_volume)
        return tuple(total)


def join(
    immersion: Immersion, domain: Domain, velocity: Sequence[Array], layouts: Sequence[FieldLayout], t
) -> tuple[Array, ...]:
    """The velocity with faces near surfaces and in bodies given by those in the fluid: V + r (u' - V').

    u' is the velocity on the next face in the fluid, r the ratio of the distances of both from the surface.
    """
    padded = domain.pad(tuple(velocity), tuple(layouts), 1, t)
    near = (_weighted(u, weights) for u, weights in zip(padded, immersion.weights, strict=True))
    joined = tuple(free * u + w for free, u, w in zip(immersion.free, velocity, near, strict=True))
    return joined if immersion.carried is None else tuple(map(jnp.add, joined, immersion.carried))


def potential(immersion: Immersion, domain: Domain, divergence: Array, impulse: Array) -> Array:
    """phi with div(beta grad phi) = divergence, zero in bodies and of zero mean in the fluid.

    It changes the impulse of the pressure, and is as exact as that needs: to a hundred roundings of their sum.
    Bodies may cut the fluid into regions that nothing joins, of which each has a constant of its own: a term of a
    hundred roundings of the operator holds these constants, whose gradient vanishes, and changes phi by no more.
    """
    operator = immersion.operator
    connected = operator.diagonal(0.0) > 0
    eps = float(jnp.finfo(divergence.dtype).eps)
    shift = 100 * eps * sum(1 / h**2 for h in domain.grid.mean_spacing)

    def without_mean(u: Array) -> Array:
        mean = domain.sum(jnp.where(connected, u, 0.0)) / domain.sum(connected.astype(u.dtype))
        return jnp.where(connected, u - mean, 0.0)

    right = without_mean(divergence) if operator.closed else jnp.where(connected, divergence, 0.0)
    known = operator(lax.stop_gradient(impulse), 0.0)
    found = solve_elliptic(
        operator, immersion.hierarchy, -right, shift,
        tolerance=100 * eps, limit=MOST_ITERATIONS, scale=jnp.sqrt(domain.dot(known, known)),
    ).solution  # fmt: skip
    return without_mean(found) if operator.closed else jnp.where(connected, found, 0.0)


def reaction(
    immersion: Immersion, domain: Domain, layout: FieldLayout, before: Reaction, free: Sequence[Array],
    joined: Sequence[Array], phi: Array, gradients: Sequence[Array],
) -> Reaction:  # fmt: skip
    """The pressure, and the force of the fluid on the bodies: the momentum that it loses to them in a stage.

    before: the reaction with the impulse of the pressure that acted in the stage. free, joined: the velocity before and
    after `join`. The gradient of that pressure acted everywhere and adds up to what is on the sides of the domain; that
    of phi acts on open faces only, so that its sum over the other ones is the bodies'. So the momentum in a periodic box
    changes by what drives the flow less this force, to rounding. In bodies the pressure is that of the fluid beside.
    """
    rate, volume = _inverse(before.elapsed), domain.grid.cell_volume
    force = tuple(
        rate * volume * domain.sum(u - v + (open_ - 1) * slope)
        for u, v, open_, slope in zip(free, joined, immersion.projected, gradients, strict=True)
    )
    connected = immersion.operator.diagonal(0.0) > 0
    pressure = rate * jnp.where(connected, before.impulse + phi, 0.0)

    def around(padded):
        ndim = domain.grid.ndim
        return sum(shift(padded, ndim, axis, by) for axis in range(ndim) for by in (-1, 1))

    pressure = pressure + immersion.fill * domain.apply(around, pressure, layout, 1)
    return Reaction(pressure, force, jnp.zeros_like(phi), jnp.zeros_like(before.elapsed))


def with_inertia(reaction: Reaction, solid: Solid, domain: Domain, layout: FieldLayout, t, dt) -> Reaction:
    """The force on bodies that move: without that which moves what is in their place on the grid.

    dt: of the step that ends at `t`.
    """
    rate = _inverse(dt)
    now, before = (solid.momentum(domain, layout, at, dt.dtype) for at in (t, t - dt))
    force = tuple(f + rate * (a - b) for f, a, b in zip(reaction.force, now, before, strict=True))
    return eqx.tree_at(lambda one: one.force, reaction, force)


def still(domain: Domain, like: Array) -> Reaction:
    """The reaction before any step."""
    zero = jnp.zeros((), like.dtype)
    return Reaction(jnp.zeros_like(like), (zero,) * domain.grid.ndim, jnp.zeros_like(like), zero)


def acting(reaction: Reaction) -> Reaction:
    """The rate of change of a reaction while its pressure acts."""
    force = tuple(map(jnp.zeros_like, reaction.force))
    return Reaction(jnp.zeros_like(reaction.pressure), force, reaction.pressure, jnp.ones_like(reaction.elapsed))


def _mirrored(layout: FieldLayout) -> FieldLayout:
    """For coefficients: periodic where the flow is, else going on unchanged beyond sides."""
    ends = [(Periodic(), Periodic()) if layout.is_periodic(axis) else (Neumann(), Neumann())
            for axis in range(len(layout.boundaries))]  # fmt: skip
    return center_layout(ends)


def _face(domain: Domain, axis: int) -> tuple[float, ...]:
    return tuple(FACE if k == axis else CENTER for k in range(domain.grid.ndim))


def _on_block(given: Array | Callable, domain: Domain, offset: tuple[float, ...], t, dtype) -> Array:
    if callable(given):
        given = given(t, *domain.coordinates(offset, dtype))
    return jnp.broadcast_to(jnp.asarray(given, dtype), domain.block_shape)


def _inverse(u: Array) -> Array:
    """1 / u, zero where u is not positive."""
    return jnp.where(u > 0, 1 / jnp.where(u > 0, u, 1.0), 0.0)


def _peeled(padded: Array, ndim: int) -> Array:
    """A block without its outermost cells."""
    for axis in range(ndim):
        padded = cut(padded, axis, 1, padded.shape[axis] - 1)
    return padded


def _pairs(u: Array, axis: int) -> Array:
    """Sums of neighbours along an axis: one fewer."""
    n = u.shape[axis]
    return cut(u, axis, 0, n - 1) + cut(u, axis, 1, n)


def _at_faces(distance: Array, axis: int, ndim: int) -> Array:
    """The distance on the n + 1 faces of an axis with one more all around, from that with two cells more."""
    for k in range(ndim):
        distance = 0.5 * _pairs(distance, k) if k == axis else cut(distance, k, 1, distance.shape[k] - 1)
    return distance


def _open_part(distance: Array, axis: int) -> Array:
    """beta on the n + 1 faces of an axis: the part in the fluid of what lies within half a cell of the face.

    Of the distances at the corners of that volume the positive ones, over all. distance: with one cell more all around.
    """
    ndim = distance.ndim
    for k in range(ndim):
        if k != axis:
            distance = _pairs(distance, k)
    positive, whole = jnp.maximum(distance, 0.0), jnp.abs(distance)
    for k in range(ndim):
        positive, whole = _pairs(positive, k), _pairs(whole, k)
    return positive * _inverse(whole)


def _interpolation(distance: Array, ndim: int) -> tuple[Array, tuple[tuple[Array, Array], ...]]:
    """Whether faces are free, and the weights of their neighbours below and above along every axis where they are not.

    A face in the fluid is free where it is no nearer to the surface than its nearest neighbour, behind the surface, is.
    Else the weight of the neighbour on the other side is the ratio of the distances. A face in a body follows its
    neighbour that is farthest out where that is free in this sense, else the body alone. distance: on faces, with one
    more all around.
    """
    here = shift(distance, ndim)
    beside = [[shift(distance, ndim, axis, by) for by in (-1, 1)] for axis in range(ndim)]
    every = [one for pair in beside for one in pair]
    low, high = (jnp.stack(every).min(0), jnp.stack(every).max(0))
    inside = here <= 0
    free = ~inside & (here + low >= 0)
    ghost = inside & (here + high > 0)
    forced = ~inside & ~free

    def chosen(out: Array, behind: Array) -> Array:
        return (ghost & (out == high)) | (forced & (behind == low) & (out > 0))

    marks = [[chosen(pair[k], pair[1 - k]) for k in (0, 1)] for pair in beside]
    count = sum(mark.astype(here.dtype) for pair in marks for mark in pair)

    def weight(mark: Array, out: Array) -> Array:
        farther = jnp.where(mark, jnp.maximum(out, jnp.abs(here)), 1.0)
        return jnp.where(mark, here / (farther * jnp.where(mark, count, 1.0)), 0.0)

    return free, tuple(
        (weight(mark[0], pair[0]), weight(mark[1], pair[1])) for mark, pair in zip(marks, beside, strict=True)
    )


def _weighted(padded: Array, weights: Sequence[Sequence[Array]]) -> Array:
    """The sum of neighbours times their weights."""
    ndim = len(weights)
    terms = [w * shift(padded, ndim, axis, by) for axis, pair in enumerate(weights)
             for w, by in zip(pair, (-1, 1), strict=True)]  # fmt: skip
    return sum(terms[1:], terms[0])


def _fill(domain: Domain, layout: FieldLayout, operator: Elliptic, dtype) -> Array:
    """In cells without a pressure, one over the number of neighbours that have one."""
    ndim, connected = domain.grid.ndim, (operator.diagonal(0.0) > 0).astype(dtype)
    padded = domain.pad(connected, layout, 1)
    return (1 - connected) * _inverse(sum(shift(padded, ndim, axis, by) for axis in range(ndim) for by in (-1, 1)))
