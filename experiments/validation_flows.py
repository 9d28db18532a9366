"""Flows of the page on incompressible flow beside published ones, for `validation.py`; numbers are printed.

Each takes minutes to an hour on two cores; on a GPU, where most were run, seconds to a minute.
"""

from __future__ import annotations

import math

import numpy as np
import published
from panels import Panel
from scipy.interpolate import CubicSpline

import simjax as sj

QUIET = {"report": False, "animation": False}


def cavity_1000() -> tuple[str, list[Panel]]:
    """A lid-driven cavity at Re 1000 on 128 x 128 stretched cells, against Botella and Peyret (1998)."""
    print("cavity, published:", published.CAVITY_1000)
    fine = np.linspace(0.02, 0.98, 20001)
    for cells, stretch in ((256, {}), (128, {axis: {"tanh": {"strength": 1.2}} for axis in "xy"})):
        x, y, u, v = _middle_lines(cells, stretch)
        found = CubicSpline(y, u)(fine), CubicSpline(x, v)(fine)
        extrema = found[0].min(), found[1].max(), found[1].min()
        print(f"{cells} x {cells}{' stretched' * bool(stretch)}: least u, largest and least v:", extrema)
    least, (largest, lowest) = published.CAVITY_1000[0], published.CAVITY_1000[1:]
    told = "Botella and Peyret (1998)"
    return "Lid-driven cavity at Re 1000, 128 x 128 stretched cells", [
        Panel(("y at x = 0.5", "u"), (y, u), ([fine[found[0].argmin()]], [least]), told, True),
        Panel(
            ("x at y = 0.5", "v"),
            (x, v),
            ([fine[found[1].argmax()], fine[found[1].argmin()]], [largest, lowest]),
            told,
            True,
        ),
    ]


def _middle_lines(cells: int, stretch: dict) -> tuple[np.ndarray, ...]:
    """Places x and y of cells, u on the upright middle line and v on the level one."""
    last = (
        sj.configure(
            "incompressible",
            precision="float64",
            physics={"viscosity": 1e-3},
            grid={"shape": [cells, cells], **({"stretch": stretch} if stretch else {})},
            boundaries={"x": "no_slip", "y": {"lower": "no_slip", "upper": {"kind": "no_slip", "velocity": [1, 0]}}},
            time={"end": 80.0, "output_every": 40.0, "courant": 1.0},
            output=QUIET,
        )
        .run()
        .ds.isel(time=-1)
        .simjax.centered()
    )
    x, y = last.velocity_x.x.values, last.velocity_x.y.values
    u = CubicSpline(x, last.velocity_x.transpose("x", "y").values)(0.5)
    return x, y, u, CubicSpline(y, last.velocity_y.transpose("y", "x").values)(0.5)


def cylinder() -> tuple[str, list[Panel]]:
    """Drag and lift of a cylinder in a channel at Re 100, 40 cells across (Schaefer and Turek 1996, 2D-1 and 2D-2)."""
    for cells in (10, 20):
        steady, _ = _forces(0.3, cells, end=6.0, every=6.0)
        print(f"cylinder, 2D-1, {cells} cells: drag, lift:", steady[:, -1], "published:", published.CYLINDER_20)
    for cells in (20, 40):
        (drag, lift), time = _forces(1.5, cells, end=8.0, every=0.01)
        late = time > 6.0
        rises = [k for k in np.flatnonzero(late)[:-1] if lift[k] <= 0 < lift[k + 1]]
        passed = [np.interp(0.0, lift[k : k + 2], time[k : k + 2]) for k in rises]
        found = drag[late].max(), lift[late].max(), 0.1 * (len(passed) - 1) / (passed[-1] - passed[0])
        print(f"cylinder, 2D-2, {cells} cells: drag, lift, Strouhal:", found, "published:", published.CYLINDER_100)
    ends, found = time[late][[0, -1]], {"drag": drag[late], "lift": lift[late]}
    return "A cylinder in a channel at Re 100, 40 cells across", [
        Panel(("t", name), (time[late], values), (ends, [known] * 2), "largest, converged")
        for (name, values), known in zip(found.items(), published.CYLINDER_100, strict=False)
    ]


