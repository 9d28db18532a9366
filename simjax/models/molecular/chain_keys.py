"""What chains of molecular dynamics go with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simjax.schema.particles import left_over

OF_BONDS = {
    "none": (),
    "fene": ("bond_stiffness", "bond_extension"),
    "harmonic": ("bond_stiffness", "bond_rest_length"),
}
OF_ANGLES = {"none": (), "bending": ("angle_stiffness",), "harmonic": ("angle_stiffness", "rest_angle")}
LONGEST = 1.5  # of harmonic bonds, in rest lengths


def longest_bond(physics: Any) -> float:
    """How long a bond may be, so that its ends are in neighbouring cells: 0 without bonds."""
    return {"none": 0.0, "fene": physics.bond_extension, "harmonic": LONGEST * physics.bond_rest_length}[physics.bond]


def natural_bond(physics: Any) -> float:
    """About the length at which a bond is at rest; of fene with the usual numbers it is 0.96."""
    return physics.bond_rest_length if physics.bond == "harmonic" else physics.bond_extension / 1.5


def check_chains(config: Any, mixed: bool) -> Iterator[tuple[str, str]]:
    """Sentences about bonds and angles. mixed: whether the potential is of pairs with epsilon and sigma."""
    physics, length, skin = config.physics, config.particles.chain_length, config.arrangement.skin
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
            f"physics.angle = {physics.angle}: expected chains of 3 particles or more, particles.chain_length = "
            f"{_null(length)} came; write angle=none",
        )
    fene = physics.bond == "fene"
    if (fene and not mixed) or (bonded and physics.potential == "stillinger_weber"):
        yield (
            "physics.bond",
            f"physics.bond = {physics.bond}: expected a potential of pairs{' with epsilon and sigma' if fene else ''}, "
            f"{physics.potential} came; write lennard_jones or weeks_chandler_andersen",
        )
    if bonded and config.arrangement.rows == 0:
        yield (
            "arrangement.rows",
            "arrangement.rows = 0: expected null or more, bonded particles are left out of lists of partners",
        )
    longest = longest_bond(physics)
    if skin is not None and longest > physics.cutoff + skin:
        yield (
            "arrangement.skin",
            f"arrangement.skin = {skin:g}: bonds of up to {longest:g} are looked for within physics.cutoff and skin; "
            f"write {longest - physics.cutoff:g} or more, or null",
        )
    for axis, (a, b, closed) in enumerate(zip(config.box.lower, config.box.upper, config.box.periodic, strict=True)):
        if closed and b - a < 2 * longest:
            path = f"box.upper[{axis}]"
            yield path, f"{path} = {b:g}: expected a box of at least {2 * longest:g}, twice the length of a bond"


def _null(value: Any) -> str:
    return "null" if value is None else str(value)
