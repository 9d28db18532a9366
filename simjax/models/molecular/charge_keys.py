"""What charges of molecular dynamics go with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
            f"summed, box.periodic={[str(p).lower() for p in box.periodic]} came; write physics.charge=null, or "
            "potential=yukawa for screened ones".replace("'", ""),
        )
