"""Animated WebP files: still pictures that Pillow encodes, in a container written here.

libwebp's own animation encoder leaves pixels as they were when they change by less than a threshold from one
frame to the next, so that a slow flow trails ghosts of its past. Here each frame is the whole rectangle that
changed. The container is that of the WebP specification: RIFF, then VP8X, ANIM, and one ANMF for each frame.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable

from PIL import Image, ImageChops

_LOOP_MS, _SHORTEST_MS, _LONGEST_MS, _LAST_MS = 9_000, 40, 250, 900
_METHOD = 2  # of libwebp, 0 to 6: from 3 on it takes twice the time for 5 % fewer bytes
_ANIMATED, _REPLACE = 0x02, 0x02  # flags of VP8X and of ANMF


def frame_durations(count: int) -> list[int]:
    """Milliseconds for each frame: about nine seconds in all, and a rest on the last one."""
    each = round(min(max(_LOOP_MS / count, _SHORTEST_MS), _LONGEST_MS))
    return [each] * (count - 1) + [max(each, _LAST_MS)]


def animated_webp(pictures: Iterable[Image.Image], count: int, quality: int) -> bytes:
    """An endless animation of `count` RGB pictures of one size, at WebP `quality` from 0 to 100."""
    frames: list[tuple[tuple[int, int, int, int], bytes, int]] = []
    previous: Image.Image | None = None
    size = (1, 1)
    for picture, duration in zip(pictures, frame_durations(count), strict=True):
        box = _changed(previous, picture)
        if box is None:
            place, content, shown = frames[-1]
            frames[-1] = (place, content, shown + duration)
        else:
            frames.append((box, _still(picture.crop(box), quality), duration))
        previous, size = picture, picture.size
    canvas = struct.pack("<B3x", _ANIMATED) + _three_bytes(size[0] - 1) + _three_bytes(size[1] - 1)
    content = b"WEBP" + _chunk(b"VP8X", canvas) + _chunk(b"ANIM", struct.pack("<IH", 0xFFFFFFFF, 0))
    return _chunk(b"RIFF", content + b"".join(_frame(*frame) for frame in frames))


def _changed(previous: Image.Image | None, picture: Image.Image) -> tuple[int, int, int, int] | None:
    """The rectangle outside which two pictures are equal, its corner at even pixels as the format wants."""
    if previous is None:
        return (0, 0, *picture.size)
    box = ImageChops.difference(previous, picture).getbbox()
    return None if box is None else (box[0] & ~1, box[1] & ~1, box[2], box[3])


def _still(picture: Image.Image, quality: int) -> bytes:
    """The image chunk of a still WebP file, without the 12 bytes of its own RIFF header."""
    stream = io.BytesIO()
    picture.save(stream, "WEBP", quality=quality, method=_METHOD)
    return stream.getvalue()[12:]


def _frame(box: tuple[int, int, int, int], content: bytes, duration: int) -> bytes:
    left, top, right, bottom = box
    numbers = (left // 2, top // 2, right - left - 1, bottom - top - 1, duration)
    head = b"".join(_three_bytes(value) for value in numbers) + bytes([_REPLACE])
    return _chunk(b"ANMF", head + content)


def _three_bytes(value: int) -> bytes:
    return value.to_bytes(3, "little")


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)
