"""Bonds and angles of chains from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp

from simjax.models.formulas import Values
from simjax.models.molecular.bonds import (
    AnglePotential,
    Bending,
    Bonds,
    BondTopology,
    FiniteExtensibleBond,
    HarmonicAngle,
    HarmonicBond,
)
from simjax.models.molecular.pair_potentials import PairPotential
from simjax.models.molecular.potential_setup import mixed
from simjax.particles.cells import EMPTY, Cells
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.schema.particles import left_over

OF_BONDS = {
    "none": (),
    "fene": ("bond_stiffness", "bond_extension"),
    "harmonic": ("bond_stiffness", "bond_rest_length"),
}
OF_ANGLES = {"none": (), "bending": ("angle_stiffness",), "harmonic": ("angle_stiffness", "rest_angle")}
LONGEST = 1.5  # of harmonic bonds, in rest lengths


def longest_bond(physics: Any) -> float:
    """Greatest length of a bond, so that its ends are in neighbouring cells: 0 without bonds."""
    return {"none": 0.0, "fene": physics.bond_extension, "harmonic": LONGEST * physics.bond_rest_length}[physics.bond]


def natural_bond(physics: Any) -> float:
    """About the length at which a bond is at rest; of fene with the usual numbers it is 0.96."""
    return physics.bond_rest_length if physics.bond == "harmonic" else physics.bond_extension / 1.5


def check_chains(config: Any, mixed: bool) -> Iterator[tuple[str, str]]:
    """Sentences about bonds and angles. mixed: whether the potential is of pairs with epsilon and sigma."""
    physics, length, skin = config.physics, config.particles.chain_length, config.neighbor_list.skin
    for kind, used in (("bond", OF_BONDS), ("angle", OF_ANGLES)):
        chosen = getattr(physics, kind)
        others = dict.fromkeys(name for names in used.values() for name in names if name not in used[chosen])
        yield from left_over(physics, tuple(others), f"physics.{kind}={chosen} has no such number; write another")
    bonded = physics.bond != "none"
    if bonded != (length is not None):
        yield (
            "physics.bond",
            f"physics.bond = {physics.bond} and particles.chain_length = {_null(length)}: expected both or neither; "
            "write bond=fene or harmonic and beads in a chain",
        )
    if physics.angle != "none" and (length or 0) < 3:
        yield (
            "physics.angle",
            f"physics.angle = {physics.angle}: expected chains of 3 particles or more, got particles.chain_length = "
            f"{_null(length)}; write angle=none",
        )
    fene = physics.bond == "fene"
    if (fene and not mixed) or (bonded and physics.potential == "stillinger_weber"):
        yield (
            "physics.bond",
            f"physics.bond = {physics.bond}: expected a potential of pairs{' with epsilon and sigma' if fene else ''}, "
            f"got {physics.potential}; write lennard_jones or weeks_chandler_andersen",
        )
    if bonded and config.neighbor_list.max_neighbors == 0:
        yield (
            "neighbor_list.max_neighbors",
            "neighbor_list.max_neighbors = 0: expected null or more, lists leave bonded particles out",
        )
    longest = longest_bond(physics)
    if skin is not None and longest > physics.cutoff + skin:
        yield (
            "neighbor_list.skin",
            f"neighbor_list.skin = {skin:g}: bonds of up to {longest:g} are looked for within physics.cutoff and skin; "
            f"write {longest - physics.cutoff:g} or more, or null",
        )
    for axis, (a, b, closed) in enumerate(zip(config.box.lower, config.box.upper, config.box.periodic, strict=True)):
        if closed and b - a < 2 * longest:
            path = f"box.upper[{axis}]"
            yield path, f"{path} = {b:g}: expected a box of at least {2 * longest:g}, twice the length of a bond"


def _null(value: Any) -> str:
    return "null" if value is None else str(value)


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


def build_bonds(physics: Any, cells: Cells, skin: NeighborPolicy, values: Values) -> tuple[Bonds, Any]:
    """Bonds that may be as long as a cell or half the box, and their parameters."""
    (bond, of_bonds), (angle, of_angles) = BONDS[physics.bond](physics, values), ANGLES[physics.angle](values)
    halves = [length / 2 for length, closed in zip(cells.domain.grid.lengths, cells.periodic, strict=True) if closed]
    return Bonds(bond, angle, min(skin.reach, *halves), skin.skin, exclude=True), (of_bonds, of_angles)


def chain_links(count: int, length: int, angles: bool) -> BondTopology:
    """Neighbours of particles numbered along their chains, which are also the ends of the angle between them."""
    number = jnp.arange(count, dtype=jnp.int32)
    place = number % length
    before = jnp.where(place > 0, number - 1, EMPTY)
    after = jnp.where(place < length - 1, number + 1, EMPTY)
    partners = jnp.stack([before, after])
    inner = (place > 0) & (place < length - 1)
    return BondTopology(partners, jnp.where(inner[None, None], partners[None], EMPTY) if angles else None)
