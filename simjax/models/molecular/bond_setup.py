"""Bonds and angles of chains from a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from simjax.models.formulas import Values
from simjax.models.molecular.bonds import (
    AnglePotential,
    Bending,
    Bonds,
    FiniteExtensibleBond,
    HarmonicAngle,
    HarmonicBond,
    Links,
)
from simjax.models.molecular.pair_potentials import PairPotential
from simjax.models.molecular.potential_setup import mixed
from simjax.particles.cells import EMPTY, Cells
from simjax.particles.neighbor_policy import Skin

BONDS: dict[str, Callable[[Any, Values], tuple[PairPotential, Any]]] = {
    "fene": lambda physics, values: (
        FiniteExtensibleBond(), (values["bond_stiffness"], values["bond_extension"], *mixed(physics, values))
    ),
    "harmonic": lambda physics, values: (HarmonicBond(), (values["bond_stiffness"], values["bond_rest_length"])),
}  # fmt: skip
"""Name -> `(physics, values)` -> (bond, its parameters)."""
ANGLES: dict[str, Callable[[Values], tuple[AnglePotential | None, Any]]] = {
    "none": lambda values: (None, None),
    "bending": lambda values: (Bending(), values["angle_stiffness"]),
    "harmonic": lambda values: (HarmonicAngle(), (values["angle_stiffness"], values["rest_angle"])),
}
"""Name -> `values` -> (angle, its parameters)."""


def build_bonds(physics: Any, cells: Cells, skin: Skin, values: Values) -> tuple[Bonds, Any]:
    """Bonds that may be as long as a cell or half the box, and their parameters."""
    (bond, of_bonds), (angle, of_angles) = BONDS[physics.bond](physics, values), ANGLES[physics.angle](values)
    halves = [length / 2 for length, closed in zip(cells.domain.grid.lengths, cells.periodic, strict=True) if closed]
    return Bonds(bond, angle, min(skin.reach, *halves), skin.skin, exclude=True), (of_bonds, of_angles)


def chain_links(count: int, length: int, angles: bool) -> Links:
    """Of particles numbered along their chains, the neighbours, which are also the ends of the angle between them."""
    number = jnp.arange(count, dtype=jnp.int32)
    place = number % length
    before = jnp.where(place > 0, number - 1, EMPTY)
    after = jnp.where(place < length - 1, number + 1, EMPTY)
    partners = jnp.stack([before, after])
    inner = (place > 0) & (place < length - 1)
    return Links(partners, jnp.where(inner[None, None], partners[None], EMPTY) if angles else None)
