"""Arrays of Zarr stores in folders, of formats 2 and 3, read without the package zarr.

What a store says of an array is text (JSON), of which a list of codecs, plain numbers and regular chunks are accepted;
every other array of the store is left alone. Readers that take whatever a store names run its code: numcodecs has a
codec that unpickles.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simjax.errors import ConfigurationError
from simjax.io.chunk_codecs import Codec, codecs_of_format_2, codecs_of_format_3, decode
from simjax.io.containment import PARTS_OF_A_CHUNK
from simjax.io.conventions import matters
from simjax.io.memory import require_memory
from simjax.io.stored_variable import Ranges, Stored, check_axes, missing

MOST_CHUNKS = 1_000_000
"""Chunks of an array that are read at once."""
LARGEST_TEXT = 2**24
"""Bytes of a text about an array."""
_NUMBER = re.compile(r"[<>|][iuf][1248]")
_NUMBERS_3 = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)} | {
    f"float{bits}" for bits in (16, 32, 64)
}


class _NoNumbers(ConfigurationError):
    """An array holds something else than real numbers."""


@dataclass(frozen=True)
class _Array:
    """An array as its text describes it. key: the name of a chunk by its place. fill: None where nothing is said."""

    folder: Path
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype
    fill: Any
    codecs: tuple[Codec, ...]
    key: Callable[[Sequence[int]], str]
    dims: tuple[str, ...] | None
    attributes: Mapping[str, Any]

    def read(self, ranges: Ranges) -> np.ndarray:
        """The values within ranges of the axes."""
        values = np.empty([last - first for first, last in ranges], self.dtype.newbyteorder("="))
        places = [range(first // n, -(-last // n)) for (first, last), n in zip(ranges, self.chunks, strict=True)]
        if math.prod(map(len, places)) > MOST_CHUNKS:
            raise ConfigurationError(
                f"{self.folder.name} lies in {math.prod(map(len, places))} chunks of {self.chunks}; expected at most "
                f"{MOST_CHUNKS}: write it with larger ones."
            )
        for place in itertools.product(*places):
            into, out_of = [], []
            for at, n, (first, last) in zip(place, self.chunks, ranges, strict=True):
                low, high = max(first, at * n), min(last, (at + 1) * n)
                into.append(slice(low - first, high - first))
                out_of.append(slice(low - at * n, high - at * n))
            found = self._chunk(place)
            values[tuple(into)] = self._filled() if found is None else found[tuple(out_of)]
        return values

    def _filled(self) -> Any:
        if self.fill is None:
            raise ValueError("a chunk is missing, and no fill value is said")
        return self.fill

    def _chunk(self, place: Sequence[int]) -> np.ndarray | None:
        """The values of a chunk; None where it is not there, and so full of the fill value."""
        path = self.folder / self.key(place)
        if not path.is_file():
            return None
        require_inside(path, self.folder)
        size = math.prod(self.chunks) * self.dtype.itemsize
        require_memory(
            path.stat().st_size + PARTS_OF_A_CHUNK * size,
            f"a chunk of '{self.folder.name}', of shape {self.chunks},",
            "write it with smaller chunks",
        )
        return decode(path.read_bytes(), self.codecs)


def require_inside(path: Path, root: Path) -> None:
    """Raises ConfigurationError where `path`, below the true folder `root`, stands behind a symbolic link."""
    if path.resolve() != path:
        raise ConfigurationError(f"{root.name} holds a symbolic link at {path.name}; copy into it what that leads to.")


def find_in_zarr(path: Path, variable: str) -> Stored:
    """A variable of a Zarr store in a folder, of whose values nothing is read; errors as of `find_stored`."""
    found = _array(path, variable)
    if found is None:
        raise missing(path, variable, _names(path))
    group = variable.rpartition("/")[0]
    lines = {}
    for name in found.dims or ():
        beside = f"{group}/{name}" if group else name
        try:
            line = _array(path, beside) if _is_name(name) and beside != variable.strip("/") else None
        except _NoNumbers:  # such as names of stations
            continue
        if line is not None and len(line.shape) == 1:
            lines[name] = _stored(path, beside, line)
    return replace(_stored(path, variable, found), coordinates=lines)


def _stored(path: Path, variable: str, array: _Array) -> Stored:
    shape = check_axes(array.shape, path, variable)
    return Stored(path, variable, shape, array.dtype, array.dims, array.attributes, array.read)


def _is_name(name: str) -> bool:
    return bool(name) and "/" not in name and "\\" not in name and name.strip(".") != "" and "\0" not in name


def _array(path: Path, variable: str) -> _Array | None:
    """An array of a store by its name; None where there is none."""
    parts = [part for part in variable.split("/") if part]
    if not parts or not all(map(_is_name, parts)):
        return None
    folder = path.joinpath(*parts)
    for name, read in ((".zarray", _of_format_2), ("zarr.json", _of_format_3)):
        if (folder / name).is_file():
            require_inside(folder / name, path)
            about = _text(folder / name)
            if name == "zarr.json" and about.get("node_type") != "array":
                continue
            return read(folder, about, f"'{variable}' in {path.name}")
    return None


def _names(path: Path) -> list[str]:
    """Names of arrays, of the first level."""
    inside = itertools.islice(sorted(path.iterdir()), 1000)
    return [one.name for one in inside if any((one / name).is_file() for name in (".zarray", "zarr.json"))]


def _text(path: Path) -> dict[str, Any]:
    if path.stat().st_size > LARGEST_TEXT:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes")
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds no object")
    return found


def _counts(given: Any, least: int, what: str) -> tuple[int, ...]:
    if not isinstance(given, list) or not all(type(n) is int and n >= least for n in given):
        raise ValueError(f"its {what} is {str(given)[:60]}")
    return tuple(given)


def _of_format_2(folder: Path, about: Mapping[str, Any], where: str) -> _Array:
    dtype = about["dtype"]
    if not isinstance(dtype, str) or not _NUMBER.fullmatch(dtype):
        raise _NoNumbers(f"{where} has dtype {str(dtype)[:60]}; expected real numbers.")
    shape, chunks = _counts(about["shape"], 0, "shape"), _counts(about["chunks"], 1, "chunks")
    if len(chunks) != len(shape) or about["order"] not in ("C", "F"):
        raise ValueError(f"its chunks are {chunks} for shape {shape}, in order {about['order']!r}")
    codecs = codecs_of_format_2(
        about.get("filters"), about.get("compressor"), about["order"], chunks, np.dtype(dtype), where
    )
    separator = about.get("dimension_separator", ".")
    if separator not in (".", "/"):
        raise ValueError(f"its dimension_separator is {str(separator)[:60]}")
    beside = folder / ".zattrs"
    require_inside(beside, folder)
    attributes = _text(beside) if beside.is_file() else {}
    fill = _fill(about.get("fill_value"), np.dtype(dtype))
    if fill is not None and fill != 0:  # zero is what zarr writes where nobody said any
        attributes = {"_FillValue": fill, **attributes}
    return _Array(
        folder,
        shape,
        chunks,
        np.dtype(dtype),
        fill,
        codecs,
        lambda place: separator.join(map(str, place)) or "0",
        _dims(attributes.get("_ARRAY_DIMENSIONS"), shape),
        _attributes(attributes, np.dtype(dtype)),
    )


def _of_format_3(folder: Path, about: Mapping[str, Any], where: str) -> _Array:
    kind = about["data_type"]
    if not isinstance(kind, str) or kind not in _NUMBERS_3:
        raise _NoNumbers(f"{where} has the data type {str(kind)[:60]}; expected real numbers.")
    unknown = [name for name in ("storage_transformers",) if about.get(name)]
    grid, keys = about["chunk_grid"], about["chunk_key_encoding"]
    if unknown or grid["name"] != "regular" or keys["name"] not in ("default", "v2"):
        said = ", ".join([*unknown, str(grid["name"])[:60], str(keys["name"])[:60]])
        raise ConfigurationError(f"{where} has chunks of {said}; expected regular ones: write it anew.")
    shape = _counts(about["shape"], 0, "shape")
    chunks = _counts(grid["configuration"]["chunk_shape"], 1, "chunk_shape")
    first = "c" if keys["name"] == "default" else ""
    separator = keys.get("configuration", {}).get("separator", "/" if first else ".")
    if len(chunks) != len(shape) or separator not in (".", "/"):
        raise ValueError(f"its chunks are {chunks} for shape {shape}, separated by {str(separator)[:60]}")
    dtype = np.dtype(kind)
    fill = _fill(about["fill_value"], dtype)
    codecs = codecs_of_format_3(about["codecs"], chunks, dtype, fill, where)
    attributes = about.get("attributes", {})
    if not isinstance(attributes, dict):
        raise ValueError("its attributes are no object")
    return _Array(
        folder,
        shape,
        chunks,
        dtype,
        fill,
        codecs,
        lambda place: separator.join([*([first] if first else []), *map(str, place)]) or "0",
        _dims(about.get("dimension_names"), shape),
        _attributes(attributes, dtype),
    )


def _dims(given: Any, shape: tuple[int, ...]) -> tuple[str, ...] | None:
    if not isinstance(given, list) or len(given) != len(shape) or not any(given):
        return None
    return tuple("" if name is None else str(name) for name in given)


def _fill(given: Any, dtype: np.dtype) -> Any:
    """The fill value in the array's dtype: a number, or text for what JSON has no number for."""
    if given is None:
        return None
    if isinstance(given, str) and given.startswith("0x"):
        return np.frombuffer(bytes.fromhex(given[2:]), dtype.newbyteorder(">"))[0].astype(dtype)
    if given in ("NaN", "Infinity", "-Infinity") and dtype.kind == "f":
        return dtype.type(given)
    if not isinstance(given, int | float) or dtype.kind != "f" and given != int(given):
        raise ValueError(f"its fill value is {str(given)[:60]}")
    return np.asarray(given).astype(dtype)[()]


def _attributes(given: Mapping[str, Any], dtype: np.dtype) -> dict[str, Any]:
    """Attributes that say what numbers mean; xarray writes the fill value of real numbers as text in base 64."""
    found = {name: value for name, value in given.items() if matters(name)}
    fill = found.get("_FillValue")
    if isinstance(fill, str):
        found["_FillValue"] = struct.unpack("<d", base64.standard_b64decode(fill))[0]
    for name in ("_FillValue", "missing_value"):
        if type(found.get(name)) is int:
            found[name] = np.asarray(found[name]).astype(dtype)
    return found
