"""Learns what a coarse grid lacks: a flow in the plane that keeps the course and the spectrum of 8 times finer cells.

    python experiments/learn_correction.py --seeds 3      # hours on two cores: half of it the fine grid's flows
    python experiments/learn_correction.py --quick        # the same with little of everything, in minutes

Kolmogorov flow is simulated on 256 x 256 cells with several viscosities. Runs on 32 x 32 cells are compared with
its states, averaged over 8 x 8 cells: a network of what lies around each cell is added to the tendency of their
velocity, and trained through the solver over longer and longer stretches (after Kochkov et al. 2021,
doi:10.1073/pnas.2101784118, with a much smaller network). It is judged on flows that it has not seen, with a
viscosity in the range of the training and with one below it, beside the coarse grid alone, finer grids and
Smagorinsky's model.

Printed are the time until the vorticity's correlation with that of the fine grid is below 0.95, and how far the
spectrum of the energy is off, in decades, with the spread over seeds; the picture is learn_correction.png.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import optax

import simjax as sj
from simjax.report.sheet import ACCENT, INK, NORMAL, SMALL, Sheet, colormap, legend_above, set_ticks
from simjax.report.summary import write_rows
from simjax.report.summary_rows import FULL_WIDTH, side_by_side

FIELDS = ["velocity_x", "velocity_y"]
EVERY = 0.1  # time between two saved states
SPIN_UP = 10.0
TRAINED, INSIDE, BELOW = "{log_uniform: [1.0e-3, 4.0e-3]}", 2.0e-3, 5.0e-4  # viscosities
CORRELATED, PICTURED = 0.95, 2.0


@dataclass(frozen=True)
class Size:
    """How much of everything.

    fine, factor: cells along an axis of the fine grid, and how many become a coarse one. members: flows of the
    training, to time `end`. judged: flows of each viscosity, over a time of `seen`. stages: (updates, states of the
    pushforward, states of the unroll) of the curriculum.
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


FULL = Size(256, 8, 12, 4, 30.0, 15.0, 8, (16, 16), ((300, 0, 2), (150, 0, 8), (50, 4, 16)))
QUICK = Size(64, 4, 3, 1, 14.0, 3.0, 4, (8,), ((30, 0, 1), (10, 1, 4)))


def simulated(size: Size, folder: Path, end: float, members: int, viscosity: str, seed: int) -> Path:
    """The folder of an ensemble on the fine grid, below outputs; one that is there is taken, or gone on with."""
    given = [
        f"grid.shape=[{size.fine},{size.fine}]",
        f"time.end={end}",
        f"time.output_every={EVERY}",
        f"ensemble.size={members}",
        f"ensemble.vary.physics.viscosity={viscosity}",
        f"seed={seed}",
        "output.fields=[velocity]",
        "output.report=false",
        "output.animation=false",
    ]
    simulation = sj.load("kolmogorov", [*given, f"output.folder={folder}"])
    place = Path("outputs") / folder
    simulation.run(resume=place if (place / "checkpoints").is_dir() else None, progress=True)
    return place


def flow(cells: int, *changes: str) -> sj.Simulation:
    """The same flow on a grid of so many cells along each axis."""
    dt = EVERY / max(1, round(cells / 16))
    given = [f"grid.shape=[{cells},{cells}]", f"time.output_every={EVERY}", f"time.dt={dt}", f"time.end={EVERY}"]
    return sj.load("kolmogorov", [*given, *changes])


def windows(size: Size, run: Path, length: int, coarsen: int, **options) -> sj.TrajectoryWindows:
    return sj.TrajectoryWindows(run, FIELDS, length=length, since=SPIN_UP, coarsen=coarsen, in_memory=True, **options)


# ---------------------------------------------------------------------- training


def eddy_error(predicted, target, domain: sj.Domain) -> jax.Array:
    """Mean over states of |grad(u - v)|^2 / |grad v|^2, and of ln^2(|grad u|^2 / |grad v|^2), and that of lap u.

    In the velocity alone, small eddies hardly count. The first term has their places, and would rather have none than
    ones at wrong places; the others have as many as there are.
    """
    periodic = sj.center_layout([(sj.Periodic(), sj.Periodic())] * 2)

    def differences(p):
        here = p[1:-1, 1:-1]
        slopes = here - p[:-2, 1:-1], here - p[1:-1, :-2]
        return slopes, p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * here

    def squares(components):
        """|grad u|^2 and |lap u|^2 of each state."""

        def one(u):
            slopes, laplacian = domain.apply(differences, u, periodic, 1)
            return sum(domain.mean(d**2) for d in slopes), domain.mean(laplacian**2)

        return (sum(parts) for parts in zip(*(jax.vmap(one)(u) for u in components), strict=True))

    u, v = predicted["velocity"], target["velocity"]
    off, _ = squares([a - b for a, b in zip(u, v, strict=True)])
    sizes, expected = tuple(squares(u)), tuple(squares(v))
    ratios = [jax.numpy.log(a / b) ** 2 for a, b in zip(sizes, expected, strict=True)]
    return jax.numpy.mean(off / expected[0] + sum(ratios))


