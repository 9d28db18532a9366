"""Learns what a coarse grid lacks, so that a flow in the plane keeps the spectrum and the course of a grid 8 times finer.

    python experiments/learn_correction.py                # 4 to 5 hours on two cores, most of it training
    python experiments/learn_correction.py --quick        # the same with little of everything, in minutes

Kolmogorov flow is simulated on 256 x 256 cells with several viscosities. Its states, averaged over 8 x 8 cells, are what
runs on 32 x 32 cells are compared with: a network of what lies around each cell is added to the tendency of their
velocity, and trained through the solver over longer and longer stretches (after Kochkov et al. 2021,
doi:10.1073/pnas.2101784118, with a much smaller network). It is judged on flows that it has not seen, with a viscosity
in the range of the training and with one below it, beside the coarse grid alone, finer grids and Smagorinsky's model.

Printed are the time until the vorticity's correlation with that of the fine grid is below 0.95, and how far the spectrum of
the energy is off, in decades, with the spread over seeds of the training; the picture is learn_correction.png.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import optax

import simjax as sj

FIELDS = ["velocity_x", "velocity_y"]
EVERY = 0.1  # time between two saved states
SPIN_UP = 10.0
TRAINED, INSIDE, BELOW = "{log_uniform: [1.0e-3, 4.0e-3]}", 2.0e-3, 5.0e-4  # viscosities
CORRELATED = 0.95


@dataclass(frozen=True)
class Size:
    """How much of everything. fine, factor: cells along an axis of the fine grid, and how many become a coarse one.

    stages: (updates, states of the pushforward, states of the unroll) of the curriculum. seen: time of a judged run.
    """

    fine: int
    factor: int
    members: int
    judged: int
    end: float
    seen: float
    batch: int
    hidden: tuple[int, ...]
    stages: tuple[tuple[int, int, int], ...]

    @property
    def coarse(self) -> int:
        return self.fine // self.factor


FULL = Size(256, 8, 12, 4, 30.0, 15.0, 8, (24, 24), ((400, 0, 2), (250, 0, 8), (120, 4, 16)))
QUICK = Size(64, 4, 3, 1, 14.0, 3.0, 4, (8,), ((30, 0, 1), (10, 1, 4)))


def simulated(size: Size, folder: Path, members: int, viscosity: str, seed: int) -> Path:
    """The folder of an ensemble on the fine grid; one that is there already is taken."""
    if (folder / "report.html").is_file() or (folder / "fields.h5").is_file():
        return folder
    sj.load(
        "kolmogorov",
        [
            f"grid.shape=[{size.fine},{size.fine}]", f"time.end={size.end}", f"time.output_every={EVERY}",
            f"ensemble.size={members}", f"ensemble.vary.physics.viscosity={viscosity}", f"seed={seed}",
            "output.fields=[velocity]", "output.report=false", "output.animation=false", f"output.folder={folder}",
        ],  # fmt: skip
    ).run(progress=True)
    return folder


def flow(cells: int, *changes: str) -> sj.Simulation:
    """The same flow on a grid of so many cells along each axis."""
    dt = EVERY / max(1, round(cells / 16))
    given = [f"grid.shape=[{cells},{cells}]", f"time.output_every={EVERY}", f"time.dt={dt}", f"time.end={EVERY}"]
    return sj.load("kolmogorov", [*given, *changes])


def windows(size: Size, run: Path, length: int, coarsen: int, **options) -> sj.TrajectoryWindows:
    return sj.TrajectoryWindows(
        run, FIELDS, length=length, since=SPIN_UP, coarsen=coarsen, in_memory=True, **options
    )  # fmt: skip


# ---------------------------------------------------------------------- training


def trained(size: Size, run: Path, seed: int, folder: Path) -> sj.Closure:
    """The correction that a training with this seed finds."""
    coarse = flow(size.coarse)
    network = sj.LocalNetwork(2, 2, size.hidden, width=2, key=jax.random.key(seed))
    closure = sj.Closure(network, ("velocity",), width=2)
    updates = sum(stage[0] for stage in size.stages)
    schedule = optax.cosine_decay_schedule(3e-3, updates, alpha=0.02)
    learner = sj.Learner(closure, optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule)), seed=seed)
    loss = sj.RolloutLoss(coarse, ["velocity"], unroll=1)
    stages = [sj.Stage(n, loss.unrolled(unroll, pushforward=first)) for n, first, unroll in size.stages]
    longest = max(stage.loss.states for stage in stages)
    data = sj.batches(windows(size, run, longest, size.factor), size.batch, seed=seed)
    print(f"training with seed {seed}: {updates} updates", flush=True)
    return sj.train(learner, stages, data, folder=folder, every=max(1, updates // 50), progress=True).module


# ---------------------------------------------------------------------- judging


@dataclass(frozen=True)
class Judged:
    """A model on flows that it has not seen: correlation and spectrum, and what they come to.

    correlation: mean over flows `(times,)`. spectrum: `(wavenumbers,)` of the energy, a mean over flows and times.
    """

    times: np.ndarray
    correlation: np.ndarray
    spectrum: np.ndarray
    spectrum_error: float

    @property
    def correlated(self) -> float:
        """The time until the correlation is below CORRELATED, between saved states by a line."""
        below = np.flatnonzero(~(self.correlation >= CORRELATED))
        if not len(below):
            return float(self.times[-1])
        k = below[0]
        share = (self.correlation[k - 1] - CORRELATED) / (self.correlation[k - 1] - self.correlation[k])
        return float(self.times[k - 1] + share * EVERY)


def vorticity(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Differences of the velocity on faces, `(..., x, y)`, at the corners of cells, in units of 1 / spacing."""
    return (v - np.roll(v, 1, -2)) - (u - np.roll(u, 1, -1))


