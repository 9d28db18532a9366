"""Traces in SEG-Y files, revision 1 (Society of Exploration Geophysicists, 2002): big-endian, all of one length."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simjax.errors import InputOutputError
from simjax.io.files import replaced

TEXT, BINARY, HEADER = 3200, 400, 240
"""Bytes of the textual header, of the binary one, and of that of each trace."""
LONGEST = 65535
"""The most samples of a trace, and the longest interval between them in microseconds: two bytes without a sign."""
IBM, IEEE = 1, 5
_FORMATS = {IBM: ">u4", 2: ">i4", 3: ">i2", IEEE: ">f4", 8: ">i1"}
# Fields of the header of a trace that are read and written: the first byte, counted from 0, and the kind of number.
_FIELDS = {
    "number": (0, ">i4"),
    "shot": (8, ">i4"),
    "channel": (12, ">i4"),
    "identification": (28, ">i2"),
    "receiver_elevation": (40, ">i4"),
    "source_surface": (44, ">i4"),
    "source_depth": (48, ">i4"),
    "elevation_scalar": (68, ">i2"),
    "coordinate_scalar": (70, ">i2"),
    "source_x": (72, ">i4"),
    "source_y": (76, ">i4"),
    "receiver_x": (80, ">i4"),
    "receiver_y": (84, ">i4"),
    "coordinate_units": (88, ">i2"),
    "delay": (108, ">i2"),
    "samples": (114, ">u2"),
    "interval": (116, ">u2"),
}
_LIVE, _LENGTH = 1, 1  # seismic data; coordinates are lengths
_SCALAR = -1000  # coordinates are written in thousandths
_ROUNDED = 1e-3  # of an interval or a coordinate's last digit: what rounding of numbers may have changed


@dataclass(frozen=True)
class Traces:
    """Traces in the order of their file.

    samples: `(traces, times)`. times: in s. shots: the field record that each belongs to. sources, receivers: places
    `(traces, 3)` x, y and the elevation z, in the units of the file.
    """

    samples: np.ndarray
    times: np.ndarray
    shots: np.ndarray
    sources: np.ndarray
    receivers: np.ndarray


def read_segy(path: Path) -> Traces:
    """The traces of a file with IBM or IEEE numbers or integers.

    Raises InputOutputError for a file that is cut off, has traces of several lengths, or numbers of another format.
    """
    content = path.read_bytes()
    if len(content) < TEXT + BINARY + HEADER:
        raise InputOutputError(f"{path}: expected a SEG-Y file, got {len(content)} bytes, less than its headers.")
    interval, _, count, _, kind = np.frombuffer(content, ">u2", 5, TEXT + 16).tolist()
    extra = int(np.frombuffer(content, ">i2", 1, TEXT + 304)[0])
    if kind not in _FORMATS:
        raise InputOutputError(f"{path}: samples of format {kind}: expected one of {', '.join(map(str, _FORMATS))}.")
    begin = TEXT + BINARY + TEXT * max(extra, 0)
    count = count or int(np.frombuffer(content, ">u2", 1, begin + 114)[0])
    number = np.dtype(_FORMATS[kind])
    names, places = [*_FIELDS], [place for place, _ in _FIELDS.values()]
    layout = np.dtype(
        {
            "names": [*names, "values"],
            "formats": [*(form for _, form in _FIELDS.values()), (number, count)],
            "offsets": [*places, HEADER],
            "itemsize": HEADER + count * number.itemsize,
        }
    )
    length = len(content) - begin
    if count == 0 or length <= 0 or length % layout.itemsize:
        raise InputOutputError(
            f"{path}: expected traces of {count} samples, {layout.itemsize} bytes each, got {length} bytes; the file "
            "is cut off, or its traces have several lengths."
        )
    traces = np.frombuffer(content, layout, offset=begin)
    if np.any((traces["samples"] != count) & (traces["samples"] != 0)):
        raise InputOutputError(f"{path}: expected traces of {count} samples, got traces of several lengths.")
    interval = interval or int(traces["interval"][0])
    if interval == 0:
        raise InputOutputError(f"{path}: expected an interval between samples, in microseconds, got 0.")
    delays = np.unique(traces["delay"])
    if delays.size > 1:
        raise InputOutputError(f"{path}: expected traces that begin at one time, got delays of {delays.tolist()} ms.")
    along, up = _scales(traces["coordinate_scalar"]), _scales(traces["elevation_scalar"])
    source_z = traces["source_surface"].astype(np.float64) - traces["source_depth"]
    return Traces(
        ibm_numbers(traces["values"]) if kind == IBM else traces["values"].astype(np.float32),
        1e-3 * float(delays[0]) + 1e-6 * interval * np.arange(count),
        traces["shot"].astype(np.int64),
        np.stack([along * traces["source_x"], along * traces["source_y"], up * source_z], axis=1),
        np.stack(
            [along * traces["receiver_x"], along * traces["receiver_y"], up * traces["receiver_elevation"]], axis=1
        ),
    )


def write_segy(path: Path, traces: Traces, title: str = "") -> Path:
    """Write traces with IEEE numbers and places in thousandths; return `path`.

    Raises InputOutputError where the format has no room: an interval that is no whole number of microseconds, more
    than 65535 samples, a start that is no whole number of milliseconds, a coordinate beyond 2147483.
    """
    count = len(traces.times)
    steps, interval = np.diff(traces.times), 0.0
    if count > 1:
        interval = 1e6 * float(traces.times[-1] - traces.times[0]) / (count - 1)
    even = count > 1 and np.allclose(1e6 * steps, round(interval), rtol=0, atol=_ROUNDED * max(interval, 1.0))
    if not even or not 1 <= round(interval) <= LONGEST:
        raise InputOutputError(
            f"{path}: expected samples at one interval of a whole number of microseconds, 1 to {LONGEST}, got "
            f"{interval:g}; write a NetCDF file, or other times."
        )
    delay = 1e3 * float(traces.times[0])
    if count > LONGEST or abs(delay - round(delay)) > _ROUNDED or abs(delay) > 32767:
        raise InputOutputError(
            f"{path}: expected at most {LONGEST} samples from a whole number of milliseconds on, got {count} from "
            f"{delay:g} ms; write a NetCDF file."
        )
    layout = np.dtype(
        {
            "names": [*_FIELDS, "values"],
            "formats": [*(form for _, form in _FIELDS.values()), (">f4", count)],
            "offsets": [*(place for place, _ in _FIELDS.values()), HEADER],
            "itemsize": HEADER + 4 * count,
        }
    )
    places = np.rint(-_SCALAR * np.concatenate([traces.sources, traces.receivers], axis=1))
    if np.any(np.abs(places) >= 2**31):
        raise InputOutputError(
            f"{path}: expected places up to {2**31 // -_SCALAR}, got {np.abs(places).max() / -_SCALAR:g}."
        )
    written = np.zeros(len(traces.samples), layout)
    names = ("source_x", "source_y", "source_surface", "receiver_x", "receiver_y", "receiver_elevation")
    for name, values in zip(names, places.T, strict=True):
        written[name] = values
    written["number"], written["shot"] = np.arange(1, len(written) + 1), traces.shots
    written["identification"], written["coordinate_units"] = _LIVE, _LENGTH
    written["elevation_scalar"] = written["coordinate_scalar"] = _SCALAR
    written["samples"], written["interval"], written["delay"] = count, round(interval), round(delay)
    written["values"] = traces.samples
    binary = np.zeros(BINARY // 2, ">u2")
    binary[8], binary[10], binary[12] = round(interval), count, IEEE
    binary[150], binary[151] = 0x0100, 1  # revision 1, and all traces of one length
    lines = [f"C{number:2d} {title if number == 1 else ''}"[:80].ljust(80) for number in range(1, 41)]
    lines[38], lines[39] = "C39 SEG Y REV1".ljust(80), "C40 END TEXTUAL HEADER".ljust(80)
    with replaced(path) as temporary:
        temporary.write_bytes("".join(lines).encode("cp037", "replace") + binary.tobytes() + written.tobytes())
    return path


def ibm_numbers(words: np.ndarray) -> np.ndarray:
    """Numbers of IBM's System/360, four bytes each: (-1)^s 16^(e - 64) f / 2^24, as numbers of double precision."""
    words = words.astype(np.uint32)
    exponent = ((words >> 24) & 0x7F).astype(np.int32) - 64
    size = np.ldexp((words & 0xFFFFFF).astype(np.float64), 4 * exponent - 24)
    return np.where(words >> 31, -size, size)


def _scales(scalars: np.ndarray) -> np.ndarray:
    """The factors of whole numbers in headers: a scalar above zero multiplies, one below zero divides."""
    scalars = np.where(scalars == 0, 1, scalars).astype(np.float64)
    return np.where(scalars > 0, scalars, 1 / np.abs(scalars))
