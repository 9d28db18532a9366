"""Bonds and angles, of chains or of a file, from a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from simjax.models.formulas import Values
from simjax.models.molecular.bonds import Bonds, BondTopology, list_refusals
from simjax.models.molecular.pair_potentials import PairPotential
from simjax.particles.cells import EMPTY, Cells
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.schema.config import Config
from simjax.schema.particles import ParticlesConfig
from simjax.schema.parts import Chosen, PartSetup


def longest_bond(physics: Any) -> float:
    """Greatest length of a bond, so that its ends are in neighbouring cells: 0 without bonds."""
    return 0.0 if physics.bond is None else physics.bond.part.longest(physics.bond.keys)


def check_bonds(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences about bonds and angles; those of a file are looked at when it is read."""
    physics, length, skin = config.physics, config.particles.chain_length, config.neighbor_list.skin
    bond, potential, bonded = _name(physics.bond), physics.potential, physics.bond is not None
    of_file = bonded and length is None and config.particles.file is not None
    if bonded != (length is not None) and not of_file:
        yield (
            "physics.bond",
            f"physics.bond = {bond} and particles.chain_length = {'null' if length is None else length}: expected both "
            "or neither; write bond=fene or harmonic and beads in a chain",
        )
    if physics.angle is not None and (length or 0) < 3 and not of_file:
        yield (
            "physics.angle",
            f"physics.angle = {physics.angle.name}: expected chains of 3 particles or more, got particles.chain_length "
            f"= {'null' if length is None else length}; write angle=null",
        )
    if bonded and not issubclass(potential.part, PairPotential):
        yield (
            "physics.bond",
            f"physics.bond = {bond}: expected a potential of pairs, got {potential.name}; write lennard_jones or "
            "weeks_chandler_andersen",
        )
    yield from list_refusals(bonded, config.neighbor_list.max_neighbors)
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


def _name(chosen: Chosen | None) -> str:
    return "null" if chosen is None else chosen.name


def build_bonds(config: Config, cells: Cells, skin: NeighborPolicy, values: Values) -> tuple[Bonds, Any]:
    """Bonds that may be as long as a cell or half the box, and their parameters."""
    (bond, of_bonds), (angle, of_angles) = (PartSetup(config, place, values).built() for place in ("bond", "angle"))
    halves = [length / 2 for length, closed in zip(cells.domain.grid.lengths, cells.periodic, strict=True) if closed]
    return Bonds(bond, angle, min(skin.reach, *halves), skin.skin, exclude=True), (of_bonds, of_angles)


def links_of(config: Config, files: Mapping[str, Array]) -> BondTopology | None:
    """Who is bonded to whom: along chains, or as the file of the particles says."""
    particles = config.particles
    assert isinstance(particles, ParticlesConfig)
    if particles.chain_length is not None:
        return chain_links(files["species"].shape[0], particles.chain_length, config.physics.angle is not None)
    return BondTopology(files["partners"], files.get("ends")) if "partners" in files else None


def chain_links(count: int, length: int, angles: bool) -> BondTopology:
    """Neighbours of particles numbered along their chains, which are also the ends of the angle between them."""
    number = jnp.arange(count, dtype=jnp.int32)
    place = number % length
    before = jnp.where(place > 0, number - 1, EMPTY)
    after = jnp.where(place < length - 1, number + 1, EMPTY)
    partners = jnp.stack([before, after])
    inner = (place > 0) & (place < length - 1)
    return BondTopology(partners, jnp.where(inner[None, None], partners[None], EMPTY) if angles else None)
