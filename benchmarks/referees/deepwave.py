"""Sound and the gradient of its misfit by the speed beside deepwave: a shot over a fast body, heard around it.

    python benchmarks/referees/deepwave.py

deepwave 0.1.0 gets an environment of its own from the package index. It advances the pressure alone, twice
differentiated, and simjax pressure and velocity on a staggered grid; at second order both are the same scheme, if
deepwave's source has the difference of two of simjax's. The misfit is half the sum of squares of what the receivers
have over data of a medium with the body, at a medium without it. Double precision; about three minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from verdicts import keep, rounded, verdict

from benchmarks.environments import NotInstalled, python_of
from benchmarks.peer import ROOT, Peer

ROUNDING = 1e-11
"""Some thousand roundings, over the largest number of a series or the length of a gradient: sums of 350 steps."""
LAYERS = 1e-2
"""What deepwave's layers of 20 cells send back; simjax's send back less than 1e-4."""
FOURTH = 3**-3.5
"""The most that a difference may keep when the spacing is divided by three: fourth order, less half an order."""
COARSE, SPACING, COURANT = 85, 0.04, 0.3
"""Cells and spacing of the coarse grid, and the step over the spacing. Three times as many cells share its centres."""
FASTEST, END, REPEATS = 1.4, 1.4, 3
"""A bound on the speed, and a time in which no wave from the middle of the coarse grid comes to its walls and back."""


@dataclass(frozen=True)
class Shot:
    """A source in the middle of a square, with receivers around it: cells of the coarse grid, each in `split` a side.

    layers: whether absorbing layers of 20 cells lie beyond it; else no wave comes back from its walls. frequency: of a
    Ricker wavelet, whose middle is `delay`.
    """

    order: int
    coarse: int = COARSE
    split: int = 1
    end: float = END
    layers: bool = False
    frequency: float = 2.5
    delay: float = 0.48

    @property
    def cells(self) -> int:
        return self.coarse * self.split

    @property
    def spacing(self) -> float:
        return SPACING / self.split

    @property
    def dt(self) -> float:
        return COURANT * self.spacing

    @property
    def steps(self) -> int:
        return round(self.end / self.dt)

    def physics(self) -> dict[str, Any]:
        """Numbers that both sides are told."""
        square = f"(pi*{self.frequency!r}*(t - {self.delay!r}))**2"
        return {
            "order": self.order,
            "spacing": self.spacing,
            "dt": self.dt,
            "layer_cells": 20 * self.layers,
            "frequency": self.frequency,
            "fastest": FASTEST,
            "signal": f"(1 - 2*{square})*exp(-{square})",
        }

    def speed(self, body: float) -> np.ndarray:
        """Speeds that grow along x and fall along y, with a fast body beside the source."""
        x = self.spacing * (np.arange(self.cells) + 0.5 - self.cells / 2)
        x, y = np.meshgrid(x, x, indexing="ij")
        return 1 + 0.06 * x - 0.04 * y + body * np.exp(-((x - 0.4) ** 2 + (y - 0.1) ** 2) / 0.04)

    def start(self) -> dict[str, np.ndarray]:
        """Arrays that both sides are given, but for the speed and the data; places are numbers of cells."""
        angles = 2 * np.pi * np.arange(8) / 8
        middle = self.coarse // 2
        around = middle + np.rint(0.6 / SPACING * np.stack([np.cos(angles), np.sin(angles)], axis=1)).astype(int)
        places = {"source": np.array([middle, middle]), "receivers": around}
        t = self.dt * (np.arange(self.steps + 1) + 0.5)
        square = (np.pi * self.frequency * (t - self.delay)) ** 2
        volumes = (1 - 2 * square) * np.exp(-square)
        # What deepwave adds to the second difference of the pressure, and simjax to its first.
        amplitudes = -np.diff(volumes, prepend=0.0) / (self.dt * self.spacing**2)
        centred = {name: self.split * place + self.split // 2 for name, place in places.items()}
        return {**centred, "amplitudes": amplitudes}

    def away(self) -> np.ndarray:
        """Cells farther than 0.2 from the source and the receivers, where the gradient is singular."""
        x = self.spacing * np.arange(self.cells)
        start = self.start()
        places = self.spacing * np.vstack([start["source"], start["receivers"]])
        return np.all([np.hypot(x[:, None] - a, x - b) > 0.2 for a, b in places], axis=0)


SIMJAX = (sys.executable, "simjax", {"checkpoint": "every_step"})
REVERSED = (sys.executable, "simjax", {"checkpoint": "reverse"})
UNREPEATED = (sys.executable, "simjax", {"checkpoint": "none"})
"""An interpreter, a program of `others`, and what it is told beside the problem."""


class Sides:
    """Programs in processes of their own, with the same problem."""

    def __init__(self, shot: Shot, speed: np.ndarray, data: np.ndarray, programs: dict[str, tuple]):
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        (folder / "physics.json").write_text(json.dumps(shot.physics()), encoding="utf-8")
        np.savez(folder / "start.npz", **shot.start(), speed=speed, data=data)
        self.found, self.reports, self.peers = {}, {}, {}
        for name, (python, program, told) in programs.items():
            result, module = folder / f"{name}.npz", f"benchmarks.referees.others.{program}_gradient"
            command = [python, "-m", module, str(folder), str(result), json.dumps(told)]
            self.peers[name] = Peer(command, {"PYTHONPATH": str(ROOT)})
            self.reports[name] = self.peers[name].report()
            with np.load(result) as arrays:
                self.found[name] = dict(arrays)

    def cpu_seconds(self) -> dict[str, float]:
        """Least processor time of a value with its gradient, taken in turns."""
        times = [{name: peer.run().cpu_seconds for name, peer in self.peers.items()} for _ in range(REPEATS)]
        return {name: min(one[name] for one in times) for name in self.peers}

    def close(self) -> None:
        for peer in self.peers.values():
            peer.close()
        self._folder.cleanup()


def beside(shot: Shot, peer: str, **more: tuple):
    """Both sides at the medium without the body, with simjax's data of the medium with it."""
    nothing = np.zeros((shot.steps, 8))
    heard = Sides(shot, shot.speed(0.2), nothing, {"simjax": SIMJAX})
    heard.close()
    programs = {"simjax": SIMJAX, "deepwave": (peer, "deepwave", {}), **more}
    return Sides(shot, shot.speed(0.0), heard.found["simjax"]["series"], programs)


