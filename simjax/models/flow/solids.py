"""Solid bodies in incompressible flow, by boundary data immersion with both moments of the kernel.

Maertens and Weymouth (2015), Comput. Methods Appl. Mech. Eng. 283, 106. Around the surface of a body the equations of
the fluid and the velocity of the body are joined by a kernel two cells wide, so that bodies of any shape are fields of
coefficients on the grid.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.grid import CENTER, FACE
from simjax.ops.difference import shift, shift_by
from simjax.ops.immersion import kernel_moments
from simjax.solvers.elliptic import Elliptic, crop, cut, elliptic
from simjax.solvers.multigrid import Multigrid, multigrid, solve_elliptic

MOST_ITERATIONS = 100


class Reaction(eqx.Module):
    """pressure: kinematic, at cell centres. force: of the fluid on all bodies, over its density, one number per axis.

    Both are of the last stage that was taken, and zero before the first one.
    """

    pressure: Array
    force: tuple[Array, ...]


class Immersion(eqx.Module):
    """Coefficients of bodies at one time: u = share u* + slopes . (differences of u*) + carried.

    share mu0, on the faces of each component. slopes mu1 n_j / (2 h_j), for the differences between two neighbours
    along each axis. carried: (1 - mu0) V - mu1 dV/dn of the velocity V of the bodies; none where they are at rest.
    operator: -div(mu0 grad), with its hierarchy.
    """

    share: tuple[Array, ...]
    slopes: tuple[tuple[Array, ...], ...]
    carried: tuple[Array, ...] | None
    operator: Elliptic
    hierarchy: Multigrid


class Solid(eqx.Module):
    """Bodies in a flow, given by the distance from their surface, and their velocity.

    distance: positive in the fluid, negative in bodies; an array at the centres of this block's cells, or a function
    `(t, *coordinates)`. It needs to be a distance near the surface only, up to a factor: it is divided by the length of
    its gradient. velocity: of the material of the bodies, for each axis an array on the faces normal to it, a function
    or None; where it is left out they are at rest. moving: whether any of these depends on time. half_width: of the
    kernel, in cells.

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
    half_width: float = eqx.field(static=True, default=1.0)

    def immersion(self, domain: Domain, layout: FieldLayout, t, dtype) -> Immersion:
        """The coefficients at time `t`; `layout` is that of the pressure."""
        ndim, h = domain.grid.ndim, domain.grid.mean_spacing
        beside = _mirrored(layout)
        distance = domain.pad(self._scaled_distance(domain, beside, t, dtype), beside, 1)
        conducting, share, slopes = [], [], []
        for axis in range(ndim):
            at_faces = crop(distance, ndim, axis)
            n = at_faces.shape[axis]
            mu0, mu1 = kernel_moments(0.5 * (cut(at_faces, axis, 0, n - 1) + cut(at_faces, axis, 1, n)))
            conducting.append(mu0)
            share.append(cut(mu0, axis, 0, n - 2))
            normal = _normal(distance, axis, h)
            mu1 = cut(mu1, axis, 0, n - 2) * self._width(domain)
            slopes.append(tuple(mu1 * part * (0.5 / width) for part, width in zip(normal, h, strict=True)))
        operator = elliptic(domain, layout, conducting)
        carried = self._carried(domain, layout, share, slopes, t, dtype)
        return Immersion(tuple(share), tuple(slopes), carried, operator, multigrid(operator))

    def _scaled_distance(self, domain: Domain, layout: FieldLayout, t, dtype) -> Array:
        """The distance in half widths of the kernel, divided by the length of its gradient.

        Its squares are harmonic means of those of both one-sided differences: of second order, right where two bodies
        are equally near, where a central difference vanishes, and beside a jump, as of a distance that is not periodic.
        """
        distance = _on_block(self.distance, domain, (CENTER,) * domain.grid.ndim, t, dtype)
        width = self._width(domain)
        padded = domain.pad(distance, layout, 1)
        ndim, square = domain.grid.ndim, jnp.zeros((), dtype)
        for axis, h in enumerate(domain.grid.mean_spacing):
            ahead, behind = shift(padded, ndim, axis, 1) - distance, distance - shift(padded, ndim, axis, -1)
            both = ahead**2 + behind**2
            square = square + 2 * (ahead * behind) ** 2 / jnp.where(both > 0, both, 1.0) / h**2
        length = jnp.sqrt(jnp.where(square > 0, square, 1.0))
        # Farther away nothing depends on it; differences of what is clipped still point the right way near the surface.
        return jnp.clip(distance / (width * length), -4.0, 4.0)

    def _width(self, domain: Domain) -> float:
        """Half the width of the kernel, as a length."""
        return self.half_width * max(domain.grid.mean_spacing)

    def _velocity(self, domain: Domain, axis: int, t, dtype) -> Array | None:
        given = None if self.velocity is None else self.velocity[axis]
        return None if given is None else _on_block(given, domain, _face(domain, axis), t, dtype)

    def _carried(self, domain: Domain, layout: FieldLayout, share, slopes, t, dtype) -> tuple[Array, ...] | None:
        if self.velocity is None:
            return None
        found = []
        for axis in range(domain.grid.ndim):
            v = self._velocity(domain, axis, t, dtype)
            if v is None:
                found.append(jnp.zeros(domain.block_shape, dtype))
                continue
            differences = _differences(domain.pad(v, _mirrored(layout), 1), domain.grid.ndim)
            across = sum(m * d for m, d in zip(slopes[axis], differences, strict=True))
            found.append((1 - share[axis]) * v - across)
        return tuple(found)

    def momentum(self, domain: Domain, layout: FieldLayout, t, dtype) -> tuple[Array, ...]:
        """The momentum of fluid in the place of the bodies that moves as they do, over its density."""
        beside = _mirrored(layout)
        distance = domain.pad(self._scaled_distance(domain, beside, t, dtype), beside, 1)
        found = []
        for axis in range(domain.grid.ndim):
            v = self._velocity(domain, axis, t, dtype)
            if v is None:
                found.append(jnp.zeros((), dtype))
                continue
            mu0, _ = kernel_moments(
                0.5 * (shift(distance, domain.grid.ndim) + shift(distance, domain.grid.ndim, axis, -1))
            )
            found.append(domain.sum((1 - mu0) * v) * domain.grid.cell_volume)
        return tuple(found)


