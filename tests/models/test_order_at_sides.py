"""Given values stand at the side: what follows them from there does so to second order, in the mean over cells."""

import numpy as np
import pytest

import simjax as sj

SILENT = {"report": False, "animation": False}
# Orders of the steps between these grids; the least is what a scheme of second order has left of it at 32 cells, where
# limiters clip crests. With values half a cell off, or a kink that counts as a curvature, it is 1 to 1.6.
CELLS, LEAST = (32, 64), 1.7

pytestmark = pytest.mark.slow


def order(coarse, fine):
    return np.log2(coarse / fine)


def wave(phase):
    return f"1 + 0.3*sin(2*pi*({phase}))"


def carried(x, t):
    return 1 + 0.3 * np.sin(2 * np.pi * (t - x))


def error(folder, model, name, expected, cells, *, initial, lower, end=1.0, **sections):
    """Mean error along a line whose lower side has given values; steps of a fifth of a cell at a speed of one."""
    simulation = sj.configure(
        model,
        grid={"shape": [cells]},
        initial=initial,
        boundaries={"x": {"lower": {"kind": "inflow", **lower}, "upper": "outflow"}},
        time={"end": end, "output_every": end, "dt": 0.2 / cells},
        precision="float64",
        output={**SILENT, "root": str(folder)},
        **sections,
    )
    found = simulation.run().ds[name].isel(time=-1)
    return float(np.abs(found.values - expected(found.x.values, end)).mean())


@pytest.mark.parametrize(
    ("reconstruction", "variables", "gravity"),
    [
        ("weno5", "characteristic", {}),
        # Of no strength, but by the operations of a gas with gravity.
        ("weno5", "characteristic", {"gravity": [0.0]}),
        ("mc", "primitive", {}),
    ],
    ids=["weno5", "weno5-gravity", "mc"],
)
def test_a_stream_of_gas_brings_the_density_that_it_is_given(reconstruction, variables, gravity, tmp_path):
    """It is supersonic and has one pressure and velocity: density alone changes, and travels as it is."""
    errors = [
        error(
            tmp_path,
            "compressible",
            "density",
            carried,
            cells,
            initial={"density": wave("-x"), "velocity": ["1"], "pressure": "0.1"},
            lower={"density": wave("t"), "velocity": ["1"], "pressure": "0.1"},
            physics={"reconstruction": reconstruction, "variables": variables, **gravity},
        )
        for cells in CELLS
    ]
    assert order(*errors) > LEAST


@pytest.mark.parametrize("scheme", ["van_leer", "weno5"])
def test_a_stream_brings_the_concentration_that_it_is_given(scheme, tmp_path):
    errors = [
        error(
            tmp_path,
            "transport",
            "concentration",
            carried,
            cells,
            initial={"concentration": wave("-x")},
            lower={"value": wave("t")},
            physics={"scheme": scheme},
            coefficients={"velocity": ["1.0"]},
        )
        for cells in CELLS
    ]
    assert order(*errors) > LEAST


@pytest.mark.parametrize("scheme", ["van_leer", "weno5"])
def test_a_fan_of_burgers_begins_where_it_is_given(scheme, tmp_path):
    """u = (1 + x)^2 at first, which characteristics x + u t carry; at x = 0 it is the root of u = (1 - u t)^2."""

    def at(x, t):
        # (1 + x - u t)^2 = u, of whose roots the lower is the one before any shock.
        return ((1 + 2 * (1 + x) * t) - np.sqrt(1 + 4 * (1 + x) * t)) / (2 * t * t)

    given = "(1 + 2*(t + 1e-6) - sqrt(1 + 4*(t + 1e-6)))/(2*(t + 1e-6)**2)"
    errors = [
        error(
            tmp_path,
            "burgers",
            "concentration",
            at,
            cells,
            initial={"concentration": "(1 + x)**2"},
            lower={"value": given},
            physics={"scheme": scheme},
            end=0.25,
        )
        for cells in CELLS
    ]
    assert order(*errors) > LEAST


def test_decaying_vortices_pass_two_sides_with_given_velocities(tmp_path):
    """Vortices of Taylor and Green in a uniform stream, whole periods along the sides: as much leaves as comes in."""
    viscosity, stream, wavenumber, end = 0.01, 0.5, 2 * np.pi, 0.5

    def exact(x, y, t):
        left = np.exp(-2 * wavenumber**2 * viscosity * t)
        phase = wavenumber * (x - stream * t)
        u = stream + left * np.sin(phase) * np.cos(wavenumber * y)
        return u, -left * np.cos(phase) * np.sin(wavenumber * y)

    def formulas(t):
        left = f"exp(-{2 * wavenumber**2 * viscosity!r}*{t})"
        phase = f"{wavenumber!r}*(x - {stream}*{t})"
        return [
            f"{stream} + {left}*sin({phase})*cos({wavenumber!r}*y)",
            f"-{left}*cos({phase})*sin({wavenumber!r}*y)",
        ]

    errors = []
    for cells in (16, 32):
        simulation = sj.configure(
            "incompressible",
            grid={"shape": [cells, cells], "upper": [0.8, 1.0]},
            physics={"viscosity": viscosity},
            initial={"velocity": formulas("0.0")},
            boundaries={"x": {"kind": "inflow", "velocity": formulas("t")}},
            time={"end": end, "output_every": end, "dt": 0.16 / cells},
            precision="float64",
            output={**SILENT, "root": str(tmp_path)},
        )
        found = simulation.run().ds.isel(time=-1)
        u, _ = exact(found.x_face.values[None, :], found.y.values[:, None], end)
        _, v = exact(found.x.values[None, :], found.y_face.values[:, None], end)
        errors.append(max(np.abs(found.velocity_x.values - u).max(), np.abs(found.velocity_y.values - v).max()))
    # Of the largest error, wherever it is.
    assert order(*errors) > LEAST
