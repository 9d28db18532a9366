"""Bodies of requests and answers: arrays by section and name, as JSON or as npz. Nothing in them is executed.

A body holds sections, such as `arguments` and `cotangents`, of arrays by name. In JSON it is an object of objects,
whose arrays are nested lists of numbers. In an npz, which `np.savez` writes and `np.load` reads, an array is called
SECTION/NAME; without a section it belongs to the first one.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from simjax.errors import SimjaxError

JSON, NPZ = "application/json", "application/x-npz"
ARGUMENTS, COTANGENTS, RESULTS, GRADIENTS = "arguments", "cotangents", "results", "gradients"
ERROR = "error"
"""Key of the sentence in an answer that has nothing else."""
Sections = Mapping[str, Mapping[str, np.ndarray]]

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Refusal(SimjaxError):
    """A request that is not answered with arrays: a sentence, and the status of HTTP."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


def encode(sections: Sections, kind: str) -> bytes:
    """Sections as the body of a message; the first one is that of bare names.

    Raises:
        Refusal: 406, complex numbers in JSON, which has none.
    """
    if kind == NPZ:
        first, *_ = sections
        named: dict[str, Any] = {
            (name if section == first else f"{section}/{name}"): value
            for section, arrays in sections.items()
            for name, value in arrays.items()
        }
        content = io.BytesIO()
        np.savez(content, **named)
        return content.getvalue()
    for arrays in sections.values():
        for name, value in arrays.items():
            if np.iscomplexobj(value):
                raise Refusal(406, f"{name} is complex, which JSON is not; ask for it by Accept: {NPZ}.")
    plain = {
        section: {name: np.asarray(value).tolist() for name, value in arrays.items()}
        for section, arrays in sections.items()
    }
    return json.dumps(plain).encode()


def decode(content: bytes, kind: str, first: str) -> dict[str, dict[str, np.ndarray]]:
    """Sections of the body of a message; `first` is that of bare names in an npz. No array is larger than the body.

    Raises:
        Refusal: 400, the body is not what `kind` says.
    """
    read = _read_npz if kind == NPZ else _read_json
    try:
        return read(content, first)
    except Refusal:
        raise
    except Exception as error:  # whatever JSON or an archive that is broken on purpose makes its reader raise
        raise Refusal(400, f"the body cannot be read as {kind} ({_first_line(error)}); see GET /metadata.") from error


def _read_json(content: bytes, first: str) -> dict[str, dict[str, np.ndarray]]:
    body = json.loads(content)
    if not isinstance(body, dict) or not all(isinstance(arrays, dict) for arrays in body.values()):
        raise Refusal(400, f'expected an object of objects, such as {{"{first}": {{"diffusivity": 0.01}}}}.')
    return {
        section: {name: _numbers(name, value) for name, value in arrays.items()} for section, arrays in body.items()
    }


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        found = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        found = np.asarray(None)
    return _of_numbers(name, found)


def _of_numbers(name: str, value: np.ndarray) -> np.ndarray:
    if value.dtype.kind not in "fiuc":
        raise Refusal(400, f"{name}: expected a number or nested lists of numbers, all of one length in each axis.")
    return value


def _read_npz(content: bytes, first: str) -> dict[str, dict[str, np.ndarray]]:
    sections: dict[str, dict[str, np.ndarray]] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        # Compressed or overlapping members could unfold to any size.
        if any(one.compress_type != zipfile.ZIP_STORED for one in members):
            raise Refusal(400, "expected an npz as np.savez writes it, got compressed arrays of np.savez_compressed.")
        if sum(one.file_size for one in members) > len(content):
            raise Refusal(400, "expected an npz as np.savez writes it, got one whose arrays overlap.")
        for one in members:
            section, found, name = one.filename.removesuffix(".npy").rpartition("/")
            sections.setdefault(section if found else first, {})[name] = _array(name, archive.read(one))
    return sections


def _array(name: str, content: bytes) -> np.ndarray:
    """An array from the format npy: `np.load` would allocate what its header claims before it reads."""
    stream = io.BytesIO(content)
    shape, columns_first, dtype = _HEADERS[np.lib.format.read_magic(stream)](stream)
    _of_numbers(name, np.empty(0, dtype))
    data = content[stream.tell() :]
    if math.prod(shape) * dtype.itemsize != len(data):
        raise Refusal(400, f"{name}: the header says {shape} numbers of {dtype}, got {len(data)} bytes.")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if columns_first else "C")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
