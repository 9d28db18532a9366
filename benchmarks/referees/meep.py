"""Maxwell's equations beside Meep: the same box to rounding, a pulse on a dielectric cylinder, its resonances, and a
guide with a gap.

    python benchmarks/referees/meep.py

It needs Meep (Debian's packages `python3-meep` and `python3-matplotlib`) in an interpreter of its own
(`--python PATH`, else /usr/bin/python3), and says so where there is none. Both codes take the same steps on Yee's grid
with their values at the same places. The cylinder has exact solutions (`round_cylinder.py`), which both are held
against. About ten minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from verdicts import HERE, keep, verdict

jax.config.update("jax_enable_x64", True)

from round_cylinder import decaying_modes, line_current_field, resonance  # noqa: E402
from wave_steps import run  # noqa: E402

import simjax as sj  # noqa: E402

ROUNDING = 1e-12
"""Some thousand roundings, over the largest field: errors of 1000 steps add up."""
ORDER = 2**-1.7
"""The most that an error may keep when the spacing is halved: second order, less what is not yet asymptotic."""
DIGITS = 1e-3
"""Three digits of a Richardson-extrapolated amplitude; layers send back up to 1e-4."""
MEANS = 1e-4
"""The tolerance of Meep's means over a cell: where E is along the surface that is all in which the codes differ."""


@dataclass(frozen=True)
class Case:
    """A current at `source` in a box about the origin, and the same component of E at `probes` after every step.

    layer: thickness of absorbing layers within the box, 0 for conductors. Where radius is None, the permittivity is
    epsilon + slopes . x and the conductivity `loss` times that, at the centres of cells; else epsilon is that of a
    cylinder in a void, given as `medium`: a "formula", or an array of cells' "means" or of "samples" at their centres.
    With samples Meep too does without means (its `eps_averaging`).
    """

    model: str
    along: str
    size: tuple[float, ...]
    resolution: int
    source: tuple[float, ...]
    probes: tuple[tuple[float, ...], ...]
    steps: int
    pulse: dict[str, float]
    epsilon: float
    layer: float = 0.0
    slopes: tuple[float, ...] = ()
    loss: float = 0.0
    radius: float | None = None
    medium: str = "formula"
    courant: float = 0.5

    @property
    def dt(self) -> float:
        return self.courant / self.resolution

    @property
    def times(self) -> np.ndarray:
        return self.dt * np.arange(1, self.steps + 1)


def medium(case: Case) -> dict[str, Any]:
    """Coefficients of a configuration."""
    if case.radius is None:
        graded = case.epsilon + sum(slope * x for slope, x in zip(case.slopes, places(case, 1), strict=True))
        return {"permittivity": graded, "conductivity": case.loss * graded}
    if case.medium == "formula":
        return {"permittivity": f"where(x**2 + y**2 < {case.radius**2!r}, {case.epsilon!r}, 1.0)"}
    fine = 16 if case.medium == "means" else 1
    x, y = places(case, fine)
    within = np.hypot(x, y) < case.radius
    share = within.reshape(len(x) // fine, fine, y.size // fine, fine).mean(axis=(1, 3))
    return {"permittivity": 1.0 + (case.epsilon - 1.0) * share}


def places(case: Case, fine: int) -> list[np.ndarray]:
    """Coordinates of `fine` places in each cell along each axis, to broadcast."""
    counts = [round(length * case.resolution) for length in case.size]
    lines = (((np.arange(fine * n) + 0.5) / fine - n / 2) / case.resolution for n in counts)
    return np.meshgrid(*lines, indexing="ij", sparse=True)


def grid_about_origin(case: Any) -> dict[str, list]:
    """The section `grid` of a case with a size and a resolution."""
    return {
        "shape": [round(length * case.resolution) for length in case.size],
        "lower": [-length / 2 for length in case.size],
        "upper": [length / 2 for length in case.size],
    }


def by_simjax(case: Case) -> np.ndarray:
    """The field at the probes after every step, `(steps, probes)`."""
    pulse = case.pulse
    since = f"(t - {pulse['delay']!r})"
    signal = f"exp(-({since}/{pulse['width']!r})**2)*sin(2*pi*{pulse['frequency']!r}*{since})"
    box = sj.configure(
        case.model,
        grid=grid_about_origin(case),
        physics={
            "along": case.along,
            "layer_cells": round(case.layer * case.resolution) or 1,
            "sources": [{"position": list(case.source), "signal": signal}],
            "receivers": [list(place) for place in case.probes],
        },
        coefficients=medium(case),
        boundaries=dict.fromkeys("xyz"[: len(case.size)], "absorbing" if case.layer else "conductor"),
        time={"end": case.dt, "output_every": case.dt, "dt": case.dt},
        precision="float64",
    )
    model, params = box.model, box.params
    _, seen = run(model, params, box.state, case.dt, case.steps, lambda t, state: model.receive(t, state, params))
    return np.asarray(seen)


def by_meep(cases: dict[str, Any], python: str, script: str = "meep_cases.py") -> tuple[dict[str, np.ndarray], str]:
    """The same of all cases by their names, and Meep's version."""
    with tempfile.TemporaryDirectory() as folder:
        asked, told = Path(folder) / "cases.json", Path(folder) / "series.npz"
        asked.write_text(json.dumps({name: asdict(case) for name, case in cases.items()}), encoding="utf-8")
        command = [python, str(HERE / "others" / script), str(asked), str(told)]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f"{python} could not run Meep (Debian: python3-meep and python3-matplotlib): {ran.stderr[-2000:]}")
        with np.load(told) as series:
            return {name: series[name] for name in cases}, str(series["meep"])


