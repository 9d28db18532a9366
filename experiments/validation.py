"""Draw the figures of the pages of models, simjax beside what it is compared with.

`python experiments/validation.py [NAME ...]`, by default all that take some minutes on two cores together. References
are closed forms, published measurements or converged solutions; each function says which.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pictures import IMAGES, keep
from scipy.special import iv

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
import published  # noqa: E402
from exact_riemann import SOD  # noqa: E402
from panels import ComparisonRow, Panel  # noqa: E402
from validation_flows import cavity_1000, channel, cylinder, sphere  # noqa: E402

import simjax as sj  # noqa: E402
from simjax.report.summary import write_rows  # noqa: E402

QUIET = {"report": False, "animation": False}
FEW = ["output.report=false", "output.animation=false"]


def flow() -> tuple[str, list[Panel]]:
    """A lid-driven cavity and the dissipation of a Taylor-Green vortex, against converged solutions."""
    last = sj.load("cavity", FEW).run().ds.isel(time=-1).simjax.centered()
    middle = last.velocity_x.sizes["x"] // 2
    u = last.velocity_x.isel(x=[middle - 1, middle]).mean("x")
    v = last.velocity_y.isel(y=[middle - 1, middle]).mean("y")
    ds = sj.load("taylor_green_3d", FEW).run().ds
    dissipation = 2 * 0.01 * ds.enstrophy
    along, across = (published.CAVITY_Y, published.CAVITY_U), (published.CAVITY_X, published.CAVITY_V)
    told, decay = "converged solution", (published.VORTEX_TIME, published.VORTEX_DISSIPATION)
    return "Lid-driven cavity at Re 100, Taylor-Green vortex at Re 100", [
        Panel(("y at x = 0.5", "u"), (u.y.values, u.values), along, told, True),
        Panel(("x at y = 0.5", "v"), (v.x.values, v.values), across, told, True),
        Panel(("t", "dissipation"), (ds.time.values, dissipation.values), decay, "spectral, 64³", True),
    ]


def gas() -> tuple[str, list[Panel]]:
    """Sod's shock tube against the exact solution (Toro 2009, Riemann Solvers, sec. 4.3.3)."""
    ds = sj.load("sod", [*FEW, "grid.shape=[200]"]).run().ds.isel(time=-1)
    x = np.linspace(0, 1, 2001)
    density, velocity, _ = SOD.sample(x, 0.2)
    return "Sod's shock tube at t = 0.2, 200 cells, WENO5-Z and HLLC", [
        Panel(("x", "density"), (ds.x.values, ds.density.values), (x, density), "exact"),
        Panel(("x", "velocity"), (ds.x.values, ds.velocity_x.values), (x, velocity), "exact"),
    ]


def transport() -> tuple[str, list[Panel]]:
    """A wave of Burgers' equation against the solution of Cole (1951) and Hopf (1950)."""
    viscosity = 0.05
    ds = (
        sj.configure(
            "burgers",
            grid={"shape": [128], "upper": ["2*pi"]},
            physics={"viscosity": viscosity, "scheme": "van_leer"},
            initial={"concentration": "sin(x)"},
            time={"end": 2.0, "output_every": 2.0},
            output=QUIET,
        )
        .run()
        .ds.isel(time=-1)
    )
    x = np.linspace(0, 2 * np.pi, 721)
    n = np.arange(1, 40)[:, None]
    weight = iv(n, 1 / (2 * viscosity)) * np.exp(-(n**2) * viscosity * 2.0)
    theta = iv(0, 1 / (2 * viscosity)) + 2 * np.sum(weight * np.cos(n * x), axis=0)
    slope = -2 * np.sum(n * weight * np.sin(n * x), axis=0)
    panels = [
        Panel(
            ("x", "u at t = 2"),
            (ds.x.values, ds.concentration.values),
            (x, -2 * viscosity * slope / theta),
            "Cole and Hopf",
        )
    ]
    return "A wave of Burgers' equation, 128 cells", panels


