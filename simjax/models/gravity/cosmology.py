"""Expanding backgrounds of cosmological simulations."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.errors import ConfigurationError

NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


class FlatLambdaCDM(eqx.Module):
    """A flat universe of matter and a cosmological constant: (da/dt)^2 = H0^2 (M / a + (1 - M) a^2).

    a(t) is the scale factor; a = 1 where the Hubble rate is H0. With M = 1 it is Einstein and de Sitter's, where a is
    (3 H0 age / 2)^(2/3). Peebles (1980), The Large-Scale Structure of the Universe, section 13.

    hubble: H0, 1/time. matter: M, the share of matter in the density where a = 1; the mean density of the particles,
    per comoving volume, has to be 3 H0^2 M / (8 pi G). first: a where time begins, t = 0.
    """

    hubble: float = eqx.field(static=True, default=1.0)
    matter: float = eqx.field(static=True, default=1.0)
    first: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        if not (0 < self.matter <= 1 and self.hubble > 0 and self.first >= 0):
            raise ConfigurationError(
                f"FlatLambdaCDM: hubble={self.hubble:g}, matter={self.matter:g}, first={self.first:g}; expected a rate "
                "above zero, a share in (0, 1] and a first scale factor of at least 0."
            )

    def scale_factor(self, t: Array) -> Array:
        """a(t)."""
        t = t + self._age(self.first)
        if self.matter == 1:
            return (1.5 * self.hubble * t) ** (2 / 3)
        rest = 1 - self.matter
        return (self.matter / rest) ** (1 / 3) * jnp.sinh(1.5 * math.sqrt(rest) * self.hubble * t) ** (2 / 3)

    def time_of(self, scale_factor: float) -> float:
        """When a(t) has a value, on the host."""
        return self._age(scale_factor) - self._age(self.first)

    def _age(self, scale_factor: float) -> float:
        """Time since a = 0."""
        rest = 1 - self.matter
        if rest == 0:
            return scale_factor**1.5 / (1.5 * self.hubble)
        return math.asinh(math.sqrt(rest / self.matter) * scale_factor**1.5) / (1.5 * math.sqrt(rest) * self.hubble)

    def kick_length(self, t: Array, dt: Array) -> Array:
        """The integral of dt / a from t to t + dt, for `Gravity.step`; Quinn et al. (1997), astro-ph/9710043, eq. 9."""
        return self._integral(t, dt, -1)

    def drift_length(self, t: Array, dt: Array) -> Array:
        """The integral of dt / a^2 from t to t + dt."""
        return self._integral(t, dt, -2)

    def _integral(self, t: Array, dt: Array, power: int) -> Array:
        # a(t) is smooth over a step: eight nodes are exact to rounding where steps follow the expansion.
        at = t + dt * jnp.asarray((NODES + 1) / 2, t.dtype)
        return dt * jnp.sum(jnp.asarray(WEIGHTS / 2, t.dtype) * self.scale_factor(at) ** power)
