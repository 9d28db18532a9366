"""What a run must have kept, judged after it: the rows of the report's first table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simjax.config import Config
from simjax.core.status import OK, reasons
from simjax.io.report import Verdict
from simjax.programs import Programs

if TYPE_CHECKING:
    import xarray


def judge(config: Config, programs: Programs, dataset: xarray.Dataset, statuses: np.ndarray) -> list[Verdict]:
    """One verdict for each property that this model must keep; `dataset` is the finished run."""
    lost = int(np.sum(statuses != OK))
    kept = "yes" if not lost else reasons(int(statuses[0]))
    if len(statuses) > 1:
        kept = f"{len(statuses) - lost} of {len(statuses)} members"
    verdicts = [Verdict("Fields stayed finite", kept, "all", lost == 0)]
    if dataset.sizes.get("time", 0) < 1:
        return verdicts
    if "max_divergence" in dataset:
        verdicts.append(_divergence(programs, dataset))
    if "courant" in dataset:
        limit = programs.integrator.courant_limit
        largest = float(dataset["courant"].max())
        verdicts.append(Verdict("Largest Courant number", f"{largest:.3g}", f"at most {limit:g}", largest <= limit))
    for name in config.exact:
        error = dataset[f"error_{name}"].isel(time=-1)
        verdicts.append(
            Verdict(
                f"Relative error of {name} at the end", f"{float(error.max()):.2e}",
                "finite, against the exact formula", bool(np.all(np.isfinite(error))),
            )
        )  # fmt: skip
    if "kinetic_energy" in dataset and not config.forcing and _walls_at_rest(config):
        verdicts.append(_decay(dataset["kinetic_energy"], programs))
    if "mean_concentration" in dataset and all(axis.periodic for axis in config.boundaries):
        verdicts.append(_conserved(dataset["mean_concentration"], dataset["maximum_concentration"], programs))
    return verdicts


def _divergence(programs: Programs, dataset: xarray.Dataset) -> Verdict:
    """Divergence is a difference of velocities over the spacing: rounding of the projection's transforms allows
    some tens of units in the last place of the largest velocity, over the smallest spacing."""
    speed = float(np.sqrt(2 * dataset["kinetic_energy"].max())) + 1e-30
    rounding = float(np.finfo(programs.dtype).eps) * speed / min(programs.grid.spacing)
    largest = float(dataset["max_divergence"].max())
    return Verdict(
        "Largest divergence",
        f"{largest:.1e} 1/s",
        f"rounding: at most {100 * rounding:.1e}",
        largest <= 100 * rounding,
    )


def _walls_at_rest(config: Config) -> bool:
    """Whether no wall moves and nothing flows in, so that nothing feeds energy."""
    walls = [wall for axis in config.boundaries for wall in (axis.lower, axis.upper)]
    return all(value.constant == 0 for wall in walls for value in wall.values)


def _decay(energy: xarray.DataArray, programs: Programs) -> Verdict:
    """Without forcing, kinetic energy can only fall (to the rounding of its sum)."""
    values = energy.values
    rise = float(np.nanmax(np.diff(values, axis=-1), initial=0.0)) / max(float(np.nanmax(values)), 1e-30)
    tolerance = 50 * float(np.finfo(programs.dtype).eps)
    share = float(np.nanmean(values[..., -1] / values[..., 0]))
    found = f"{100 * share:.1f} % left, largest rise {rise:.1e}"
    return Verdict("Kinetic energy never rises", found, f"rise at most {tolerance:.0e}", rise <= tolerance)


def _conserved(mean: xarray.DataArray, largest: xarray.DataArray, programs: Programs) -> Verdict:
    """In a periodic box the mean of a scalar is constant: rounding adds up like a random walk over the steps."""
    change = float(np.nanmax(np.abs(mean - mean.isel(time=0)))) / max(float(np.nanmax(np.abs(largest))), 1e-30)
    steps = max(1, int(mean["step"].max())) if "step" in mean.coords else 1
    tolerance = 10 * float(np.finfo(programs.dtype).eps) * steps**0.5
    expected = f"at most {tolerance:.1e}"
    return Verdict("Mean concentration is conserved", f"changed by {change:.1e}", expected, change <= tolerance)
