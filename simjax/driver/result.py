"""The outcome of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from simjax.arguments import require_one_of, shown
from simjax.core.model import PALETTES
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

    def plot(
        self,
        variable: str | None = None,
        *,
        limits: tuple[float, float] | None = None,
        palette: str | None = None,
        format: Literal["png", "pdf", "svg"] = "png",
    ) -> Picture:
        """The run as one picture: fields at several times, diagnostics below; a notebook shows it.

        `result.plot().save("run.png")` writes it to a file.

        Args:
            variable: what is drawn first, a variable or the magnitude of a vector such as "speed"; None: the most
                telling one. Of particles none.
            limits: the ends of its scale; None: from the values of all frames.
            palette: its colours: "diverging", or a map of cmocean such as "haline"; None: those of the model.
            format: of the picture.

        Raises:
            ConfigurationError: there is no such variable, palette or format, or limits are no two rising numbers.
        """
        from simjax.report.picture import Picture
        from simjax.report.summary import write_summary

        require_one_of("plot: format", format, ("png", "pdf", "svg"))
        dataset, scene = self._chosen("plot", variable, limits, palette), self._scene()

        def draw(path: Path) -> None:
            write_summary(dataset, path, title=self._title, scene=scene, formats=(format,))

        return Picture.drawn(draw, format)

    def animate(
        self,
        variable: str | None = None,
        *,
        limits: tuple[float, float] | None = None,
        palette: str | None = None,
        format: Literal["webp", "gif", "mp4"] = "webp",
    ) -> Picture:
        """The run as an animation; a notebook shows it.

        variable, limits, palette: as of `plot`. format: mp4 needs ffmpeg, which `pip install imageio-ffmpeg` brings.

        Raises:
            ConfigurationError: as of `plot`, or no output frame with fields was written.
        """
        from simjax.report.animation import write_animation
        from simjax.report.picture import Picture

        require_one_of("animate: format", format, ("webp", "gif", "mp4"))
        dataset = self._chosen("animate", variable, limits, palette)

        def draw(path: Path) -> None:
            if write_animation(dataset, path, title=self._title, scene=self._scene()) is None:
                raise ConfigurationError(
                    f"animate: expected a run with fields at several times, {self.folder} has none; write "
                    "output={'fields': None} to write all variables."
                )

        return Picture.drawn(draw, format)

    def _chosen(self, name: str, variable: Any, limits: Any, palette: Any) -> xarray.Dataset:
        """The dataset with what is wanted of its pictures, which were asked for by the method `name`."""
        from simjax.report.scalars import DRAWN, Drawn, drawable_names

        if variable is None and limits is None and palette is None:
            return self.ds
        if "particle" in self.ds.sizes:
            raise ConfigurationError(f"{name}: expected a run of fields; of particles leave variable and scale out.")
        known = drawable_names(self.ds)
        if not known:
            raise ConfigurationError(f"{name}: expected a run with fields at several times, {self.folder} has none.")
        variable = known[0] if variable is None else variable
        require_one_of(f"{name}: variable", variable, known)
        if palette is not None:
            require_one_of(f"{name}: palette", palette, PALETTES)
        if limits is not None and not _rising(limits):
            raise ConfigurationError(f"{name}: limits={shown(limits)}: expected two rising numbers, such as (-1, 1).")
        ends = None if limits is None else (float(limits[0]), float(limits[1]))
        return self.ds.assign_attrs({DRAWN: Drawn(variable, ends, palette or "")})

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


def _rising(limits: Any) -> bool:
    """Tell whether these are two finite numbers, the second one larger."""
    try:
        low, high = (float(limit) for limit in limits)
    except (TypeError, ValueError):
        return False
    return bool(np.isfinite([low, high]).all()) and low < high
