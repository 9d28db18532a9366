"""Runs that combine a small problem with a layout, an implementation and a checkpoint plan, a few for all pairs.

Where two of them go wrong together, one of the runs shows it. To try all would be thousands of runs.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Combination:
    """A run. case: name of a small problem; where: a layout, or "ensemble"."""

    case: str
    where: str
    implementation: str
    plan: str

    def __str__(self) -> str:
        return f"{self.case} {self.where} {self.implementation} {self.plan}"

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """All but the case, with their names."""
        return ("where", self.where), ("implementation", self.implementation), ("plan", self.plan)

    def of_its_model(self) -> set[tuple]:
        """What it shows of the model: each choice, and the case cut in space or in an ensemble."""
        return {*self.choices, (self.case, self.where == "ensemble")}

    def of_any_model(self) -> set[tuple]:
        """What it shows of simjax: each two choices together."""
        return {*itertools.combinations(self.choices, 2)}


def covering(offered: Mapping[str, Sequence[Combination]]) -> list[Combination]:
    """Runs that show all that the runs `offered` of each model show, of the model and of simjax.

    The next run of a model is the one that shows most that none before it has; of equals, the first.
    """
    taken: list[Combination] = []
    missing = {pair for runs in offered.values() for run in runs for pair in run.of_any_model()}

    def take(runs: Sequence[Combination], own: set[tuple]) -> None:
        best = max(runs, key=lambda run: (len(run.of_its_model() & own), len(run.of_any_model() & missing)))
        own -= best.of_its_model()
        missing.difference_update(best.of_any_model())
        taken.append(best)

    for runs in offered.values():
        own = {pair for run in runs for pair in run.of_its_model()}
        while own:
            take(runs, own)
    everything = [run for runs in offered.values() for run in runs]
    while missing:
        take(everything, set())
    return taken
