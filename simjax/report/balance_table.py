"""A table of a run's balances: what was in at the start, what entered, what was made and what is in now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from simjax.io.read import open_output, output_names
from simjax.io.readable import readable
from simjax.report import html
from simjax.report.scalars import units_of

if TYPE_CHECKING:
    import xarray as xr


def balance_tables(folder: Path) -> Iterator[str]:
    """An HTML table of each output with balances, of the first member."""
    for output in output_names(folder):
        with open_output(folder, output) as opened:
            dataset = readable(opened)
            quantities = balanced_quantities(dataset)
            if not quantities or not dataset.sizes["time"]:
                continue
            if "member" in dataset.dims:
                dataset = dataset.isel(member=0)
            rows, parts = [], _parts(dataset, quantities)
            for name in quantities:
                last = (dataset.get(f"{name}_{part}") for part in parts)
                numbers = ["" if value is None else f"{float(value[-1]):.5g}" for value in last]
                rows.append(html.text_row((f"{name} [{units_of(dataset, f'{name}_now')}]", *numbers)))
            yield html.table((output, *(part.replace("_", " ") for part in parts)), rows)


def balanced_quantities(dataset: xr.Dataset) -> list[str]:
    """Names of the quantities of which a dataset has balances."""
    names = [str(name).removesuffix("_residual") for name in dataset.data_vars if str(name).endswith("_residual")]
    return [name for name in names if f"{name}_at_start" in dataset and f"{name}_now" in dataset]


def _parts(dataset: xr.Dataset, names: list[str]) -> list[str]:
    """Names of the numbers of all quantities, in the order in which they are added up."""
    own = {
        key.removeprefix(f"{name}_")
        for name in names
        for key in map(str, dataset.data_vars)
        if key.startswith(f"{name}_")
    }
    sides, made = (sorted(part for part in own if part.startswith(start)) for start in ("in_", "made"))
    return ["at_start", *sides, *made, "now", "residual"]
