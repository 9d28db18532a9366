"""The answer of an inversion: estimates in units of the simulation, and how certain they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from simjax.inverse.laplace import NORMAL_95, deviations_of_numbers, posterior_samples
from simjax.inverse.solver import Iterate
from simjax.inversion.instruments import Instrument
from simjax.inversion.problem import InverseProblem
from simjax.models.closure import Closure


@dataclass(frozen=True)
class Answer:
    """estimate, guess, truth (None without): unknowns by path. intervals: 95 % of each number, by path. deviations: of
    each field's components, where samples were asked for. residual: root mean square of the measurements' residuals,
    in standard deviations: about one where model, noise and answer are right. residuals: the same by experiment, where
    there are several. modules: those that were sought, by name, with the estimate inside.
    """

    latent: Any
    estimate: dict[str, Any]
    guess: dict[str, Any]
    truth: dict[str, Any] | None
    intervals: dict[str, tuple[float, float]]
    deviations: dict[str, Any]
    residual: float
    residuals: dict[str, float]
    modules: dict[str, Closure]

    def summary(self) -> str:
        """The numbers with their intervals, and how well the measurements are met."""
        said = [
            f"{path.split('.', 1)[1]} = {float(self.estimate[path]):.5g} ({low:.4g} to {high:.4g})"
            for path, (low, high) in self.intervals.items()
        ]
        each = ", ".join(f"{name} {residual:.3g}" for name, residual in self.residuals.items())
        return "; ".join([*said, f"residuals {self.residual:.3g} standard deviations{f' ({each})' if each else ''}"])


def answer(problem: InverseProblem, latent, iterate: Iterate) -> Answer:
    """The answer at `latent`, with Laplace's approximation around it, or the members' spread of an ensemble."""
    least_squares = problem.least_squares()
    estimate = problem.physical(latent)
    residuals = eqx.filter_jit(least_squares.evaluate)(latent).residuals["measured"]
    left = {e.name: _squares(residuals, e.instruments) for e in problem.experiments}
    numbers = list(problem.numbers)
    whole = problem.modules.whole(estimate)
    if problem.inverse.solver.name == "ensemble_kalman":
        sizes = {path: jnp.std(iterate.latent[path]) for path in numbers}
    else:
        sizes = eqx.filter_jit(deviations_of_numbers)(least_squares, latent, numbers)
    deviations = {}
    if problem.inverse.samples and problem.fields:
        deviations = _field_deviations(
            problem, eqx.filter_jit(posterior_samples)(least_squares, latent, problem.inverse.samples)
        )
    return Answer(
        latent,
        {path: jax.tree.map(np.asarray, u) for path, u in estimate.items()},
        {path: jax.tree.map(np.asarray, u) for path, u in problem.guess().items()},
        {path: jax.tree.map(np.asarray, u) for path, u in problem.truth().items()} if problem.is_twin else None,
        {path: _interval(problem, path, latent, float(size)) for path, size in sizes.items()},
        deviations,
        _root_mean_square(*map(sum, zip(*left.values(), strict=True))),
        {name: _root_mean_square(*of_run) for name, of_run in left.items() if name},
        {path.partition(".")[2]: whole[path] for path in problem.modules.weights},
    )  # fmt: skip


def _squares(residuals, instruments: list[Instrument]) -> tuple[float, int]:
    """The sum of squares of what is left of the measurements of some instruments, and their number."""
    return sum(float(jnp.sum(residuals[i.name] ** 2)) for i in instruments), sum(i.count for i in instruments)


def _root_mean_square(squares: float, count: float) -> float:
    return float(np.sqrt(squares / max(1, count)))


def _interval(problem: InverseProblem, path: str, latent, deviation: float) -> tuple[float, float]:
    """The ends of the latent's interval in units of the simulation; transforms of numbers are monotone."""
    transform, domain = problem.transforms[path], problem.domain.unsplit()
    ends = [float(transform.physical(latent[path] + s * NORMAL_95 * deviation, domain)) for s in (-1, 1)]
    return min(ends), max(ends)


def _field_deviations(problem: InverseProblem, samples) -> dict[str, Any]:
    """Pointwise standard deviations of fields over samples of the latent."""
    count = problem.inverse.samples
    drawn = [problem.physical(jax.tree.map(lambda leaf, k=k: leaf[k], samples)) for k in range(count)]
    return {
        path: jax.tree.map(lambda *u: np.std([np.asarray(v) for v in u], axis=0), *(d[path] for d in drawn))
        for path in problem.fields
    }
