"""Numbers of a run as its progress display has them: which ones, in which order, under which labels."""

from collections.abc import Mapping

from simjax.core.measure_checks import SmallDrift
from simjax.core.model import Measure
from simjax.models.measures import in_order, measure_of
from simjax.report.check import ROUNDING


class DisplayedNumbers:
    """Chooses the diagnostics to display by what the model tells of them.

    measures: of the model, by name. Where some have a label, these alone are displayed, beside what no model tells of,
    such as the Courant number; else all are, in the order of `measures`. One whose drift is checked is displayed as its
    drift since the first call.
    """

    def __init__(self, measures: Mapping[str, Measure]):
        self._measures = measures
        self._chosen = any(measure.shown for measure in measures.values())
        self._first: dict[str, float] = {}

    def __call__(self, diagnostics: Mapping[str, float]) -> dict[str, float]:
        """The numbers of one time by label."""
        found: dict[str, float] = {}
        for name, value in in_order(diagnostics, self._measures).items():
            measure = measure_of(self._measures, name)
            if measure is None:
                found |= {} if self._chosen and name.endswith(ROUNDING) else {name: value}
            elif isinstance(measure.check, SmallDrift) and measure.shown:
                found[f"{measure.shown} drift"] = self._drift(name, value, diagnostics.get(measure.check.share_of, 0.0))
            elif measure.shown or not self._chosen:
                found[measure.shown or name] = value
        return found

    def _drift(self, name: str, value: float, scale: float) -> float:
        first = self._first.setdefault(name, value)
        return (value - first) / scale if scale > 0 else 0.0
