"""Noise models: minus the logarithm of the likelihood of measurements as 1/2 sum r^2.

Robust densities are written as residuals too, r = sign(z) sqrt(2 rho(z)) of the deviations z = (predicted - measured)
/ deviation, so that methods of least squares serve them as they are; their derivatives are finite everywhere.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.errors import ConfigurationError
from simjax.inverse.methods.argument_checks import require_positive


class Noise(eqx.Module):
    """Independent errors of measurements."""

    @abc.abstractmethod
    def residuals(self, predicted: Array, measured: Array) -> Array:
        """Whitened residuals of predictions and measurements of the same shape, in the same units; zero if equal."""


class GaussianNoise(Noise):
    """Normal errors: rho = z^2 / 2. `deviation` is a number or an array that broadcasts to the measurements."""

    deviation: float | Array

    def __check_init__(self):
        require_positive("GaussianNoise.deviation", self.deviation, "the instrument's standard deviation")

    def residuals(self, predicted, measured):
        return _deviations(predicted, measured, self.deviation)


class RelativeNoise(Noise):
    """Normal errors of standard deviation max(fraction |measured|, floor)."""

    fraction: float | Array
    floor: float | Array

    def __check_init__(self):
        require_positive("RelativeNoise.fraction", self.fraction, "a fraction such as 0.05")
        require_positive("RelativeNoise.floor", self.floor, "the deviation of small measurements")

    def residuals(self, predicted, measured):
        fraction, floor = (_broadcast(v, measured, predicted.dtype) for v in (self.fraction, self.floor))
        return _deviations(predicted, measured, jnp.maximum(fraction * jnp.abs(measured), floor))


class RobustNoise(Noise):
    """Errors with outliers, beside which the instrument has the given deviation."""

    deviation: float | Array

    def __check_init__(self):
        name = f"{type(self).__name__}.deviation"
        require_positive(name, self.deviation, "the instrument's deviation, outliers apart")

    def residuals(self, predicted, measured):
        return self._of_deviations(_deviations(predicted, measured, self.deviation))

    @abc.abstractmethod
    def _of_deviations(self, z: Array) -> Array:
        """sign(z) sqrt(2 rho(z))."""


class StudentNoise(RobustNoise):
    """Student's t: rho = (degrees + 1) / 2 log(1 + z^2 / degrees), so the pull of outliers falls off as 1 / z.

    Lange, Little and Taylor (1989), J. Am. Stat. Assoc. 84, 881. `degrees` of freedom: 4 is usual, many are Gaussian.
    """

    degrees: float | Array

    def __check_init__(self):
        require_positive("StudentNoise.degrees", self.degrees, "a number of degrees of freedom such as 4")

    def _of_deviations(self, z):
        degrees = _broadcast(self.degrees, z, z.dtype)
        return z * jnp.sqrt((1 + 1 / degrees) * _log_ratio(z * z / degrees))


class HuberNoise(RobustNoise):
    """Huber's density: rho = z^2 / 2 for |z| <= threshold, threshold |z| - threshold^2 / 2 beyond: a constant pull.

    Huber (1964), Ann. Math. Stat. 35, 73. `threshold`, in deviations: 1.345 loses 5 % on normal errors.
    """

    threshold: float | Array

    def __check_init__(self):
        require_positive("HuberNoise.threshold", self.threshold, "a number of deviations such as 1.345")

    def _of_deviations(self, z):
        threshold = _broadcast(self.threshold, z, z.dtype)
        size = jnp.abs(z)
        inside = size <= threshold
        # The root is taken of numbers above threshold^2 alone: what is not selected would bring NaN to derivatives.
        beyond = jnp.sqrt(threshold * (2 * jnp.where(inside, threshold, size) - threshold))
        return jnp.where(inside, z, jnp.sign(z) * beyond)


def _deviations(predicted: Array, measured: Array, deviation) -> Array:
    if jnp.shape(predicted) != jnp.shape(measured):
        raise ConfigurationError(
            f"Expected predictions of shape {jnp.shape(measured)}, that of the measurements, got "
            f"{jnp.shape(predicted)}; write one measurement for each value that the operator returns."
        )
    return (predicted - measured) / _broadcast(deviation, predicted, predicted.dtype)


def _broadcast(value, like: Array, dtype) -> Array:
    return jnp.broadcast_to(jnp.asarray(value, dtype), jnp.shape(like))


def _log_ratio(s: Array) -> Array:
    """log(1 + s) / s of s >= 0, one at zero; by its series near zero, so that every derivative is right there."""
    small = s < 0.02
    y = jnp.where(small, s, jnp.zeros_like(s))
    series = jnp.zeros_like(s)
    # The first term left out is below 0.02^10.
    for k in range(10, 0, -1):
        series = 1 / k - y * series
    rest = jnp.where(small, jnp.ones_like(s), s)
    return jnp.where(small, series, jnp.log1p(rest) / rest)
