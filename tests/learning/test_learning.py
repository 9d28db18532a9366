"""A closure is learned through the solver: exact, the same on any mesh, over any stop, by any chain and module."""

import os
import signal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray
from flax import linen, nnx

import simjax as sj
from simjax.errors import ConfigurationError, NumericalError, Stopped

RATE = 3.0
EVERY, STATES, CELLS = 0.05, 5, 16
LINE = {
    "precision": "float64",
    "grid": {"shape": [CELLS]},
    "physics": {"diffusivity": 0.01, "velocity": [0.5]},
    "initial": {"concentration": "0.5 + 0.4*sin(2*pi*x)"},
    "time": {"end": EVERY * (STATES - 1), "output_every": EVERY, "dt": EVERY / 2, "integrator": "heun"},
}


class Growth(eqx.Module):
    """rate c (1 - c), a term with one number."""

    rate: jax.Array

    def __call__(self, c):
        return self.rate * c * (1 - c)


def growth(rate: float) -> sj.Closure:
    return sj.Closure(Growth(jnp.asarray(rate)), ("concentration",))


def network(seed: int = 0) -> sj.Closure:
    """A network that has an effect from the beginning."""
    net = sj.LocalNetwork(1, 1, [6], width=1, key=jax.random.key(seed))
    return sj.Closure(eqx.tree_at(lambda net: net.weights[-1], net, jnp.full((1, 6), 0.3)), ("concentration",), width=1)


@pytest.fixture(scope="module")
def line() -> sj.Simulation:
    return sj.configure("advection_diffusion", **LINE)


@pytest.fixture(scope="module")
def batch(line) -> dict[str, np.ndarray]:
    """Four windows with a diffusivity each, of runs with the growth that is to be found."""
    own = {**LINE, "parameters": {"rate": RATE}, "closure": {"concentration": "rate*concentration*(1-concentration)"}}
    run = sj.configure("advection_diffusion", **own).differentiable(fields=["initial.concentration"])
    diffusivity = np.asarray([0.01, 0.02, 0.03, 0.04])
    x = (np.arange(CELLS) + 0.5) / CELLS
    first = [0.5 + 0.3 * np.sin(2 * np.pi * (x + 0.2 * k)) for k in range(4)]
    runs = [run({"diffusivity": d}, {"initial.concentration": u}) for d, u in zip(diffusivity, first, strict=True)]
    states = np.stack([np.asarray(found.observed["concentration"]) for found in runs])
    return {"concentration": states, "time": np.tile(run.times, (4, 1)), "diffusivity": diffusivity}


@pytest.fixture(scope="module")
def loss(line) -> sj.RolloutLoss:
    return sj.RolloutLoss(line, ["concentration"], unroll=2)


@eqx.filter_jit
def differentiated(loss, module, batch, key):
    return eqx.filter_value_and_grad(lambda module: jnp.mean(loss(module, batch, key)))(module)


def value_and_gradient(loss, module, batch):
    """The mean error, and the gradient's arrays in one vector."""
    value, gradient = differentiated(loss, module, loss.placed(batch), jax.random.key(0))
    leaves = jax.tree.leaves(eqx.filter(gradient, eqx.is_inexact_array))
    return float(value), np.concatenate([np.ravel(leaf) for leaf in leaves])


class Batches:
    """The same windows for ever, each time in another order; `told` is called with how often they were taken."""

    def __init__(self, batch, told=lambda taken: None):
        self.batch, self.taken, self.told = batch, 0, told

    def __iter__(self):
        return self

    def __next__(self):
        self.taken += 1
        self.told(self.taken)
        order = np.random.default_rng(self.taken).permutation(4)
        return {name: values[order] for name, values in self.batch.items()}

    def get_state(self):
        return {"taken": self.taken}

    def set_state(self, state):
        self.taken = state["taken"]


# ---------------------------------------------------------------------- the error


def test_the_true_term_has_no_error(loss, batch):
    value, gradient = value_and_gradient(loss, growth(RATE), batch)
    # The same steps: rounding of squares is all that is left.
    assert value < 1e-28 and abs(gradient[0]) < 1e-14


