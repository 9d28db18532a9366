"""Shots: runs of single shots, gradients in all that they are made of, plans, devices, one program, what is refused."""

import logging
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.driver.functional import functional_parts
from simjax.errors import ConfigurationError, NumericalError
from simjax.models.waves.point_sources import SampledSignal

COUNT, HEARD, END = 3, 5, 0.3
TIMES = np.linspace(0.0, 0.2, 41)
PULSE = np.exp(-(((TIMES - 0.08) / 0.03) ** 2))
LAYERS = {"x": "absorbing", "y": ["absorbing", "free"]}
WALLS = {"x": "rigid", "y": ["rigid", "free"]}


def sound(*, boundaries=LAYERS, speed="1 + 0.3*x", **sections):
    """Sound in a plane with a free surface; its frames are of seven steps and a shorter one."""
    physics = {"order": 4, "layer_cells": 3, **sections.pop("physics", {})}
    return sj.configure(
        "acoustic",
        grid={"shape": [20, 16], "upper": [1.25, 1.0]},
        physics=physics,
        coefficients={"speed": speed},
        boundaries=boundaries,
        time={"end": END, "output_every": 0.15, "dt": 0.02, **sections.pop("time", {})},
        precision="float64",
        **sections,
    )


def shots(**more):
    """Two sources in each of three shots, near the surface and off the grid, of other strengths."""
    x = np.linspace(0.3, 0.9, COUNT)
    sources = np.stack([np.stack([x, np.full(COUNT, 0.9)], -1), np.stack([x[::-1], np.full(COUNT, 0.41)], -1)], 1)
    signals = np.asarray([[1.0, 0.5], [2.0, -1.0], [-1.0, 0.3]])[..., None] * PULSE
    receivers = np.stack([np.linspace(0.2, 1.1, HEARD), np.full(HEARD, 0.93)], -1)
    return sj.Shots(**{"sources": sources, "signals": signals, "times": TIMES, "receivers": receivers, **more})


@pytest.fixture(scope="module")
def run():
    return sound().differentiable(fields=["coefficients.speed"], variables=[])


def misfit(run, target=0.1):
    """A misfit of the traces as a function of the medium and of the shots."""

    def loss(fields, shots):
        return jnp.sum((run(fields=fields, shots=shots).observed["receivers"] - target) ** 2)

    return loss


def gradient(checkpoint="auto", at_once=None, **sections):
    run = sound(**sections).differentiable(fields=["coefficients.speed"], variables=[], checkpoint=checkpoint)
    given = jax.tree.map(jnp.asarray, shots(at_once=at_once))
    return jax.jit(jax.value_and_grad(misfit(run), argnums=(0, 1)))(run.fields, given)


def assert_equal_gradients(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        # Sums of some thousand terms in another order.
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * float(np.abs(b).max()))


def alone(given, k, tmp_path, **time):
    """The diagnostics of a configured run of one of the shots, at its frames."""
    files = [tmp_path / f"{k}_{n}.csv" for n in range(2)]
    for n, file in enumerate(files):
        np.savetxt(file, np.stack([TIMES, given.signals[k, n]], -1), delimiter=",")
    sources = [
        {"position": place.tolist(), "signal": {"file": str(file)}}
        for place, file in zip(given.sources[k], files, strict=True)
    ]
    one = sound(physics={"sources": sources, "receivers": given.receivers.tolist()}, time=time)
    return one.differentiable(variables=[])().observed


@pytest.mark.slow
def test_traces_are_those_of_runs_of_single_shots(tmp_path):
    """Of every step, by single runs whose frames are steps; numbers of frames have an axis of shots."""
    run = sound(time={"dt": 0.015}).differentiable(variables=[])
    found = run(shots=shots()).observed
    assert found["receivers"].shape == (COUNT, HEARD, len(run.step_times))
    for k in range(COUNT):
        expected = alone(shots(), k, tmp_path, dt=0.015, output_every=0.015)
        for n in range(HEARD):
            trace = found["receivers"][k, n]
            # Another program, which may round otherwise, of twenty steps.
            np.testing.assert_allclose(trace, expected[f"receiver_{n}"], rtol=0, atol=1e-13 * np.abs(trace).max())
        assert found["energy"][k, -1] > 0
        np.testing.assert_allclose(found["energy"][k], expected["energy"][::10], rtol=1e-12)


@pytest.mark.slow
def test_times_of_steps_where_the_last_of_a_frame_is_shorter(run, tmp_path):
    np.testing.assert_allclose(np.diff(run.step_times), [*[0.02] * 7, 0.01] * 2, rtol=1e-12)
    found = run(shots=shots(recorded=run.times)).observed["receivers"][1]
    expected = alone(shots(), 1, tmp_path)
    for n in range(HEARD):
        np.testing.assert_allclose(found[n], expected[f"receiver_{n}"], rtol=0, atol=1e-13 * np.abs(found).max())


