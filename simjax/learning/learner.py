"""Training of a module by any chain of Optax: update by update, or in stages with checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from simjax.arguments import require_kind
from simjax.errors import ConfigurationError
from simjax.learning.loss import Batch, BatchLoss
from simjax.learning.low_rank import LowRank
from simjax.learning.paths import matching, without
from simjax.notebook import all_in_a_line, line
from simjax.parallel import place


class TrainingState(eqx.Module):
    """State that a training goes on from: trained arrays, the optimiser's state, and how many updates there were."""

    weights: Any
    optimizer: Any
    updates: Array

    __repr__ = all_in_a_line


class Update(eqx.Module):
    """The mean error of a batch before an update, the norm of its gradient, and if all weights are finite after it."""

    loss: Array
    gradient_norm: Array
    finite: Array

    __repr__ = all_in_a_line


class Learner:
    """Makes the mean of a loss over batches small, by the arrays of a module.

    Args:
        module: what is trained: a `Closure`, a potential, any Equinox module that the loss takes; or a `LowRank` one.
        optimizer: a chain of Optax; its schedules count updates.
        frozen: paths of arrays that stay as they are, such as "module.layers.0.*" (`array_paths` lists all).
        seed: of the noise in losses, which is another one in each update.

    Raises:
        ConfigurationError: a path that fits no array, or nothing is left to train.

    Examples:
        >>> import optax
        >>> network = sj.LocalNetwork(1, 2, [8], key=jax.random.key(0))
        >>> learner = sj.Learner(network, optax.adam(1e-2), frozen=["weights.0"])
        >>> fits = sj.WindowLoss(lambda module, window, key: jnp.mean((module(window["u"])[0] - window["v"]) ** 2))
        >>> state = learner.begin()
        >>> for _ in range(3):
        ...     state, update = learner.update(state, fits, {"u": np.ones((2, 4, 4)), "v": np.ones((2, 4, 4))})
        >>> bool(update.loss < 1), learner.module(state).weights[0] is network.weights[0]
        (True, True)
    """

    def __init__(
        self, module: Any, optimizer: optax.GradientTransformation, *, frozen: Sequence[str] = (), seed: int = 0
    ):
        expected = "a chain of Optax, such as optax.adam(1e-3)"
        require_kind("Learner: optimizer", optimizer, optax.GradientTransformation, expected)
        kept = matching(module, frozen, "frozen") | (module.frozen if isinstance(module, LowRank) else set())
        self._first, rest = eqx.partition(module, without(module, kept))
        if not jax.tree.leaves(self._first):
            raise ConfigurationError("the module has no floating-point array that is not frozen; nothing is trained.")
        self._known, self._static = eqx.partition(rest, eqx.is_array)
        self._optimizer, self._seed = optax.with_extra_args_support(optimizer), seed
        self._programs: dict[tuple[str, int], tuple[Any, BatchLoss]] = {}

    def __repr__(self) -> str:
        kept, trained = ([leaf.size for leaf in jax.tree.leaves(part)] for part in (self._known, self._first))
        rows = [("trained", f"{sum(trained)} numbers in {len(trained)} arrays"), ("others", sum(kept) or None)]
        return line("Learner", rows)

    def begin(self) -> TrainingState:
        """Training state before the first update."""
        return TrainingState(self._first, self._optimizer.init(self._first), jnp.zeros((), jnp.int32))

    def module(self, state: TrainingState) -> Any:
        """The module with the trained arrays in it."""
        return self._whole(state.weights, self._known)

    def update(self, state: TrainingState, loss: BatchLoss, batch: Batch) -> tuple[TrainingState, Update]:
        """Update the module by the gradient of the loss on a batch.

        Raises ConfigurationError where the batch does not fit the loss.
        """
        return self._program("update", self._updated, loss)(*self._placed(state, loss), loss.placed(batch))

    def errors(self, state: TrainingState, loss: BatchLoss, batch: Batch) -> Array:
        """The error of each window of a batch, `(windows,)`, without an update."""
        return self._program("errors", self._errors, loss)(*self._placed(state, loss), loss.placed(batch))

    def _placed(self, state: TrainingState, loss: BatchLoss) -> tuple[TrainingState, Any]:
        """The state and the frozen arrays where the loss has them, so that the first update compiles for all."""
        return jax.tree.map(lambda u: place(u, loss.everywhere), (state, self._known))

    # ------------------------------------------------------------------ programs

    def _program(self, name: str, method: Any, loss: BatchLoss):
        """The compiled method with this loss; the loss is kept with it, so that its number stays its own."""
        key = name, id(loss)
        if key not in self._programs:
            self._programs[key] = jax.jit(lambda *arguments: method(loss, *arguments)), loss
        return self._programs[key][0]

    def _updated(self, loss: BatchLoss, state: TrainingState, known, batch) -> tuple[TrainingState, Update]:
        def mean(weights) -> Array:
            return jnp.mean(loss(self._whole(weights, known), batch, self._key(state)))

        value, gradient = jax.value_and_grad(mean)(state.weights)
        with jax.numpy_dtype_promotion("standard"):  # as chains of Optax are written
            change, optimizer = self._optimizer.update(
                gradient, state.optimizer, state.weights, value=value, grad=gradient, value_fn=mean
            )
            weights = optax.apply_updates(state.weights, change)
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(weights)]).all()
        told = Update(value, optax.tree.norm(gradient), finite)
        return TrainingState(weights, optimizer, state.updates + 1), told

    def _errors(self, loss: BatchLoss, state: TrainingState, known, batch) -> Array:
        return loss(self._whole(state.weights, known), batch, self._key(state))

    def _key(self, state: TrainingState) -> Array:
        return jax.random.fold_in(jax.random.key(self._seed), state.updates)

    def _whole(self, weights: Any, known: Any) -> Any:
        module = eqx.combine(weights, known, self._static)
        return module.merged() if isinstance(module, LowRank) else module
