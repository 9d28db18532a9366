"""Small pictures of a run's statistics in time: means, root mean squares and spectra, as curves and planes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simjax.io.read import open_output, statistics_names
from simjax.io.readable import readable
from simjax.io.time_statistics_files import IMAGINARY, REAL
from simjax.report.instrument_pictures import figure
from simjax.report.scalars import label_of
from simjax.schema.time_statistics import FOURIER

MOST_PICTURES = 12
_REAL = f"_{FOURIER}_{REAL}"
_DRAWN = ("_mean", "_variance", _REAL, "_spectrum", "_relative")


def statistics_figures(folder: Path) -> Iterator[str]:
    """An HTML figure of each mean, standard deviation and spectrum of a run, the first `MOST_PICTURES` of them."""
    drawn = 0
    for output in statistics_names(folder):
        with open_output(folder, output) as opened:
            dataset = readable(opened)
            for name in [str(name) for name in dataset.data_vars if str(name).endswith(_DRAWN)]:
                if drawn == MOST_PICTURES or not dataset.sizes["time"]:
                    return
                drawn += 1
                shown, title = name, label_of(dataset, name)
                if name.endswith("_variance"):
                    # In the units of the variable itself, which are those of its mean.
                    shown = f"{name.removesuffix('_variance')}_rms"
                    title = f"Root of the {title[:1].lower()}{title[1:]}"
                    root, units = dataset[name] ** 0.5, str(dataset[name].attrs.get("units", "1"))
                    dataset = dataset.assign({shown: root.assign_attrs(units=_root(units))})
                if name.endswith(_REAL):
                    of, imaginary = name.removesuffix(_REAL), f"{name.removesuffix(_REAL)}_{FOURIER}_{IMAGINARY}"
                    shown, title = f"{of}_amplitude", f"Amplitude of the Fourier integral of {of}"
                    amplitude = (dataset[name] ** 2 + dataset[imaginary] ** 2) ** 0.5
                    dataset = dataset.assign(
                        {shown: amplitude.assign_attrs(units=dataset[name].attrs.get("units", "1"))}
                    )
                yield figure(dataset, shown, f"{output}: {title}")


def _root(units: str) -> str:
    """The units of which these are the square, as `powered` writes it."""
    if units == "1":
        return units
    parts = []
    for part in units.split():
        name = part.rstrip("-0123456789")
        power = int(part[len(name) :] or 1)
        if power % 2:
            return f"({units})^1/2"
        parts.append(name if power == 2 else f"{name}{power // 2}")
    return " ".join(parts)
