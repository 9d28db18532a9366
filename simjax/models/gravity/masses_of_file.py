"""Masses of a file: places, velocities and masses as the configuration has a place for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from simjax.io.particle_contents import GROUPS, refuse
from simjax.io.particle_files import read_particles
from simjax.models.capacities import bounds_of
from simjax.models.particles_of_file import (
    Difference,
    box_differences,
    require_inside,
    require_masses,
    require_same,
    same,
)
from simjax.models.placement import Start
from simjax.schema.config import Config


def start_from_file(config: Config) -> Start:
    """The particles of `particles.file`: `thrown`, the velocities of the file, and `share` of the total mass of each.

    Raises:
        ConfigurationError: the file and the configuration differ, or it holds what masses do not have.
        InputOutputError: the file cannot be read.
    """
    assert config.particles is not None and config.particles.file is not None
    file = config.particles.file
    found = read_particles(file, config.ndim)
    said = found.arrays
    charges = int(np.count_nonzero(said.get("charge", 0)))
    refuse(Path(file), {**{name: len(said.get(name, ())) for name in GROUPS}, "charges": charges})
    differences, others = list(box_differences(config, found)), {}
    if "mass" in said:
        require_masses(file, said["mass"])
        total, here = said["mass"].sum(), config.physics.total_mass
        if not same(here, total):
            differences.append(
                Difference("physics.total_mass", f"{here:.9g}", f"{total:.9g}", f"physics.total_mass={total:.9g}")
            )
        others["share"] = said["mass"] / total
    if "velocity" in said:
        others["thrown"] = said["velocity"].T
    require_same(file, differences)
    require_inside(file, bounds_of(config), said["position"].T)
    return Start(said["position"].T, np.zeros(len(said["position"]), np.int32), others, found.notes)