def differences(sides: Sides, kept: Any = ...) -> dict[str, float]:
    """Relative differences of the series and of the gradient, and one less the cosine between the gradients.

    kept: cells whose gradient is compared.
    """
    ours, theirs = sides.found["simjax"], sides.found["deepwave"]
    one, other = ours["gradient"][kept], theirs["gradient"][kept]
    cosine = np.sum(one * other) / (np.linalg.norm(one) * np.linalg.norm(other))
    return {
        "pressures": np.linalg.norm(ours["series"] - theirs["series"]) / np.linalg.norm(theirs["series"]),
        "gradient": np.linalg.norm(one - other) / np.linalg.norm(other),
        "1 - cosine": abs(1 - cosine),
    }


def equal_schemes(peer: str):
    sides = beside(Shot(2, split=3), peer, reverse=REVERSED, none=UNREPEATED)
    yield sides
    for what, found in differences(sides).items():
        yield verdict(f"second order, {what}", found, ROUNDING)


def fourth_order(peer: str):
    # A wavelet that begins with less than 1e-9: what a jump sends out has no order.
    shots = [Shot(4, split=split, end=2.0, frequency=2.0, delay=0.85) for split in (1, 3)]
    both = [beside(shot, peer) for shot in shots]
    yield both[1]
    coarse, fine = (differences(sides, shot.away()) for sides, shot in zip(both, shots, strict=True))
    both[0].close()
    for what in ("pressures", "gradient"):
        ratio = fine[what] / coarse[what]
        yield verdict(
            f"fourth order, {what}: difference over that of cells three times as wide",
            ratio,
            FOURTH,
            difference=rounded(fine[what]),
        )


def layers(peer: str):
    sides = beside(Shot(2, coarse=43, split=3, end=3.0, layers=True), peer, none=UNREPEATED)
    yield sides
    # Cells at the edge have the gradient of those beyond it too, which both codes add up.
    for what, found in differences(sides, (slice(1, -1), slice(1, -1))).items():
        yield verdict(f"absorbing layers, {what}", found, LAYERS)


GROUPS = {"equal schemes": equal_schemes, "fourth order": fourth_order, "layers": layers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    options = parser.parse_args()
    try:
        peer = python_of("deepwave")
    except NotInstalled as error:
        sys.exit(str(error))
    for group in options.groups:
        sides, *rows = GROUPS[group](peer)
        cost = {
            name: {"cpu_s": rounded(seconds), "peak_mib": rounded(sides.reports[name]["peak_mib"])}
            for name, seconds in sides.cpu_seconds().items()
        }
        keep("deepwave", group, rows, deepwave=sides.reports["deepwave"]["version"], cost=cost)
        print(json.dumps(cost), flush=True)
        sides.close()


if __name__ == "__main__":
    main()
