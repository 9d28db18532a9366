"""Figures of the chips for which programs are compiled, and of the links between them.

Sources. Memory, its bandwidth and bfloat16 products of TPUs: the table that jax itself keeps for its kernels
(`jax/_src/pallas/mosaic/tpu_info.py`, from Google Cloud's pages of each TPU). Links: J. Austin et al., "How to Scale
Your Model" (2025), part "How to think about TPUs": bandwidth of a link in one direction, and about a microsecond per
hop. Vector units: the same page, 8 x 128 lanes with four units each, at the clock that follows from the products of the
matrix units. H100: NVIDIA's data sheet of the H100 SXM; NVLink's bandwidth is that of one direction. None of it was
measured here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from simjax.errors import ConfigurationError

LANES = 8 * 128 * 4


@dataclass(frozen=True)
class Chip:
    """A device as the compiler sees it.

    memory: bytes; bandwidth: of the memory, bytes per second; vector, matrix: operations per second on single elements
    and in products of bfloat16 (of TF32 on a GPU); clock: hertz; link: "ICI" or "NVLink", whose bandwidth is in bytes
    per second in one direction and whose latency is in seconds per hop; is_torus: chips have links to their neighbours
    alone; devices: of jax on each chip, which a TPU v4 that is not there has two of, and all else is of one of them.
    """

    name: str
    memory: float
    bandwidth: float
    vector: float
    matrix: float
    clock: float
    link: str
    link_bandwidth: float
    latency: float
    is_torus: bool = True
    devices: int = 1


def _tpu(
    name: str, memory: float, bandwidth: float, matrix: float, clock: float, link: float, cores: int = 1,
    devices: int = 1,
) -> Chip:  # fmt: skip
    vector = cores * LANES * clock
    return Chip(
        name, memory / devices, bandwidth / devices, vector / devices, matrix / devices, clock, "ICI", link, 1e-6,
        devices=devices,
    )  # fmt: skip


CHIPS = {
    "v4": _tpu("TPU v4", 34.4e9, 1.23e12, 2.75e14, 1.05e9, 4.5e10, cores=2, devices=2),
    "v5e": _tpu("TPU v5e", 17.2e9, 8.20e11, 1.97e14, 1.5e9, 4.5e10),
    "v5p": _tpu("TPU v5p", 103e9, 2.46e12, 4.59e14, 1.75e9, 9e10, cores=2),
    "v6e": _tpu("TPU v6e", 34.4e9, 1.64e12, 9.20e14, 1.75e9, 9e10),
    "h100": Chip("H100 SXM", 85.0e9, 3.35e12, 67e12, 495e12, 1.98e9, "NVLink", 4.5e11, 3e-6, is_torus=False),
}
"""Name of a chip as it stands in a target -> what is known of it."""


@dataclass(frozen=True)
class Target:
    """Devices to compile for: `v5e:16x16`, `h100:8` or `cpu:8`. shape: of the torus, or the number of devices."""

    name: str
    shape: tuple[int, ...]

    @staticmethod
    def read(text: str) -> Target:
        """The target that a text names; raises ConfigurationError."""
        name, _, size = text.partition(":")
        known = (*CHIPS, "cpu")
        if name not in known or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", size):
            raise ConfigurationError(
                f"target={text}: expected one of {', '.join(known)}, a colon and the number of devices along each "
                "axis; write target=v5e:16x16, target=v5p:4x4x8, target=h100:8 or target=cpu:8."
            )
        shape = tuple(int(n) for n in size.split("x"))
        axes = (1,) if name in ("h100", "cpu") else (2,) if name in ("v5e", "v6e") else (3,)
        if len(shape) not in axes:
            write = {1: f"{name}:8", 2: f"{name}:4x4", 3: f"{name}:2x2x4"}[axes[0]]
            raise ConfigurationError(f"target={text}: expected {axes[0]} number(s) for {name}; write target={write}.")
        return Target(name, shape)

    def __str__(self) -> str:
        return f"{self.name}:{'x'.join(map(str, self.shape))}"

    @property
    def count(self) -> int:
        """Number of devices."""
        return math.prod(self.shape) * (self.chip.devices if self.chip else 1)

    @property
    def chip(self) -> Chip | None:
        """Figures of the device; None for the processor of this machine."""
        return CHIPS.get(self.name)

    def halved(self) -> Target:
        """The target with half as many devices along each axis."""
        return Target(self.name, tuple(max(1, length // 2) for length in self.shape))

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Tell along which axes the links close a ring: of v5e and v6e along whole sides of a pod of 16, else along
        multiples of four (the blocks of 4 x 4 x 4 that are joined by optical switches).
        """
        if self.name in ("v5e", "v6e"):
            return tuple(length == 16 for length in self.shape)
        return tuple(length % 4 == 0 for length in self.shape)
