"""What charges of molecular dynamics go with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

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
            f"summed, box.periodic={[str(p).lower() for p in box.periodic]} came; write physics.charge=null, or "
            "potential=yukawa for screened ones".replace("'", ""),
        )


def left_over(physics: Any, names: tuple[str, ...], why: str) -> Iterator[tuple[str, str]]:
    """A sentence about each key that is given although nothing takes it."""
    defaults = {field.name: field.default for field in dataclasses.fields(physics)}
    for name in names:
        value = getattr(physics, name)
        if value != defaults[name]:
            said = str(value).lower() if isinstance(value, bool) else value
            yield f"physics.{name}", f"physics.{name} = {said}: {why}, or leave it out"
