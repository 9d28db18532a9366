"""Smoothing kernels W(r, h): positive bumps of compact support and unit integral in one to three dimensions.

q = r / h, with the smoothing length h; (x)+ is x where positive, else 0. A kernel gives W and (dW/dr) / r, which times
the separation x_i - x_j is the gradient of W at particle i.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

NEAREST = 1e-4
"""Particles nearer than this multiple of h count as that far apart, where (dW/dr) / r is computed."""


class SmoothingKernel(eqx.Module):
    """W = norm / h^ndim shape(q). length: h. ndim: dimensions of space."""

    length: float = eqx.field(static=True)
    ndim: int = eqx.field(static=True)
    reach: ClassVar[float]
    """q beyond which the kernel is zero."""
    norms: ClassVar[tuple[float, float, float]]
    """1 / (integral of the shape over q-space) in one, two and three dimensions."""

    @property
    def support(self) -> float:
        """r beyond which the kernel is zero."""
        return self.reach * self.length

    def value(self, square: Array) -> Array:
        """W at r^2 = `square`, 1 / length^ndim."""
        return self._scale() * self._shape(self._q(square))

    def slope(self, square: Array) -> Array:
        """(dW/dr) / r at r^2 = `square`, 1 / length^(ndim + 2)."""
        return self._scale() / self.length**2 * self._slope(self._q(square))

    def _scale(self) -> float:
        return self.norms[self.ndim - 1] / self.length**self.ndim

    def _q(self, square: Array) -> Array:
        return jnp.sqrt(jnp.maximum(square, (NEAREST * self.length) ** 2)) / self.length

    @abc.abstractmethod
    def _shape(self, q: Array) -> Array: ...

    @abc.abstractmethod
    def _slope(self, q: Array) -> Array:
        """(d shape / dq) / q."""


def _positive(x: Array) -> Array:
    return jnp.maximum(x, 0)


class CubicSpline(SmoothingKernel):
    """(2 - q)+^3 / 4 - (1 - q)+^3. Monaghan and Lattanzio (1985), Astron. Astrophys. 149, 135, eq. 21."""

    reach: ClassVar[float] = 2.0
    norms: ClassVar[tuple[float, float, float]] = (2 / 3, 10 / (7 * math.pi), 1 / math.pi)

    def _shape(self, q):
        return 0.25 * _positive(2 - q) ** 3 - _positive(1 - q) ** 3

    def _slope(self, q):
        return (3 * _positive(1 - q) ** 2 - 0.75 * _positive(2 - q) ** 2) / q


class QuinticSpline(SmoothingKernel):
    """(3 - q)+^5 - 6 (2 - q)+^5 + 15 (1 - q)+^5. Morris, Fox and Zhu (1997), J. Comput. Phys. 136, 214, eq. 18."""

    reach: ClassVar[float] = 3.0
    norms: ClassVar[tuple[float, float, float]] = (1 / 120, 7 / (478 * math.pi), 1 / (120 * math.pi))

    def _shape(self, q):
        return _positive(3 - q) ** 5 - 6 * _positive(2 - q) ** 5 + 15 * _positive(1 - q) ** 5

    def _slope(self, q):
        return -5 * (_positive(3 - q) ** 4 - 6 * _positive(2 - q) ** 4 + 15 * _positive(1 - q) ** 4) / q


class WendlandC2(SmoothingKernel):
    """(1 - q/2)+^4 (2 q + 1), in one dimension (1 - q/2)+^3 (3 q / 2 + 1): twice continuously differentiable.

    Dehnen and Aly (2012), Mon. Not. R. Astron. Soc. 425, 1068, table 1.
    """

    reach: ClassVar[float] = 2.0
    norms: ClassVar[tuple[float, float, float]] = (5 / 8, 7 / (4 * math.pi), 21 / (16 * math.pi))

    def _shape(self, q):
        left = _positive(1 - q / 2)
        return left**3 * (1.5 * q + 1) if self.ndim == 1 else left**4 * (2 * q + 1)

    def _slope(self, q):
        left = _positive(1 - q / 2)
        return -3 * left**2 if self.ndim == 1 else -5 * left**3


class WendlandC4(SmoothingKernel):
    """(1 - q/2)+^6 (35 q^2 / 12 + 3 q + 1), in one dimension (1 - q/2)+^5 (2 q^2 + 5 q / 2 + 1).

    Dehnen and Aly (2012), Mon. Not. R. Astron. Soc. 425, 1068, table 1.
    """

    reach: ClassVar[float] = 2.0
    norms: ClassVar[tuple[float, float, float]] = (3 / 4, 9 / (4 * math.pi), 495 / (256 * math.pi))

    def _shape(self, q):
        left = _positive(1 - q / 2)
        return left**5 * ((2 * q + 2.5) * q + 1) if self.ndim == 1 else left**6 * ((35 / 12 * q + 3) * q + 1)

    def _slope(self, q):
        left = _positive(1 - q / 2)
        return -3.5 * left**4 * (1 + 2 * q) if self.ndim == 1 else -14 / 3 * left**5 * (1 + 2.5 * q)


SMOOTHING_KERNELS: dict[str, type[SmoothingKernel]] = {
    "cubic_spline": CubicSpline,
    "quintic_spline": QuinticSpline,
    "wendland_c2": WendlandC2,
    "wendland_c4": WendlandC4,
}