def relative(one: np.ndarray, other: np.ndarray) -> float:
    """Difference over the second, both in the root of the sum of squares."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def boxes() -> dict[str, Case]:
    """Graded media with losses between conductors: on Yee's grid both codes do the same arithmetic."""
    pulse = {"frequency": 1.0, "width": 0.3, "delay": 1.0}
    plane = {"size": (2.0, 1.5), "resolution": 32, "steps": 1000, "pulse": pulse, "epsilon": 2.0, "loss": 0.1}
    half = 1 / 64
    return {
        "TM": Case(
            "maxwell_tm", "z", source=(0.25, 0.125), probes=((-0.5, 0.25), (0.75, -0.5)), slopes=(0.4, 0.3), **plane
        ),
        "TE": Case(
            "maxwell_te",
            "x",
            source=(0.25 + half, 0.125),
            probes=((-0.5 + half, 0.25), (0.75 + half, -0.5)),
            slopes=(0.4, 0.3),
            **plane,
        ),
        "3-D": Case(
            "maxwell",
            "z",
            source=(0.25, 0.125, half),
            probes=((-0.25, 0.25, half), (0.25, -0.25, 0.25 + half)),
            slopes=(0.4, 0.3, -0.2),
            **{**plane, "size": (1.0, 1.5, 1.0), "steps": 400},
        ),
    }


def to_rounding(python: str):
    cases = boxes()
    theirs, version = by_meep(cases, python)
    yield version
    for name, case in cases.items():
        difference = np.abs(by_simjax(case) - theirs[name]).max() / np.abs(theirs[name]).max()
        yield verdict(f"{name} box, graded and lossy, {case.steps} steps: difference", difference, ROUNDING)


RESOLUTIONS = (16, 32, 64)
INDEX, SCATTERED = 1.5, (0.5, 0.75, 1.0)
"""Refractive index of the cylinder that scatters, and frequencies at which its field is compared."""
MODES = {"TM": (0.94, 5, 2.5), "TE": (1.06, 5, 2.5)}
"""Frequency about which a resonance is, waves around the cylinder, and its index."""
RADIUS = 0.5


def scattering(resolution: int, medium: str) -> Case:
    """A pulse of a line current beside a cylinder; the probes are ahead, across, behind and inside, on grid points."""
    return Case(
        "maxwell_tm",
        "z",
        size=(6.0, 6.0),
        resolution=resolution,
        source=(-1.25, 0.25),
        probes=((1.25, 0.0), (0.5, 1.0), (-0.5, -0.75), (0.0, 0.25)),
        steps=50 * resolution,
        layer=1.0,
        pulse={"frequency": 0.75, "width": 0.75, "delay": 2.5},
        epsilon=INDEX**2,
        radius=RADIUS,
        medium=medium,
    )


def amplitudes(case: Case, series: np.ndarray) -> np.ndarray:
    """The field over the current at the frequencies of SCATTERED, `(frequencies, probes)`.

    The series' end is in its ringing out, e^-10 of the pulse. The current is that of the times halfway in the steps.
    """
    pulse, half = case.pulse, case.times - 0.5 * case.dt
    since = half - pulse["delay"]
    current = np.exp(-((since / pulse["width"]) ** 2)) * np.sin(2 * np.pi * pulse["frequency"] * since)
    waves, waves_half = (np.exp(2j * np.pi * np.outer(SCATTERED, t)) for t in (case.times, half))
    return (waves @ series) / (waves_half @ current)[:, None]


