"""Frames in memory, until they fill a segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from simjax.io.frame_layout import PIECE_BYTES, FrameLayout, frame_selection

Values = Mapping[str, np.ndarray]
"""Frames of variables, by name."""


class Gathered:
    """Frames of the segments that are being filled. They stay in the pieces in which they were given."""

    def __init__(self) -> None:
        self.frames = 0
        self._pieces: list[tuple[int, Sequence[Values]]] = []

    def add(self, layout: FrameLayout, parts: Sequence[Values], first: int, frames: int) -> None:
        """Take `frames` frames of every part from `first` on."""
        chosen = {variable.name: frame_selection(variable, first, frames) for variable in layout.framed}
        self._pieces.append((frames, [{name: part[name][place] for name, place in chosen.items()} for part in parts]))
        self.frames += frames

    def pieces(self, layout: FrameLayout, part: int, start: int = 0) -> Iterator[tuple[int, int, Values]]:
        """(first frame, frames, values) of a part, small pieces in one, as each is a call of HDF5.

        start: number of the first frame of all.
        """
        together = max(1, PIECE_BYTES // max(1, layout.frame_bytes))
        count, some = 0, []
        for number, (frames, parts) in enumerate(self._pieces, 1):
            count += frames
            some.append(parts[part])
            if count < together and number < len(self._pieces):
                continue
            yield start, count, {v.name: _joined([own[v.name] for own in some], v.dims) for v in layout.framed}
            start, count, some = start + count, 0, []


def _joined(values: Sequence[np.ndarray], dims: Sequence[str]) -> np.ndarray:
    return values[0] if len(values) == 1 else np.concatenate(values, dims.index("time"))
