"""Inflow with synthetic eddies: random waves without divergence, of given strength, size and duration."""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.core.boundary import Dirichlet, Inflow, Value
from simjax.schema.model_schema import FieldSchema
from simjax.schema.sides import side

WAVES = 64
SEED = 0

_KEYS = (
    FieldSchema("velocity", vector=True, units="m s-1", default=None),
    FieldSchema("fluctuation", units="m s-1", default=None),
    FieldSchema("eddy_size", units="m", default=None),
    FieldSchema("eddy_time", units="s", default=None),
)


@side("turbulent_inflow", groups=("flow",), keys=_KEYS, about="a given velocity with random eddies")
class TurbulentInflow(Inflow):
    """A prescribed velocity and random eddies on it, u + s v, the same in every run.

    fluctuation s: root mean square of each component, length / time; it may depend on place. eddy_size L and eddy_time
    T: integral scales of v along the velocity and in time, length and time; for eddies that a stream U carries past, T
    is L / U. v is a sum of 64 waves with random amplitudes across their vectors, k, so that it has no divergence, and
    k and frequencies of normal distributions: correlations are f(r, t) = exp(-(pi/4) (r^2 / L^2 + t^2 / T^2)) along the
    velocity (Kraichnan 1970, Phys. Fluids 13, 22).

    Examples:
        >>> wind = sj.TurbulentInflow((10.0, 0.0, 0.0), fluctuation=1.0, eddy_size=0.5, eddy_time=0.05)
    """

    fluctuation: Value = eqx.field(kw_only=True)
    eddy_size: Value = eqx.field(kw_only=True)
    eddy_time: Value = eqx.field(kw_only=True)

    def velocity_boundary(self, component, axis):
        mean = 0.0 if self.velocity is None else self.velocity[component]

        def value(t, *position):
            def at(one: Value):
                return one(t, *position) if callable(one) else one

            eddies = gusts(component, position, t, at(self.eddy_size), at(self.eddy_time))
            return at(mean) + at(self.fluctuation) * eddies

        return Dirichlet(value)


def gusts(component: int, position, t, size, duration) -> Array:
    """One component of the random velocity of `TurbulentInflow`, of unit root mean square, at positions."""
    x = [jnp.asarray(one)[..., None] for one in position]
    dtype, rank = jnp.result_type(*x), x[0].ndim - 1

    def each(wave: np.ndarray) -> Array:
        return jnp.asarray(wave, dtype).reshape((1,) * rank + (WAVES,))

    vectors, frequencies, cosines, sines = _waves(len(position))
    scale, rate = (float(np.sqrt(np.pi / 2)) / jnp.asarray(one, dtype) for one in (size, duration))
    phase = rate * jnp.asarray(t, dtype) * each(frequencies)
    for one, along in zip(x, vectors.T, strict=True):
        phase = phase + scale * one * each(along)
    return jnp.sum(jnp.cos(phase) * each(cosines[component]) + jnp.sin(phase) * each(sines[component]), axis=-1)


@functools.cache
def _waves(ndim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Vectors and frequencies in units of their deviations, and amplitudes of cosines and sines for each component."""
    random = np.random.default_rng(SEED)
    vectors, frequencies = random.normal(size=(WAVES, ndim)), random.normal(size=WAVES)
    amplitudes = []
    for _ in range(2):
        if ndim == 2:
            amplitudes.append(random.normal(size=WAVES) * np.stack([-vectors[:, 1], vectors[:, 0]]))
        else:
            amplitudes.append(np.cross(random.normal(size=(WAVES, ndim)), vectors).T)
    # All components alike, or there would be a divergence.
    mean_square = sum(np.sum(one**2) for one in amplitudes) / (2 * ndim)
    return vectors, frequencies, *(one / np.sqrt(mean_square) for one in amplitudes)
