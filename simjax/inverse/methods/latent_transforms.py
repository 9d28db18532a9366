"""From what an optimiser changes freely to physical values: signs, bounds, smoothness, symmetry, scale.

`physical` is what the simulation uses, `latent` the start of an optimiser for a guess of it; between the two lies a
differentiable function without branches. Fields are blocks of this device, with the spatial axes last.
"""

import abc
import functools
import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.instruments.sampling import require_axes
from simjax.inverse.methods.argument_checks import known, require_positive, scalar_layout
from simjax.jaxpr.varying import steady_carry


class Transform(eqx.Module):
    """A differentiable map from a latent array to a physical one of the same shape and dtype."""

    @abc.abstractmethod
    def physical(self, latent: Array, domain: Domain) -> Array:
        """The physical value."""

    @abc.abstractmethod
    def latent(self, physical: Array, domain: Domain) -> Array:
        """Start of an optimiser for a guess in physical units; refuses guesses that no latent value stands for."""


class Positive(Transform):
    """physical = exp(latent): a change of the latent value is a relative change of the physical one."""

    def physical(self, latent, domain):
        return jnp.exp(latent)

    def latent(self, physical, domain):
        require_positive("A guess of a Positive unknown", physical, "a positive number or another transform")
        return jnp.log(physical)


class Bounded(Transform):
    """physical = lower + (upper - lower) / (1 + exp(-latent)): strictly between two numbers."""

    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)

    def __check_init__(self):
        if not (math.isfinite(self.lower) and math.isfinite(self.upper) and self.lower < self.upper):
            raise ConfigurationError(
                f"Bounded.lower={self.lower:g} must be below Bounded.upper={self.upper:g}, both finite; exchange them "
                "or write Positive."
            )

    def physical(self, latent, domain):
        # Through the hyperbolic tangent, which does not overflow.
        return 0.5 * (self.lower + self.upper) + 0.5 * (self.upper - self.lower) * jnp.tanh(0.5 * latent)

    def latent(self, physical, domain):
        guess = known(physical)
        if guess is not None and not ((guess > self.lower) & (guess < self.upper)).all():
            wrong = guess[~((guess > self.lower) & (guess < self.upper))].flat[0]
            raise ConfigurationError(
                f"A guess of a Bounded unknown must lie between {self.lower:g} and {self.upper:g}, got {wrong:g}; "
                f"write {0.5 * (self.lower + self.upper):g} or widen the bounds."
            )
        return jnp.log(physical - self.lower) - jnp.log(self.upper - physical)


class Scaled(Transform):
    """physical = shift + scale latent: with the scale of what is not known, the latent value is of order one."""

    scale: float = eqx.field(static=True)
    shift: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        if not (math.isfinite(self.scale) and math.isfinite(self.shift) and self.scale != 0):
            raise ConfigurationError(
                f"Scaled.scale={self.scale:g} and Scaled.shift={self.shift:g} must be finite and the scale not zero; "
                "write the size of a usual change as the scale."
            )

    def physical(self, latent, domain):
        return self.shift + self.scale * latent

    def latent(self, physical, domain):
        return (physical - self.shift) / self.scale


class Smooth(Transform):
    """A field filtered by a Gaussian of standard deviation `length`, in units of the domain; linear and symmetric.

    Repeated passes of the binomial stencil (1, 2, 1) / 4 along every axis, of variance h^2 / 2 each, and a last one
    of the weights (w, 4 - 2 w, w) / 4 that leave the variance exact: 2 (length / h)^2 passes, each with one exchange of
    ghost cells. Sides that are not periodic have zero slope; the sum over the domain is kept. `latent` returns the
    guess itself, so the guess is smoothed as well.
    """

    length: float = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)

    def __check_init__(self):
        require_positive("Smooth.length", self.length, "a distance in units of the domain")

    def physical(self, latent, domain):
        grid = domain.grid
        require_axes("Smooth.periodic", self.periodic, grid.ndim)
        _require_field("Smooth", latent, domain)
        layout = scalar_layout(self.periodic)
        passes = [2 * (self.length / h) ** 2 for h in grid.spacing]

        def stencil(padded, number):
            for axis, whole in enumerate(passes):
                weight = 0.25 * jnp.clip(whole - number, 0, 1)
                padded = _spread(padded, padded.ndim - grid.ndim + axis, weight)
            return padded

        def smoothed(carry):
            field, number = carry
            return domain.apply(functools.partial(stencil, number=number), field, layout, width=1), number + 1

        # Numbers are formed by counting: a captured array of weights would be cast twice under a conditional.
        body, carry = steady_carry(smoothed, (latent, jnp.zeros((), latent.dtype)))
        (field, _), _ = lax.scan(lambda c, _: (body(c), None), carry, length=math.ceil(max(passes)))
        return field

    def latent(self, physical, domain):
        return physical


class Symmetric(Transform):
    """(u + sign mirrored u) / 2: a field that is even (`sign` 1) or odd (-1) about the middle of `axis`.

    Of fields that live at the middle of their cells along that axis. `latent` returns the guess itself, of which the
    part of the other symmetry is dropped.
    """

    axis: int = eqx.field(static=True)
    sign: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        if self.axis not in range(len(AXES)):
            raise ConfigurationError(f"Symmetric.axis={self.axis}: expected the number of an axis; write 0, 1 or 2.")
        if self.sign not in (1, -1):
            raise ConfigurationError(f"Symmetric.sign={self.sign}: expected a sign; write 1 (even) or -1 (odd).")

    def physical(self, latent, domain):
        if self.axis >= domain.grid.ndim:
            raise ConfigurationError(
                f"Symmetric.axis={self.axis} is not an axis of a grid of {domain.grid.ndim}; write a number below "
                f"{domain.grid.ndim}."
            )
        _require_field("Symmetric", latent, domain)
        return 0.5 * (latent + self.sign * domain.reflect(latent, self.axis))

    def latent(self, physical, domain):
        return physical


class Chain(Transform):
    """Transforms one after the other, in the order in which `physical` applies them."""

    transforms: tuple[Transform, ...]

    def physical(self, latent, domain):
        return functools.reduce(lambda value, transform: transform.physical(value, domain), self.transforms, latent)

    def latent(self, physical, domain):
        backwards = reversed(self.transforms)
        return functools.reduce(lambda value, transform: transform.latent(value, domain), backwards, physical)


def chain(transforms: Sequence[Transform]) -> Transform:
    """Chain `transforms` in the order in which they act on a latent value; without any, the identity.

    `chain([Smooth(0.1, periodic), Positive()])` is the exponential of a smooth field.
    """
    return transforms[0] if len(transforms) == 1 else Chain(tuple(transforms))


def _spread(u: Array, axis: int, weight: Array) -> Array:
    """(w, 1 - 2 w, w) along one axis of an array, which becomes shorter by two."""
    n = u.shape[axis]
    before, middle, after = (lax.slice_in_dim(u, start, n - 2 + start, axis=axis) for start in range(3))
    return middle + weight * (before - 2 * middle + after)


def _require_field(name: str, latent: Array, domain: Domain) -> None:
    shape = np.shape(latent)
    if shape[max(0, len(shape) - domain.grid.ndim) :] != domain.block_shape:
        raise ConfigurationError(
            f"{name} is a transform of fields, here of blocks of {domain.block_shape} cells; got an "
            f"unknown of shape {shape}, for which leave it out."
        )