def trained(size: Size, run: Path, seed: int, folder: Path) -> sj.Closure:
    """The correction that a training with this seed finds."""
    coarse = flow(size.coarse)
    network = sj.LocalNetwork(2, 2, size.hidden, width=2, key=jax.random.key(seed))
    closure = sj.Closure(network, ("velocity",), width=2)
    updates = sum(stage[0] for stage in size.stages)
    schedule = optax.cosine_decay_schedule(3e-3, updates, alpha=0.02)
    learner = sj.Learner(closure, optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule)), seed=seed)
    loss = sj.RolloutLoss(coarse, ["velocity"], unroll=1, error=eddy_error)
    stages = [sj.Stage(n, loss.unrolled(unroll, pushforward=first)) for n, first, unroll in size.stages]
    longest = max(stage.loss.states for stage in stages)
    data = sj.batches(windows(size, run, longest, size.factor), size.batch, seed=seed)
    print(f"training with seed {seed}: {updates} updates", flush=True)
    return sj.train(learner, stages, data, folder=folder, every=max(1, updates // 50), progress=True).module


# ---------------------------------------------------------------------- judging


@dataclass(frozen=True)
class Judged:
    """A model on flows that it has not seen: correlation and spectrum, and what they come to.

    correlation: mean over flows `(times,)`. spectrum: energy `(wavenumbers,)`, a mean over flows and times. vorticity:
    of the first flow after PICTURED. fine_spectrum, fine_vorticity: those of the fine grid.
    """

    times: np.ndarray
    correlation: np.ndarray
    spectrum: np.ndarray
    fine_spectrum: np.ndarray
    vorticity: np.ndarray
    fine_vorticity: np.ndarray

    @property
    def spectrum_error(self) -> float:
        """Root mean square over wavenumbers of the decades between the two spectra."""
        return float(np.sqrt(np.mean(np.log10(self.spectrum / self.fine_spectrum) ** 2)))

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


def judge(
    size: Size, simulation: sj.Simulation, closure: sj.Closure | None, run: Path, members: Sequence[int]
) -> Judged:
    """A model on some members of a run, from the end of the spin-up on."""
    cells = simulation.config.grid.shape[0]
    states = 1 + round(size.seen / EVERY)
    seen = windows(size, run, states, size.fine // cells, members=members, stride=states)
    batch = {name: np.stack([seen[k][name] for k in range(len(seen))]) for name in (*FIELDS, "time", "viscosity")}
    found = sj.RolloutLoss(simulation, ["velocity"], unroll=1).predicted(closure, batch, states)
    # Compared on the coarse grid, whatever the model's own.
    join = cells // size.coarse
    got, truth = (
        [_joined(np.asarray(fields[name], float), name, join) for name in FIELDS] for fields in (found, batch)
    )
    a, b = vorticity(*got), vorticity(*truth)
    norms = [np.sqrt(np.sum(w * w, (-2, -1))) for w in (a, b)]
    correlation = np.mean(np.sum(a * b, (-2, -1)) / (norms[0] * norms[1]), 0)
    spectra = [energy_spectrum(*(u[:, states // 3 :] for u in fields)) for fields in (got, truth)]
    at = min(states - 1, round(PICTURED / EVERY))
    return Judged(np.arange(states) * EVERY, correlation, *spectra, a[0, at], b[0, at])


def _joined(u: np.ndarray, name: str, factor: int) -> np.ndarray:
    """A velocity component `(..., x, y)` on a grid `factor` times coarser, with the same flux through its faces."""
    from simjax.io.coarse import coarsened

    return coarsened(u, ("x_face", "y") if name == "velocity_x" else ("x", "y_face"), factor)


def compared(
    size: Size, run: Path, corrections: Sequence[sj.Closure], members: Sequence[int]
) -> dict[str, list[Judged]]:
    """By name what stands beside one another; of the correction one for each seed."""
    coarse, factors = size.coarse, [n for n in (2, 4) if n < size.factor]
    plain = {f"{n * coarse} cells": flow(n * coarse) for n in (1, *factors)}
    models = {**plain, "Smagorinsky": flow(coarse, "physics.turbulence=smagorinsky")}
    found = {name: [judge(size, model, None, run, members)] for name, model in models.items()}
    learned = f"{coarse} cells, learned"
    return {**found, learned: [judge(size, plain[f"{coarse} cells"], own, run, members) for own in corrections]}


def report(found: dict[str, list[Judged]], viscosity: float) -> None:
    print(f"viscosity {viscosity:g}: time of a correlation above {CORRELATED}, spectrum off by (decades)")
    for name, own in found.items():
        times, errors = [one.correlated for one in own], [one.spectrum_error for one in own]
        spread = [f" ({min(v):.2f} to {max(v):.2f})" if len(own) > 1 else "" for v in (times, errors)]
        print(f"  {name:20s} {np.mean(times):6.2f}{spread[0]}  {np.mean(errors):6.3f}{spread[1]}")


class ComparedRow:
    """Correlation over time, and spectra."""

    height, width = 3.2, FULL_WIDTH
    COLOURS = ("#b5651d", "#9aa3ae", "#667080", "#7b4fa3", ACCENT)

    def __init__(self, found: dict[str, list[Judged]], viscosity: float):
        self.found, self.heading = found, f"Flows that were not trained on, viscosity {viscosity:g}"

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        correlation, spectrum = side_by_side(sheet, left, top + 0.15, 2, height=self.height - 0.15, columns=1, gap=0.9)
        colours = (*self.COLOURS[: len(self.found) - 1], ACCENT)
        for colour, (name, own) in zip(colours, self.found.items(), strict=True):
            for k, one in enumerate(own):
                style = {"color": colour, "linewidth": 1.4, "label": None if k else name}
                correlation.plot(one.times, one.correlation, **style)
                spectrum.plot(np.arange(1, len(one.spectrum) + 1), one.spectrum, **style)
        reference = next(iter(self.found.values()))[0].fine_spectrum
        spectrum.plot(np.arange(1, len(reference) + 1), reference, "--", color=INK, linewidth=2.0, label="fine grid")
        spectrum.set(xscale="log", yscale="log")
        for axes, names in ((correlation, ("t", "correlation")), (spectrum, ("wavenumber", "energy"))):
            axes.set_xlabel(names[0], fontsize=NORMAL, color=INK)
            axes.set_ylabel(names[1], fontsize=NORMAL, color=INK)
        set_ticks(correlation)
        legend_above(spectrum, 3)


class FlowsRow:
    """The vorticity of one flow, by model."""

    height, width, heading = 2.3, FULL_WIDTH, f"Vorticity after t = {PICTURED:g}"

    def __init__(self, found: dict[str, list[Judged]]):
        fine = next(iter(found.values()))[0].fine_vorticity
        self.shown = {"fine grid, averaged": fine, **{name: own[0].vorticity for name, own in found.items()}}

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        limit = float(np.max(np.abs(next(iter(self.shown.values())))))
        size = (FULL_WIDTH - 0.2 * (len(self.shown) - 1)) / len(self.shown)
        for k, (name, w) in enumerate(self.shown.items()):
            axes = sheet.axes(left + k * (size + 0.2), top, size, size, plain=True)
            axes.imshow(w.T, origin="lower", cmap=colormap("balance"), vmin=-limit, vmax=limit)
            axes.set(xticks=[], yticks=[])
            axes.set_title(name, fontsize=SMALL, color=INK, loc="left", pad=4)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--seeds", type=int, default=1, help="trainings, each from weights of its own")
    parser.add_argument("--folder", type=Path, default=Path("learn_correction"), help="below outputs, for all files")
    parser.add_argument("--picture", type=Path, default=Path("learn_correction.png"))
    chosen = parser.parse_args(arguments)
    size = QUICK if chosen.quick else FULL
    viscosities = (INSIDE, BELOW)
    judged = f"{{values: {[v for v in viscosities for _ in range(size.judged)]}}}"
    train = simulated(size, chosen.folder / "train", size.end, size.members, TRAINED, seed=0)
    test = simulated(size, chosen.folder / "test", SPIN_UP + size.seen, 2 * size.judged, judged, seed=1000)
    root = train.parent
    corrections = [trained(size, train, seed, root / f"seed{seed}") for seed in range(chosen.seeds)]
    rows = []
    for number, viscosity in enumerate(viscosities):
        members = range(number * size.judged, (number + 1) * size.judged)
        found = compared(size, test, corrections, members)
        report(found, viscosity)
        rows += [ComparedRow(found, viscosity), *([FlowsRow(found)] if number else [])]
    subtitle = f"Kolmogorov flow, {size.coarse} x {size.coarse} cells against {size.fine} x {size.fine}"
    write_rows(rows, chosen.picture, title="A learned correction", subtitle=subtitle, otherwise="")
    print(f"{chosen.picture} shows it.")


if __name__ == "__main__":
    main(sys.argv[1:])
