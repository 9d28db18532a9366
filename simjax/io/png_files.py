"""Images in PNG files of unknown origin, as brightness: looked through before a library for images sees them."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.memory import require_memory

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_PIXELS = 100_000_000
BYTES_PER_PIXEL = 48
"""Memory to read an image: three of four bytes a pixel, one of eight, and between them."""
PIECE = 2**16
# Samples of a pixel, by the type of colours.
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# First pixel and step of the seven passes of an interlaced image, along rows and columns.
_PASSES = ((0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1))
_NEEDED = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")


def png_size(path: Path) -> tuple[int, int]:
    """Width and height of an image by its header.

    Raises InputOutputError for what is no PNG, ConfigurationError for more than `MOST_PIXELS`.
    """
    try:
        with path.open("rb") as file:
            head = file.read(33)
    except OSError as error:
        raise InputOutputError(f"{path.name} cannot be read ({error.strerror}).") from None
    if head[:8] != SIGNATURE or head[12:16] != b"IHDR" or len(head) < 33:
        raise _unreadable(path, "it does not begin as PNG does")
    width, height = struct.unpack(">II", head[16:24])
    if width * height > MOST_PIXELS:
        raise ConfigurationError(
            f"{path.name} has {width} x {height} pixels; expected at most {MOST_PIXELS}: make it smaller."
        )
    return width, height


def read_brightness(path: Path) -> np.ndarray:
    """Pixels `[x, y]` from black, 0, to white, 1, over white where they are transparent.

    Only the parts that hold the pixels are given to the library: what is written beside may be of any size.

    Raises InputOutputError for an image that is not PNG, damaged or incomplete, ConfigurationError and ResourceError
    for one that is too large.
    """
    from PIL import Image

    width, height = png_size(path)
    require_memory(
        width * height * BYTES_PER_PIXEL + 2 * path.stat().st_size,
        f"{path.name}, of {width} x {height} pixels,",
        "make it smaller",
    )
    try:
        with Image.open(io.BytesIO(_looked_through(path)), formats=["PNG"]) as image:
            own = image.convert("RGBA")
            white = Image.new("RGBA", own.size, "white")
            pixels = np.asarray(Image.alpha_composite(white, own).convert("L"))
    except (OSError, SyntaxError, ValueError, struct.error, zlib.error) as error:
        raise _unreadable(path, str(error)) from None
    return pixels[::-1].T / 255


def _unreadable(path: Path, reason: str) -> InputOutputError:
    return InputOutputError(f"{path.name} cannot be read as an image ({reason}); write it anew as PNG.")


def _looked_through(path: Path) -> bytes:
    """A PNG file without chunks that do not affect its pixels; ValueError unless it has every row of them."""
    kept, held = [SIGNATURE], []
    for kind, content in _chunks(path.read_bytes()):
        if kind in _NEEDED:
            kept.append(
                struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
            )
            held += [(kind, content)]
    if held[0][0] != b"IHDR" or len(held[0][1]) != 13 or held[-1][0] != b"IEND":
        raise ValueError("it is cut, or its parts are in disorder")
    wanted, found = _bytes_of_rows(held[0][1]), 0
    for length in _inflated(content for kind, content in held if kind == b"IDAT"):
        found += length
        if found > wanted:
            raise ValueError(f"it has more than the {wanted} bytes of its rows")
    if found < wanted:
        raise ValueError(f"it ends after {found} of {wanted} bytes of its rows")
    return b"".join(kept)


def _inflated(parts: Iterable[bytes]) -> Iterator[int]:
    """Lengths of what parts of a compressed stream give, piece by piece."""
    stream = zlib.decompressobj()
    for part in parts:
        for at in range(0, len(part), PIECE):
            left, length = part[at : at + PIECE], PIECE
            while left or length == PIECE:  # a full piece may not be all that there is
                length = len(stream.decompress(left, PIECE))
                left = b"" if stream.eof else stream.unconsumed_tail
                yield length


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of the parts of a PNG file, up to its end."""
    at = len(SIGNATURE)
    while at < len(content):
        length, kind = struct.unpack_from(">I4s", content, at)
        own = content[at + 8 : at + 8 + length]
        (said,) = struct.unpack_from(">I", content, at + 8 + length)
        if said != zlib.crc32(kind + own):
            raise ValueError(f"the checksum of its part {kind.decode('latin-1')!r} is wrong")
        yield kind, own
        if kind == b"IEND":
            return
        at += 12 + length


def _bytes_of_rows(header: bytes) -> int:
    """Bytes of all rows of pixels, each with one more for its filter."""
    width, height, depth, colour, *_, interlaced = struct.unpack(">IIBBBBB", header)
    if colour not in _SAMPLES or depth not in (1, 2, 4, 8, 16) or interlaced > 1:
        raise ValueError("its header says what no PNG is")
    bits = depth * _SAMPLES[colour]
    passes = _PASSES if interlaced else ((0, 1, 0, 1),)
    total = 0
    for first_row, row_step, first_column, column_step in passes:
        rows, columns = -(-(height - first_row) // row_step), -(-(width - first_column) // column_step)
        if rows > 0 and columns > 0:
            total += rows * (1 + -(-columns * bits // 8))
    return total