def _forces(speed: float, cells: int, end: float, every: float) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of drag and lift, and the times."""
    profile = f"4*{speed}*y*(0.41 - y)/0.41**2"
    ds = (
        sj.configure(
            "incompressible",
            precision="float64",
            physics={"viscosity": 1e-3},
            grid={"shape": [22 * cells, 41 * cells // 10], "upper": [2.2, 0.41]},
            boundaries={
                "x": {"lower": {"kind": "inflow", "velocity": [profile, 0]}, "upper": "outflow"},
                "y": "no_slip",
            },
            coefficients={"solid": "sqrt((x - 0.2)**2 + (y - 0.2)**2) - 0.05"},
            initial={"velocity": [profile, "0"]},
            time={"end": end, "output_every": every, "courant": 0.8},
            output={**QUIET, "fields": []},
        )
        .run()
        .ds
    )
    unit = 0.5 * (2 / 3 * speed) ** 2 * 0.1
    return np.stack([ds.force_x.values, ds.force_y.values]) / unit, ds.time.values


def sphere() -> tuple[str, list[Panel]]:
    """Drag of a sphere at Re 100, 12 cells across, against 1.09 (Johnson and Patel 1999, J. Fluid Mech. 378, 19)."""
    wide = {"lower": {"kind": "inflow", "velocity": [1, 0, 0]}, "upper": "outflow"}
    ds = (
        sj.configure(
            "incompressible",
            precision="float64",
            physics={"viscosity": 0.01},
            grid={"shape": [168, 144, 144], "upper": [14.0, 12.0, 12.0]},
            boundaries={"x": wide, "y": "slip", "z": "slip"},
            coefficients={"solid": "sqrt((x - 4)**2 + (y - 6)**2 + (z - 6)**2) - 0.5"},
            initial={"velocity": ["1", "0", "0"]},
            time={"end": 30.0, "output_every": 1.0, "courant": 0.8},
            output={**QUIET, "fields": []},
        )
        .run()
        .ds
    )
    drag, time = ds.force_x.values[1:] / (math.pi / 8), ds.time.values[1:]
    print("sphere: drag:", drag[-1], "published: 1.09")
    panel = Panel(("t", "drag of a sphere"), (time, drag), (time[[0, -1]], [1.09] * 2), "Johnson and Patel (1999)")
    return "A sphere at Re 100, 12 cells across", [panel]


def channel() -> tuple[str, list[Panel]]:
    """Large eddies of a channel at Re_tau 180, 64^3 cells and WALE, against Moser, Kim and Mansour (1999)."""
    profiles = "{of: velocity_centered, kinds: [mean], over: [x, z], from: 80, name: profiles}"
    run = sj.load(
        "channel_les",
        [
            "grid.shape=[64,64,64]",
            "time.end=240",
            "output.fields=[]",
            "output.report=false",
            "output.animation=false",
            f"statistics=[{profiles}]",
        ],
    ).run()
    late = run.ds.time.values > 80
    friction = float(run.ds.driving_x.values[late].mean()) ** 0.5
    means = sj.open_output(run.folder, "profiles").isel(time=-1)
    half = means.sizes["y"] // 2
    scale = friction * 2800
    place = means.y.values[:half] * scale
    velocity = means.velocity_centered_x_mean.values / friction
    velocity = 0.5 * (velocity + velocity[::-1])[:half]
    there = np.interp(published.CHANNEL_PLACE, place, velocity)
    print("channel: Re_tau", scale, "largest error", np.abs(there / published.CHANNEL_VELOCITY - 1).max())
    return "Mean velocity of a channel at Re_tau 180, large eddies on 64^3 cells", [
        Panel(
            ("y+", "U+"),
            (place, velocity),
            (published.CHANNEL_PLACE, published.CHANNEL_VELOCITY),
            "direct simulation",
            True,
        ),
    ]