def ringing(polarisation: str, resolution: int) -> Case:
    """A short current in a cylinder that then rings; the probe is inside, off the lines of symmetry."""
    about, _, index = MODES[polarisation]
    return Case(
        f"maxwell_{polarisation.lower()}",
        "z" if polarisation == "TM" else "x",
        size=(4.0, 4.0),
        resolution=resolution,
        source=(0.125, 0.375),
        probes=((-0.1875, 0.3125),),
        steps=140 * resolution,
        layer=1.0,
        pulse={"frequency": about, "width": 1.5, "delay": 5.0},
        epsilon=index**2,
        radius=RADIUS,
    )


def resonant(case: Case, series: np.ndarray, exact: complex) -> complex:
    """The complex frequency nearest to the exact one, from the ringing after the pulse, every 1/8 in time."""
    every = case.resolution // 4
    after = series[:, 0][case.times > 14.0][::every]
    found, _ = decaying_modes(after, every * case.dt, count=24)
    return found[np.argmin(np.abs(found - exact))]


def truncation(index: float, frequency: float, length: float = 1.0) -> float:
    """The phase (k h)^2 / 24 that Yee's scheme loses in each unit k x on the finest grid, over a length."""
    k = 2 * np.pi * index * frequency
    return (k / RESOLUTIONS[-1]) ** 2 / 24 * length


def both(cases: dict[Any, Case], python: str, measured) -> tuple[dict[Any, Any], dict[Any, Any], str]:
    """What `measured(case, series)` makes of the series of simjax and of Meep, by the keys of the cases."""
    theirs, version = by_meep({repr(key): case for key, case in cases.items()}, python)
    found = {key: measured(case, by_simjax(case)) for key, case in cases.items()}
    return found, {key: measured(case, theirs[repr(key)]) for key, case in cases.items()}, version


def scattered(python: str):
    _, middle, fine = RESOLUTIONS
    asked = [(middle, "formula"), *((fine, medium) for medium in ("formula", "means", "samples"))]
    cases = {key: scattering(*key) for key in asked}
    ours, theirs, version = both(cases, python, amplitudes)
    yield version
    one = cases[fine, "formula"]
    exact = np.stack([line_current_field(2 * np.pi * f, INDEX, RADIUS, one.source, one.probes) for f in SCATTERED])
    # From the source to the probe ahead, at the highest frequency.
    highest, length = SCATTERED[-1], np.ptp([one.source[0], one.probes[0][0]])
    bar = truncation(1.0, highest, 2 * np.pi * highest * length)

    def error(of, n, medium="formula"):
        return relative(of[n, medium], exact)

    def extrapolated(of):
        return of[fine, "formula"] + (of[fine, "formula"] - of[middle, "formula"]) / 3

    yield verdict(f"scattered field: error, {fine} cells", error(ours, fine), bar, meep=error(theirs, fine))
    yield verdict(
        f"scattered field: error, {fine} cells over {middle}",
        error(ours, fine) / error(ours, middle),
        ORDER,
        meep=error(theirs, fine) / error(theirs, middle),
    )
    apart = relative(ours[fine, "formula"], theirs[fine, "formula"])
    yield verdict(f"scattered field: difference of the codes, {fine} cells", apart, MEANS)
    yield verdict(
        "scattered field, extrapolated: error",
        relative(extrapolated(ours), exact),
        DIGITS,
        meep=relative(extrapolated(theirs), exact),
    )
    for medium, what in (("means", "array of cells' means"), ("samples", "array of samples at centres")):
        yield verdict(
            f"scattered field, {what}: error, {fine} cells",
            error(ours, fine, medium),
            bar,
            meep=error(theirs, fine, medium),
        )


def resonances(python: str):
    cases = {(name, n): ringing(name, n) for name in MODES for n in RESOLUTIONS}
    exact = {name: resonance(*MODES[name], RADIUS, name.lower()) for name in MODES}

    def measured(case, series):
        return resonant(case, series, exact["TM" if case.along == "z" else "TE"])

    ours, theirs, version = both(cases, python, measured)
    yield version
    _, middle, fine = RESOLUTIONS
    for name, (about, _, index) in MODES.items():
        errors, others = (
            {n: abs(of[name, n] - exact[name]) / abs(exact[name]) for n in RESOLUTIONS} for of in (ours, theirs)
        )
        quality = {
            who: -of.real / (2 * of.imag)
            for who, of in (("exact", exact[name]), ("simjax", ours[name, fine]), ("meep", theirs[name, fine]))
        }
        yield verdict(
            f"{name} resonance: error, {fine} cells",
            errors[fine],
            truncation(index, about),
            meep=others[fine],
            quality={who: round(float(q), 2) for who, q in quality.items()},
        )
        yield verdict(
            f"{name} resonance: error, {fine} cells over {middle}",
            errors[fine] / errors[middle],
            ORDER,
            meep=others[fine] / others[middle],
        )