def waves() -> tuple[str, list[Panel]]:
    """A pulse of sound at an interface: a share (Z2 - Z1)/(Z2 + Z1) returns, and 2 Z2/(Z2 + Z1) passes."""
    width, start, end = 25.0, 500.0, 0.5
    ds = (
        sj.configure(
            "acoustic",
            grid={"shape": [1600], "upper": [2000.0]},
            physics={"order": 4},
            coefficients={"density": "where(x < 1000, 1000, 2000)", "speed": "where(x < 1000, 1500, 3000)"},
            initial={
                "pressure": f"exp(-((x - {start})/{width})**2)",
                "velocity": [f"exp(-((x - {start})/{width})**2)/(1000*1500)"],
            },
            boundaries={"x": "absorbing"},
            time={"end": end, "output_every": end, "dt": 2e-4},
            output=QUIET,
        )
        .run()
        .ds.isel(time=-1)
    )
    x = np.linspace(0, 2000, 4001)
    reflection, transmission = (6e6 - 1.5e6) / 7.5e6, 2 * 6e6 / 7.5e6
    arrived = (1000 - start) / 1500
    back = 1000 - 1500 * (end - arrived)
    on = 1000 + 3000 * (end - arrived)
    exact = np.where(
        x < 1000,
        reflection * np.exp(-(((x - back) / width) ** 2)),
        transmission * np.exp(-(((x - on) / (2 * width)) ** 2)),
    )
    return "A pulse behind an interface of density 1:2 and speed 1:2", [
        Panel(("x [m]", "pressure"), (ds.x.values, ds.pressure.values), (x, exact), "d'Alembert")
    ]


def patterns() -> tuple[str, list[Panel]]:
    """Two solitons before, in and after their meeting, against the exact solution (Hirota 1971, PRL 27, 1192)."""
    ds = sj.load("solitons", FEW).run().ds
    panels = []
    for frame in (0, 50, 100):
        x, t = ds.x.values, float(ds.time[frame])
        s = t - 0.5
        exact = 12 * (3 + 4 * np.cosh(2 * x - 8 * s) + np.cosh(4 * x - 64 * s))
        exact /= (3 * np.cosh(x - 28 * s) + np.cosh(3 * x - 36 * s)) ** 2
        panels.append(Panel(("x", f"u at t = {t:g}"), (x, ds.u.isel(time=frame).values), (x, exact), "exact"))
    return "Two solitons of the Korteweg-de Vries equation, 768 points", panels


def molecular() -> tuple[str, list[Panel]]:
    """Energy and pressure of four states against NIST's reference simulations; bars are two standard errors."""
    found, liquid = [], {state: known for state, known in published.LENNARD_JONES.items() if state[1] > 0.1}
    third = 3.0**-3
    for temperature, density in liquid:
        ds = (
            sj.configure(
                "molecular_dynamics",
                box={"upper": [(500 / density) ** (1 / 3)] * 3},
                output={**QUIET, "fields": []},
                particles={"placement": "fcc", "count": 500, "temperature": 1.0},
                physics={
                    "potential": "lennard_jones",
                    "cutoff": 3.0,
                    "thermostat": {"langevin": {"temperature": temperature, "friction": 1.0}},
                },
                time={"end": 60.0, "output_every": 0.1, "dt": 0.004},
            )
            .run()
            .ds.isel(time=slice(100, 600))
        )
        energy = ds.potential_energy.values / 500 + 8 / 3 * np.pi * density * (third**3 / 3 - third)
        pressure = ds.pressure.values + 16 / 3 * np.pi * density**2 * (2 / 3 * third**3 - third)
        blocks = np.stack([energy, pressure]).reshape(2, 10, -1).mean(axis=-1)
        found.append(np.concatenate([blocks.mean(axis=1), 2 * blocks.std(axis=1, ddof=1) / math.sqrt(10)]))
    found, known, places = np.array(found), np.array([*liquid.values()]), np.array([*liquid])[:, 1]
    names = ("energy per particle", "pressure")
    return "Lennard-Jones liquid at kT = 0.85 and 0.90, 500 particles", [
        Panel(("density", name), (places, found[:, k]), (places, known[:, k]), "NIST", True, False, found[:, 2 + k])
        for k, name in enumerate(names)
    ]


