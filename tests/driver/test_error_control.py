"""Configured runs under a tolerance: files, restart, members, devices, gradients, and models that are refused."""

import numpy as np
import pytest
import xarray

import simjax as sj
from simjax.errors import ConfigurationError

WAVE = [
    "model=advection_diffusion",
    "grid.shape=[16,8]",
    "precision=float64",
    "physics={diffusivity: 0.05, velocity: [0.5, 0.25]}",
    "initial={concentration: 'sin(2*pi*x)*cos(2*pi*y)'}",
    "time={output_every: 0.1, end: 0.3, tolerance: 1.0e-5}",
    "output.report=false",
    "output.animation=false",
]
SPOTS = [
    "model=gray_scott",
    "grid={shape: [16, 16], upper: [0.5, 0.5]}",
    "precision=float64",
    "initial={u: '1-exp(-((x-0.25)**2+(y-0.25)**2)/0.01)/2', v: 'exp(-((x-0.25)**2+(y-0.25)**2)/0.01)/4'}",
    "time={output_every: 20, end: 40, tolerance: 1.0e-5}",
    "output.report=false",
    "output.animation=false",
]
MEMBERS = ["ensemble.size=2", "ensemble.vary={physics.feed: {values: [0.03, 0.06]}}"]


def run(folder, *overrides, resume=None):
    where = [f"output.root={folder.parent}", f"output.folder={folder.name}"]
    result = sj.load(None, [*overrides, *where]).run(resume=resume, progress=False)
    return result.ds.load()


LINE = [
    *WAVE,
    "grid.shape=[8]",
    "physics={diffusivity: 0.05, velocity: [0.5]}",
    "initial={concentration: 'sin(2*pi*x)'}",
]


def test_a_run_leaves_its_steps_and_goes_on_bit_for_bit(tmp_path):
    whole = run(tmp_path / "whole", *LINE)
    # Steps and what the control rejected are counted from the start; a step is no longer than a frame.
    assert np.array_equal(whole.steps, whole.step) and np.all(np.diff(whole.steps) > 0)
    assert np.all(np.diff(whole.rejected_steps) >= 0) and np.all(whole.time_step.values[1:] <= 0.1)
    assert whole.time_step.attrs["units"] == "s" and whole.steps.attrs["long_name"] == "steps taken so far"
    assert "courant" not in whole
    run(tmp_path / "cut", *LINE, "time.end=0.1")
    again = run(tmp_path / "cut", *LINE, resume=tmp_path / "cut")
    xarray.testing.assert_equal(again, whole)


@pytest.mark.slow
def test_decomposed_runs_take_the_same_steps(tmp_path):
    alone, cut = (
        run(tmp_path / name, *SPOTS, *more) for name, more in {"a": (), "b": ("mesh.x=2", "mesh.y=2")}.items()
    )
    assert np.array_equal(alone.steps, cut.steps)
    # Sums of squares in another order move the steps by roundings.
    np.testing.assert_allclose(cut.u, alone.u, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_members_take_their_own_steps(tmp_path):
    both = run(tmp_path / "both", *SPOTS, *MEMBERS)
    meshed = run(tmp_path / "mesh", *SPOTS, *MEMBERS, "mesh.ensemble=2", "mesh.x=2")
    assert both.steps.dims == ("member", "time") and both.steps[0, -1] != both.steps[1, -1]
    for member, feed in enumerate((0.03, 0.06)):
        alone = run(tmp_path / f"alone{member}", *SPOTS, f"physics.feed={feed}")
        assert np.array_equal(both.steps.isel(member=member), alone.steps)
        for one in (both, meshed):
            # The same operations, compiled for more members or devices.
            np.testing.assert_allclose(one.u.isel(member=member), alone.u, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scheme", ["tsit5", "kencarp4", "kvaerno5"])
@pytest.mark.slow
def test_schemes_agree_within_the_tolerance(tmp_path, scheme):
    """Explicit, half implicit and implicit ones, of coefficients of waves."""
    found = run(tmp_path / scheme, *SPOTS, f"time.integrator={scheme}")
    best = run(tmp_path / "best", *SPOTS, "time.integrator=dopri8", "time.tolerance=1e-10")
    # Some twenty steps, each as exact as the tolerance of fields of one; a spot multiplies errors by less than ten.
    assert float(np.abs(found.u - best.u).max()) < 2e-3
    assert float(np.abs(found.u - best.u).max()) > 1e-12


@pytest.mark.slow
def test_instruments_read_between_frames(tmp_path):
    """Samples at steps, which are the run's own."""
    probe = "outputs=[{probe: {points: [[0.25, 0.5]]}, of: [concentration], every: 0.02}]"
    plain, watched = run(tmp_path / "plain", *WAVE), run(tmp_path / "watched", *WAVE, probe)
    xarray.testing.assert_equal(watched[["concentration", "steps"]], plain[["concentration", "steps"]])


@pytest.mark.slow
def test_gradients_on_any_mesh():
    import jax
    import jax.numpy as jnp

    def loss(diffusivity, *mesh, tolerance="1e-7"):
        run = sj.load(None, [*WAVE, "time.end=0.2", f"time.tolerance={tolerance}", *mesh]).differentiable()
        return lambda value: jnp.mean(run({"diffusivity": value}).observed["concentration"][-1] ** 2)

    alone, cut = (jax.grad(loss(0.05, *mesh))(jnp.asarray(0.05)) for mesh in ((), ("mesh.x=2", "mesh.y=2")))
    np.testing.assert_allclose(cut, alone, rtol=1e-12)  # the same operations but for the order of sums
    exact = loss(0.05, tolerance="1e-11")
    # A difference over a fiftieth: its square times a third derivative, 4 pi^2 / 10 to the third power.
    np.testing.assert_allclose(alone, (exact(0.051) - exact(0.049)) / 0.002, rtol=1e-3)


def refused(*overrides):
    with pytest.raises(ConfigurationError) as caught:
        sj.load(None, ["time={output_every: 1, end: 1, tolerance: 1.0e-4}", *overrides]).run(progress=False)
    return str(caught.value)


@pytest.mark.parametrize(
    "overrides, beside",
    [
        (
            ["model=incompressible", "grid.shape=[8,8]", "physics.viscosity=0.1", "initial.velocity=[0,0]"],
            "the projection of the velocity, by which no flow has a divergence,",
        ),
        (
            [
                "model=vorticity",
                "grid.shape=[8,8]",
                "physics={viscosity: 0.1, injection: 0.1, forcing_band: [6,13]}",
                "initial.vorticity=0",
            ],
            "random forcing, drawn anew in each step,",
        ),
        (
            [
                "model=compressible",
                "grid.shape=[8]",
                "initial={density: 1, velocity: [0], pressure: 1}",
                "physics={density_floor: 1.0e-6}",
            ],
            "a density or pressure floor",
        ),
    ],
)
def test_models_with_constraints_are_refused_before_anything_is_written(overrides, beside, tmp_path):
    sentence = refused(*overrides, f"output.root={tmp_path}")
    assert f"but {beside} changes the state beside it" in sentence
    assert not any(tmp_path.iterdir())
