"""Observations of an inverse problem that are made by an instrument of the run, named in `outputs`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from simjax.config.sections import Context
from simjax.schema.config import TimeConfig
from simjax.schema.config_errors import closest, join
from simjax.schema.instrument_declarations import instrument_class, kinds_of
from simjax.schema.instruments import Instruments


def as_observations(
    where: str, value: Mapping[str, Any], found: Mapping[str, Any], context: Context
) -> list[Mapping[str, Any]]:
    """`{output: NAME, ...}` as one observation for each variable of that instrument; others as they are.

    The other keys are those of the observations. Without `times` and `every` they are measured when the instrument
    reads them, one of every step at the end of each frame; those in a file, such as the instrument's own, at its times.
    """
    if "output" not in value or found["outputs"] is None:  # None: what is wrong with them is told already
        return [] if "output" in value else [value]
    name, instruments = value["output"], Instruments(found["outputs"])
    chosen = next((one for one in instruments if one.name == name), None)
    path, problems = join(where, "output"), context.problems
    if chosen is None:
        names = [one.name for one in instruments]
        close = closest(str(name), names)
        hint = f"did you mean '{close}'?" if close else ""
        problems.add(path, name, f"the name of an entry of outputs, {', '.join(names) or 'where there are none'}", hint)
        return []
    if not chosen.kind_class.fitted:
        fitted = [kind for kind in kinds_of(context.schema.family) if instrument_class(kind).fitted]
        problems.add(path, name, f"an instrument of kind {', '.join(fitted)}; {name} is of kind {chosen.kind}")
        return []
    others = {key: given for key, given in value.items() if key not in ("output", "of")}
    if not {"times", "every", "file"} & others.keys() and chosen.interval_within_frames:
        others["times"] = _times(chosen.interval_within_frames, found["time"])
    readings = chosen.readings(context.schema.written(context.ndim, context.counts))
    if "of" in value and value["of"] not in readings:
        close = closest(str(value["of"]), readings)
        hint = f"did you mean '{close}'?" if close else ""
        problems.add(join(where, "of"), value["of"], f"one of what {name} reads, {', '.join(readings)}", hint)
        return []
    for variable in sorted({one for reading in readings.values() for one in reading} - {*context.variables}):
        problems.say(path, f"{path} = {name}: {variable} is derived: expected variables of the model in a fit")
        return []
    wanted = [value["of"]] if "of" in value else list(readings)
    return [{"output": name, "of": reading, **others} for reading in wanted]


def _times(every: float, time: TimeConfig | None) -> list[float]:
    """Times of samples after the start."""
    count = 0 if time is None else math.floor(time.end / every * (1 + 1e-12))
    return [number * every for number in range(1, count + 1)]
