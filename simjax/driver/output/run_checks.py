"""Checks of a finished run: the rows of the report's first table.

Each bound says what the scheme, its steps and the precision may do to a run that is right; what is wrong with the
equations, or with their sides, does more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

import jax.numpy as jnp
import numpy as np

from simjax.core.measure_checks import Conserved, Falling, PairMomentum, SmallDrift
from simjax.driver.programs.programs_of_run import CompiledParticleRun, CompiledRun
from simjax.io.run_numbers import RunNumbers
from simjax.models.capacities import bounds_of
from simjax.models.measures import measure_of
from simjax.report.check import ROUNDING, Check
from simjax.schema.config import Config
from simjax.status import OK, reasons

CheckKind = TypeVar("CheckKind", Conserved, Falling, PairMomentum, SmallDrift)

ENERGY_DRIFT = 0.01
"""Share of the kinetic energy: far more than a symplectic scheme makes with steps that resolve the motion."""
ROUNDINGS = 10
"""So many in a step, one on another."""
SPREADS = 6
"""Standard deviations of a sum of random roundings that are no accident."""


def check_run(config: Config, programs: CompiledRun, numbers: RunNumbers, statuses: np.ndarray) -> list[Check]:
    """One verdict for each property that this model must keep; `numbers` are those of the finished run."""
    lost = int(np.sum(statuses != OK))
    kept = "yes" if not lost else reasons(int(statuses[0]))
    if len(statuses) > 1:
        kept = f"{len(statuses) - lost} of {len(statuses)} members"
    checks = [Check(f"{programs.content.capitalize()} stayed finite", kept, "all", lost == 0)]
    if numbers.time.size < 1:
        return checks
    if isinstance(programs, CompiledParticleRun):
        return checks + _of_particles(config, programs, numbers)
    ends = [name.removesuffix(ROUNDING) for name in numbers.series if name.endswith(ROUNDING)]
    checks += [_vanishing(numbers, name) for name in ends if name in numbers]
    if "courant" in numbers:
        limit = programs.courant_limit
        largest = float(_greatest(numbers.series["courant"]))
        rounded = limit * (1 + ROUNDINGS * _precision(programs))
        checks.append(Check("Largest Courant number", f"{largest:.3g}", f"at most {limit:g}", largest <= rounded))
    for name in config.exact:
        error = numbers.series[f"error_{name}"][:, -1]
        checks.append(
            Check(
                f"Relative error of {name} at the end",
                f"{float(_greatest(error)):.2e}",
                "finite, against the exact formula",
                bool(np.all(np.isfinite(error))),
            )
        )
    if config.closure:  # what the model conserves or lets fall, a further term may change
        return checks
    falling = {name: by for name, *by in config.schema.claimed("falling", config)}
    falling |= {name: [check.rate] if check.rate else [] for name, check in _declared(programs, numbers, Falling)}
    conserved = {name: by for name, *by in config.schema.claimed("conserved", config)}
    conserved |= {name: [*check.measured_by] for name, check in _declared(programs, numbers, Conserved)}
    checks += [_falling(numbers, programs, name, *by) for name, by in falling.items()]
    checks += [_conserved(numbers, programs, name, *by) for name, by in conserved.items()]
    return checks


def _declared(programs: CompiledRun, numbers: RunNumbers, kind: type[CheckKind]) -> Iterator[tuple[str, CheckKind]]:
    """Recorded numbers for which the model declares such a check."""
    for name in numbers.series:
        measure = measure_of(programs.measures, name)
        if measure is not None and isinstance(measure.check, kind):
            yield name, measure.check


# ---------------------------------------------------------------------- particles


def _of_particles(config: Config, programs: CompiledParticleRun, numbers: RunNumbers) -> list[Check]:
    """Check that no particle is lost, and that what the model keeps steady stays so."""
    fewest, count = -float(_greatest(-numbers.series["particles"])), numbers.mass.size
    checks = [Check("Particles", f"{fewest:.0f}", f"{count}, none lost", fewest == count)]
    if numbers.time.size < 2:
        return checks
    for name, check in _declared(programs, numbers, SmallDrift):
        checks.append(_drift(config, programs, numbers, name, check))
    momenta = dict(_declared(programs, numbers, PairMomentum))
    if momenta:
        checks.append(_momentum(config, programs, numbers, [*momenta], next(iter(momenta.values()))))
    return checks


def _drift(config: Config, programs: CompiledParticleRun, numbers: RunNumbers, name: str, check: SmallDrift) -> Check:
    """Check the drift of an energy of each member, by the slope of a line through all frames.

    It may be a share of the kinetic energy, what steps and sums round of the energies, and what forces leave out; of
    motion that positions do not resolve, such as that of particles at rest, no share is known.
    """
    time, energy, kinetic = numbers.time, numbers.series[name], numbers.series[check.share_of]
    good, label = np.all(np.isfinite(energy), axis=-1), f"{_spoken(name)} drift"
    if not good.any():
        return Check(label, "not known", "at most 1 %", True)
    energy, kinetic = energy[good], kinetic[good]
    potential = energy - kinetic
    drifts = np.asarray([abs(np.polyfit(time, line, 1)[0]) for line in energy]) * float(time[-1] - time[0])
    moving = np.mean(kinetic, axis=-1)
    rounded = _rounding(programs, numbers) * np.max(kinetic + np.abs(potential), axis=-1)
    rounded += programs.family.energy_of_jumps(programs.parameters)
    allowed = ENERGY_DRIFT * moving + rounded + np.broadcast_to(_unresolved(config, programs, numbers), len(good))[good]
    worst = int(np.argmax(drifts / np.maximum(allowed, _LEAST)))
    share = 100 * drifts[worst] / max(float(moving[worst]), _LEAST)
    bound = 100 * float(allowed[worst] / max(float(moving[worst]), _LEAST))
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
    changes = np.max([_largest(p - p[:, :1]) for p in series], axis=0)
    kinetic = numbers.series[check.kinetic_energy]
    potential = numbers.series[check.energy] - kinetic if check.energy in numbers else np.zeros_like(kinetic)
    energy = np.nanmean(kinetic, axis=-1) + _largest(potential) + _unresolved(config, programs, numbers)
    shares = changes / np.maximum(np.sqrt(2 * energy * np.sum(numbers.mass)), _LEAST)
    tolerance, share = _rounding(programs, numbers), float(np.max(shares))
    expected = f"at most {tolerance:.1e} of that of all without their signs"
    return Check("Momentum is conserved", f"changed by {share:.1e}", expected, share <= tolerance)


def _unresolved(config: Config, programs: CompiledRun, numbers: RunNumbers) -> np.ndarray:
    """The kinetic energy of motion that rounding hides, by member: a particle moves less in a step than its place is
    rounded by."""
    bounds = bounds_of(config)
    longest = float(np.max(np.subtract(bounds.upper, bounds.lower)))
    step = float(numbers.time[-1] - numbers.time[0]) / _steps(numbers)
    return 0.5 * np.sum(numbers.mass) * (_precision(programs) * longest / max(step, _LEAST)) ** 2


# ---------------------------------------------------------------------- fields


def _vanishing(numbers: RunNumbers, name: str) -> Check:
    """Check that what the scheme makes vanish does so, to the roundings that the model tells of."""
    found, allowed = numbers.series[name], numbers.series[f"{name}{ROUNDING}"]
    # A step leaves its own roundings; the forces on it may differ from those at its end, which the frame has.
    found, allowed = _largest(found), _largest(allowed)
    worst = int(np.argmax(found / np.maximum(allowed, _LEAST)))
    largest, bound = float(found[worst]), float(allowed[worst])
    about = numbers.attributes.get(name, {})
    units, label = about.get("units", ""), str(about.get("long_name", _spoken(name)))
    expected = f"rounding: at most {bound:.1e}"
    return Check(label[:1].upper() + label[1:], f"{largest:.1e} {units}".strip(), expected, largest <= bound)


def _falling(numbers: RunNumbers, programs: CompiledRun, name: str, rate: str | None = None) -> Check:
    """Check that a quantity that can only fall does so.

    From frame to frame it may rise by roundings of its sum, of fields in 16 bits, and by the error of the steps. A
    scheme of order p turns a motion of rate w by exp(i w dt) but for (w dt)^(p+1) / (p+1)!, so that its energy may
    change by twice that; over all rates it is at most (r dt)^2 C^(p-1), as their mean square r^2 is twice the mean
    `rate`, and the largest w dt is about the Courant number C.
    """
    series = numbers.series[name]
    rise = np.diff(series, axis=-1, prepend=series[:, :1]) / np.maximum(_largest(series), _LEAST)[:, None]
    steps = np.diff(numbers.step, prepend=0.0)
    tolerance = 50 * _precision(programs) + np.zeros_like(series)
    stored = _stored(programs)
    if stored:  # squares gain what is random, and lose or gain by chance
        tolerance += steps * stored**2 + SPREADS * stored * np.sqrt(steps / programs.size)
    if rate is not None and programs.integrator is not None:
        order, length = programs.integrator.order, np.diff(numbers.time, prepend=numbers.time[0])
        square = 2 * np.fmax(numbers.series[rate], _before(numbers.series[rate]))
        dt = length / np.maximum(steps, 1)
        courant = numbers.series["courant"] if "courant" in numbers else np.full_like(series, programs.courant_limit)
        fastest = np.fmax(np.fmax(courant, _before(courant)), np.sqrt(square) * dt)
        tolerance += 2 / math.factorial(order + 1) * steps * square * dt**2 * fastest ** (order - 1)
    some = series[..., 0] > 0  # from nothing no share is left
    left = f"{100 * np.nanmean(series[some, -1] / series[some, 0]):.1f} % left, " if some.any() else ""
    excess = np.where(np.isfinite(rise), rise - tolerance, -np.inf)
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    found = f"{left}largest rise {max(float(np.nanmax(rise)), 0.0):.1e}"
    expected = f"rise at most {float(tolerance[worst]):.0e}"
    return Check(f"{_spoken(name)} never rises", found, expected, bool(excess[worst] <= 0))


def _conserved(numbers: RunNumbers, programs: CompiledRun, name: str, *scales: str) -> Check:
    """Check that a quantity stays constant: rounding adds up like a random walk over the steps.

    Fields in 16 bits are rounded at random, by half of a spacing in the mean square at most, each cell by itself.
    """
    values = numbers.series[name]
    size = max(float(_largest(numbers.series[scale]).max()) for scale in scales or (name,))
    with np.errstate(invalid="ignore"):  # of a member whose first value is infinite no change is left
        changes = values - values[:, :1]
    change = float(_largest(changes).max()) / max(size, _LEAST)
    tolerance = _rounding(programs, numbers)
    tolerance += SPREADS * _stored(programs) / 2 * (_steps(numbers) / programs.size) ** 0.5
    expected = f"at most {tolerance:.1e}"
    return Check(f"{_spoken(name)} is conserved", f"changed by {change:.1e}", expected, change <= tolerance)


# ---------------------------------------------------------------------- parts of bounds

_LEAST = 1e-300


def _greatest(values: np.ndarray) -> float:
    """The largest of those that are numbers; not a number where none is."""
    known = values[~np.isnan(values)]
    return float(np.max(known)) if known.size else math.nan


def _largest(series: np.ndarray) -> np.ndarray:
    """The largest size of each member at the frames that it reached."""
    return np.max(np.abs(np.where(np.isfinite(series), series, 0.0)), axis=-1)


def _before(series: np.ndarray) -> np.ndarray:
    """The values at the frame before each."""
    return np.concatenate([series[:, :1], series[:, :-1]], axis=-1)


def _steps(numbers: RunNumbers) -> int:
    return max(1, int(np.max(numbers.step)))


def _precision(programs: CompiledRun) -> float:
    return float(np.finfo(programs.dtype).eps)


def _stored(programs: CompiledRun) -> float:
    """The spacing of numbers at one in which fields are kept between steps, where that is in 16 bits; else zero."""
    storage = programs.config.storage
    return 0.0 if storage is None else float(jnp.finfo(storage.dtype).eps)


def _rounding(programs: CompiledRun, numbers: RunNumbers) -> float:
    """Accumulated rounding of a number of size one, a random walk over all steps."""
    return ROUNDINGS * _precision(programs) * _steps(numbers) ** 0.5


def _spoken(name: str) -> str:
    return name.replace("_", " ").capitalize()
