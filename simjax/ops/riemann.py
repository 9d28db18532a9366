"""Numerical fluxes of the compressible Euler equations of a perfect gas between two states at a face.

Every flux is written so that exchanging the states and reversing the normal velocity reverses it to the last bit.
Arrays of any one shape; `axis` is the direction of the normal among the velocity components.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from simjax.stencil.materialise import formed_once

SLOW = 0.1
"""Mach number of the velocity through a face below which `hllc_all_speed` takes the gas to stream along it."""

STRONG = 0.05
"""Jump of pressure as a part of gamma p, or of velocity as one of c, from which `hllc_all_speed` damps it as HLLC."""

GENTLE = 0.3
"""Mach number from which `hllc_all_speed` no longer asks whether a weak jump is sound. What streams faster is damped by
half at least, and noise behind strong shocks, at Mach numbers above 0.38, grows if it is taken for sound."""


class Primitive(NamedTuple):
    """density rho, velocity u (one array per axis), pressure p, scalars s (per unit mass); entropic pressure Sigma;
    crossing: for each axis the share of shocks along others (`ops.crossing_shocks`).

    The last two are there before cells are brought to faces, and by a scheme that has them.
    """

    density: Array
    velocity: tuple[Array, ...]
    pressure: Array
    scalars: tuple[Array, ...] = ()
    entropic: Array | None = None
    crossing: Any = None


class Conserved(NamedTuple):
    """Per unit volume: mass rho, momentum rho u, total energy p / (gamma - 1) + rho |u|^2 / 2, scalars rho s.

    Also the fluxes and tendencies of these.
    """

    density: Array
    momentum: tuple[Array, ...]
    energy: Array
    scalars: tuple[Array, ...] = ()


RiemannFlux = Callable[[Primitive, Primitive, int, Array], Conserved]
"""`flux(left, right, axis, gamma)` -> flux of mass, momentum and energy along `axis`, without scalars."""


def smooth_root(square: Array) -> Array:
    """Square root whose derivative at zero is zero."""
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


def squared_norm(components: tuple[Array, ...]) -> Array:
    """Sum of squares; exchanging the first two components does not change a bit of it.

    a * a + b * b would: compilers fuse one of the products with the sum and so leave it unrounded.
    """
    if len(components) == 1:
        return components[0] * components[0]
    a, b, *others = components
    total, rest = a + b, a - b
    return sum((v * v for v in others), 0.5 * (total * total + rest * rest))


def conserved(w: Primitive, gamma: Array) -> Conserved:
    """Densities of mass, momentum, energy and scalars."""
    energy = w.pressure / (gamma - 1) + 0.5 * w.density * squared_norm(w.velocity)
    momentum = tuple(w.density * u for u in w.velocity)
    return Conserved(w.density, momentum, energy, tuple(w.density * s for s in w.scalars))


def primitive(q: Conserved, gamma: Array) -> Primitive:
    """Density, velocity, pressure and scalars per unit mass; nothing is floored."""
    volume = 1 / q.density
    velocity = tuple(m * volume for m in q.momentum)
    pressure = (gamma - 1) * (q.energy - 0.5 * q.density * squared_norm(velocity))
    return Primitive(q.density, velocity, pressure, tuple(s * volume for s in q.scalars))


def sound_speed(w: Primitive, gamma: Array) -> Array:
    """sqrt(gamma p / rho)."""
    return jnp.sqrt(gamma * w.pressure / w.density)


def mach_number(w: Primitive, gamma: Array) -> Array:
    """|u| / c; its derivative where the gas rests is zero."""
    return smooth_root(squared_norm(w.velocity) * w.density / (gamma * w.pressure))


def exact_flux(w: Primitive, q: Conserved, axis: int) -> Conserved:
    """The flux of a state along `axis`: rho u, rho u u + p, (E + p) u, rho s u."""
    u = w.velocity[axis]
    momentum = tuple(m * u + w.pressure if k == axis else m * u for k, m in enumerate(q.momentum))
    return Conserved(q.momentum[axis], momentum, (q.energy + w.pressure) * u, tuple(s * u for s in q.scalars))


def _bounds(left: Primitive, right: Primitive, axis: int, gamma: Array) -> tuple[Array, Array]:
    """Slowest and fastest signal: of the states or of Roe's mean, which is exact for a single shock.

    Einfeldt, Munz, Roe and Sjogreen (1991), J. Comput. Phys. 92, 273.
    """
    ul, ur = left.velocity[axis], right.velocity[axis]
    cl, cr = gamma * left.pressure / left.density, gamma * right.pressure / right.density
    rl, rr = jnp.sqrt(left.density), jnp.sqrt(right.density)
    share = 1 / (rl + rr)
    mean = (rl * ul + rr * ur) * share
    fast = jnp.sqrt((rl * cl + rr * cr) * share + 0.5 * (gamma - 1) * (rl * rr) * (share * (ur - ul)) ** 2)
    return jnp.minimum(ul - jnp.sqrt(cl), mean - fast), jnp.maximum(ur + jnp.sqrt(cr), mean + fast)


def rusanov(left: Primitive, right: Primitive, axis: int, gamma: Array) -> Conserved:
    """Mean flux less half the jump times the fastest |u| + c. Rusanov (1961), Zh. Vychisl. Mat. Mat. Fiz. 1, 267."""
    ql, qr = conserved(left, gamma), conserved(right, gamma)
    speeds = (jnp.abs(w.velocity[axis]) + sound_speed(w, gamma) for w in (left, right))
    return mean_and_jump(exact_flux(left, ql, axis), exact_flux(right, qr, axis), ql, qr, jnp.maximum(*speeds))


def mean_and_jump(below: Conserved, above: Conserved, ql: Conserved, qr: Conserved, speed: Array) -> Conserved:
    """(f_l + f_r - speed (q_r - q_l)) / 2 of every conserved density."""

    def mix(fl, fr, a, b):
        return 0.5 * ((fl + fr) - speed * (b - a))

    momentum = tuple(map(mix, below.momentum, above.momentum, ql.momentum, qr.momentum))
    scalars = tuple(map(mix, below.scalars, above.scalars, ql.scalars, qr.scalars))
    mass = mix(below.density, above.density, ql.density, qr.density)
    return Conserved(mass, momentum, mix(below.energy, above.energy, ql.energy, qr.energy), scalars)


def hll(left: Primitive, right: Primitive, axis: int, gamma: Array) -> Conserved:
    """HLL flux: a mean state between the fastest left- and right-going waves. Harten, Lax and van Leer (1983), SIAM
    Rev. 25, 35."""
    slow, fast = _bounds(left, right, axis, gamma)
    slow, fast = jnp.minimum(slow, 0), jnp.maximum(fast, 0)
    ql, qr = conserved(left, gamma), conserved(right, gamma)
    fl, fr = exact_flux(left, ql, axis), exact_flux(right, qr, axis)
    width = 1 / (fast - slow)

    def mix(f, g, a, b):
        return ((fast * f - slow * g) + (slow * fast) * (b - a)) * width

    momentum = tuple(map(mix, fl.momentum, fr.momentum, ql.momentum, qr.momentum))
    mass = mix(fl.density, fr.density, ql.density, qr.density)
    return Conserved(mass, momentum, mix(fl.energy, fr.energy, ql.energy, qr.energy))


def hllc(left: Primitive, right: Primitive, axis: int, gamma: Array) -> Conserved:
    """HLL with the contact wave restored. Toro, Spruce and Speares (1994), Shock Waves 4, 25.

    Where a strong shock runs along the grid it amplifies noise across it, and it slows a flow far below the speed of
    sound: `hllc_all_speed` does neither.
    """
    slow, fast = formed_once(_bounds(left, right, axis, gamma))
    ul, ur = left.velocity[axis], right.velocity[axis]
    below, above = left.density * (slow - ul), right.density * (fast - ur)
    contact = ((right.pressure - left.pressure) + (below * ul - above * ur)) / (below - above)
    between = 0.5 * (
        (left.pressure + right.pressure) + (below * (contact - ul) + above * (contact - ur))
    )  # of the pressures on the two sides of the contact, equal but for rounding
    return _around_contact(left, right, axis, gamma, (slow, fast), *formed_once((contact, between)))


def hllc_all_speed(left: Primitive, right: Primitive, axis: int, gamma: Array) -> Conserved:
    """HLLC for shocks along the grid and flows far below the speed of sound: the two jumps that drive it are weighed.

    The contact moves with the mean velocity and what the jump of pressure dp adds, which counts by one weight. The
    pressure between is the mean one and what the jump of velocity du adds, which counts by the other weight, or in a
    gas nearly at rest by (dp / (rho c du))^2, at most 1, where that is more: it is 1 in sound, and some M^2 in a flow
    of a small Mach number M. A contact at rest is exact, as both jumps vanish there. All is of the states at the face.

    Jump of velocity: Thornber et al. (2008), J. Comput. Phys. 227, 4873; Minoshima and Miyoshi (2021), J. Comput.
    Phys. 446, 110639. Jump of pressure: Fleischmann, Adami and Adams (2020), J. Comput. Phys. 423, 109762, who weigh
    all that sound carries by the Mach number of the normal velocity.
    """
    slow, fast = formed_once(_bounds(left, right, axis, gamma))
    ul, ur = left.velocity[axis], right.velocity[axis]
    push, part, rest = formed_once(_weights(left, right, axis, gamma))
    below, above = left.density * (ul - slow), right.density * (fast - ur)
    share, drop = 1 / (below + above), left.pressure - right.pressure
    contact = ((below * ul + above * ur) + push * drop) * share
    swing = (below * above) * share * (ul - ur)  # in a wave of sound this is half of the jump of pressure
    size, heard = jnp.abs(swing), 0.5 * jnp.abs(drop)
    quiet = heard < size
    sounding = jnp.where(quiet, (heard / jnp.where(quiet, size, 1)) ** 2, 1)
    damping = jnp.maximum(part, rest * sounding) * swing
    between = 0.5 * ((left.pressure + right.pressure) + (above - below) * share * drop) + damping
    return _around_contact(left, right, axis, gamma, (slow, fast), *formed_once((contact, between)))


def _weights(left: Primitive, right: Primitive, axis: int, gamma: Array) -> tuple[Array, Array, Array]:
    """Weights of the jumps of pressure and of velocity in `hllc_all_speed`, and of the latter as far as it is sound.

    Pressure: less than one where the gas streams along the face but hardly through it, as beside a shock that runs
    along the grid: there each row of cells would fill its neighbour, which feeds the noise of the shock. In a gas at
    rest it is one, and keeps the pressures of neighbours together. Velocity: 2 m - m^2 of the Mach number m, one above
    the speed of sound, or of either jump in units of `STRONG` if that is more: shocks are damped as by HLLC. Sound:
    one in a gas at rest, zero from `GENTLE` on. The largest component stands for the speed, as it has derivatives at
    rest.
    """
    slowness = [1 / sound_speed(w, gamma) for w in (left, right)]
    leap = jnp.abs(right.velocity[axis] - left.velocity[axis]) * jnp.maximum(*slowness)
    rise = jnp.abs(right.pressure - left.pressure) / (0.5 * gamma * (left.pressure + right.pressure))
    jump = jnp.maximum(leap, rise) * (1 / STRONG)

    def mach(component: int) -> Array:
        return jnp.maximum(*(jnp.abs(w.velocity[component]) * s for w, s in zip((left, right), slowness, strict=True)))

    through = mach(axis)
    others = [mach(k) for k in range(len(left.velocity)) if k != axis]
    along = functools.reduce(jnp.maximum, others, jnp.zeros_like(through))
    passes, streams = (jnp.minimum(m * (1 / SLOW), 1) for m in (through, along))
    fastest = jnp.maximum(through, along)
    part, rest = jnp.minimum(jnp.maximum(fastest, jump), 1), 1 - jnp.minimum(fastest * (1 / GENTLE), 1)
    return 1 - streams * (1 - passes) ** 2, part * (2 - part), rest


def _around_contact(
    left: Primitive,
    right: Primitive,
    axis: int,
    gamma: Array,
    bounds: tuple[Array, Array],
    contact: Array,
    between: Array,
) -> Conserved:
    """The flux of the state found at the face: the upwind one if it is supersonic there, else the one between the
    contact and the outer wave. With the contact at rest on the face it is the pressure alone."""
    slow, fast = bounds

    def upwind(a, b):
        return jnp.where(contact > 0, a, b)

    density, pressure = upwind(left.density, right.density), upwind(left.pressure, right.pressure)
    velocity = tuple(map(upwind, left.velocity, right.velocity))
    u = velocity[axis]
    outer = upwind(slow, fast)
    subsonic = (slow < 0) & (fast > 0)
    gap = 1 / (outer - contact)
    squeeze = jnp.where(subsonic, (outer - u) * gap, 1)
    energy = pressure / (gamma - 1) + 0.5 * density * squared_norm(velocity)
    work = jnp.where(subsonic, (between * contact - pressure * u) * gap, 0)
    speed, pressure = jnp.where(subsonic, contact, u), jnp.where(subsonic, between, pressure)
    mass = density * squeeze * speed
    momentum = tuple(mass * speed + pressure if k == axis else mass * v for k, v in enumerate(velocity))
    return Conserved(mass, momentum, (energy * squeeze + work + pressure) * speed)


FLUXES: dict[str, RiemannFlux] = {"hllc_all_speed": hllc_all_speed, "hllc": hllc, "hll": hll, "rusanov": rusanov}
"""A new flux is one function here."""


def carry_scalars(flux: Conserved, left: Primitive, right: Primitive) -> Conserved:
    """`flux` with that of every scalar: the mass flux times the upwind value, so that a uniform scalar stays so."""
    scalars = tuple(
        flux.density * jnp.where(flux.density > 0, a, b) for a, b in zip(left.scalars, right.scalars, strict=True)
    )
    return flux._replace(scalars=scalars)
