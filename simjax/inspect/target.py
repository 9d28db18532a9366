"""Devices that programs are compiled for: slices of TPUs, GPUs, processors."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from simjax.chips import CHIPS, Chip
from simjax.errors import ConfigurationError


@dataclass(frozen=True)
class Target:
    """Devices to compile for: `v5e:16x16`, `h100`, `h100:8` or `cpu:8`; shape: of the torus, or a number of them."""

    name: str
    shape: tuple[int, ...]

    @staticmethod
    def read(text: str) -> Target:
        """The target that a text names, one GPU where it says no number; raises ConfigurationError."""
        name, colon, size = text.partition(":")
        if name == "h100" and not colon:
            size = "1"
        known = (*CHIPS, "cpu")
        if name not in known or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", size):
            raise ConfigurationError(
                f"target={text}: expected one of {', '.join(known)}, a colon and the number of devices along each "
                "axis; write target=v5e:16x16, target=v5p:4x4x8, target=h100, target=h100:8 "
                "or target=cpu:8."
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
