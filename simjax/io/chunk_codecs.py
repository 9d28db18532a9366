"""Codecs of Zarr chunks, built from the metadata of a store; others are refused.

The size of what comes out is known before, and no more is taken. The standard library decodes some, numcodecs others,
each by its own function: no codec is looked up by a name that a store gives.
"""

from __future__ import annotations

import bz2
import itertools
import math
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from simjax.errors import ConfigurationError

MOST_INNER_CHUNKS = 1_000_000
"""Chunks in a shard."""
Shape = tuple[int, ...]


class Codec(ABC):
    """A step of writing a chunk, which `decode` takes back. Raises ValueError for what no such step has written."""

    @abstractmethod
    def decode(self, content: Any) -> Any:
        """Undo one step of encoding: from the encoded array or bytes to the original."""


def decode(held: bytes, codecs: Sequence[Codec]) -> np.ndarray:
    """The values of a chunk from its bytes, by codecs in the order in which it was written."""
    content: Any = held
    for codec in reversed(codecs):
        content = codec.decode(content)
    return content


@dataclass(frozen=True)
class Plain(Codec):
    """Numbers of an array one after another."""

    shape: Shape
    dtype: np.dtype
    order: Any = "C"

    def decode(self, content: bytes) -> np.ndarray:
        _require(len(content) == math.prod(self.shape) * self.dtype.itemsize, "a chunk has another size than its shape")
        return np.frombuffer(content, self.dtype).reshape(self.shape, order=self.order)


@dataclass(frozen=True)
class Transposed(Codec):
    """Axes in another order."""

    order: Shape

    def decode(self, content: np.ndarray) -> np.ndarray:
        return content.transpose(np.argsort(self.order))


@dataclass(frozen=True)
class Compressed(Codec):
    """So many bytes, `size`, made fewer. inflate: those bytes, or others up to one more, from what was made of them."""

    inflate: Callable[[bytes, int], bytes]
    size: int

    def decode(self, content: bytes) -> bytes:
        found = self.inflate(content, self.size)
        _require(len(found) == self.size, "a chunk has another size than its shape")
        return found


@dataclass(frozen=True)
class Shuffled(Codec):
    """Shuffle codec: the first bytes of all numbers, then the second bytes, and so on."""

    size: int

    def decode(self, content: bytes) -> bytes:
        whole = len(content) // self.size * self.size
        return np.frombuffer(content[:whole], np.uint8).reshape(self.size, -1).T.tobytes() + content[whole:]


@dataclass(frozen=True)
class Differences(Codec):
    """Delta codec: the first number, then the difference of each number from its predecessor."""

    dtype: np.dtype

    def decode(self, content: bytes) -> bytes:
        return np.cumsum(np.frombuffer(content, self.dtype), dtype=self.dtype).tobytes()


@dataclass(frozen=True)
class Checked(Codec):
    """A checksum, CRC-32C, of four bytes behind the content."""

    def decode(self, content: bytes) -> bytes:
        content, said = content[:-4], content[-4:]
        _require(struct.pack("<I", _crc32c(content)) == said, "a checksum is wrong")
        return content


@dataclass(frozen=True)
class Sharded(Codec):
    """Smaller chunks in one, and an index of where each lies. counts: of them along each axis."""

    counts: Shape
    chunks: Shape
    dtype: np.dtype
    codecs: tuple[Codec, ...]
    checked: bool
    at_end: bool
    fill: Any

    def decode(self, content: bytes) -> np.ndarray:
        size = 16 * math.prod(self.counts) + 4 * self.checked
        _require(len(content) >= size, "a shard is shorter than its index")
        index = content[-size:] if self.at_end else content[:size]
        index = Checked().decode(index) if self.checked else index
        places = np.frombuffer(index, "<u8").reshape(*self.counts, 2)
        values = np.empty([n * m for n, m in zip(self.counts, self.chunks, strict=True)], self.dtype)
        for place in itertools.product(*map(range, self.counts)):
            into = tuple(slice(at * n, (at + 1) * n) for at, n in zip(place, self.chunks, strict=True))
            first, count = map(int, places[place])
            if first == count == 2**64 - 1:
                values[into] = self.fill
                continue
            _require(first + count <= len(content), "a chunk lies beyond its shard")
            values[into] = decode(content[first : first + count], self.codecs)
        return values


def _require(met: bool, otherwise: str) -> None:
    if not met:
        raise ValueError(otherwise)