@pytest.mark.slow
def test_shots_of_the_same_counts_share_one_program(run, caplog):
    first = shots()
    before = run(shots=first).observed["receivers"]
    others = shots(signals=3 * first.signals), shots(receivers=first.receivers - 0.05, sources=first.sources + 0.01)
    caplog.set_level(logging.DEBUG, "jax._src.interpreters.pxla")
    louder, moved = (run(shots=other).observed["receivers"] for other in others)
    other_medium = sound(speed="1.2 - 0.1*x").differentiable(fields=["coefficients.speed"], variables=[])
    slower = other_medium(shots=first).observed["receivers"]
    said = [record.getMessage() for record in caplog.records if record.msg.startswith("Compiling")]
    assert not [one for one in said if "run" in one.split()[1]]
    # Waves are linear in what is sent.
    np.testing.assert_allclose(louder, 3 * before, rtol=0, atol=1e-13 * float(np.abs(louder).max()))
    assert min(np.abs(moved - before).max(), np.abs(slower - before).max()) > 1e-2 * np.abs(before).max()


@pytest.mark.slow
def test_the_gradient_is_that_of_differences():
    """By the medium, places of sources and receivers, signals, and times of what is recorded."""
    run = sound().differentiable(fields=["coefficients.speed"], variables=[])
    given = shots(recorded=np.asarray([0.05, 0.113, 0.29]))
    loss = jax.jit(misfit(run))
    speed = run.fields["coefficients.speed"][0]
    bump = jnp.asarray(np.random.default_rng(0).normal(size=speed.shape))
    slopes = {
        "medium": lambda h: ({"coefficients.speed": speed + h * bump}, given),
        "sources": lambda h: ({}, eqx.tree_at(lambda s: s.sources, given, given.sources + h)),
        "receivers": lambda h: ({}, eqx.tree_at(lambda s: s.receivers, given, given.receivers - h)),
        "signals": lambda h: (
            {},
            eqx.tree_at(lambda s: s.signals, given, given.signals + h * np.cos(9 * TIMES)[None, None]),
        ),
    }
    for name, at in slopes.items():
        slope = float(jax.grad(lambda h, at=at: loss(*at(h)))(0.0))
        # Central differences: h^2 times a third derivative, of order 1e4 relative by places, and rounding 1e-16 / h.
        h = 1e-5
        ahead, behind = (float(loss(*at(sign * h))) for sign in (1, -1))
        assert slope == pytest.approx((ahead - behind) / (2 * h), rel=1e-5), name
        assert abs(slope) > 1e-3, name


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", ["none", "every_few", "two_level", sj.Binomial(3), "reverse"])
def test_plans_give_one_gradient(checkpoint):
    expected = gradient("every_step", boundaries=WALLS)
    assert_equal_gradients(gradient(checkpoint, boundaries=WALLS), expected)


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", ["none", "reverse"])
@pytest.mark.parametrize("at_once", [1, 2])
def test_few_shots_at_once_give_the_gradient_of_all(at_once, checkpoint):
    found = gradient(checkpoint, at_once, boundaries=WALLS)
    assert_equal_gradients(found, gradient(checkpoint, boundaries=WALLS))


@pytest.mark.slow
@pytest.mark.parametrize(("x", "y"), [(2, 4), (4, 2)])
@pytest.mark.parametrize(("boundaries", "checkpoint"), [(LAYERS, "none"), (WALLS, "reverse")])
def test_devices_give_the_gradient_of_one(x, y, boundaries, checkpoint):
    found = gradient(checkpoint, boundaries=boundaries, mesh={"x": x, "y": y})
    assert_equal_gradients(found, gradient(checkpoint, boundaries=boundaries))


@pytest.mark.slow
def test_memory_of_reverse_mode_is_that_of_shots_at_once():
    """Of eight shots that are taken one after the other it is far below that of all together."""

    def bytes_of(at_once):
        config = sound(time={"dt": 0.001})
        run = config.differentiable(fields=["coefficients.speed"], variables=[], checkpoint="none")
        many = jax.tree.map(jnp.asarray, shots(at_once=at_once))
        many = eqx.tree_at(
            lambda s: (s.sources, s.signals),
            many,
            (jnp.tile(many.sources, (3, 1, 1)), jnp.tile(many.signals, (3, 1, 1))),
        )
        program = jax.jit(jax.grad(misfit(run))).lower(run.fields, many).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert bytes_of(1) < 0.2 * bytes_of(None)


