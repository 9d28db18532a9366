"""A configured simulation taken apart: its model, parameters and state give in Python what the run writes."""

import jax
import numpy as np
import pytest

import simjax as sj
from simjax.errors import ConfigurationError

QUIET = ["precision=float64", "output.report=false", "output.animation=false"]
FIELDS = [*QUIET, "grid.shape=[16,16]", "time.end=0.02", "time.output_every=0.01", "time.dt=0.001"]
DYE = [
    "model=advection_diffusion",
    "initial={concentration: 'sin(2*pi*x)'}",
    "physics.diffusivity=0.01",
    "physics.velocity=[1.0,0.0]",
]
# Rounding: both take the same steps, in programs that are compiled apart and fuse operations in their own ways.
ROUNDING = {"rtol": 1e-11, "atol": 1e-12}


# A flow in a Fourier basis, waves with coefficients and absorbing layers, a scalar on cells.
@pytest.fixture(
    params=[
        ("kolmogorov", []),
        pytest.param(("lens", ["physics.layer_cells=3"]), marks=pytest.mark.slow),
        (None, DYE),
    ],
    ids=str,
)
def simulation(request, tmp_path):
    name, own = request.param
    return sj.load(name, [*FIELDS, *own, f"output.root={tmp_path}"])


@pytest.mark.slow
def test_the_functional_run_is_the_run(simulation):
    s = simulation
    end = sj.simulate(s.model, s.integrator, s.params, s.state, s.schedule, frames=s.frames)
    time = s.frames * s.schedule.interval
    seen, ds = s.model.observe(time, end.state, s.params), s.run().ds.isel(time=-1)
    assert {*seen} & {*ds}
    for name in {*seen} & {*ds}:
        u = ds[name].transpose(..., *sorted(ds[name].dims)).values
        whole = tuple(slice(n) for n in np.shape(seen[name]))  # the file has the upper wall's faces beside these
        np.testing.assert_allclose(seen[name], u[whole], **ROUNDING)
    for name, value in s.model.diagnostics(time, end.state, s.params).items():
        np.testing.assert_allclose(value, ds[name], err_msg=name, **ROUNDING)


@pytest.mark.slow
def test_particles_come_apart_too(tmp_path):
    few = ["box.upper=[4.8,4.8]", "particles.placement=square", "particles.count=16", "physics.cutoff=1.7"]
    times = ["time.end=0.02", "time.output_every=0.01", "time.dt=0.005"]
    s = sj.load("lennard_jones", [*QUIET, *few, *times, f"output.root={tmp_path}"])
    end = sj.simulate(s.model, s.integrator, s.params, s.state, s.schedule, frames=s.frames)
    ds = s.run().ds.isel(time=-1)
    for name, value in s.model.diagnostics(0.02, end.state, s.params).items():
        if name in ds:
            np.testing.assert_allclose(value, ds[name], err_msg=name, rtol=1e-9, atol=1e-9)  # sums of many pairs


@pytest.mark.slow
def test_the_way_back_is_the_same_run(tmp_path):
    """A model, parameters and a state of Python, configured again, run and written."""
    s = sj.load(None, [*FIELDS, *DYE, f"output.root={tmp_path}"])
    half = sj.simulate(s.model, s.integrator, s.params, s.state, s.schedule, frames=1).state
    rest = sj.configure(
        type(s.model),
        grid={"shape": [16, 16]},
        time={"end": 0.01, "output_every": 0.01, "dt": 0.001},
        physics={"diffusivity": s.params.diffusivity, "velocity": s.params.velocity},
        precision="float64",
        initial={"concentration": half.concentration},
        output={"root": str(tmp_path), "report": False, "animation": False},
    ).run()
    end, whole = rest.ds.concentration.isel(time=-1), s.run().ds.concentration.isel(time=-1)
    np.testing.assert_allclose(end, whole, **ROUNDING)


@pytest.mark.slow
def test_parts_are_differentiable():
    s = sj.load(None, [*FIELDS, *DYE])

    def mean_square(rate):
        params = s.model.Params(rate, s.params.velocity)
        end = sj.simulate(s.model, s.integrator, params, s.state, s.schedule, frames=s.frames)
        return s.model.domain.mean(end.state.concentration**2)

    assert float(jax.grad(mean_square)(s.params.diffusivity)) < 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["mesh.x=2"], "mesh: expected one device"),
        (["ensemble={size: 2, vary: {physics.viscosity: {values: [1, 2]}}}"], "ensemble: expected one member"),
        (["time.end=0.015"], "time.end=0.015: expected a multiple"),
    ],
)
def test_what_cannot_be_taken_apart_is_told(settings, words):
    with pytest.raises(ConfigurationError, match=words):
        _ = sj.load("kolmogorov", [*FIELDS, *settings]).model


@pytest.mark.slow
def test_a_run_says_that_it_does_not_search(tmp_path):
    seen = "observations: [{output: fields, of: concentration, deviation: 0.01}]"
    sought = f"inverse={{unknowns: {{physics.diffusivity: {{guess: 0.02}}}}, {seen}}}"
    s = sj.load(None, [*FIELDS, *DYE, sought, "output=none", f"output.root={tmp_path}"])
    assert "simjax.Search(simulation).run() searches" in (s.run().folder / "run.log").read_text()
    assert sj.Search(s).config is s.config
    with pytest.raises(ConfigurationError, match=r"inverse is missing: .*write inverse="):
        sj.Search(sj.load(None, [*FIELDS, *DYE]))
