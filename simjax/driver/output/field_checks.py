"""Checks of a finished run of fields: what vanishes, what falls, what is conserved, and errors against formulas."""

from __future__ import annotations

import math

import numpy as np

from simjax.core.measure_checks import Conserved, Falling
from simjax.driver.output.check_bounds import (
    LEAST,
    ROUNDINGS,
    SPREADS,
    declared,
    greatest,
    largest_sizes,
    precision_of,
    rounding_of,
    spoken,
    steps_of,
    stored_spacing,
    values_before,
)
from simjax.driver.programs.compiled_run import CompiledRun
from simjax.io.run_numbers import RunNumbers
from simjax.report.check import ROUNDING, Check
from simjax.schema.config import Config


def field_checks(config: Config, programs: CompiledRun, numbers: RunNumbers) -> list[Check]:
    """Check what the scheme makes vanish, the length of steps, and what the model conserves or lets fall."""
    ends = [name.removesuffix(ROUNDING) for name in numbers.series if name.endswith(ROUNDING)]
    checks = [_vanishing(numbers, name) for name in ends if name in numbers]
    if "courant" in numbers:
        limit = programs.courant_limit
        largest = float(greatest(numbers.series["courant"]))
        rounded = limit * (1 + ROUNDINGS * precision_of(programs))
        checks.append(Check("Largest Courant number", f"{largest:.3g}", f"at most {limit:g}", largest <= rounded))
    for name in config.exact:
        error = numbers.series[f"error_{name}"][:, -1]
        checks.append(
            Check(
                f"Relative error of {name} at the end",
                f"{float(greatest(error)):.2e}",
                "finite, against the exact formula",
                bool(np.all(np.isfinite(error))),
            )
        )
    if config.closure or config.sponge:  # what the model conserves or lets fall, a further term may change
        return checks
    falling = {name: by for name, *by in config.schema.claimed("falling", config)}
    falling |= {name: [check.rate] if check.rate else [] for name, check in declared(programs, numbers, Falling)}
    conserved = {name: by for name, *by in config.schema.claimed("conserved", config)}
    conserved |= {name: [*check.measured_by] for name, check in declared(programs, numbers, Conserved)}
    checks += [_falling(numbers, programs, name, *by) for name, by in falling.items()]
    checks += [_conserved(numbers, programs, name, *by) for name, by in conserved.items()]
    return checks


def _vanishing(numbers: RunNumbers, name: str) -> Check:
    """Check that what the scheme makes vanish does so, to the roundings that the model tells of."""
    found, allowed = numbers.series[name], numbers.series[f"{name}{ROUNDING}"]
    # A step leaves its own roundings; the forces on it may differ from those at its end, which the frame has.
    found, allowed = largest_sizes(found), largest_sizes(allowed)
    worst = int(np.argmax(found / np.maximum(allowed, LEAST)))
    largest, bound = float(found[worst]), float(allowed[worst])
    about = numbers.attributes.get(name, {})
    units, label = about.get("units", ""), str(about.get("long_name", spoken(name)))
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
    rise = np.diff(series, axis=-1, prepend=series[:, :1]) / np.maximum(largest_sizes(series), LEAST)[:, None]
    steps = np.diff(numbers.step, prepend=0.0)
    tolerance = 50 * precision_of(programs) + np.zeros_like(series)
    stored = stored_spacing(programs)
    if stored:  # squares gain what is random, and lose or gain by chance
        tolerance += steps * stored**2 + SPREADS * stored * np.sqrt(steps / programs.size)
    if rate is not None and programs.integrator is not None:
        order, length = programs.integrator.order, np.diff(numbers.time, prepend=numbers.time[0])
        square = 2 * np.fmax(numbers.series[rate], values_before(numbers.series[rate]))
        dt = length / np.maximum(steps, 1)
        courant = numbers.series["courant"] if "courant" in numbers else np.full_like(series, programs.courant_limit)
        fastest = np.fmax(np.fmax(courant, values_before(courant)), np.sqrt(square) * dt)
        tolerance += 2 / math.factorial(order + 1) * steps * square * dt**2 * fastest ** (order - 1)
    some = series[..., 0] > 0  # from nothing no share is left
    left = f"{100 * np.nanmean(series[some, -1] / series[some, 0]):.1f} % left, " if some.any() else ""
    excess = np.where(np.isfinite(rise), rise - tolerance, -np.inf)
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    found = f"{left}largest rise {max(float(np.nanmax(rise)), 0.0):.1e}"
    expected = f"rise at most {float(tolerance[worst]):.0e}"
    return Check(f"{spoken(name)} never rises", found, expected, bool(excess[worst] <= 0))


def _conserved(numbers: RunNumbers, programs: CompiledRun, name: str, *scales: str) -> Check:
    """Check that a quantity stays constant: rounding adds up like a random walk over the steps.

    Fields in 16 bits are rounded at random, by half of a spacing in the mean square at most, each cell by itself.
    """
    values = numbers.series[name]
    size = max(float(largest_sizes(numbers.series[scale]).max()) for scale in scales or (name,))
    with np.errstate(invalid="ignore"):  # of a member whose first value is infinite no change is left
        changes = values - values[:, :1]
    change = float(largest_sizes(changes).max()) / max(size, LEAST)
    tolerance = rounding_of(programs, numbers)
    tolerance += SPREADS * stored_spacing(programs) / 2 * (steps_of(numbers) / programs.size) ** 0.5
    expected = f"at most {tolerance:.1e}"
    return Check(f"{spoken(name)} is conserved", f"changed by {change:.1e}", expected, change <= tolerance)
