"""Shots: sources with their signals, and receivers, of a batch of runs of waves that differ in these alone."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from simjax.arguments import shown, taken_over
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.notebook import all_in_a_line

WANTED = {
    "sources": "(shots, sources, axes)",
    "signals": "(shots, sources, samples)",
    "times": "(samples,)",
    "receivers": "(shots, receivers, axes), or (receivers, axes) for all shots",
    "recorded": "(times,)",
}
"""Shapes of the arrays of `Shots`, by name."""


class Shots(eqx.Module):
    """Shots of a model of waves: where sources stand, what they send, and where it is recorded.

    `run(values, fields, shots=shots)` of a `RunFunction` runs all of them in one compiled program, which serves any
    other shots of the same counts. All arrays but `times` and `recorded` have derivatives.

    Args:
        sources: places of the sources, `(shots, sources, axes)`, anywhere in the box.
        signals: what each sends, `(shots, sources, samples)`, linear between samples and zero before and after.
        times: of the samples, increasing, `(samples,)`.
        receivers: places of the receivers, `(shots, receivers, axes)`, or `(receivers, axes)` for all shots.
        recorded: times of the traces, between which steps are interpolated linearly; by default `run.step_times`.
        at_once: how many shots are advanced at once, by default all: memory of reverse mode is that of so many shots.
            Fewer of them are run once more in reverse mode, but with `checkpoint="reverse"`.

    Examples:
        >>> t = np.linspace(0.0, 1.0, 101)
        >>> pulse = np.exp(-(((t - 0.2) / 0.05) ** 2))
        >>> two = sj.Shots(sources=[[[0.2, 0.1]], [[0.8, 0.1]]], signals=[[pulse], [pulse]], times=t,
        ...                receivers=[[0.1, 0.1], [0.5, 0.1], [0.9, 0.1]])
        >>> two.count
        2
    """

    sources: Any
    signals: Any
    times: Any
    receivers: Any
    recorded: Any = None
    at_once: int | None = eqx.field(static=True, default=None, kw_only=True)

    __repr__ = all_in_a_line

    @property
    def count(self) -> int:
        """The number of shots."""
        return np.shape(self.sources)[0]

    def parted(self) -> tuple["Shots", "Shots"]:
        """The arrays with an axis of shots, and those that all shots share, each with None for the others."""
        own = Shots(True, True, False, np.ndim(self.receivers) == 3, False, at_once=self.at_once)
        return eqx.partition(self, own)

    def on(self, grid: Grid, dtype, start: float, end: float) -> "Shots":
        """The same as arrays of jax of one type, for a run on a grid from `start` to `end`.

        Raises ConfigurationError for shapes that do not fit each other or the grid, and, where values are known, for
        places beyond the box and times that do not increase.
        """
        if self.at_once is not None and (not isinstance(self.at_once, int) or self.at_once < 1):
            raise ConfigurationError(
                f"Shots.at_once={shown(self.at_once)}: expected a number of shots, or None for all."
            )
        arrays = {name: _array(name, getattr(self, name), dtype) for name in WANTED if getattr(self, name) is not None}
        missing = [name for name in WANTED if name not in arrays and name != "recorded"]
        if missing:
            raise ConfigurationError(f"Shots.{missing[0]}=None: expected an array of shape {WANTED[missing[0]]}.")
        self._require_shapes({name: array.shape for name, array in arrays.items()}, grid.ndim)
        for name in ("sources", "receivers"):
            _require_in_box(name, arrays[name], grid)
        for name in ("times", "recorded"):
            if name in arrays:
                _require_increasing(name, arrays[name])
        _require_finite("signals", arrays["signals"])
        known = _known(arrays.get("recorded"))
        # A time of the run that was rounded is still one of it.
        slack = 4 * float(jnp.finfo(dtype).eps) * max(abs(start), abs(end))
        if known is not None and not (start - slack <= known[0] and known[-1] <= end + slack):
            raise ConfigurationError(
                f"Shots.recorded: expected times of the run, from {start:g} to {end:g}, got {known[0]:g} to "
                f"{known[-1]:g}."
            )
        return Shots(**arrays, at_once=self.at_once)

    def _require_shapes(self, shapes: dict[str, Sequence[int]], ndim: int) -> None:
        dims = {"sources": (3,), "signals": (3,), "times": (1,), "receivers": (2, 3), "recorded": (1,)}
        for name, shape in shapes.items():
            if len(shape) not in dims[name] or 0 in shape:
                raise ConfigurationError(
                    f"Shots.{name}: expected an array of shape {WANTED[name]}, got {tuple(shape)}."
                )
        shots, sources, axes = shapes["sources"]
        expected = {
            "sources": (shots, sources, ndim),
            "signals": (shots, sources, *shapes["times"]),
            "receivers": (*(shots,) * (len(shapes["receivers"]) - 2), shapes["receivers"][-2], ndim),
        }
        for name, wanted in expected.items():
            if tuple(shapes[name]) != wanted:
                raise ConfigurationError(
                    f"Shots.{name}: expected an array of shape {wanted}, {WANTED[name]}, got {tuple(shapes[name])}."
                )
        if shapes["times"][0] < 2:
            raise ConfigurationError("Shots.times: expected two samples or more, got one.")


def _array(name: str, value: Any, dtype) -> Array:
    try:
        return jnp.asarray(taken_over(value), dtype)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"Shots.{name}={shown(value)}: expected numbers, an array of shape {WANTED[name]}."
        ) from None


def _known(array: Array | None) -> np.ndarray | None:
    """The values of an array, where they are known."""
    return None if array is None or isinstance(array, Tracer) else np.asarray(jax.device_get(array))


def _require_finite(name: str, array: Array) -> None:
    known = _known(array)
    if known is not None and not np.isfinite(known).all():
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(known))[0])
        raise ConfigurationError(f"Shots.{name}{list(place)} = {known[place]}: expected a finite number.")


def _require_in_box(name: str, array: Array, grid: Grid) -> None:
    known = _known(array)
    if known is None:
        return
    lower, upper = (np.asarray(bound, known.dtype) for bound in (grid.lower, grid.upper))
    inside = (lower <= known) & (known <= upper)  # written so that what is not a number is outside
    if not inside.all():
        place = tuple(int(k) for k in np.argwhere(~inside)[0])
        low, high = grid.lower[place[-1]], grid.upper[place[-1]]
        raise ConfigurationError(
            f"Shots.{name}{list(place)} = {known[place]:g}: expected a place in the box, along {AXES[place[-1]]} from "
            f"{low:g} to {high:g}."
        )


def _require_increasing(name: str, array: Array) -> None:
    known = _known(array)
    if known is not None and not (np.isfinite(known).all() and (np.diff(known) > 0).all()):
        raise ConfigurationError(f"Shots.{name}: expected finite times that increase; sort them, each once.")
