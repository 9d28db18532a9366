"""The outcome of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simjax.driver.programs.programs_of_run import compiled_run
from simjax.errors import ConfigurationError
from simjax.notebook import card, line
from simjax.processes import processes
from simjax.report.scene import NOWHERE, Scene
from simjax.schema.config import Config

if TYPE_CHECKING:
    import xarray

    from simjax.report.picture import Picture


@dataclasses.dataclass(repr=False)
class Result:
    """The outcome of a run.

    folder: where its files are. exit_code: 0 done, 75 stopped and resumable. message: one sentence about it. statuses:
    `(members,)` bits of `simjax.reasons`, 0 for a member that went well. failed_checks: a sentence for each property
    that the run must have kept and did not. start_changes: what the model changed of the start, by path: of a field the
    relative L2 norm of the change, the largest of all members, of particles the number that was wrapped. `ds` is an
    xarray Dataset of everything that was written.

    Examples:
        >>> result = sj.load("sod", ["grid.shape=[32]", "output.report=false", "output.animation=false"]).run()
        >>> result.exit_code, result.failed_checks, result.ds.density.dims
        (0, (), ('time', 'x'))
    """

    folder: Path
    exit_code: int
    message: str
    statuses: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    failed_checks: tuple[str, ...] = ()  # a sentence for each property that it must have kept and did not
    start_changes: Mapping[str, float] = dataclasses.field(default_factory=dict)
    _dataset: Any = None
    _config: Config | None = dataclasses.field(default=None, kw_only=True)
    # The last frame with all of its variables, kept where none were written.
    _last_frame: Callable[[], xarray.Dataset] | None = dataclasses.field(default=None, kw_only=True)

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

    def plot(self) -> Picture:
        """The run as one picture: fields at several times, diagnostics below; a notebook shows it.

        `result.plot().save("run.png")` writes it to a file.
        """
        from simjax.report.picture import Picture
        from simjax.report.summary import write_summary

        return Picture.drawn(lambda path: write_summary(self.ds, path, title=self._title, scene=self._scene()), "png")

    def animate(self) -> Picture:
        """The run as an animation (WebP); a notebook shows it.

        Raises:
            ConfigurationError: no output frame with fields was written.
        """
        from simjax.report.animation import write_animation
        from simjax.report.picture import Picture

        def draw(path: Path) -> None:
            if write_animation(self.ds, path, title=self._title, scene=self._scene()) is None:
                raise ConfigurationError(
                    f"animate: expected a run with fields at several times, {self.folder} has none; write "
                    "output={'fields': None} to write all variables."
                )

        return Picture.drawn(draw, "webp")

    @property
    def _title(self) -> str:
        return "" if self._config is None else self._config.title or self._config.experiment_name

    def _scene(self) -> Scene:
        # Of several processes one alone may draw, and what is inside lies on the devices of all.
        if self._config is None or processes().count > 1:
            return NOWHERE
        return compiled_run(self._config).scene().following(self.ds)

    def __repr__(self) -> str:
        said = [("outcome", self.message), ("folder", self.folder), ("failed checks", " ".join(self.failed_checks))]
        return line(self._title or "Result", said)

    def _repr_html_(self) -> str:
        from simjax.report.picture import Picture
        from simjax.report.summary import describe

        summary = self.folder / "summary.png"
        picture = Picture(summary.read_bytes(), "png")._repr_html_() if summary.is_file() else ""
        variables = ", ".join(str(name) for name in self.ds.data_vars)
        rows = [
            ("outcome", self.message),
            ("folder", self.folder),
            ("content", describe(self.ds)),
            ("variables", variables),
            ("failed checks", " ".join(self.failed_checks)),
        ]
        return card(self._title or "Result", rows) + picture
