"""Charges from a configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator
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
from simjax.schema.particles import left_over

OF_CHARGES = ("coulomb_constant", "electrostatics", "ewald_tolerance", "background")


def check_charges(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences about charges, and about their keys where there are none."""
    physics, box, species = config.physics, config.box, len(config.particles.fractions)
    charge = physics.charge
    if charge is None:
        yield from left_over(physics, OF_CHARGES, "particles have no charges; write physics.charge as well")
        return
    if len(charge) != species:
        yield (
            "physics.charge",
            f"physics.charge = {list(charge)}: expected {species} number(s), one per species of particles.fractions",
        )
    if config.ndim != 3 or not all(box.periodic):
        yield (
            "physics.charge",
            f"physics.charge = {list(charge)}: expected a box with three periodic axes, over whose images charges are "
            f"summed, got box.periodic={[str(p).lower() for p in box.periodic]}; write physics.charge=null, or "
            "potential=yukawa for screened ones".replace("'", ""),
        )


STRAY = 0.5  # mesh cells out of their cells, which costs nothing
NEUTRAL = 1e-9  # of all charges: what is left of them by rounding


def check_neutral(physics: Any, start: Start) -> None:
    """Refuse a net charge where no background is asked for."""
    charge = np.asarray(physics.charge)[start.species]
    net = float(charge.sum())
    if abs(net) > NEUTRAL * np.abs(charge).sum() and not physics.background:
        raise ConfigurationError(
            f"physics.charge = {list(physics.charge)}: {start.count} particles of {len(physics.charge)} species carry "
            f"{net:g} together, expected none; write other particles.fractions or particles.count, or "
            "physics.background=true for a uniform charge that neutralises them."
        )


def build_charges(physics: Any, values: Values) -> Charges:
    """Charges of the species and Coulomb's constant."""
    constant = values["coulomb_constant"]
    return Charges(jnp.asarray(physics.charge, jnp.result_type(constant)), constant)


def build_electrostatics(physics: Any, cells: Cells, skin: NeighborPolicy) -> Electrostatics:
    """The sum over all images, its parts as exact as each other."""
    cutoff, tolerance = physics.cutoff, physics.ewald_tolerance
    if physics.electrostatics == "ewald":
        return Electrostatics(ewald_sum(cutoff, tolerance))
    longest, shortest = (each(cells.domain.grid.spacing) for each in (max, min))
    finer = math.ceil(longest / mesh_spacing(cutoff, tolerance))
    stray = max(STRAY, skin.skin / 2 / (shortest / finer))
    return Electrostatics(mesh_sum(cutoff, tolerance, finer, "pcs", stray))