@dataclass(frozen=True)
class Guide:
    """A guide along x of a permittivity and a width, in a void, that is cut by a gap about the origin.

    source, ports: places of the lines across it. line: length of the mode's line in Meep. layer: thickness of layers.
    """

    model: str
    resolution: int
    size: tuple[float, float] = (6.0, 4.0)
    width: float = 0.5
    epsilon: float = 6.25
    gap: float = 0.4
    source: float = -1.625
    ports: tuple[float, float] = (-1.25, 1.25)
    line: float = 2.0
    layer: float = 1.0
    frequencies: tuple[float, ...] = (0.45, 0.5, 0.55)
    middle: float = 0.5
    end: float = 60.0


def across_gap(case: Guide) -> np.ndarray:
    """Complex amplitudes of the mode that the gap sends back and lets pass, over what comes, `(2, frequencies)`."""
    core = f"where(abs(x) > {case.gap / 2!r}, {case.epsilon!r}, 1)"
    with tempfile.TemporaryDirectory() as folder:
        guided = sj.configure(
            case.model,
            grid=grid_about_origin(case),
            boundaries={"x": "absorbing", "y": "absorbing"},
            coefficients={"permittivity": f"where(abs(y) < {case.width / 2!r}, {core}, 1)"},
            physics={
                "layer_cells": round(case.layer * case.resolution),
                "mode_sources": [
                    {
                        "direction": "x",
                        "at": case.source,
                        "frequency": case.middle,
                        "signal": f"exp(-((t - 9)/3)**2)*sin(2*pi*{case.middle!r}*(t - 9))",
                    }
                ],
            },
            time={"end": case.end, "output_every": case.end, "courant": 0.7},
            outputs=[
                {"flux": {"through": {"x": x}}, "of": "energy", "name": name}
                for x, name in zip(case.ports, ("port", "other"), strict=True)
            ],
            statistics=[
                {"of": name, "frequencies": list(case.frequencies), "name": f"{name}_modes"}
                for name in ("port", "other")
            ],
            output={"report": False, "animation": False, "root": folder},
            precision="float64",
        ).run()
        port, other = (sj.mode_amplitudes(guided.folder, f"{name}_modes") for name in ("port", "other"))
        return np.stack([(port.backwards / port.forwards).values[:, 0], (other.forwards / port.forwards).values[:, 0]])


ONE_PERCENT = 0.01
"""Of the amplitude that comes."""


def waveguide(python: str):
    _, middle, fine = RESOLUTIONS
    cases = {(model, n): Guide(model, n) for model in ("maxwell_tm", "maxwell_te") for n in (middle, fine)}
    theirs, version = by_meep({repr(key): case for key, case in cases.items()}, python, "meep_modes.py")
    ours = {key: across_gap(case) for key, case in cases.items()}
    yield version
    for model, name in (("maxwell_tm", "TM"), ("maxwell_te", "TE")):
        found = {n: ours[model, n] for n in (middle, fine)}
        others = {n: theirs[repr((model, n))] for n in (middle, fine)}
        for number, what in enumerate(("sends back", "lets pass")):
            apart = np.abs(found[fine] - others[fine])[number].max()
            changed, theirs_changed = (np.abs(of[fine] - of[middle])[number].max() for of in (found, others))
            said = f"{name} guide, what a gap {what}"
            yield verdict(f"{said}: difference, {fine} cells", apart, ONE_PERCENT)
            yield verdict(
                f"{said}: change from {middle} to {fine} cells", changed, 3 * ONE_PERCENT, meep=theirs_changed
            )


GROUPS = {"box": to_rounding, "scattering": scattered, "resonance": resonances, "waveguide": waveguide}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="/usr/bin/python3", help="an interpreter that has Meep")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    options = parser.parse_args()
    for group in options.groups:
        version, *rows = GROUPS[group](options.python)
        keep("meep", group, rows, meep=version)


if __name__ == "__main__":
    main()
