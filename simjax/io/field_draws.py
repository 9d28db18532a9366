"""Draws of fields from a posterior: their mean and spread so far, and how they wait on the disk for the next part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simjax.io.files import new_hdf5, replaced
from simjax.io.replacing import DRAWS_NAME

Components = tuple[np.ndarray, ...]


@dataclass
class FieldDraws:
    """Mean and spread of fields over draws.

    number: of draws. left: the largest relative residual of their solves. mean, squares: by path, of each component;
    squares are sums over the draws of the squared distances from the mean.
    """

    number: int = 0
    left: float = 0.0
    mean: dict[str, Components] = field(default_factory=dict)
    squares: dict[str, Components] = field(default_factory=dict)

    def add(self, fields: Mapping[str, Components], left: float) -> None:
        """Take in a draw (Welford 1962, which loses no digits where the spread is small beside the mean)."""
        self.number, self.left = self.number + 1, max(self.left, left)
        for path, components in fields.items():
            zeros = tuple(np.zeros(u.shape) for u in components)
            before, squares = self.mean.get(path, zeros), self.squares.get(path, zeros)
            after = tuple(m + (u - m) / self.number for m, u in zip(before, components, strict=True))
            self.mean[path] = after
            self.squares[path] = tuple(
                s + (u - m) * (u - n) for s, u, m, n in zip(squares, components, before, after, strict=True)
            )

    def deviations(self) -> dict[str, Components]:
        """Pointwise standard deviations by path."""
        return {path: tuple(np.sqrt(s / self.number) for s in squares) for path, squares in self.squares.items()}

    def store(self, folder: Path, belongs: str) -> None:
        """Write the draws into the folder of a search. belongs: to what, the text of `belonging`."""
        with replaced(folder / DRAWS_NAME) as path, new_hdf5(path) as file:
            file.attrs.update(belongs=belongs, number=self.number, left=self.left)
            for name, of_paths in (("mean", self.mean), ("squares", self.squares)):
                for path_of_field, components in of_paths.items():
                    for number, values in enumerate(components):
                        file[f"{name}/{path_of_field}/{number}"] = values

    @classmethod
    def stored(cls, folder: Path, belongs: str) -> FieldDraws:
        """The draws that the last part of a search left; none where they belong to another estimate or problem."""
        try:
            with h5py.File(folder / DRAWS_NAME) as opened:
                file: Any = opened
                if file.attrs["belongs"] != belongs:
                    return cls()
                parts = {
                    name: {
                        path: tuple(np.asarray(of_field[str(k)]) for k in range(len(of_field)))
                        for path, of_field in file[name].items()
                    }
                    for name in ("mean", "squares")
                }
                return cls(int(file.attrs["number"]), float(file.attrs["left"]), **parts)
        except (OSError, KeyError):  # there is none, or it is damaged: draws can be made again
            return cls()