@pytest.mark.slow
def test_light_takes_shots_of_its_own_field():
    light = sj.configure(
        "maxwell_tm",
        grid={"shape": [16, 12]},
        boundaries={"x": "conductor", "y": "absorbing"},
        physics={"layer_cells": 3},
        coefficients={"permittivity": "1 + 0.2*x"},
        time={"end": 0.2, "output_every": 0.2, "dt": 0.02},
        precision="float64",
    ).differentiable(variables=["electric"])
    given = shots(sources=0.8 * shots().sources, receivers=shots().receivers[:2] * [0.5, 0.5])
    found = light(shots=given).observed
    assert found["electric"].shape == (COUNT, 2, 16, 12) and found["receivers"].shape == (COUNT, 2, 11)
    assert np.abs(found["receivers"]).max() > 1e-3


@pytest.mark.slow
def test_a_shot_that_fails_is_named():
    run = sound(time={"dt": 0.15, "end": 0.15}).differentiable(variables=[])
    signals = np.concatenate([shots().signals[:2], np.full((1, 2, TIMES.size), 1e308)])
    with pytest.raises(NumericalError, match="The run of shot 2 stopped early: .* not a number"):
        run(shots=shots(signals=signals))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"sources": np.zeros((3, 2))}, "Shots.sources: expected an array of shape (shots, sources, axes), got (3, 2)"),
        ({"signals": np.zeros((3, 1, 41))}, "Shots.signals: expected an array of shape (3, 2, 41)"),
        ({"receivers": np.zeros((2, 5, 2))}, "Shots.receivers: expected an array of shape (3, 5, 2)"),
        ({"receivers": np.zeros((5, 3))}, "Shots.receivers: expected an array of shape (5, 2)"),
        (
            {"receivers": [[0.5, 1.25]]},
            "Shots.receivers[0, 1] = 1.25: expected a place in the box, along y from 0 to 1",
        ),
        ({"sources": np.full((3, 2, 2), np.nan)}, "Shots.sources[0, 0, 0] = nan: expected a place in the box"),
        ({"signals": np.full((3, 2, 41), np.inf)}, "Shots.signals[0, 0, 0] = inf: expected a finite number"),
        ({"times": TIMES[::-1]}, "Shots.times: expected finite times that increase"),
        ({"times": np.maximum(TIMES, TIMES[1])}, "Shots.times: expected finite times that increase"),
        ({"recorded": [0.0, 0.31]}, "Shots.recorded: expected times of the run, from 0 to 0.3, got 0 to 0.31"),
        ({"times": None}, "Shots.times=None: expected an array of shape (samples,)"),
        ({"signals": "pulse.csv"}, "Shots.signals='pulse.csv': expected numbers"),
        ({"at_once": 0}, "Shots.at_once=0: expected a number of shots"),
    ],
)
def test_what_does_not_fit_is_refused(run, wrong, told):
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        run(shots=shots(**wrong))


def test_a_signal_is_zero_before_and_after_its_samples():
    signal = SampledSignal(jnp.asarray([0.1, 0.2]), jnp.asarray([[1.0, 3.0]]))
    found = [float(signal(t)[0]) for t in (0.09, 0.1, 0.15, 0.2, 0.21)]
    # Rounding of the place between two samples.
    np.testing.assert_allclose(found, [0.0, 1.0, 2.0, 3.0, 0.0], rtol=0, atol=1e-14)


def test_stacked_states_are_refused():
    """Of a model whose state has a number beside its fields."""
    parts = functional_parts(sound(boundaries=WALLS).config)
    two = jax.tree.map(lambda u: jnp.stack([u, u]), parts.state)
    with pytest.raises(ConfigurationError, match=re.escape("state has arrays of shape (2, 20, 16): expected (20, 16)")):
        sj.simulate(parts.model, parts.integrator, parts.params, two, parts.schedule, frames=1)


def test_runs_that_take_no_shots_refuse_them(run):
    with pytest.raises(ConfigurationError, match=r"shots=7: expected simjax.Shots\("):
        run(shots=7)
    courant = sound(time={"dt": None, "courant": 0.5}).differentiable(variables=[])
    with pytest.raises(
        ConfigurationError, match=r"time.courant=0.5: expected steps of a fixed length.* write a number for time.dt"
    ):
        courant(shots=shots())
    heat = sj.load("dye", ["grid.shape=[8,8]", "time.courant=null", "time.dt=0.01", "time.end=0.02"])
    heat = heat.differentiable(variables=[])
    with pytest.raises(ConfigurationError, match=r"expected a model with point sources and receivers.* has none"):
        heat(shots=shots(sources=0.5 * shots().sources, receivers=[[0.5, 0.5]]))


@pytest.mark.slow
def test_particles_take_no_shots():
    few = ["box.upper=[4.8,4.8]", "particles.placement=square", "particles.count=16", "physics.cutoff=1.7"]
    atoms = sj.load("lennard_jones", [*few, "time.end=0.02", "time.output_every=0.02", "time.dt=0.01"])
    with pytest.raises(ConfigurationError, match="shots: expected a model of waves"):
        atoms.differentiable(variables=[])(shots=shots())
