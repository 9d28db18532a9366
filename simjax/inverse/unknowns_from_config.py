"""From the section `inverse.unknowns` to transforms and priors."""

from __future__ import annotations

from simjax.inverse.methods.latent_transforms import Bounded, Positive, Scaled, Smooth, Symmetric, Transform, chain
from simjax.inverse.methods.priors import Gaussian, Matern, Prior, TotalVariation
from simjax.schema.config import Config
from simjax.schema.inverse import UnknownConfig

FIELD_SECTIONS = ("initial", "coefficients")


def transform_of(unknown: UnknownConfig, config: Config) -> Transform:
    """From the latent array to the unknown."""
    made = []
    for kind, numbers in unknown.transforms:
        match kind:
            case "scaled":
                made.append(Scaled(*numbers))
            case "smooth":
                made.append(Smooth(*numbers, periodic=_periodic(config)))
            case "symmetric":
                made.append(Symmetric(int(numbers[0]), int(numbers[1])))
            case "positive":
                made.append(Positive())
            case "bounded":
                made.append(Bounded(*numbers))
    return chain(made)


def prior_of(unknown: UnknownConfig, config: Config) -> Prior:
    """Prior of an unknown, where its key `prior` gives one."""
    assert unknown.prior is not None
    kind, numbers = unknown.prior
    match kind:
        case "gaussian":
            return Gaussian(*numbers)
        case "matern":
            deviation, length, mean = numbers
            return Matern(deviation, length, periodic=_periodic(config), mean=mean)
    weight, rounding = numbers
    return TotalVariation(weight, rounding, periodic=_periodic(config))


def _periodic(config: Config) -> tuple[bool, ...]:
    return tuple(axis.periodic for axis in config.boundaries)
