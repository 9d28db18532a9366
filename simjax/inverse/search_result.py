"""The result of a search: where it is, how it ended, and what was found, as text and pictures."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from simjax.errors import ConfigurationError
from simjax.inverse.estimate import Estimate
from simjax.notebook import card, line
from simjax.report.picture import Picture


@dataclasses.dataclass(repr=False)
class SearchResult:
    """Result of a search: its folder (None without files), exit code (0 done, 75 stopped) and a sentence."""

    folder: Path | None
    exit_code: int
    message: str
    answer: Estimate | None = None
    title: str = "Search"

    def plot(self) -> Picture:
        """Draw the found values beside the guess and the truth, as one picture that a notebook shows.

        Raises:
            ConfigurationError: the search left no pictures: it wrote no files, or output.report was false.
        """
        return self._picture("unknowns.png")

    def animate(self) -> Picture:
        """The estimate from iteration to iteration as an animation (WebP); a notebook shows it.

        Raises:
            ConfigurationError: no field was sought, or the search left no pictures.
        """
        return self._picture("search.webp")

    def _picture(self, name: str) -> Picture:
        path = None if self.folder is None else self.folder / name
        if path is None or not path.is_file():
            where = "without a folder" if path is None else f"in {self.folder}"
            raise ConfigurationError(
                f"{name}: expected among the files of the search, which is {where}; write output={{'report': True}} "
                "and let the search write its files."
            )
        return Picture(path.read_bytes(), path.suffix.removeprefix("."))

    def __repr__(self) -> str:
        return line(self.title, self._rows())

    def _rows(self) -> list[tuple[str, object]]:
        rows: list[tuple[str, object]] = [("outcome", self.message), ("folder", self.folder)]
        if self.answer is not None:
            rows += [(path, _number_with_interval(self.answer, path)) for path in self.answer.intervals]
        return rows

    def _repr_html_(self) -> str:
        drawn = [
            self._picture(name)._repr_html_()
            for name in ("unknowns.png",)
            if self.folder is not None and (self.folder / name).is_file()
        ]
        return card(self.title, self._rows()) + "".join(drawn)


def _number_with_interval(answer: Estimate, path: str) -> str:
    low, high = answer.intervals[path]
    interval = "" if low is None or high is None else f" ({low:.4g} to {high:.4g}, with 95 %)"
    return f"{float(answer.estimate[path]):.4g}{interval}"
