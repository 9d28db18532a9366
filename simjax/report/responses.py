"""Dependence of the numbers at the end of a run on what varies between the members of an ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simjax.report import curves, scalars

if TYPE_CHECKING:
    import xarray as xr

LEAST, WEAK, MONOTONE = 5, 0.35, 0.7
SHARES = (5, 50, 95)


@dataclass(frozen=True)
class Response:
    """A diagnostic at the end against a number that varies, `(members,)` each, NaN for members that failed.

    rank: Spearman's correlation. strength: between 0 and 1, also of a dependence that goes up and down: the correlation
    ratio of ranks (the share of their variance between groups of neighbours, its root), where that is more.
    """

    diagnostic: str
    parameter: str
    given: np.ndarray
    values: np.ndarray
    rank: float
    strength: float

    @property
    def said(self) -> str:
        """The dependence in words, without the name of the diagnostic."""
        name = scalars.short(self.parameter)
        if self.strength < WEAK:
            return f"hardly depends on {name}"
        if abs(self.rank) < MONOTONE * self.strength:
            return f"rises and falls with {name}"
        return f"{'rises' if self.rank > 0 else 'falls'} with {name}"


def responses(dataset: xr.Dataset, most: int = 9) -> list[Response]:
    """The strongest dependences of diagnostics on numbers that vary, the strongest first."""
    found = []
    for diagnostic in curves.diagnostics(dataset):
        if "member" not in dataset[diagnostic].dims or diagnostic == curves.LAST:
            continue
        values = curves.recorded(dataset, diagnostic)[:, -1]
        for parameter, given in scalars.varied_parameters(dataset).items():
            known = np.isfinite(values) & np.isfinite(given)
            if np.count_nonzero(known) >= LEAST and np.ptp(values[known]) > 0:
                rank, ratio = _rank_correlation(given[known], values[known]), _ratio(given[known], values[known])
                found.append(Response(diagnostic, parameter, given, values, rank, max(abs(rank), ratio)))
    return sorted(found, key=lambda one: -one.strength)[:most]


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, equal values at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[inverse]


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    ranks = np.stack([_ranks(x), _ranks(y)])
    return float(np.corrcoef(ranks)[0, 1]) if np.all(np.ptp(ranks, axis=1) > 0) else 0.0


def _ratio(x: np.ndarray, y: np.ndarray) -> float:
    """The correlation ratio of ranks, without what chance alone gives."""
    groups = neighbours(x)
    if len(groups) < 3:
        return 0.0
    ranks = _ranks(y)
    between = sum(len(group) * (ranks[group].mean() - ranks.mean()) ** 2 for group in groups)
    share, n = between / np.sum((ranks - ranks.mean()) ** 2), len(x)
    return float(np.sqrt(max(0.0, 1 - (1 - share) * (n - 1) / (n - len(groups)))))


def neighbours(x: np.ndarray) -> list[np.ndarray]:
    """Indices of members in groups of equal size along x, at most 20, each of at least 8."""
    count = min(20, len(x) // 8)
    return np.array_split(np.argsort(x, kind="stable"), count) if count else []


def trend(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians of x in groups of neighbours, and the 5, 50 and 95 % quantiles of y there: `(3, groups)`."""
    groups = neighbours(x)
    return np.array([np.median(x[group]) for group in groups]), np.array(
        [np.percentile(y[group], SHARES) for group in groups]
    ).T


def sentence(found: Sequence[Response], labels: Mapping[str, str]) -> str:
    """The dependences in words: diagnostics that depend alike together, then what hardly matters."""
    strong: dict[str, list[Response]] = {}
    for one in found:
        strong.setdefault(one.diagnostic, []).extend([one] if one.strength >= WEAK else [])
    alike: dict[str, list[str]] = {}
    for diagnostic, own in strong.items():
        if own:
            alike.setdefault(" and ".join(one.said for one in own), []).append(diagnostic)
    parts = []
    for said, diagnostics in alike.items():
        names = [labels[name][:1].lower() + labels[name][1:] for name in diagnostics]
        verb = said if len(names) == 1 else said.replace("rises", "rise").replace("falls", "fall")
        parts.append(f"{_listed(names)} {verb}")
    matters = {one.parameter for own in strong.values() for one in own}
    weak = list(dict.fromkeys(scalars.short(one.parameter) for one in found if one.parameter not in matters))
    parts += [f"{_listed(weak)} hardly {'matters' if len(weak) == 1 else 'matter'}"] if weak else []
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def is_logarithmic(given: np.ndarray) -> bool:
    """Tell whether numbers that vary lie more evenly on a logarithmic axis."""
    known = given[np.isfinite(given)]
    if not curves.wide_range(known, 20) or np.min(known) <= 0:
        return False
    return abs(_middle(np.log(known)) - 0.5) < abs(_middle(known) - 0.5)


def _middle(values: np.ndarray) -> float:
    """The place of the median between the ends, from 0 to 1."""
    return float((np.median(values) - values.min()) / np.ptp(values))
