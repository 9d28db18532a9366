"""Potentials of molecular dynamics from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.models.formulas import Values
from simjax.models.molecular.interaction import Interaction
from simjax.models.molecular.many_body import StillingerWeber, StillingerWeberParams
from simjax.models.molecular.pair_potentials import (
    ForceShifted,
    LennardJones,
    Morse,
    PairPotential,
    Shifted,
    SoftSphere,
    WeeksChandlerAndersen,
    Yukawa,
    lorentz_berthelot,
)

ENDINGS: dict[str, Callable[..., PairPotential]] = {"shifted": Shifted, "force_shifted": ForceShifted}


def mixed(physics: Any, values: Values) -> tuple[Array, Array]:
    """(epsilon, sigma) of all pairs: scalars of one species, tables `(species, species)` of a mixture."""
    epsilon, sigma = values["epsilon"], values["sigma"]
    own = [physics.species_epsilon, physics.species_sigma]
    if own == [None, None]:
        return epsilon, sigma
    count, dtype = len(next(ratios for ratios in own if ratios is not None)), jnp.result_type(epsilon)
    alike = [jnp.asarray(ratios or (1.0,) * count, dtype) for ratios in own]
    epsilons, sigmas = lorentz_berthelot(*alike)
    return epsilon * _crossed(epsilons, physics.cross_epsilon), sigma * _crossed(sigmas, physics.cross_sigma)


def _crossed(table: Array, cross: Sequence[float] | None) -> Array:
    """A symmetric table with the entries of unlike species, row by row, in the place of those of the mixing rule."""
    if cross is None:
        return table
    above = np.triu_indices(len(table), 1)
    entries = jnp.asarray(cross, table.dtype)
    return table.at[above].set(entries).at[above[::-1]].set(entries)


def _stillinger_weber(physics: Any, values: Values) -> tuple[Interaction, Any]:
    silicon = StillingerWeberParams.silicon()
    fixed = (jnp.asarray(value, jnp.result_type(values["epsilon"])) for value in (silicon.decay, silicon.A, silicon.B))
    return StillingerWeber(), StillingerWeberParams(
        values["epsilon"], values["sigma"], values["tetrahedrality"], *fixed
    )


POTENTIALS: dict[str, Callable[[Any, Values], tuple[Interaction, Any]]] = {
    "lennard_jones": lambda physics, values: (LennardJones(), mixed(physics, values)),
    "weeks_chandler_andersen": lambda physics, values: (WeeksChandlerAndersen(), mixed(physics, values)),
    "soft_sphere": lambda physics, values: (SoftSphere(physics.power), mixed(physics, values)),
    "morse": lambda physics, values: (
        Morse(), (values["epsilon"], values["steepness"], values["bond_length"])
    ),
    "yukawa": lambda physics, values: (Yukawa(), (values["strength"], values["screening"])),
    "stillinger_weber": _stillinger_weber,
}  # fmt: skip
"""Name -> `(physics, values)` -> (potential, its parameters)."""


def build_potential(physics: Any, values: Values) -> tuple[Interaction, Any]:
    """The potential of a configuration, ended at its cutoff as that says, and its parameters."""
    potential, parameters = POTENTIALS[physics.potential](physics, values)
    if physics.mode != "truncated":
        potential = ENDINGS[physics.mode](potential=potential, cutoff=physics.cutoff)
    return potential, parameters