@cache
def _crc_table() -> tuple[int, ...]:
    def of(value: int) -> int:
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        return value

    return tuple(map(of, range(256)))


def _crc32c(content: bytes) -> int:
    table, value = _crc_table(), 0xFFFFFFFF
    for byte in content:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


# ---- compressors


def _zlib(content: bytes, size: int, wbits: int = zlib.MAX_WBITS) -> bytes:
    stream = zlib.decompressobj(wbits)
    found = stream.decompress(content, size + 1)
    found += stream.decompress(stream.unconsumed_tail, 1)  # what ends the stream
    _require(stream.eof, "a chunk is cut, or larger than its shape")
    return found


def _gzip(content: bytes, size: int) -> bytes:
    return _zlib(content, size, zlib.MAX_WBITS + 16)


def _bz2(content: bytes, size: int) -> bytes:
    stream = bz2.BZ2Decompressor()
    found = stream.decompress(content, size + 1)
    found += b"" if stream.eof else stream.decompress(b"", 1)
    _require(stream.eof, "a chunk is cut, or larger than its shape")
    return found


def _of_numcodecs(module: str, size_of: Callable[[bytes], int]) -> Callable[[bytes, int], bytes]:
    """A decoder of numcodecs, which takes as much memory as the content says: that is compared before."""

    def inflate(content: bytes, size: int) -> bytes:
        _require(size_of(content) == size, "a chunk says another size than that of its shape")
        return bytes(import_module(f"numcodecs.{module}").decompress(content))

    return inflate


def _size_of_zstd(content: bytes) -> int:
    """The size of the content of a frame, -1 where it does not say: RFC 8878, 3.1.1.1."""
    magic, about = struct.unpack_from("<IB", content)
    _require(magic == 0xFD2FB528, "a chunk is not of zstd")
    whole, flag = about >> 5 & 1, about >> 6
    at = 5 + (1 - whole) + (0, 1, 2, 4)[about & 3]
    width = (whole, 2, 4, 8)[flag]
    size = int.from_bytes(content[at : at + width], "little") + 256 * (flag == 1)
    return size if width else -1


def _size_of_blosc(content: bytes) -> int:
    size, _, held = struct.unpack_from("<4xIII", content)
    _require(held == len(content), "a chunk is cut")
    return size


def _size_of_lz4(content: bytes) -> int:
    return struct.unpack_from("<I", content)[0]


COMPRESSORS = {
    "zlib": _zlib,
    "gzip": _gzip,
    "bz2": _bz2,
    "zstd": _of_numcodecs("zstd", _size_of_zstd),
    "blosc": _of_numcodecs("blosc", _size_of_blosc),
    "lz4": _of_numcodecs("lz4", _size_of_lz4),
}
OF_FORMAT_2 = (*COMPRESSORS, "shuffle", "delta", "bitround")
OF_FORMAT_3 = ("transpose", "bytes", "sharding_indexed", "gzip", "zstd", "blosc", "crc32c")


def _compressed(name: str, size: int | None, where: str) -> Compressed:
    if size is None:
        raise ConfigurationError(f"{where} is compressed twice over; write it with one compressor.")
    if name in ("zstd", "blosc", "lz4"):
        try:
            import_module(f"numcodecs.{name}")
        except ImportError:
            raise ConfigurationError(
                f"{where} is compressed with {name}, which takes numcodecs, which is not installed; pip install "
                "'simjax[zarr]', or write it with gzip."
            ) from None
    return Compressed(COMPRESSORS[name], size)


def _named(given: Any, key: str, known: Sequence[str], where: str) -> tuple[str, Mapping[str, Any]]:
    """The name of a known codec, and its configuration in the store."""
    said = given if isinstance(given, Mapping) else {key: given}
    name = said.get(key)
    if not isinstance(name, str) or name not in known:
        raise ConfigurationError(
            f"{where} is written with the codec {str(name)[:60]!r}; expected {', '.join(known)}, as others "
            "may run what a file says: write it anew."
        )
    return name, said