@pytest.mark.parametrize(
    ("optimizer", "updates", "accuracy"),
    [
        # What is left of a step of 0.5 that falls like a cosine, measured 1e-3.
        pytest.param(optax.adam(optax.cosine_decay_schedule(0.5, 60)), 60, 1e-2, id="adam"),
        # Its line search evaluates the loss by itself, and ends where the error is 1e-14 of the first one, in squares.
        pytest.param(optax.lbfgs(), 6, 1e-5, marks=pytest.mark.slow, id="lbfgs"),
    ],
)
def test_any_chain_finds_the_true_term(loss, batch, optimizer, updates, accuracy):
    learner = sj.Learner(growth(0.0), optimizer)
    state = learner.begin()
    for _ in range(updates):
        state, _ = learner.update(state, loss, batch)
    assert abs(float(learner.module(state).module.rate) - RATE) < accuracy


def test_the_error_is_that_of_the_configured_run(line, loss, batch):
    closed = sj.configure("advection_diffusion", **LINE, closure={"concentration": "2*concentration"})
    run = closed.differentiable(fields=["initial.concentration"])
    errors = []
    for d, states in zip(batch["diffusivity"], batch["concentration"], strict=True):
        found = np.asarray(run({"diffusivity": d}, {"initial.concentration": states[0]}).observed["concentration"])
        squares = [np.sum((found[k] - states[k]) ** 2) / np.sum(states[k] ** 2) for k in (1, 2)]
        errors.append(np.mean(squares))
    double = sj.Closure(lambda c: 2 * c, ("concentration",))
    got = loss(double, loss.placed(batch), jax.random.key(0))
    np.testing.assert_allclose(got, errors, rtol=1e-12)  # rounding of small differences
    predicted = loss.predicted(double, batch, 3)["concentration"]
    np.testing.assert_allclose(predicted[3], found[:3], rtol=1e-13)  # rounding of four steps


def test_the_gradient_is_that_of_differences(loss, batch):
    module, step = network(), 1e-6
    _, gradient = value_and_gradient(loss, module, batch)
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(arrays)
    keys = jax.random.split(jax.random.key(3), len(leaves))
    direction = [jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]

    def at(distance):
        moved = [leaf + distance * d for leaf, d in zip(leaves, direction, strict=True)]
        return value_and_gradient(loss, eqx.combine(jax.tree.unflatten(tree, moved), rest), batch)[0]

    along = float(np.dot(gradient, np.concatenate([np.ravel(d) for d in direction])))
    # Second order in the step, and the rounding of the value over it.
    np.testing.assert_allclose((at(step) - at(-step)) / (2 * step), along, rtol=1e-7)


@pytest.mark.slow
def test_windows_and_space_may_be_cut(line, loss, batch):
    noisy = loss.unrolled(1, pushforward=1, noise=0.05)
    value, gradient = value_and_gradient(noisy, network(), batch)
    cut = sj.RolloutLoss(line, ["concentration"], unroll=1, pushforward=1, noise=0.05, mesh={"ensemble": 2, "x": 2})
    found, other = value_and_gradient(cut, network(), batch)
    # Sums in another order.
    np.testing.assert_allclose(found, value, rtol=1e-12)
    np.testing.assert_allclose(other, gradient, rtol=1e-10, atol=1e-14)


@pytest.mark.slow
def test_no_derivative_passes_the_pushforward(line, loss, batch):
    pushed = loss.unrolled(1, pushforward=1)
    value, gradient = value_and_gradient(pushed, network(), batch)
    # The same states, given: what led to them is no part of the derivative.
    led = np.asarray(loss.predicted(network(), batch, 2)["concentration"])[:, 1]
    states = np.stack([led, batch["concentration"][:, 2]], axis=1)
    later = {**batch, "concentration": states, "time": batch["time"][:, 1:3]}
    again, expected = value_and_gradient(loss.unrolled(1), network(), later)
    # Rounding: the state in between is a float64 in either case, and programs differ.
    np.testing.assert_allclose(value, again, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-10)
    _, whole = value_and_gradient(loss, network(), batch)
    assert np.abs(gradient - whole).max() > 1e-3 * np.abs(whole).max()


