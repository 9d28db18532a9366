"""Priors of unknowns: minus the logarithm of their density as 1/2 sum r^2.

Residuals are of this block where the unknown is a field, so their squares are added up by `Domain.dot`.
"""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.instruments.sampling import require_axes
from simjax.inverse.methods.argument_checks import require_positive, scalar_layout
from simjax.ops.difference import laplacian, shift


class Prior(eqx.Module):
    """Minus the logarithm of a density, up to a constant, as half a sum of squares."""

    @abc.abstractmethod
    def residuals(self, physical: Array, domain: Domain):
        """The residuals of an unknown in physical units: a tree of arrays of its shape.

        `physical` is this block of a field, of the spatial axes alone, or a parameter that all devices hold.
        """


class Gaussian(Prior):
    """Independent normal distributions: r = (u - mean) / deviation.

    Both are numbers or arrays like the unknown (this block of it, for a field), in its units.
    """

    mean: float | Array
    deviation: float | Array

    def __check_init__(self):
        require_positive("Gaussian.deviation", self.deviation, "what the unknown may differ from the mean by")

    def residuals(self, physical, domain):
        mean, deviation = (
            jnp.broadcast_to(jnp.asarray(v, physical.dtype), physical.shape) for v in (self.mean, self.deviation)
        )
        return (physical - mean) / deviation


class Matern(Prior):
    """A Gaussian random field with Matern covariance: r = sqrt(cell volume) (kappa^2 - lap) (u - mean) / tau.

    r is white noise where u solves (kappa^2 - lap) u = tau W, whose solutions in the whole space have the Matern
    covariance of smoothness nu = 2 - axes / 2, variance deviation^2 = tau^2 gamma(nu) / ((4 pi)^(axes / 2)
    kappa^(2 nu)) and correlation near 0.1 at the distance `length` = sqrt(8 nu) / kappa. Lindgren, Rue and Lindstrom
    (2011), J. R. Stat. Soc. B 73, 423, eqs. 2 and 4 with alpha = 2. On a grid of spacing h the variance is too large by
    (kappa h)^2 / 8 along one axis, less than (kappa h)^2 log(1 / kappa h) on two and 0.3 kappa h on three. At sides
    that are not periodic the slope is zero, which doubles the variance there (at corners once more for each side)
    and is not felt further than `length` inside.

    Args:
        deviation: standard deviation, in units of the field.
        length: in units of the domain; several cells.
        periodic: whether the field wraps, per axis.
        mean: a number or a field.
    """

    deviation: float | Array
    length: float | Array
    periodic: tuple[bool, ...] = eqx.field(static=True)
    mean: float | Array = 0.0

    def __check_init__(self):
        require_positive("Matern.deviation", self.deviation, "the standard deviation in units of the field")
        require_positive("Matern.length", self.length, "a distance in units of the domain, of several cells")

    def residuals(self, physical, domain):
        grid = domain.grid
        require_axes("Matern.periodic", self.periodic, grid.ndim)
        _require_field("Matern", physical, domain)
        deviation, length, mean = (jnp.asarray(v, physical.dtype) for v in (self.deviation, self.length, self.mean))
        nu = 2 - grid.ndim / 2
        kappa = math.sqrt(8 * nu) / length
        tau = deviation * kappa**nu * math.sqrt((4 * math.pi) ** (grid.ndim / 2) / math.gamma(nu))
        u = physical - jnp.broadcast_to(mean, physical.shape)
        curvature = domain.apply(lambda v: laplacian(v, grid.spacing), u, scalar_layout(self.periodic), width=1)
        return (kappa**2 * u - curvature) * (math.sqrt(grid.cell_volume) / tau)


class TotalVariation(Prior):
    """1/2 sum r^2 = weight times the integral of sqrt(|grad u|^2 + rounding^2): piecewise constant fields, sharp edges.

    Rudin, Osher and Fatemi (1992), Physica D 60, 259. Gradients are forward differences, zero across sides that are
    not periodic. The residuals are the vector p = (grad u, rounding) times (2 weight cell volume / |p|)^(1/2), one
    field per component, whose Gauss-Newton matrix, other than that of a single residual |p|^(1/2), is not singular
    where the field is flat and nowhere below the Hessian.

    Args:
        weight: one over units of the field and of the domain's volume per length.
        rounding: slope below which the penalty is quadratic, in units of the field per length.
        periodic: whether the field wraps, per axis; None: along none.
    """

    weight: float | Array
    rounding: float | Array
    periodic: tuple[bool, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        require_positive("TotalVariation.weight", self.weight, "how much a unit of variation costs")
        require_positive("TotalVariation.rounding", self.rounding, "a slope that is small beside those of edges")

    def residuals(self, physical, domain):
        grid = domain.grid
        periodic = (False,) * grid.ndim if self.periodic is None else self.periodic
        require_axes("TotalVariation.periodic", periodic, grid.ndim)
        _require_field("TotalVariation", physical, domain)
        weight, rounding = (jnp.asarray(v, physical.dtype) for v in (self.weight, self.rounding))

        def slopes(v):
            inner = shift(v, grid.ndim)
            return tuple((shift(v, grid.ndim, axis, 1) - inner) / h for axis, h in enumerate(grid.spacing))

        gradient = domain.apply(slopes, physical, scalar_layout(periodic), width=1)
        square = sum((g * g for g in gradient), rounding * rounding)
        scale = jnp.sqrt(2 * weight * grid.cell_volume) * square**-0.25
        return (*(scale * g for g in gradient), scale * rounding)


def _require_field(name: str, physical: Array, domain: Domain) -> None:
    if jnp.shape(physical) != domain.block_shape:
        raise ConfigurationError(
            f"{name} is a prior of fields, here of blocks of {domain.block_shape} cells; got an "
            f"unknown of shape {jnp.shape(physical)}, for which write Gaussian."
        )