def gravity() -> tuple[str, list[Panel]]:
    """Zel'dovich's wave before it crosses itself: displacements grow like the scale factor (1970, A&A 5, 84)."""
    ds = sj.load("zeldovich", FEW).run().ds
    amplitude, first = 0.1 / np.pi, 0.05
    panels = []
    for wanted in (0.1, 0.2):
        scale = (first**1.5 + 1.5 * ds.time.values) ** (2 / 3)
        frame = int(np.argmin(abs(scale - wanted)))
        position = ds.position.isel(time=frame).values[:, 0]
        count = position.size
        place = (np.arange(count) + 0.5) / count
        moved = (position - place + 0.5) % 1.0 - 0.5
        exact = amplitude * scale[frame] / first * np.sin(2 * np.pi * place)
        panels.append(
            Panel(
                ("place at the start", f"displacement at a = {scale[frame]:.2f}"),
                (place, moved),
                (place, exact),
                "exact",
            )
        )
    return "Zel'dovich's wave in an expanding universe, 512 particles", panels


def plasma() -> tuple[str, list[Panel]]:
    """Landau damping at k = 0.5 against the root of the dispersion relation (Landau 1946, J. Phys. USSR 10, 25)."""
    landau = sj.load("landau_damping", FEW).run().ds
    t, energy = landau.time.values, landau.field_energy.values
    rate = 0.15335947
    peaks = [i for i in range(1, 60) if energy[i] > energy[i - 1] and energy[i] >= energy[i + 1]][:5]
    level = np.exp(np.mean(np.log(energy[peaks]) + 2 * rate * t[peaks]))
    return "Landau damping at k = 0.5, 8192 particles", [
        Panel(
            ("t", "energy of the field"),
            (t, energy),
            (t, level * np.exp(-2 * rate * t)),
            "exp(−2·0.15336 t)",
            logarithmic=True,
        ),
    ]


def sph() -> tuple[str, list[Panel]]:
    """The front of a dam break against Martin and Moyce's measurement, its clock started by their first reading."""
    ds = sj.load("dam_break", [*FEW, "time.end=2.2"]).run().ds
    time, front = math.sqrt(2) * ds.time.values, ds.front_x.values
    began = published.FRONT_TIME[0] - float(np.interp(published.FRONT[0], front, time))
    there = (front > 1.5) & (front < 3.95)
    return "A dam break, 1250 particles of fluid", [
        Panel(
            ("T = t (2 g / a)^½", "front Z = z / a"),
            ((time + began)[there], front[there]),
            (published.FRONT_TIME, published.FRONT),
            "Martin and Moyce (1952)",
            True,
        )
    ]


LONG = (cavity_1000, cylinder, sphere, channel)
FIGURES: dict[str, Callable[[], tuple[str, list[Panel]]]] = {
    figure.__name__: figure
    for figure in (flow, gas, transport, waves, patterns, molecular, gravity, plasma, sph, *LONG)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(FIGURES)}")
    names = parser.parse_args().names or [name for name, figure in FIGURES.items() if figure not in LONG]
    for name in names:
        if name not in FIGURES:
            parser.error(f"no figure is called {name}; known are {', '.join(FIGURES)}.")
    for name in names:
        title, panels = FIGURES[name]()
        with tempfile.TemporaryDirectory() as folder:
            png = Path(folder) / "figure.png"
            about = FIGURES[name].__doc__ or ""
            write_rows([ComparisonRow(panels)], png, title=title, subtitle=about.splitlines()[0], otherwise="")
            print(keep(png, f"validation_{name}").relative_to(IMAGES.parent.parent), flush=True)


if __name__ == "__main__":
    sys.exit(main())
