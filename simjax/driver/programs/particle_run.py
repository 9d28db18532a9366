"""The compiled functions of a run of particles, with what is said and written of it."""

import numpy as np

from simjax.driver.loop import particle_faults
from simjax.driver.output.particle_checks import particle_checks
from simjax.driver.output.run_scene import scene_of_particles
from simjax.driver.programs.programs_of_particles import CompiledParticles
from simjax.driver.programs.programs_of_statistics import statistic_of_quantities
from simjax.grid import AXES
from simjax.io.particle_output import ParticleWriter


class CompiledParticleRun(CompiledParticles):
    """A run of particles in a box: its programs, and what is said and written of it."""

    def refuse_start(self, state):
        particle_faults.refuse_start(self, state)

    def first_fault(self, state, clock, schedule, steps):
        return particle_faults.first_fault(self, state, clock, schedule, steps)

    def checks(self, config, numbers):
        return particle_checks(config, self, numbers)

    def writer(self, folder, config, options):
        family, start = self.family, self.start_of
        bounds, charge = family.bounds, family.charge(start)
        chosen = np.arange(start.count) if self.written is None else self.written
        return ParticleWriter(
            folder,
            lower=bounds.lower,
            upper=bounds.upper,
            periodic=bounds.periodic,
            names=self.names,
            scalars=family.scalars,
            numbers=chosen,
            of=start.count,
            species=start.species[chosen],
            species_names=family.species,
            mass=family.mass(start)[chosen],
            charge=None if charge is None else charge[chosen],
            **options,
        )

    def scene(self):
        return scene_of_particles(self)

    def statistic(self, source):
        return statistic_of_quantities(source, self)

    def components_of(self, path, count):
        name = path.split(".", 1)[1]
        return tuple(f"{name}_{axis}" for axis in AXES[: self.config.ndim]), "1", ()
