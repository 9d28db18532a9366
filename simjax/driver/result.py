"""The outcome of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass
class Result:
    """The outcome of a run: its folder, the exit code (0 done, 75 stopped and resumable), and a sentence."""

    folder: Path
    exit_code: int
    message: str
    statuses: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    failed_checks: tuple[str, ...] = ()  # a sentence for each property that it must have kept and did not
    _dataset: Any = None
    # The last frame with all of its variables, kept where none were written.
    _last_frame: Callable[[], xarray.Dataset] | None = dataclasses.field(default=None, kw_only=True, repr=False)

    @property
    def ds(self) -> xarray.Dataset:
        """Fields, diagnostics and parameters, as an xarray Dataset read on demand.

        Of a run that writes no fields (`output=none`), the fields are those of the last frame, without the dimension
        of time. They are kept in memory only.
        """
        if self._dataset is None:
            from simjax.io.read import open_run

            dataset = open_run(self.folder)
            if self._last_frame is not None:
                last = self._last_frame().isel(time=-1, drop=True)
                dataset = dataset.assign({name: u for name, u in last.items() if name not in dataset})
            self._dataset = dataset
        return self._dataset
