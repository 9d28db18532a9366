"""The answer of an inversion: estimates in units of the simulation, and how certain they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from simjax.core.domain import Domain
from simjax.inverse.methods.laplace import (
    Uncertainty,
    draw_keys,
    draws_converged,
    number_sensitivity,
    posterior_draws,
    uncertainty_of_numbers,
)
from simjax.inverse.methods.least_squares import LeastSquares
from simjax.inverse.methods.solver import Iterate
from simjax.inverse.problem import InverseProblem
from simjax.inverse.problem_instruments import Observation
from simjax.io.field_draws import FieldDraws
from simjax.jaxpr.platform import platform
from simjax.models.closure import Closure
from simjax.parallel import whole
from simjax.schema.inverse import NORMAL_95

# Draws at once on a CPU: they share the run that derivatives are taken around, which saves up to a third of the time;
# more of them leave the caches.
ON_A_CPU = 4
# Cells of all draws at once on other devices, which small fields do not fill: about a GB in single precision.
ELSEWHERE = 2**22


@dataclass(frozen=True)
class Estimate:
    """The result of a search and its uncertainty.

    estimate, guess, truth (None without): unknowns by path. intervals: 95 % of each number, by path; ends are infinite,
    or those of the unknown's bounds, where the measurements do not determine it. doubts: sentences that name what is
    not determined and whose interval is not to be trusted. deviations: of each field's components, where samples were
    asked for. residual: root mean square of the measurements' residuals, in standard deviations: about one where model,
    noise and answer are right. residuals: the same by experiment, where there are several. modules: those that were
    sought, by name, with the estimate inside.
    """

    latent: Any
    estimate: dict[str, Any]
    guess: dict[str, Any]
    truth: dict[str, Any] | None
    intervals: dict[str, tuple[float, float]]
    doubts: tuple[str, ...]
    deviations: dict[str, Any]
    residual: float
    residuals: dict[str, float]
    modules: dict[str, Closure]

    def summary(self) -> str:
        """The numbers with their intervals, how well the measurements are met, and what is doubtful."""
        said = [
            f"{path.split('.', 1)[1]} = {float(self.estimate[path]):.5g} ({low:.4g} to {high:.4g})"
            for path, (low, high) in self.intervals.items()
        ]
        each = ", ".join(f"{name} {residual:.3g}" for name, residual in self.residuals.items())
        met = f"residuals {self.residual:.3g} standard deviations{f' ({each})' if each else ''}"
        return " ".join(["; ".join([*said, met]) + ("." if self.doubts else ""), *self.doubts])


def answer(
    problem: InverseProblem,
    latent,
    iterate: Iterate,
    drawn: Callable[[FieldDraws], None] = lambda draws: None,
    draws: FieldDraws | None = None,
) -> Estimate:
    """The answer at `latent`, with Laplace's approximation around it, or the members' spread of an ensemble.

    Fields are those that the model begins with, and so are the draws that their deviations are of: what a projection
    takes away is not in doubt. draws: those that there are already. drawn: called after some more, with all of them.
    """
    least_squares = problem.least_squares()
    estimate = problem.physical(latent)
    residuals = eqx.filter_jit(least_squares.evaluate)(latent).residuals["measured"]
    left = {e.name: _squares(residuals, e.instruments) for e in problem.experiments}
    numbers = list(problem.numbers)
    filled = problem.modules.whole(estimate)
    estimate = problem.taken(estimate)
    if problem.inverse.solver.name == "ensemble_kalman":
        found = Uncertainty({path: float(jnp.std(iterate.latent[path])) for path in numbers}, (), {})
    elif numbers:
        found = uncertainty_of_numbers(
            eqx.filter_jit(number_sensitivity)(least_squares, latent, tuple(numbers)), numbers
        )
    else:
        found = Uncertainty({}, (), {})
    beside = [path for path in problem.unknowns if path not in numbers]
    doubts = _doubts(problem, latent, estimate, found, beside)
    deviations = {}
    if problem.inverse.samples and problem.fields:
        draws = _field_draws(problem, least_squares, latent, drawn, draws or FieldDraws())
        deviations = draws.deviations()
        if not draws_converged(draws.left):
            doubts.append(
                f"The standard deviations of {', '.join(problem.fields)} are not converged: conjugate gradients left "
                f"{draws.left:.1g} of a draw."
            )
    return Estimate(
        latent,
        {path: jax.tree.map(whole, u) for path, u in estimate.items()},
        {path: jax.tree.map(whole, u) for path, u in problem.taken(problem.guess()).items()},
        {path: jax.tree.map(whole, u) for path, u in problem.taken(problem.truth()).items()}
        if problem.is_twin
        else None,
        {path: _interval(problem, path, latent, size) for path, size in found.deviations.items()},
        tuple(doubts),
        deviations,
        _root_mean_square(*map(sum, zip(*left.values(), strict=True))),
        {name: _root_mean_square(*of_run) for name, of_run in left.items() if name},
        {path.partition(".")[2]: filled[path] for path in problem.modules.weights},
    )


def _squares(residuals, instruments: list[Observation]) -> tuple[float, int]:
    """The sum of squares of what is left of the measurements of some instruments, and their number."""
    return sum(float(jnp.sum(residuals[i.name] ** 2)) for i in instruments), sum(i.count for i in instruments)


def _root_mean_square(squares: float, count: float) -> float:
    return float(np.sqrt(squares / max(1, count)))


def _interval(problem: InverseProblem, path: str, latent, deviation: float) -> tuple[float, float]:
    """The ends of the latent's interval in units of the simulation; transforms of numbers are monotone."""
    transform, domain = problem.transforms[path], problem.domain.unsplit()
    ends = [float(transform.physical(latent[path] + s * NORMAL_95 * deviation, domain)) for s in (-1, 1)]
    return min(ends), max(ends)


