"""Charges from a configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from simjax.errors import ConfigurationError
from simjax.models.formulas import Values
from simjax.models.molecular.coulomb import Charges, Electrostatics
from simjax.models.placement import Start
from simjax.particles.cells import Cells
from simjax.particles.ewald import ewald_sum, mesh_spacing, mesh_sum
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.schema.kinds import Choice, Flag, ListOf, Real, key


@dataclass(frozen=True)
class ChargeKeys:
    """Charges of the species, and how their forces are summed over all images."""

    species: tuple[float, ...] = key(
        ListOf(Real(), 1, 100, noun="charges, one per species"), about="charge of a particle"
    )
    constant: float = key(Real(above=0.0), 1.0, about="1 / (4 pi eps), energy times length over charge squared")
    method: str = key(
        Choice(("mesh", "ewald")), "mesh",
        about="sum beyond the cutoff: on a mesh, or wave by wave, for small boxes",
    )  # fmt: skip
    tolerance: float = key(
        Real(1e-12, 0.1), 1e-3, about="erfc(alpha cutoff); waves and mesh are as fine as that asks for", fixed=True
    )
    background: bool = key(Flag(), False, about="whether a uniform charge may neutralise a net one")


def check_charges(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences about charges."""
    box, species = config.box, len(config.particles.fractions)
    charge, path = config.physics.charges.species, "physics.charges.species"
    if len(charge) != species:
        yield (
            path,
            f"{path} = {list(charge)}: expected {species} number(s), one per species of particles.fractions",
        )
    if config.ndim != 3 or not all(box.periodic):
        yield (
            path,
            f"{path} = {list(charge)}: expected a box with three periodic axes, over whose images charges are "
            f"summed, got box.periodic={[str(p).lower() for p in box.periodic]}; write physics.charges=null, or "
            "potential=yukawa for screened ones".replace("'", ""),
        )


STRAY = 0.5  # mesh cells out of their cells, which costs nothing
NEUTRAL = 1e-9  # of all charges: what is left of them by rounding


def check_neutral(charges: ChargeKeys, start: Start) -> None:
    """Refuse a net charge where no background is asked for."""
    charge = np.asarray(charges.species)[start.species]
    net = float(charge.sum())
    if abs(net) > NEUTRAL * np.abs(charge).sum() and not charges.background:
        raise ConfigurationError(
            f"physics.charges.species = {list(charges.species)}: {start.count} particles of {len(charges.species)} "
            f"species carry {net:g} together, expected none; write other particles.fractions or particles.count, or "
            "physics.charges.background=true for a uniform charge that neutralises them."
        )


def build_charges(physics: Any, values: Values) -> Charges:
    """Charges of the species and Coulomb's constant."""
    constant = values["charges_constant"]
    return Charges(jnp.asarray(physics.charges.species, jnp.result_type(constant)), constant)


def build_electrostatics(physics: Any, cells: Cells, skin: NeighborPolicy) -> Electrostatics:
    """The sum over all images, its parts as exact as each other."""
    cutoff, tolerance = physics.cutoff, physics.charges.tolerance
    if physics.charges.method == "ewald":
        return Electrostatics(ewald_sum(cutoff, tolerance))
    longest, shortest = (each(cells.domain.grid.spacing) for each in (max, min))
    finer = math.ceil(longest / mesh_spacing(cutoff, tolerance))
    stray = max(STRAY, skin.skin / 2 / (shortest / finer))
    return Electrostatics(mesh_sum(cutoff, tolerance, finer, "pcs", stray))
