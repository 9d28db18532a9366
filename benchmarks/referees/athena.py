"""The gas before the bars of Athena++'s regression tests: oblique linear waves, and Sod's tube along every axis.

    python benchmarks/referees/athena.py

Nothing of Athena++ is needed: its tests state the bars (PrincetonUniversity/athena, tst/regression/scripts/tests):
`hydro4/hydro_linwave_3d.py` for fourth order (rk4 with PPM of characteristic variables and a Laplacian correction of
the fluxes), `hydro/hydro_linwave.py` for second order (with refined patches), `hydro/sod_shock.py`. Problems and norms
are in src/pgen/linear_wave.cpp and src/pgen/shock_tube.cpp, box and Courant number in
inputs/hydro/athinput.linear_wave3d and athinput.sod. About fifteen minutes of one core.
"""

from __future__ import annotations

import itertools

import jax
import numpy as np
from verdicts import keep_groups, verdict

jax.config.update("jax_enable_x64", True)

from exact_riemann import RiemannProblem  # noqa: E402
from gas_runs import OPEN, PERIODIC, WENO, centers, gas, trajectory, tube  # noqa: E402
from linear_waves import ENTROPY, LEFT_SOUND, RIGHT_SOUND, error_after_a_period, rms_of_means  # noqa: E402

from simjax.ops.gas import GasScheme  # noqa: E402

SHAPES = ((32, 16, 16), (64, 32, 32))
LIMITED = {"MC": "mc", "van Leer": "van_leer", "minmod": "minmod"}
FOURTH = {"sound": (5.6e-9, 3.6e-10), "entropy": (4.05e-9, 2.65e-10)}
# At 64 x 32 x 32, and the most of its ratio to the error at 32 x 16 x 16, with HLLC.
SECOND = {"sound": (3.7e-8, 0.325), "entropy": (2.7e-8, 0.33)}
WAVES = {"sound": LEFT_SOUND, "entropy": ENTROPY}
SOD = RiemannProblem((1.0, 0.0, 1.0), (0.125, 0.0, 0.1), origin=0.0)
SOD_CELLS, SOD_END, SOD_ERROR, SOD_RATIO = (128, 256), 0.25, 0.011, 0.6
COURANT = 0.3


def grid_name(shape):
    return " x ".join(map(str, shape))


def fourth_order():
    found = {}
    for (name, wave), integrator in itertools.product(WAVES.items(), ("rk4", "ssprk3")):
        for shape, bar in zip(SHAPES, FOURTH[name], strict=True):
            error = found[name, integrator, shape] = error_after_a_period(wave, shape, WENO, integrator, quick=False)
            yield verdict(f"{name} wave, {grid_name(shape)}, WENO5-Z, {integrator}", error, bar)
    left = found["sound", "rk4", SHAPES[-1]]
    right = error_after_a_period(RIGHT_SOUND, SHAPES[-1], WENO, "rk4", quick=False)
    # Athena++ takes errors for equal that differ by 5e-16 + 1e-5 of one of them.
    what = f"sound to the left and to the right, {grid_name(SHAPES[-1])}: difference of errors"
    yield verdict(what, abs(left - right), 5e-16 + 1e-5 * right, left=left, right=right)


def second_order():
    for (label, limiter), (name, wave) in itertools.product(LIMITED.items(), WAVES.items()):
        scheme = GasScheme(limiter, "primitive", "hllc")
        coarse, fine = (error_after_a_period(wave, shape, scheme, "ssprk2", quick=False) for shape in SHAPES)
        bar, ratio = SECOND[name]
        yield verdict(f"{name} wave, {grid_name(SHAPES[1])}, {label}, ssprk2", fine, bar)
        yield verdict(f"{name} wave, ratio to {grid_name(SHAPES[0])}, {label}, ssprk2", fine / coarse, ratio)


def tube_run(axis, shape):
    """RMS of the mean errors of the conserved variables at the end of Sod's tube along an axis, and the steps."""
    ndim = len(shape)
    sides = [OPEN if k == axis else PERIODIC for k in range(ndim)]
    model = gas(shape, sides, WENO, lower=(-0.5,) * ndim, upper=(0.5,) * ndim)
    end = trajectory(model, tube(model, SOD, axis), SOD_END, courant=COURANT)
    density, u, pressure = SOD.sample(np.asarray(centers(model)[axis]), SOD_END)
    momenta = tuple(density * u if k == axis else 0.0 * u for k in range(ndim))
    return rms_of_means(end.state, (density, momenta, pressure / 0.4 + 0.5 * density * u**2)), int(end.clock.step)


def turned(cells, axis):
    """The same grid for each axis, turned: 4 cells across."""
    return tuple(cells if k == axis else 4 for k in range(3))


def growing(cells, axis):
    """Athena++'s own grids: a line, then 4 cells across along each axis before."""
    return (4,) * axis + (cells,)


def tubes(layout, grids):
    """Rows of the tubes along x, y and z on the grids of `layout(cells, axis)`."""
    runs = {(axis, cells): tube_run(axis, layout(cells, axis)) for cells in SOD_CELLS for axis in range(3)}
    for axis, letter in enumerate("xyz"):
        (coarse, _), (fine, _) = (runs[axis, cells] for cells in SOD_CELLS)
        yield verdict(f"Sod along {letter}, {SOD_CELLS[0]} cells, {grids}", coarse, SOD_ERROR)
        yield verdict(f"Sod along {letter}, {SOD_CELLS[1]} cells over that, {grids}", fine / coarse, SOD_RATIO)
    for cells in SOD_CELLS:
        _, steps = zip(*(runs[axis, cells] for axis in range(3)), strict=True)
        what = f"Sod, {cells} cells, {grids}: steps along x, y, z differ by"
        yield verdict(what, max(steps) - min(steps), 0, steps=steps)


GROUPS = {
    "fourth order": fourth_order,
    "second order": second_order,
    "shock tube": lambda: tubes(growing, "line, plane and box"),
    "shock tube, turned": lambda: tubes(turned, "4 x 4 cells across"),
}


if __name__ == "__main__":
    keep_groups("athena", __doc__, GROUPS)