def immerse(
    immersion: Immersion, domain: Domain, velocity: Sequence[Array], layouts: Sequence[FieldLayout], t
) -> tuple[Array, ...]:
    """The velocity joined to that of the bodies: mu0 u + (1 - mu0) V + mu1 d(u - V)/dn."""
    ndim = domain.grid.ndim

    def differences(*padded):
        return tuple(d for u in padded for d in _differences(u, ndim))

    found = domain.apply(differences, tuple(velocity), tuple(layouts), 1, t)
    result = []
    for i, u in enumerate(velocity):
        across = sum(m * d for m, d in zip(immersion.slopes[i], found[i * ndim : (i + 1) * ndim], strict=True))
        joined = immersion.share[i] * u + across
        result.append(joined if immersion.carried is None else joined + immersion.carried[i])
    return tuple(result)


def potential(immersion: Immersion, domain: Domain, divergence: Array) -> Array:
    """phi with div(mu0 grad phi) = divergence, zero in bodies and of zero mean in the fluid.

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
    found = solve_elliptic(
        operator, immersion.hierarchy, -right, shift, tolerance=100 * eps, limit=MOST_ITERATIONS
    ).solution  # fmt: skip
    return without_mean(found) if operator.closed else jnp.where(connected, found, 0.0)


def reaction(
    immersion: Immersion, domain: Domain, free: Sequence[Array], joined: Sequence[Array], phi: Array, gradients, dt
) -> Reaction:
    """The pressure, and the force of the fluid on the bodies: the momentum that it loses to them in a stage.

    free, joined: the velocity before and after `immerse`. To the difference of their momentum the pressure adds
    -integral of p grad(mu0), which is that of (mu0 - 1) grad p: what grad p adds up to beyond that is on the sides of
    the domain. So the momentum in a periodic box changes by what drives the flow less this force, to rounding.
    """
    rate = jnp.where(dt > 0, 1 / jnp.where(dt > 0, dt, 1.0), 0.0)
    volume = domain.grid.cell_volume
    force = tuple(
        rate * volume * domain.sum(u - v + (share - 1) * slope)
        for u, v, share, slope in zip(free, joined, immersion.share, gradients, strict=True)
    )
    return Reaction(rate * phi, force)


def with_inertia(reaction: Reaction, solid: Solid, domain: Domain, layout: FieldLayout, t, dt) -> Reaction:
    """The force on bodies that move: without that which moves what is in their place on the grid.

    dt: of the step that ends at `t`.
    """
    rate = jnp.where(dt > 0, 1 / jnp.where(dt > 0, dt, 1.0), 0.0)
    now, before = (solid.momentum(domain, layout, at, dt.dtype) for at in (t, t - dt))
    force = tuple(f + rate * (a - b) for f, a, b in zip(reaction.force, now, before, strict=True))
    return Reaction(reaction.pressure, force)


def still(domain: Domain, like: Array) -> Reaction:
    """The reaction before any step, and its rate of change."""
    zero = jnp.zeros((), like.dtype)
    return Reaction(jnp.zeros_like(like), (zero,) * domain.grid.ndim)


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


def _differences(padded: Array, ndim: int) -> list[Array]:
    """u[i + 1] - u[i - 1] along every axis."""
    return [shift(padded, ndim, axis, 1) - shift(padded, ndim, axis, -1) for axis in range(ndim)]


def _normal(padded: Array, face: int, spacing: Sequence[float]) -> list[Array]:
    """The unit normal of the surface, into the fluid, on the lower faces of an axis; zero where it has none."""
    ndim, parts = len(spacing), []
    for axis, h in enumerate(spacing):
        if axis == face:
            parts.append((shift(padded, ndim) - shift(padded, ndim, axis, -1)) / h)
            continue
        total = jnp.zeros((), padded.dtype)
        for by in (1, -1):
            here = tuple(by if k == axis else 0 for k in range(ndim))
            below = tuple(step - (k == face) for k, step in enumerate(here))
            total = total + by * (shift_by(padded, here) + shift_by(padded, below))
        parts.append(total * (0.25 / h))
    square = sum(part**2 for part in parts)
    length = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    return [part / length for part in parts]
