"""Checks of a finished run: the rows of the report's first table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simjax.driver.compiled_run import CompiledFieldRun, CompiledRun
from simjax.report.check import Check
from simjax.schema.config import Config
from simjax.status import OK, reasons

if TYPE_CHECKING:
    import xarray

ENERGY_DRIFT = 0.01


def check_run(config: Config, programs: CompiledRun, dataset: xarray.Dataset, statuses: np.ndarray) -> list[Check]:
    """One verdict for each property that this model must keep; `dataset` is the finished run."""
    lost = int(np.sum(statuses != OK))
    of_particles = config.schema.of_particles
    kept = "yes" if not lost else reasons(int(statuses[0]))
    if len(statuses) > 1:
        kept = f"{len(statuses) - lost} of {len(statuses)} members"
    checks = [Check(f"{'Particles' if of_particles else 'Fields'} stayed finite", kept, "all", lost == 0)]
    if dataset.sizes.get("time", 0) < 1:
        return checks
    if of_particles:
        return checks + _of_particles(config, programs, dataset)
    if "max_divergence" in dataset and isinstance(programs, CompiledFieldRun):
        checks.append(_divergence(programs, dataset))
    if "courant" in dataset:
        limit = programs.courant_limit
        largest = float(dataset["courant"].max())
        checks.append(Check("Largest Courant number", f"{largest:.3g}", f"at most {limit:g}", largest <= limit))
    for name in config.exact:
        error = dataset[f"error_{name}"].isel(time=-1)
        checks.append(
            Check(
                f"Relative error of {name} at the end", f"{float(error.max()):.2e}",
                "finite, against the exact formula", bool(np.all(np.isfinite(error))),
            )
        )  # fmt: skip
    if config.closure:  # what the model conserves or lets fall, a further term may change
        return checks
    checks += [_falling(dataset[name], programs) for name in config.schema.falling(config)]
    for name, scale in config.schema.conserved(config):
        checks.append(_conserved(dataset[name], dataset[scale], programs))
    return checks


def _of_particles(config: Config, programs: CompiledRun, dataset: xarray.Dataset) -> list[Check]:
    """Check that no particle is lost, and that what the model keeps steady stays so."""
    fewest, count = float(dataset["particles"].min()), dataset.sizes["particle"]
    checks = [Check("Particles", f"{fewest:.0f}", f"{count}, none lost", fewest == count)]
    steady = config.schema.steady(config)
    if dataset.sizes["time"] < 2:
        return checks
    kinetic = float(np.nanmean(dataset["kinetic_energy"])) or 1.0
    if "energy" in steady:
        checks.append(_drift(dataset, kinetic))
    if "momentum" in steady:
        checks.append(_momentum(programs, dataset, kinetic))
    return checks


def _drift(dataset: xarray.Dataset, kinetic: float) -> Check:
    """Check the drift of the energy, by the slope of a line through all frames."""
    time, energy = dataset["time"].values, np.atleast_2d(dataset["energy"].values)
    slopes = [np.polyfit(time, line, 1)[0] for line in energy if np.all(np.isfinite(line))]
    drift = float(np.max(np.abs(slopes), initial=0.0)) * float(time[-1] - time[0]) / kinetic
    return Check("Energy drift", f"{100 * drift:.2g} % of the kinetic energy", "at most 1 %", drift <= ENERGY_DRIFT)


def _momentum(programs: CompiledRun, dataset: xarray.Dataset, kinetic: float) -> Check:
    """Check that momentum stays constant: steps round forces through periodic sides at random, on one end of a pair."""
    names = [name for name in dataset.data_vars if str(name).startswith("momentum_")]
    change = max(float(np.nanmax(np.abs(dataset[name] - dataset[name].isel(time=0)))) for name in names)
    mass = float(dataset["mass"].sum())
    share = change / max((2 * kinetic * mass) ** 0.5, 1e-30)
    steps = max(1, int(dataset["step"].max()))
    tolerance = 10 * float(np.finfo(programs.dtype).eps) * steps**0.5
    expected = f"at most {tolerance:.1e} of that of all without their signs"
    return Check("Momentum is conserved", f"changed by {share:.1e}", expected, share <= tolerance)


def _divergence(programs: CompiledFieldRun, dataset: xarray.Dataset) -> Check:
    """Check that the divergence vanishes to rounding.

    It is a difference of velocities over the spacing: the projection's transforms leave some tens of units in the last
    place of the largest velocity, over the smallest width.
    """
    speed = float(np.sqrt(2 * dataset["kinetic_energy"].max())) + 1e-30
    narrowest = min(float(np.min(programs.grid.widths(axis))) for axis in range(programs.grid.ndim))
    rounding = float(np.finfo(programs.dtype).eps) * speed / narrowest
    largest = float(dataset["max_divergence"].max())
    return Check(
        "Largest divergence",
        f"{largest:.1e} 1/s",
        f"rounding: at most {100 * rounding:.1e}",
        largest <= 100 * rounding,
    )


def _falling(values: xarray.DataArray, programs: CompiledRun) -> Check:
    """Check that a quantity that can only fall does so, to the rounding of its sum."""
    series = values.values
    rise = float(np.nanmax(np.diff(series, axis=-1), initial=0.0)) / max(float(np.nanmax(series)), 1e-30)
    tolerance = 50 * float(np.finfo(programs.dtype).eps)
    some = series[..., 0] > 0  # from nothing no share is left
    left = f"{100 * np.nanmean(series[some, -1] / series[some, 0]):.1f} % left, " if some.any() else ""
    found = f"{left}largest rise {rise:.1e}"
    return Check(f"{_spoken(values)} never rises", found, f"rise at most {tolerance:.0e}", rise <= tolerance)


def _conserved(values: xarray.DataArray, scale: xarray.DataArray, programs: CompiledRun) -> Check:
    """Check that a conserved quantity stays constant: rounding adds up like a random walk over the steps."""
    change = float(np.nanmax(np.abs(values - values.isel(time=0)))) / max(float(np.nanmax(np.abs(scale))), 1e-30)
    steps = max(1, int(values["step"].max())) if "step" in values.coords else 1
    tolerance = 10 * float(np.finfo(programs.dtype).eps) * steps**0.5
    expected = f"at most {tolerance:.1e}"
    return Check(f"{_spoken(values)} is conserved", f"changed by {change:.1e}", expected, change <= tolerance)


def _spoken(values: xarray.DataArray) -> str:
    return str(values.name).replace("_", " ").capitalize()
