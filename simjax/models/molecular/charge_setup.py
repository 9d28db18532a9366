"""Charges from a configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.formulas import Values
from simjax.models.molecular.coulomb import Charges, Electrostatics
from simjax.models.placement import Start
from simjax.particles.cells import Cells
from simjax.particles.ewald import ewald_sum, mesh_spacing, mesh_sum
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.schema.kinds import Choice, Flag, Integer, ListOf, Real, key
from simjax.schema.particles import check_mesh_length, check_mesh_shape


@dataclass(frozen=True)
class ChargeKeys:
    """Charges of the species, and how their forces are summed over all images."""

    species: tuple[float, ...] = key(
        ListOf(Real(), 1, 100, noun="charges, one per species"), about="charge of a particle"
    )
    constant: float = key(Real(above=0.0), 1.0, about="1 / (4 pi eps), energy times length over charge squared")
    method: str = key(
        Choice(("mesh", "ewald")),
        "mesh",
        about="sum beyond the cutoff: on a mesh, or wave by wave, for small boxes",
    )
    tolerance: float = key(
        Real(1e-12, 0.1), 1e-3, about="erfc(alpha cutoff); waves and mesh are as fine as that asks for", fixed=True
    )
    mesh_cells: tuple[int, ...] | None = key(
        ListOf(Integer(4, 2**20), 3, 3, optional=True, noun="cell counts, one per axis"),
        None,
        about="cells of the mesh; null: as many as the tolerance asks for, on any devices",
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
        return
    yield from _check_mesh(config)


def _check_mesh(config: Any) -> Iterator[tuple[str, str]]:
    """A mesh that is too coarse, or that devices cannot share evenly."""
    physics, charges, path = config.physics, config.physics.charges, "physics.charges.mesh_cells"
    if charges.method != "mesh":
        if charges.mesh_cells is not None:
            yield path, f"{path} = {list(charges.mesh_cells)}: expected null with physics.charges.method=ewald"
        return
    if charges.mesh_cells is not None:
        yield from check_mesh_shape(config, path, charges.mesh_cells)
        longest = mesh_spacing(physics.cutoff, charges.tolerance)
        yield from check_mesh_length(config, path, charges.mesh_cells, longest, "physics.charges.tolerance")
        return
    cells = mesh_cells(physics, _lengths(config.box))
    blocks = [getattr(config.mesh, name) for name in AXES]
    if any(n % k for n, k in zip(cells, blocks, strict=True)):
        even = [k * math.ceil(n / k) for n, k in zip(cells, blocks, strict=True)]
        axis = next(k for k, n in enumerate(cells) if n % blocks[k])
        yield (
            path,
            f"{path} = null is {list(cells)}, which mesh.{AXES[axis]}={blocks[axis]} does not divide; write {even}, "
            "also where forces are to be the same on other devices, or another mesh",
        )


def _lengths(box: Any) -> list[float]:
    return [b - a for a, b in zip(box.lower, box.upper, strict=True)]


def mesh_cells(physics: Any, lengths: Sequence[float]) -> tuple[int, ...]:
    """Cells of the mesh along each axis: as given, or as the tolerance asks for.

    They do not depend on the devices, so that forces do not. Multiples of 4 can be transformed on meshes of devices of
    any shape; of larger numbers a quarter more than are needed at most makes them multiples of a power of two above an
    eighth of them.
    """
    if physics.charges.mesh_cells is not None:
        return physics.charges.mesh_cells
    spacing = mesh_spacing(physics.cutoff, physics.charges.tolerance)
    return tuple(_divisible(math.ceil(length / spacing * (1 - 1e-9))) for length in lengths)


def _divisible(least: int) -> int:
    """The least multiple, not below, of the larger of 4 and the largest power of two within a quarter of it."""
    unit = 2 ** max(2, math.floor(math.log2(least / 4)))
    return unit * math.ceil(least / unit)


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
    lengths = cells.domain.grid.lengths
    mesh = mesh_cells(physics, lengths)
    spacing = min(length / n for length, n in zip(lengths, mesh, strict=True))
    return Electrostatics(mesh_sum(cutoff, tolerance, mesh, "pcs", max(STRAY, skin.skin / 2 / spacing)))
