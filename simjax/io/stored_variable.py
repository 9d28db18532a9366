"""A variable in a file that is read in parts, checked beforehand for size, dtype and damage."""

from __future__ import annotations

import difflib
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simjax.errors import ConfigurationError, InputOutputError, SimjaxError
from simjax.io.memory import require_memory

BYTES_PER_VALUE = 48
"""Memory to read and regrid a value, besides the value as it lies in the file: up to 42 bytes were measured."""
BYTES_PER_POSITION = 256
"""Memory along each axis of the file for a position: coordinates, and which values of the grid they go into."""
# What the readers were seen to raise on truncated files and on files with flipped bits.
DAMAGED = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    EOFError,
    OverflowError,
    RuntimeError,
    MemoryError,
    SystemError,
    AssertionError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)


Ranges = Sequence[tuple[int, int]]
"""First index and one past the last, along each axis."""


class MissingVariable(ConfigurationError):
    """A file has no variable of a name."""


@dataclass(frozen=True)
class Stored:
    """A variable in a file: shape, dtype, names of its dimensions (if any), attributes that say what its numbers mean.

    part: function that reads the values within `Ranges` of its axes, and no others. coordinates: the variables of one
    axis that say where its values are, by the names of their dimensions.
    """

    path: Path
    variable: str
    shape: tuple[int, ...]
    dtype: np.dtype
    dims: tuple[str, ...] | None
    attributes: Mapping[str, Any]
    part: Callable[[Ranges], np.ndarray]
    coordinates: Mapping[str, Stored] = field(default_factory=dict)

    def read(self, ranges: Ranges) -> np.ndarray:
        """The values within ranges; InputOutputError where the file is damaged there."""
        with damage_named(self.path):
            return self.part(ranges)

    def read_whole(self) -> np.ndarray:
        """All values; ResourceError where they do not fit into memory."""
        check_size(self.shape, self.dtype.itemsize, self.path, self.variable)
        return self.read([(0, n) for n in self.shape])


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Within it whatever a reader raises is an InputOutputError that names the file."""
    try:
        yield
    except SimjaxError:
        raise
    except DAMAGED as error:
        raise InputOutputError(f"{path.name} is damaged or incomplete ({reason_of(error)}).") from None


def reason_of(error: Exception) -> str:
    """The message of a reader about a damaged file, in one line and without addresses of objects."""
    return " ".join(re.sub(r":? ?<[^<>]* object at [^<>]*>", "", str(error)).split()) or type(error).__name__


def check_size(shape: tuple[int, ...] | None, itemsize: int, path: Path, variable: str) -> int:
    """The bytes of an array that is read whole, before anything is read of it."""
    count = _count(shape, path, variable)
    require_room(count, itemsize, shape, path, variable)
    return count * itemsize


def _count(shape: tuple[int, ...] | None, path: Path, variable: str) -> int:
    """The number of values of an array; ConfigurationError where it has none."""
    count = 0 if shape is None else math.prod(shape)
    if count <= 0:
        held = "is empty" if shape is None else f"has shape {shape}"
        raise ConfigurationError(f"'{variable}' in {path.name} {held} and holds no values; write an array with values.")
    return count


def require_room(count: int, itemsize: int, shape: tuple[int, ...] | None, path: Path, variable: str) -> None:
    """Raises ResourceError where so many values of an array, of this shape, would not fit into memory."""
    require_memory(
        count * (itemsize + BYTES_PER_VALUE),
        f"'{variable}' in {path.name}, of shape {shape},",
        "write a smaller array into the file, such as the part that the grid covers or means over several cells",
    )


def check_axes(shape: tuple[int, ...] | None, path: Path, variable: str) -> tuple[int, ...]:
    """The shape of an array, of which nothing is read yet; ResourceError for axes too long to hold their positions."""
    _count(shape, path, variable)
    assert shape is not None
    require_memory(
        sum(shape) * BYTES_PER_POSITION,
        f"'{variable}' in {path.name}, of shape {shape},",
        "write a smaller array into the file",
    )
    return tuple(int(n) for n in shape)


def missing(path: Path, variable: str, names: Iterable[str]) -> ConfigurationError:
    """The error of a variable that is none of the `names` in a file."""
    names = sorted(names)
    close = difflib.get_close_matches(variable, names, n=1, cutoff=0.4)
    hint = f"did you mean '{close[0]}'?" if close else f"it holds {', '.join(names[:12]) or 'nothing'}."
    return MissingVariable(f"{path.name} has no variable '{variable}'; {hint}")


def check_number(dtype: np.dtype, path: Path, variable: str) -> None:
    """Raises ConfigurationError where values are no real numbers."""
    if dtype.kind not in "iuf":
        raise ConfigurationError(f"'{variable}' in {path.name} has dtype {dtype}; expected real numbers.")
