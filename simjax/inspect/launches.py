"""Launches of a line of a GPU's program: kernels of XLA's own, of cuFFT, cuBLAS and others, and copies.

The text of a program does not say how a library divides its work. What is taken for granted:

- A transform is a kernel for each of its axes, which reads and writes all data. XLA divides an inverse by the number of
  points in a call of cuBLAS, and copies the spectrum of a real one beforehand, which cuFFT would overwrite. On an H100
  46 launches were counted where this gives 46 (Kolmogorov flow, 512 x 512, rk4), and 15.5 where it gives 14.5 (2048 x
  2048, euler), as cuFFT takes some axes of 2048 in two kernels.
- Any other call of a library is one launch that reads its operands and writes its results once. A solver of cuSOLVER is
  more than that, and so is a sort: the figures are a lower bound there.
- The host reads the answer of each condition and of each loop whose length XLA does not know: a copy each time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from simjax.inspect.hlo import Computation, Instruction
from simjax.inspect.work import FREE, is_collective

LIBRARIES = {
    "__cublas": "cuBLAS",
    "__cudnn": "cuDNN",
    "__cub$": "CUB",
    "cusolver": "cuSOLVER",
    "mosaic": "Mosaic",
    "triton": "Triton",
}
"""A part of the name of what is called -> the name by which its launches are told."""
COPIES = frozenset(("copy", "copy-start"))


@dataclass(frozen=True)
class Launches:
    """kind: what starts, as it is told; count: of launches; streamed: bytes that are read and written line by line, as
    a copy does it; None: what XLA's own kernel reads and writes, by its operands and results.
    """

    kind: str
    count: int
    streamed: int | None = None


def launches_of(within: Computation, one: Instruction) -> Launches | None:
    """Launches of one instruction by itself, without what it calls; None: it has none."""
    if one.op in FREE or one.op.endswith("-done") or is_collective(one.op):
        return None
    read, written = (sum(shape.bytes for shape in shapes) for shapes in (within.operand_shapes(one), one.shapes))
    if one.op == "fft":
        return _transform(one, read, written)
    if one.op in COPIES:
        return Launches("copies", 1, 2 * read)
    if one.op == "custom-call":
        target = re.search(r'custom_call_target="([^"]*)"', one.attributes)
        name = target[1] if target else ""
        if name == "AllocateBuffer":
            return None
        kind = next((told for part, told in LIBRARIES.items() if part in name.lower()), f"call of {name or 'others'}")
        return Launches(kind, 1, read + written)
    return Launches("fusions", 1)


def _transform(one: Instruction, read: int, written: int) -> Launches:
    lengths = re.search(r"fft_length=\{([\d,]*)\}", one.attributes)
    axes = len(lengths[1].split(",")) if lengths else 1
    kind = re.search(r"fft_type=(\w+)", one.attributes)
    moved, count = axes * (read + written), axes
    if kind and kind[1].startswith("I"):
        moved, count = moved + 2 * written, count + 1
    if kind and kind[1] == "IRFFT":
        moved, count = moved + 2 * read, count + 1
    return Launches("cuFFT", count, moved)


READ_BACK = Launches("answers read by the host", 1, 0)
"""Added by each turn of a loop of unknown length, and by each condition."""
