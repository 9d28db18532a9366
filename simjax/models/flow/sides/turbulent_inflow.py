"""Inflow with synthetic eddies: random waves without divergence, of given strength, size and duration."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.core.boundary import Dirichlet, Inflow
from simjax.core.given_values import Value
from simjax.schema.model_schema import FieldSchema
from simjax.schema.side_declarations import side

GROUPS = 128
"""Groups of as many waves as there are axes."""
TABLE = 4096
"""Entries of the table of lengths of wave vectors."""

_KEYS = (
    FieldSchema("velocity", vector=True, units="m s-1", default=None),
    FieldSchema("fluctuation", units="m s-1", default=None),
    FieldSchema("eddy_size", units="m", default=None),
    FieldSchema("eddy_time", units="s", default=None),
)


@side("turbulent_inflow", groups=("flow",), keys=_KEYS, about="a given velocity with random eddies", random=True)
class TurbulentInflow(Inflow):
    """A prescribed velocity and random eddies on it, u + s v.

    fluctuation s: root mean square of each component, length / time; it may depend on place. eddy_size L and eddy_time
    T: integral scales of v along the velocity and in time, length and time; for eddies that a stream U carries past, T
    is L / U. seed: a whole number, from which v is drawn. v is a sum of waves of equal energy, 256 in a plane and 384
    in space, across their vectors, so that it has no divergence. Their vectors and frequencies are spread evenly over
    the spectrum of f(r, t) = exp(-(pi/4) (r^2 / L^2 + t^2 / T^2)), the correlation along the velocity (Kraichnan 1970,
    Phys. Fluids 13, 22), so that each draw has nearly the scales of all.

    Examples:
        >>> wind = sj.TurbulentInflow((10.0, 0.0, 0.0), fluctuation=1.0, eddy_size=0.5, eddy_time=0.05, seed=1)
    """

    fluctuation: Value = eqx.field(kw_only=True)
    eddy_size: Value = eqx.field(kw_only=True)
    eddy_time: Value = eqx.field(kw_only=True)
    seed: int | Array = eqx.field(kw_only=True)

    def velocity_boundary(self, component, axis):
        velocity = self.velocity
        mean = 0.0 if velocity is None else velocity[component]
        # Drawn here, and not at every step.
        waves = {ndim: waves_of(self.seed, ndim) for ndim in ((2, 3) if velocity is None else (len(velocity),))}

        def value(t, *position):
            def at(one: Value):
                return one(t, *position) if callable(one) else one

            eddies = gusts(waves[len(position)], component, position, t, at(self.eddy_size), at(self.eddy_time))
            return at(mean) + at(self.fluctuation) * eddies

        return Dirichlet(value)


class Waves(NamedTuple):
    """v_i = sum over waves of amplitude_i cos(vector . x + frequency t + phase), of unit mean square.

    vectors, amplitudes: `(waves, ndim)`, the former in units of sqrt(pi / 2) / L. frequencies: `(waves,)`, of
    sqrt(pi / 2) / T. phases: `(waves,)`.
    """

    vectors: Array
    amplitudes: Array
    frequencies: Array
    phases: Array


def waves_of(seed: int | Array, ndim: int) -> Waves:
    """The waves of a seed.

    A group of waves lies across each other, so that together they have the same energy in each component; they are
    neighbours in frequency and in the length of their vectors. Both are drawn one from each of equal shares of their
    distributions: the energy of vectors as long as k is k^(ndim + 1) exp(-k^2 / 2), as Kraichnan's normal ones times
    amplitudes like k have it.
    """
    # Only here: it takes a quarter of a second to import, and every flow and gas declares these sides.
    from scipy.special import gammaincinv

    whole = jnp.round(jnp.asarray(seed)).astype(jnp.uint32)  # numbers of a run are floating-point ones
    key = jax.random.fold_in(jax.random.key(0), whole)
    of_lengths, of_order, of_rates, of_turns, of_phases = jax.random.split(key, 5)
    count, real = GROUPS * ndim, jnp.result_type(float)
    # One from each share, in their order.
    spread = [(jnp.arange(count, dtype=real) + _drawn(k, count)) / count for k in (of_lengths, of_rates)]
    shares = (np.arange(TABLE) + 0.5) / TABLE
    table = np.sqrt(2 * gammaincinv((ndim + 2) / 2, shares))
    lengths = jnp.interp(spread[0], jnp.asarray(shares, real), jnp.asarray(table, real))
    # Lengths and frequencies do not depend on each other.
    lengths = lengths.reshape(GROUPS, ndim)[_order(of_order)][..., None]
    turned = _turned(of_turns, ndim)
    vectors, across = lengths * turned, jnp.roll(turned, -1, axis=1)
    # Not at the ends, where a normal number is infinite.
    rates = jax.scipy.special.ndtri(jnp.clip(spread[1], 1e-6, 1 - 1e-6))
    amplitude = math.sqrt(2 / GROUPS)
    return Waves(
        vectors.reshape(count, ndim),
        amplitude * across.reshape(count, ndim),
        rates,
        2 * math.pi * _drawn(of_phases, count),
    )


def _drawn(key: Array, *shape: int) -> Array:
    """Numbers in [0, 1): those of float32, which no compiler rounds in a way of its own, and any precision holds."""
    return jax.random.uniform(key, shape, jnp.float32).astype(jnp.result_type(float))


def _order(key: Array) -> Array:
    """The groups in an order at random."""
    return jax.random.permutation(key, jnp.arange(GROUPS, dtype=jnp.int32))


def _turned(key: Array, ndim: int) -> Array:
    """The axes of space, turned at random for each group: `(GROUPS, axes, ndim)`."""
    if ndim == 2:
        angle = (0.5 * math.pi / GROUPS) * (_order(key).astype(jnp.result_type(float)) + 0.5)
        c, s = jnp.cos(angle), jnp.sin(angle)
        return jnp.stack([jnp.stack([c, s], -1), jnp.stack([-s, c], -1)], axis=1)
    # Quaternions of any direction are turns of equal probability (Shoemake 1992, Graphics Gems III, 124).
    share, first, second = jnp.moveaxis(_drawn(key, GROUPS, 3), -1, 0)
    a, b, first, second = jnp.sqrt(1 - share), jnp.sqrt(share), 2 * math.pi * first, 2 * math.pi * second
    w, x, y, z = a * jnp.sin(first), a * jnp.cos(first), b * jnp.sin(second), b * jnp.cos(second)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    )
    return jnp.stack([jnp.stack(row, -1) for row in rows], axis=1)


def gusts(waves: Waves, component: int, position, t, size, duration) -> Array:
    """One component of the random velocity of `TurbulentInflow`, of unit root mean square, at positions."""
    x = [jnp.asarray(one)[..., None] for one in position]
    dtype, rank = jnp.result_type(*x), x[0].ndim - 1

    def each(wave: Array) -> Array:
        return wave.astype(dtype).reshape((1,) * rank + (-1,))

    scale, rate = (math.sqrt(math.pi / 2) / jnp.asarray(one, dtype) for one in (size, duration))
    phase = each(waves.phases) + rate * jnp.asarray(t, dtype) * each(waves.frequencies)
    for one, along in zip(x, waves.vectors.T, strict=True):
        phase = phase + scale * one * each(along)
    return jnp.sum(jnp.cos(phase) * each(waves.amplitudes[:, component]), axis=-1)
