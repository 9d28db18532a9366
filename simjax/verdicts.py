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
    if config.closure:  # what the model conserves or lets fall, a further term may change
        return verdicts
    verdicts += [_falling(dataset[name], programs) for name in config.schema.falling(config)]
    for name, scale in config.schema.conserved(config):
        verdicts.append(_conserved(dataset[name], dataset[scale], programs))
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


def _falling(values: xarray.DataArray, programs: Programs) -> Verdict:
    """What can only fall does so to the rounding of its sum."""
    series = values.values
    rise = float(np.nanmax(np.diff(series, axis=-1), initial=0.0)) / max(float(np.nanmax(series)), 1e-30)
    tolerance = 50 * float(np.finfo(programs.dtype).eps)
    share = float(np.nanmean(series[..., -1] / series[..., 0]))
    found = f"{100 * share:.1f} % left, largest rise {rise:.1e}"
    return Verdict(f"{_spoken(values)} never rises", found, f"rise at most {tolerance:.0e}", rise <= tolerance)


def _conserved(values: xarray.DataArray, scale: xarray.DataArray, programs: Programs) -> Verdict:
    """What is conserved stays constant: rounding adds up like a random walk over the steps."""
    change = float(np.nanmax(np.abs(values - values.isel(time=0)))) / max(float(np.nanmax(np.abs(scale))), 1e-30)
    steps = max(1, int(values["step"].max())) if "step" in values.coords else 1
    tolerance = 10 * float(np.finfo(programs.dtype).eps) * steps**0.5
    expected = f"at most {tolerance:.1e}"
    return Verdict(f"{_spoken(values)} is conserved", f"changed by {change:.1e}", expected, change <= tolerance)


def _spoken(values: xarray.DataArray) -> str:
    return str(values.name).replace("_", " ").capitalize()