def codecs_of_format_2(
    filters: Any, compressor: Any, order: str, shape: Shape, dtype: np.dtype, where: str
) -> tuple[Codec, ...]:
    """Codecs of an array of format 2, by its filters and its compressor.

    Raises ConfigurationError for one that is not accepted, ValueError for what is no codec at all.
    """
    codecs: list[Codec] = [Plain(shape, dtype, order)]
    for given in filters or ():
        name, said = _named(given, "id", OF_FORMAT_2, where)
        if name == "shuffle":
            size = said.get("elementsize", 4)
            _require(type(size) is int and 1 <= size <= 64, f"its shuffle is of {str(size)[:60]} bytes")
            codecs.append(Shuffled(size))
        elif name == "delta":
            if not said.get("dtype") == said.get("astype", said.get("dtype")) == dtype.str:
                raise ConfigurationError(f"{where} is written with delta in another dtype; expected its own, {dtype}.")
            codecs.append(Differences(dtype))
        elif name != "bitround":  # which leaves nothing to take back
            codecs.append(_compressed(name, _size_after(codecs, shape, dtype), where))
    if compressor is not None:
        name, _ = _named(compressor, "id", tuple(COMPRESSORS), where)
        codecs.append(_compressed(name, _size_after(codecs, shape, dtype), where))
    return tuple(codecs)


def codecs_of_format_3(
    given: Any, shape: Shape, dtype: np.dtype, fill: Any, where: str, *, known: Sequence[str] = OF_FORMAT_3
) -> tuple[Codec, ...]:
    """Codecs of an array of format 3; `known` are those accepted. Errors as of `codecs_of_format_2`."""
    _require(isinstance(given, list) and bool(given), "its codecs are no list")
    codecs: list[Codec] = []
    for one in given:
        name, said = _named(one, "name", known, where)
        settings = said.get("configuration", {})
        of_array = name in ("transpose", "bytes", "sharding_indexed")
        _require(
            of_array == all(isinstance(codec, Transposed) for codec in codecs), f"its codec {name} is out of place"
        )
        if name == "transpose":
            order = tuple(settings["order"])
            _require(sorted(order) == list(range(len(shape))), "its axes are transposed to others")
            codecs.append(Transposed(order))
            shape = tuple(shape[axis] for axis in order)
        elif name == "bytes":
            endian: Any = {"little": "<", "big": ">", None: "="}[settings.get("endian")]
            codecs.append(Plain(shape, dtype.newbyteorder(endian)))
        elif name == "sharding_indexed":
            codecs.append(_sharded(settings, shape, dtype, fill, where))
        elif name == "crc32c":
            codecs.append(Checked())
        else:
            codecs.append(_compressed(name, _size_after(codecs, shape, dtype), where))
    _require(any(isinstance(codec, Plain | Sharded) for codec in codecs), "its codecs make no bytes")
    return tuple(codecs)


def _size_after(codecs: Sequence[Codec], shape: Shape, dtype: np.dtype) -> int | None:
    """Bytes that codecs make of a chunk; None where they compress."""
    if any(isinstance(codec, Compressed | Sharded) for codec in codecs):
        return None
    return math.prod(shape) * dtype.itemsize + 4 * sum(isinstance(codec, Checked) for codec in codecs)


def _sharded(settings: Mapping[str, Any], shape: Shape, dtype: np.dtype, fill: Any, where: str) -> Sharded:
    chunks = tuple(settings["chunk_shape"])
    fits = len(chunks) == len(shape) and all(
        type(n) is int and n > 0 and m % n == 0 for n, m in zip(chunks, shape, strict=True)
    )
    _require(fits, f"its shards of {shape} are no multiples of chunks of {str(chunks)[:60]}")
    counts = tuple(m // n for n, m in zip(chunks, shape, strict=True))
    _require(math.prod(counts) <= MOST_INNER_CHUNKS, f"its shards have {math.prod(counts)} chunks")
    of_index = settings.get("index_codecs", [{"name": "bytes", "configuration": {"endian": "little"}}])
    index = codecs_of_format_3(of_index, counts, np.dtype("<u8"), 0, where, known=("bytes", "crc32c"))
    _require(len(index) <= 2, "the index of its shards has more codecs than bytes and crc32c")
    _require(
        isinstance(index[0], Plain) and index[0].dtype == np.dtype("<u8"),
        "the index of its shards is not little-endian",
    )
    inner = tuple(name for name in OF_FORMAT_3 if name != "sharding_indexed")
    codecs = codecs_of_format_3(settings["codecs"], chunks, dtype, fill, where, known=inner)
    location = settings.get("index_location", "end")
    _require(location in ("start", "end"), "the index of its shards is neither at the start nor at the end")
    return Sharded(counts, chunks, dtype, codecs, len(index) == 2, location == "end", fill)
