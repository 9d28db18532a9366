"""Checks of a finished run of particles: none is lost, and energy and momentum stay as far as they must."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simjax.core.measure_checks import PairMomentum, SmallDrift
from simjax.driver.output.check_bounds import (
    LEAST,
    declared,
    greatest,
    largest_sizes,
    precision_of,
    rounding_of,
    spoken,
    steps_of,
)
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.programs.programs_of_particles import CompiledParticles
from simjax.io.run_numbers import RunNumbers
from simjax.models.capacities import bounds_of
from simjax.report.check import Check
from simjax.schema.config import Config

ENERGY_DRIFT = 0.01
"""Share of the kinetic energy: far more than a symplectic scheme makes with steps that resolve the motion."""


def particle_checks(config: Config, programs: CompiledParticles, numbers: RunNumbers) -> list[Check]:
    """Check that no particle is lost, and that what the model keeps steady stays so."""
    fewest, count = -float(greatest(-numbers.series["particles"])), numbers.mass.size
    checks = [Check("Particles", f"{fewest:.0f}", f"{count}, none lost", fewest == count)]
    if numbers.time.size < 2:
        return checks
    for name, check in declared(programs, numbers, SmallDrift):
        checks.append(_drift(config, programs, numbers, name, check))
    momenta = dict(declared(programs, numbers, PairMomentum))
    if momenta:
        checks.append(_momentum(config, programs, numbers, [*momenta], next(iter(momenta.values()))))
    return checks


def _drift(config: Config, programs: CompiledParticles, numbers: RunNumbers, name: str, check: SmallDrift) -> Check:
    """Check the drift of an energy of each member, by the slope of a line through all frames.

    It may be a share of the kinetic energy, what steps and sums round of the energies, and what forces leave out; of
    motion that positions do not resolve, such as that of particles at rest, no share is known.
    """
    time, energy, kinetic = numbers.time, numbers.series[name], numbers.series[check.share_of]
    good, label = np.all(np.isfinite(energy), axis=-1), f"{spoken(name)} drift"
    if not good.any():
        return Check(label, "not known", "at most 1 %", True)
    energy, kinetic = energy[good], kinetic[good]
    potential = energy - kinetic
    drifts = np.asarray([abs(np.polyfit(time, line, 1)[0]) for line in energy]) * float(time[-1] - time[0])
    moving = np.mean(kinetic, axis=-1)
    rounded = rounding_of(programs, numbers) * np.max(kinetic + np.abs(potential), axis=-1)
    rounded += programs.family.energy_of_jumps(programs.parameters)
    allowed = ENERGY_DRIFT * moving + rounded + np.broadcast_to(_unresolved(config, programs, numbers), len(good))[good]
    worst = int(np.argmax(drifts / np.maximum(allowed, LEAST)))
    share = 100 * drifts[worst] / max(float(moving[worst]), LEAST)
    bound = 100 * float(allowed[worst] / max(float(moving[worst]), LEAST))
    return Check(
        label,
        f"{share:.2g} % of the {check.share_of.replace('_', ' ')}",
        f"at most {bound:.2g} %",
        bool(drifts[worst] <= allowed[worst]),
    )


def _momentum(
    config: Config, programs: CompiledRun, numbers: RunNumbers, names: Sequence[str], check: PairMomentum
) -> Check:
    """Check that momentum stays constant: steps round forces through periodic sides at random, on one end of a pair.

    It is measured by that of all particles without their signs, and by what forces give in a step: a stable one
    (omega dt < 1) gives a particle no more than the momentum that its potential energy would.
    """
    series = [numbers.series[name] for name in names]
    changes = np.max([largest_sizes(p - p[:, :1]) for p in series], axis=0)
    kinetic = numbers.series[check.kinetic_energy]
    potential = numbers.series[check.energy] - kinetic if check.energy in numbers else np.zeros_like(kinetic)
    energy = np.nanmean(kinetic, axis=-1) + largest_sizes(potential) + _unresolved(config, programs, numbers)
    shares = changes / np.maximum(np.sqrt(2 * energy * np.sum(numbers.mass)), LEAST)
    tolerance, share = rounding_of(programs, numbers), float(np.max(shares))
    expected = f"at most {tolerance:.1e} of that of all without their signs"
    return Check("Momentum is conserved", f"changed by {share:.1e}", expected, share <= tolerance)


def _unresolved(config: Config, programs: CompiledRun, numbers: RunNumbers) -> np.ndarray:
    """The kinetic energy of motion that rounding hides, by member: a particle moves less in a step than its place is
    rounded by."""
    bounds = bounds_of(config)
    longest = float(np.max(np.subtract(bounds.upper, bounds.lower)))
    step = float(numbers.time[-1] - numbers.time[0]) / steps_of(numbers)
    return 0.5 * np.sum(numbers.mass) * (precision_of(programs) * longest / max(step, LEAST)) ** 2
