"""A rigid body that the forces of the fluid move.

Where it is advances with the stages of the scheme; its velocity is found in each stage from the momentum that the fluid
loses to it. That momentum depends on the velocity itself: through the fluid that the grid has in its place and beside
its surface, which counts in full, and through the pressure, of which the change that is yet to come is taken as that of
the virtual mass of the body (Uhlmann 2005, J. Comput. Phys. 209, 448, for bodies heavier than the fluid; the virtual
mass as in Schwarz, Kempe and Froehlich 2015, J. Comput. Phys. 281, 591). What the pressure then takes more or less is
handed on to the next step, so that no momentum is lost.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.arguments import as_number, require_at_least, require_one_of
from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.core.model import Measure
from simjax.grid import AXES, CENTER
from simjax.models.flow.bodies.solid_geometry import inverse, on_block
from simjax.models.flow.bodies.solid_moments import Displaced, displaced, moments, turning
from simjax.models.flow.bodies.solids import Immersion, Reach, Solid
from simjax.notebook import all_in_a_line
from simjax.stencil.formulation import batches_alike

TURN = "turn"
VIRTUAL_SHARE = 1.2
"""Virtual mass over that which the pressure gives the body at the start, as it grows beside walls. Steps are stable,
whatever the mass, while it is more than half of what the pressure then gives."""


class BodyParams(eqx.Module):
    """The properties of a rigid body in a flow; densities and what follows are over the density of the fluid.

    density: a number. gravity: acceleration, `(ndim,)`; its weight counts less that of the fluid in its place.
    stiffness, damping: of springs that hold it where it started, and of what slows it, `(ndim,)`: force over the
    fluid's density. initial_velocity, initial_spin: `(ndim,)`, and `(1,)` in a plane, `(3,)` in space.
    """

    density: Array
    gravity: Array
    stiffness: Array
    damping: Array
    initial_velocity: Array
    initial_spin: Array

    __repr__ = all_in_a_line

    def __check_init__(self):
        numbers = {name: getattr(self, name) for name in ("density", "stiffness", "damping")}
        require_at_least("BodyParams", numbers)


def body_params(ndim: int, density: Array, **given: Array) -> BodyParams:
    """The properties of a body for `Incompressible.Params` in `ndim` axes: some are given by name, others are zero.

    Examples:
        >>> ball = sj.Solid(lambda t, x, y: jnp.hypot(x - 0.5, y - 0.5) - 0.2, free=("x", "y", "turn"))
        >>> sides = [(sj.PeriodicSide(), sj.PeriodicSide())] * 2
        >>> model = sj.Incompressible(sj.Domain(sj.Grid((32, 32))), sides, solid=ball)
        >>> body = sj.body_params(2, jnp.asarray(1.5), gravity=jnp.asarray([0.0, -9.81]))
        >>> params = model.Params(jnp.asarray(0.01), jnp.asarray(0.0), body=body)
    """
    require_one_of("body_params: ndim", ndim, (2, 3))
    dtype = jnp.result_type(as_number("body_params: density", density))
    sizes = {name: ndim for name in ("gravity", "stiffness", "damping", "initial_velocity")}
    sizes["initial_spin"] = 1 if ndim == 2 else 3
    return BodyParams(density, **{name: given.get(name, jnp.zeros(size, dtype)) for name, size in sizes.items()})


class Body(eqx.Module):
    """The place and the motion of a rigid body.

    displacement: of its centroid since the start, `(ndim,)`. turned: the angle since the start, `(1,)`, in a
    plane; a unit quaternion `(4,)`, real part first, in space. motion: velocity of the centroid, then angular velocity,
    `(3,)` or `(6,)`. gain: mean rate of change of `motion` in the last stage. gained: its integral over the time since
    then. pushed: that of springs, damping and weight, `(ndim,)`, over the fluid's density. owed: momentum and angular
    momentum that the fluid lost to the body and that do not move it yet.
    """

    displacement: Array
    turned: Array
    motion: Array
    gain: Array
    gained: Array
    pushed: Array
    owed: Array


class Bulk(eqx.Module):
    """Properties of a free body that follow from its shape and do not change with time.

    displaced: the fluid in its place. virtual: the mass that the pressure gives it at the start, by pairs of motions.
    """

    displaced: Displaced
    virtual: Array


def at_start(ndim: int, params: BodyParams) -> Body:
    """The body before the first step."""
    motion = jnp.concatenate([params.initial_velocity, params.initial_spin])
    turned = jnp.zeros_like(params.initial_spin) if ndim == 2 else jnp.zeros_like(motion, shape=(4,)).at[0].set(1.0)
    none = jnp.zeros_like(motion)
    return Body(
        jnp.zeros_like(params.initial_velocity),
        turned,
        motion,
        none,
        none,
        jnp.zeros_like(params.initial_velocity),
        none,
    )


def rotation(turned: Array) -> Array:
    """The matrix that turns a vector of the body at the start to where it is."""
    if turned.shape == (1,):
        c, s = jnp.cos(turned[0]), jnp.sin(turned[0])
        return jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])])
    w, x, y, z = turned
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return jnp.stack([jnp.stack(row) for row in rows])


class Moved(eqx.Module):
    """The distance from a body that has moved, as a function `(t, *coordinates)`, of that where it was at the start."""

    distance: Callable
    centre: Array
    body: Body
    lengths: tuple[float | None, ...] = eqx.field(static=True)
    """Lengths of the box along periodic axes, None along others."""

    def __call__(self, t, *coordinates: Array) -> Array:
        ways = []
        for axis, (x, length) in enumerate(zip(coordinates, self.lengths, strict=True)):
            way = x - (self.centre[axis] + self.body.displacement[axis])
            ways.append(way if length is None else way - length * jnp.round(way / length))
        turn = rotation(self.body.turned)
        back = [sum(turn[k, axis] * way for k, way in enumerate(ways)) for axis in range(len(ways))]
        return self.distance(t, *(self.centre[axis] + way for axis, way in enumerate(back)))


def moved(solid: Solid, domain: Domain, layout: FieldLayout, centre: Array, body: Body) -> Solid:
    """The solid where a body is; centre: its centroid at the start."""
    assert callable(solid.distance)
    periodic = [layout.is_periodic(axis) for axis in range(domain.grid.ndim)]
    lengths = tuple(length if p else None for length, p in zip(domain.grid.lengths, periodic, strict=True))
    return Solid(Moved(solid.distance, centre, body, lengths), about=centre + body.displacement)


def displaced_at_start(solid: Solid, domain: Domain, layout: FieldLayout, dtype) -> Displaced:
    """The fluid that a free body displaces."""
    place = (CENTER,) * domain.grid.ndim
    return displaced(domain, layout, on_block(solid.distance, domain, place, jnp.zeros((), dtype), dtype))


def rates(body: Body, params: BodyParams, bulk: Displaced) -> Body:
    """The rate of change of a body while nothing else pushes it."""
    ndim = body.displacement.size
    velocity, spin = body.motion[:ndim], body.motion[ndim:]
    force = (params.density - 1) * bulk.volume * params.gravity
    force = force - params.stiffness * body.displacement - params.damping * velocity
    turned, rate = spin, jnp.zeros_like(body.motion)
    if ndim == 3:
        w, v = body.turned[0], body.turned[1:]
        turned = 0.5 * jnp.concatenate([-jnp.dot(spin, v)[None], w * spin + jnp.cross(spin, v)])
        # Without a torque the angular momentum stays, and its inertia turns with the body.
        turn = rotation(body.turned)
        inertia = turn @ bulk.moment @ turn.T
        rate = rate.at[ndim:].set(-jnp.linalg.solve(inertia, jnp.cross(spin, inertia @ spin)))
    none = jnp.zeros_like(body.motion)
    return Body(velocity, turned, rate, none, body.gain, force, none)


def longest_step(params: BodyParams, displaced: Displaced) -> Array:
    """The step at which springs and damping take one over their rate, with the virtual mass of a sphere."""
    mass = (params.density + 0.5) * displaced.volume
    stiff = params.stiffness > 0
    rate = jnp.where(stiff, jnp.sqrt(jnp.where(stiff, params.stiffness, 1.0) / mass), 0.0) + params.damping / mass
    fastest = jnp.max(rate)
    return jnp.where(fastest > 0, 1 / jnp.where(fastest > 0, fastest, 1.0), jnp.inf)


def velocities(domain: Domain, layout: FieldLayout, centre: Array, motion: Array) -> tuple[Array, ...]:
    """The velocity on faces of a body with this motion about its centre."""
    ndim = domain.grid.ndim
    turned = (turning(domain, layout, axis, list(motion[ndim:]), centre) for axis in range(ndim))
    return tuple(jnp.broadcast_to(v + u, domain.block_shape) for v, u in zip(motion, turned, strict=False))


class Motions(eqx.Module):
    """The velocities that the motions of a body give to faces, one by one: see `Immersion`.

    carried, blocked: for each motion, by axis. taken: momenta and angular momenta that faces take when the body gains
    one of each motion, `(motion, of it)`.
    """

    carried: tuple[tuple[Array, ...], ...]
    blocked: tuple[tuple[Array, ...], ...]
    taken: Array


def motions(immersion: Immersion, domain: Domain, layout: FieldLayout, t, reach: Reach) -> Motions:
    """The rigid motions about the centre of a body at its place; reach: see `Immersion.join`."""
    ndim, centre = domain.grid.ndim, immersion.faces.centre

    def given_by(unit: Array):
        v = velocities(domain, layout, centre, unit)
        carried = immersion.carried(domain, layout, v, t, reach)
        taken = jnp.concatenate(moments(domain, layout, carried, centre, immersion.faces.box))
        return carried, immersion.blocked_by(domain, layout, v, t), taken

    units = jnp.eye(ndim + (1 if ndim == 2 else 3), dtype=centre.dtype)
    if batches_alike():
        batch = jax.vmap(given_by)(units)
        each = [jax.tree.map(lambda u, k=k: u[k], batch) for k in range(len(units))]
    else:
        each = map(given_by, units)
    carried, blocked, taken = zip(*each, strict=True)
    return Motions(carried, blocked, jnp.stack(taken, axis=1))


def moving(free: Sequence[str], ndim: int, elapsed: Array) -> Array:
    """Tell which motions the fluid changes in a stage of this length, `(3,)` or `(6,)`."""
    names = [*AXES[:ndim], *[TURN] * (1 if ndim == 2 else 3)]
    return jnp.asarray([name in free for name in names]) & (elapsed > 0)


def together(fields: Sequence[Sequence[Array]], motion: Array) -> tuple[Array, ...]:
    """Superpose single motions, each times its rate."""
    every = (zip(motion, axis, strict=True) for axis in zip(*fields, strict=True))
    return tuple(sum((q * u for q, u in one), jnp.zeros((), motion.dtype)) for one in every)


def inertia(bulk: Displaced, body: Body) -> Array:
    """Mass and moments of inertia of the fluid in the place of the body, by pairs of motions."""
    ndim = body.displacement.size
    turn = rotation(body.turned)
    moment = bulk.moment if ndim == 2 else turn @ bulk.moment @ turn.T
    return _block_diagonal(bulk.volume * jnp.eye(ndim, dtype=moment.dtype), moment)


def _block_diagonal(first: Array, second: Array) -> Array:
    n, m = len(first), len(second)
    return jnp.zeros((n + m, n + m), first.dtype).at[:n, :n].set(first).at[n:, n:].set(second)


def round_bulk(displaced: Displaced) -> Bulk:
    """The properties of a body with the virtual mass of a disk far from walls."""
    return Bulk(
        displaced,
        _block_diagonal(
            displaced.volume * jnp.eye(displaced.centre.size, dtype=displaced.centre.dtype), 0 * displaced.moment
        ),
    )


def virtual_mass(bulk: Bulk, body: Body) -> Array:
    """The mass that the pressure gives the body, turned with it."""
    turn = rotation(body.turned)
    both = _block_diagonal(turn, jnp.ones((1, 1), turn.dtype) if len(turn) == 2 else turn)
    return VIRTUAL_SHARE * (both @ bulk.virtual @ both.T)


def next_motion(body: Body, params: BodyParams, bulk: Bulk, moves: Array, offered: Array, taken: Array) -> Array:
    """The motion after a stage.

    moves: of `moving`. offered: momenta that the fluid loses to a body without motion. taken: what it gains by each.
    """
    known, virtual = body.motion, virtual_mass(bulk, body)
    own = (params.density - 1) * inertia(bulk.displaced, body)
    push = offered - taken @ known + body.owed + virtual @ body.gained
    push = push.at[: body.pushed.size].add(body.pushed)
    # Motions that the fluid does not change keep their rate.
    matrix = jnp.where(moves[:, None] & moves[None, :], own + taken + virtual, jnp.eye(len(moves), dtype=push.dtype))
    return known + jnp.linalg.solve(matrix, jnp.where(moves, push, 0.0))


def after_stage(
    body: Body, params: BodyParams, bulk: Bulk, moves: Array, motion: Array, taken: Array, elapsed: Array
) -> tuple[Body, Array]:
    """The body after a stage, and the force and torque that moved the fluid in its place.

    moves: of `moving`. motion: of `next_motion`. taken: momentum and angular momentum that the fluid lost to it.
    """
    known, rate = inertia(bulk.displaced, body), inverse(elapsed)
    gained = motion - body.motion
    left = taken + body.owed - (params.density - 1) * (known @ gained)
    left = left.at[: body.pushed.size].add(body.pushed)
    none = jnp.zeros_like(motion)
    turned = body.turned if body.turned.size == 1 else body.turned / jnp.linalg.norm(body.turned)
    after = Body(
        body.displacement,
        turned,
        motion,
        rate * jnp.where(moves, gained, 0.0),
        none,
        jnp.zeros_like(body.pushed),
        jnp.where(moves, left, body.owed),
    )
    return after, rate * (known @ gained)


def placed(body: Body, numbers: Mapping[str, Array], centre: Array) -> Body:
    """A body where its `diagnosed` numbers have it."""
    ndim = centre.size

    def read(names) -> Array:
        """Numbers of a file, in the precision of the body."""
        return jnp.stack([jnp.asarray(numbers[name], centre.dtype) for name in names])

    displacement = read([f"body_{axis}" for axis in AXES[:ndim]]) - centre
    return dataclasses.replace(body, displacement=displacement, turned=read(_turned(ndim)))


def _turned(ndim: int) -> tuple[str, ...]:
    return ("body_angle",) if ndim == 2 else tuple(f"body_quaternion_{part}" for part in "wxyz")


def diagnosed(body: Body, centre: Array) -> dict[str, Array]:
    """Numbers on a body; centre: its centroid at the start."""
    ndim = body.displacement.size
    axes = AXES[:ndim]
    found = {f"body_{axis}": x for axis, x in zip(axes, centre + body.displacement, strict=True)}
    spins = ("body_spin",) if ndim == 2 else tuple(f"body_spin_{axis}" for axis in axes)
    found |= dict(zip(_turned(ndim), body.turned, strict=True))
    return found | dict(zip((*(f"body_velocity_{axis}" for axis in axes), *spins), body.motion, strict=True))


def measures(ndim: int) -> dict[str, Measure]:
    """Units and meanings of `diagnosed`."""
    axes = AXES[:ndim]
    found = {f"body_{axis}": Measure("m", f"{axis} of the body's centroid") for axis in axes}
    found |= {f"body_velocity_{axis}": Measure("m s-1", f"{axis}-velocity of the body") for axis in axes}
    if ndim == 2:
        spin = Measure("s-1", "angular velocity of the body")
        return found | {"body_angle": Measure("1", "angle that the body turned by"), "body_spin": spin}
    found |= {f"body_quaternion_{part}": Measure("1", f"{part} of the body's unit quaternion") for part in "wxyz"}
    return found | {f"body_spin_{axis}": Measure("s-1", f"{axis}-angular velocity of the body") for axis in axes}
