"""The Lennard-Jones liquid by OpenMM, single precision on a GPU; nanometres, kJ/mol and atomic masses are ones."""

from __future__ import annotations

import openmm

from benchmarks.contest import Program, serve


def build(physics, start) -> Program:
    count, box = len(start["position"]), float(physics["box"])
    system, pairs = openmm.System(), openmm.NonbondedForce()
    system.setDefaultPeriodicBoxVectors(*(openmm.Vec3(*(box * (i == j) for j in range(3))) for i in range(3)))
    pairs.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
    pairs.setCutoffDistance(physics["cutoff"])
    pairs.setUseDispersionCorrection(False)
    for _ in range(count):
        system.addParticle(1.0)
        pairs.addParticle(0.0, 1.0, 1.0)
    system.addForce(pairs)
    names = [openmm.Platform.getPlatform(place).getName() for place in range(openmm.Platform.getNumPlatforms())]
    fast = next(name for name in ("CUDA", "OpenCL", "CPU", "Reference") if name in names)
    precision = {"Precision": "single"} if fast in ("CUDA", "OpenCL") else {}
    integrator = openmm.VerletIntegrator(physics["dt"])
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName(fast), precision)
    context.setPositions(start["position"].tolist())
    context.setVelocities(start["velocity"].tolist())

    def energies() -> tuple[float, float]:
        state = context.getState(energy=True)
        of_kind = state.getPotentialEnergy(), state.getKineticEnergy()
        potential, kinetic = (energy.value_in_unit(openmm.unit.kilojoule_per_mole) for energy in of_kind)
        return potential, kinetic

    at_start = energies()[0] / count

    def advance() -> None:
        integrator.step(physics["steps"])
        # Asks for the end: steps are launched without waiting.
        energies()

    def result():
        return {"potential_energy_at_start": at_start, "temperature": 2 * energies()[1] / (3 * count)}

    return Program(advance, result, figures={"version": openmm.__version__, "platform": fast})


if __name__ == "__main__":
    serve(build)