def test_noise_has_its_size_and_changes_with_the_key(line, loss, batch):
    noisy = loss.unrolled(1, noise=0.1)
    placed = noisy.placed(batch)
    first = np.asarray(placed["concentration"][:, 0])
    added = [np.asarray(noisy._noisy(placed, jax.random.key(k))["concentration"][:, 0]) - first for k in range(40)]
    share = np.std(added) / np.sqrt(np.mean(first**2))
    assert abs(share - 0.1) < 0.01  # 40 x 64 numbers: three standard deviations are 4 %, fields differ by less
    assert not np.array_equal(added[0], added[1])


# ---------------------------------------------------------------------- training


@pytest.mark.slow
def test_a_stopped_training_goes_on_as_if_it_had_not(loss, batch, tmp_path):
    stages = [sj.Stage(3, loss.unrolled(1, noise=0.02)), sj.Stage(5, loss)]
    validation = loss.unrolled(3), [batch]
    learner = sj.Learner(network(), optax.adam(optax.cosine_decay_schedule(1e-2, 8)))
    whole = sj.train(learner, stages, Batches(batch), folder=tmp_path / "whole", every=2, validation=validation)

    def stop(taken):
        if taken == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    folder = tmp_path / "stopped"
    with pytest.raises(Stopped, match="after 5 of 8 updates"):
        sj.train(learner, stages, Batches(batch, stop), folder=folder, every=2, validation=validation)
    again = sj.train(learner, stages, Batches(batch), folder=folder, every=2, validation=validation)
    for one, other in zip(*map(jax.tree.leaves, (whole.state, again.state)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [(line.updates, line.stage) for line in again.history] == [(2, 0), (4, 1), (6, 1), (8, 1)]
    assert again.history == whole.history
    with xarray.open_dataset(folder / "training.h5") as file:
        np.testing.assert_array_equal(file.validation, [line.validation for line in again.history])
    saved = eqx.tree_deserialise_leaves(folder / "module.eqx", network(1))
    np.testing.assert_array_equal(saved.module.weights[0], whole.module.module.weights[0])
    assert (folder / "training.png").is_file()


@pytest.mark.slow
def test_weights_that_are_not_finite_end_it_and_the_checkpoint_stays(loss, batch, tmp_path):
    learner = sj.Learner(network(), optax.sgd(lambda number: jnp.where(number < 3, 1e-3, jnp.inf)))
    with pytest.raises(NumericalError, match="update 4, in stage 1, made .* write a smaller learning rate"):
        sj.train(learner, [sj.Stage(9, loss)], Batches(batch), folder=tmp_path, every=2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["2"]


def test_arrays_are_frozen_by_path(loss, batch):
    module = network()
    assert sj.array_paths(module) == [f"module.{kind}.{k}" for kind in ("weights", "biases") for k in (0, 1)]
    learner = sj.Learner(module, optax.adamw(0.1), frozen=["module.weights.?", "*.biases.1"])
    after = learner.module(learner.update(learner.begin(), loss, batch)[0]).module
    for k in (0, 1):
        np.testing.assert_array_equal(after.weights[k], module.module.weights[k])
    np.testing.assert_array_equal(after.biases[1], module.module.biases[1])
    assert np.all(after.biases[0] != module.module.biases[0])


def test_low_rank_updates_are_of_low_rank_and_train_nothing_else(loss, batch):
    module = network()
    tuned = sj.LowRank(module, 1, where="module.weights.*", key=jax.random.key(1))
    learner = sj.Learner(tuned, optax.adamw(0.1))
    state = learner.begin()
    before = learner.module(state).module
    np.testing.assert_array_equal(before.weights[0], module.module.weights[0])
    first, _ = learner.update(state, loss, batch)
    after = learner.module(learner.update(first, loss, batch)[0]).module
    change = np.linalg.svd(np.asarray(after.weights[0] - before.weights[0]), compute_uv=False)
    assert change[0] > 1e-3 and change[1] < 1e-15  # rounding
    np.testing.assert_array_equal(after.biases[0], before.biases[0])
    trained = sum(leaf.size for leaf in jax.tree.leaves(state.weights))
    assert trained == (6 + 3) + (1 + 6)


class Linen(linen.Module):
    """rate c (1 - c) in Flax Linen."""

    @linen.compact
    def __call__(self, c):
        return self.param("rate", lambda key: jnp.asarray(2.0)) * c * (1 - c)


class Nnx(nnx.Module):
    """The same in Flax NNX."""

    def __init__(self):
        self.rate = nnx.Param(jnp.asarray(2.0))

    def __call__(self, c):
        return self.rate[...] * c * (1 - c)


@pytest.mark.parametrize("kind", ["linen", "nnx"])
def test_a_module_of_flax_is_one_of_equinox(loss, batch, kind):
    inner = Linen()
    module = sj.from_flax(inner, inner.init(jax.random.key(0), jnp.ones(3))) if kind == "linen" else sj.from_flax(Nnx())
    expected = value_and_gradient(loss, growth(2.0), batch)
    got = value_and_gradient(loss, sj.Closure(module, ("concentration",)), batch)
    # The same operations, in programs that XLA may order otherwise: rounding.
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-12)


# ---------------------------------------------------------------------- what is refused


def test_what_does_not_fit_is_answered_by_a_sentence(line, loss, batch):
    short = {name: values[:, :2] if values.ndim > 1 else values for name, values in batch.items()}
    coarse = {**batch, "concentration": batch["concentration"][..., ::2]}
    fine = {**batch, "concentration": batch["concentration"].repeat(2, axis=-1)}
    late = {**batch, "time": 2 * batch["time"]}
    for wrong, sentence in (
        (short, "windows of 2 states: expected 3 or more"),
        (coarse, "on .8,. cells: expected grid.shape=.16."),
        (fine, "on .32,. cells: expected grid.shape=.16."),
        (late, "states 0.1 apart: expected time.output_every=0.05"),
        ({"time": batch["time"]}, "windows have no 'concentration'"),
    ):
        with pytest.raises(ConfigurationError, match=sentence):
            loss.placed(wrong)
    cut = sj.RolloutLoss(line, unroll=1, mesh={"ensemble": 3})
    with pytest.raises(ConfigurationError, match="batches of 4 windows: expected a multiple"):
        cut.placed(batch)
    with pytest.raises(ConfigurationError, match="expected devices over ensemble, x"):
        sj.RolloutLoss(line, unroll=1, mesh={"y": 2})
    for arguments, sentence in (({"unroll": 0}, "unroll=0"), ({"unroll": 1, "noise": -1.0}, "noise=-1.0")):
        with pytest.raises(ConfigurationError, match=sentence):
            sj.RolloutLoss(line, **arguments)
    with pytest.raises(ConfigurationError, match="write time.dt"):
        sj.RolloutLoss(sj.load("sod", ["time.courant=0.5"]), unroll=1)
    with pytest.raises(ConfigurationError, match="expected a model of fields"):
        sj.RolloutLoss(sj.load("lennard_jones"), unroll=1)
    with pytest.raises(ConfigurationError, match="expected a simjax.Closure"):
        loss(Growth(jnp.asarray(1.0)), loss.placed(batch), jax.random.key(0))


def test_arguments_of_learners_are_checked(loss, batch):
    with pytest.raises(ConfigurationError, match="frozen: 'module.bias' fits no array"):
        sj.Learner(network(), optax.sgd(1.0), frozen=["module.bias"])
    with pytest.raises(ConfigurationError, match="nothing is trained"):
        sj.Learner(network(), optax.sgd(1.0), frozen=["*"])
    with pytest.raises(ConfigurationError, match="expected paths of matrices"):
        sj.LowRank(network(), 2, where="module.biases.*", key=jax.random.key(0))
    with pytest.raises(ConfigurationError, match="rank=0"):
        sj.LowRank(network(), 0, key=jax.random.key(0))
    with pytest.raises(ConfigurationError, match="expected a module of Flax, got Growth"):
        sj.from_flax(Growth(jnp.asarray(1.0)))
    with pytest.raises(ConfigurationError, match="expected the variables"):
        sj.from_flax(Linen())
    learner = sj.Learner(network(), optax.sgd(1e-3))
    with pytest.raises(ConfigurationError, match="the batches ended after 1 of 3 updates"):
        sj.train(learner, [sj.Stage(3, loss)], iter([batch]))
    with pytest.raises(ConfigurationError, match="get_state"):
        sj.train(learner, [sj.Stage(3, loss)], iter([batch]), folder="never_made")