def energy_spectrum(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Energy by wavenumber 1, 2, ... of velocities `(..., n, n)`, a mean over all before the last two axes."""
    n = u.shape[-1]
    k = np.fft.fftfreq(n, 1 / n)
    shell = np.rint(np.hypot(k[:, None], k[None])).astype(int)
    power = sum(np.abs(np.fft.fft2(w)) ** 2 for w in (u, v)) / n**4 / 2
    mean = power.reshape(-1, n, n).mean(0)
    return np.bincount(shell.ravel(), mean.ravel())[1 : n // 2]


def judge(size: Size, simulation: sj.Simulation, closure: sj.Closure | None, run: Path, members: Sequence[int]) -> Judged:
    """A model on some members of a run, from the end of the spin-up on."""
    cells = simulation.config.grid.shape[0]
    states = 1 + round(size.seen / EVERY)
    seen = windows(size, run, states, size.fine // cells, members=members, stride=max(1, (states - 1) // 3))
    batch = {name: np.stack([seen[k][name] for k in range(len(seen))]) for name in (*FIELDS, "time", "viscosity")}
    found = sj.RolloutLoss(simulation, ["velocity"], unroll=1).predicted(closure, batch, states)
    # Compared on the coarse grid, whatever the model's own.
    join = cells // size.coarse
    got, truth = ([_joined(np.asarray(fields[name], float), name, join) for name in FIELDS] for fields in (found, batch))
    a, b = vorticity(*got), vorticity(*truth)
    norms = [np.sqrt(np.sum(w * w, (-2, -1))) for w in (a, b)]
    correlation = np.mean(np.sum(a * b, (-2, -1)) / (norms[0] * norms[1]), 0)
    spectra = [energy_spectrum(*(u[:, states // 3 :] for u in fields)) for fields in (got, truth)]
    error = float(np.sqrt(np.mean(np.log10(spectra[0] / spectra[1]) ** 2)))
    return Judged(np.arange(states) * EVERY, correlation, spectra[0], error)


def _joined(u: np.ndarray, name: str, factor: int) -> np.ndarray:
    """A velocity component `(..., x, y)` on a grid `factor` times coarser, with the same flux through its faces."""
    from simjax.io.coarse import coarsened

    return coarsened(u, ("x_face", "y") if name == "velocity_x" else ("x", "y_face"), factor)