def confounded_numbers(problem: InverseProblem, latent) -> list[str]:
    """Sentences on numbers that the measurements do not tell apart at `latent`, all other unknowns held fixed."""
    names, least_squares = problem.numbers, problem.least_squares()
    if len(names) < 2:
        return []
    numbers_alone = LeastSquares(
        (latent, least_squares.given),
        lambda numbers, given: least_squares.function({**given[0], **numbers}, given[1]),
        least_squares.of_members,
    )
    numbers = {path: latent[path] for path in names}
    sensitivity = eqx.filter_jit(number_sensitivity)(numbers_alone, numbers, names)
    estimate = problem.physical(latent)
    return _doubts(problem, latent, estimate, uncertainty_of_numbers(sensitivity, names), ())


def _doubts(problem: InverseProblem, latent, estimate, found: Uncertainty, beside: Sequence[str]) -> list[str]:
    """Sentences on what the measurements do not determine, and on intervals that did not converge.

    beside: other unknowns that were free to make up for a number.
    """
    domain = problem.domain.unsplit()
    said = []
    for combination in found.undetermined:
        changes = {
            path: float(
                jax.jvp(
                    lambda u, p=path: problem.transforms[p].physical(u, domain),
                    (latent[path],),
                    (jnp.asarray(step, latent[path].dtype),),
                )[1]
            )
            for path, step in combination.items()
        }
        narrower = any(path in problem.priors for path in changes)
        said.append(_undetermined(changes, {path: float(estimate[path]) for path in changes}, beside, narrower))
    without = [path for path in beside if path not in problem.priors]
    advice = f"give priors to {' and '.join(without)}" if without else "make the fields smooth"
    for path, left in found.unconverged.items():
        said.append(
            f"The interval of {path} is not converged: conjugate gradients left {left:.1g} of what the other unknowns "
            f"explain, so it may be too wide; {advice}."
        )
    return said


def _undetermined(
    changes: dict[str, float], estimates: dict[str, float], beside: Sequence[str], narrower: bool = False
) -> str:
    """The sentence on a combination of numbers; `beside`: unknowns that may make up for it.

    narrower: whether one of the numbers has a prior already, which is too wide.
    """
    prior = "a narrower prior" if narrower else "a prior"
    also = f", with {' and '.join(beside)} making up for it," if beside else ""
    if len(changes) == 1:
        (path,) = changes
        return (
            f"The measurements do not determine {path}: changing it{also} changes none of them at the estimate. Fix "
            f"it, give it {prior}, or observe something that tells."
        )
    first = next(iter(changes))
    if all(estimates.values()):  # in per cent of the estimates
        sizes, unit = {path: abs(value) / 100 for path, value in estimates.items()}, " %"
    else:
        sizes, unit = dict.fromkeys(estimates, 1.0), ""
    scale = sizes[first] / changes[first]
    parts = [f"{path} by {scale * change / sizes[path]:+.3g}{unit}" for path, change in changes.items()]
    return (
        f"The measurements do not determine {' and '.join(changes)} each by itself: changing {' and '.join(parts)} "
        f"together{also} changes none of them at the estimate. Fix one of them, give one {prior}, or observe something "
        "that tells them apart."
    )


def draws_at_once(domain: Domain) -> int:
    """The number of draws that are solved at once."""
    return ON_A_CPU if platform() == "cpu" else max(1, ELSEWHERE // int(np.prod(domain.block_shape)))


def _field_draws(
    problem: InverseProblem, least_squares: LeastSquares, latent, drawn: Callable[[FieldDraws], None], draws: FieldDraws
) -> FieldDraws:
    """Draws of fields that the model begins with, as many as were asked for, with those that there are already."""
    count, program = problem.inverse.samples, eqx.filter_jit(posterior_draws)
    each = min(count, draws_at_once(problem.domain))
    while draws.number < count:
        # A last batch that is not full has the shape of the others, so that nothing is compiled for it.
        batch = program(least_squares, latent, draw_keys(range(draws.number, draws.number + each)))
        for k in range(min(each, count - draws.number)):
            physical = problem.taken(problem.physical(jax.tree.map(lambda u, k=k: u[k], batch.samples)))
            draws.add({path: jax.tree.map(whole, physical[path]) for path in problem.fields}, float(batch.left[k]))
        drawn(draws)
    return draws
