"""The operators of the instruments of a run of fields, and descriptions of what they read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from simjax.core.model import Output
from simjax.driver.output.instrument import Instrument, balance_instrument
from simjax.driver.programs.operators_along_bodies import along_bodies
from simjax.driver.programs.operators_of_several import of_several
from simjax.driver.programs.programs_of_fields import CompiledFields
from simjax.grid import AXES
from simjax.instruments.distributions import Histogram, VectorSpectrum
from simjax.instruments.operators import BoxAverage, Instrumental, PointSensors, Slice, complete_shells
from simjax.io.statistic_variables import squared
from simjax.schema.instruments import InstrumentConfig, line_points


def instrument_of_fields(source: InstrumentConfig, programs: CompiledFields) -> Instrument:
    """The operators of an instrument that looks at fields, and what each reads."""
    if source.kind == "balance":
        return balance_instrument(source, programs.model)
    if source.kind == "body_surface":
        return Instrument(source, *along_bodies(source, programs))
    variables = programs.outputs_named(source.of)
    if source.kind == "spectrum":
        return Instrument(source, *_spectra(source, programs), variables)
    if source.kind in ("surface_integral", "structure_function", "correlation"):
        return Instrument(source, *of_several(source, programs), variables)
    outputs = {output.name: output for output in variables}
    if source.kind == "histogram":
        of = "the volume" if programs.grid.stretched else "cells"
        outputs = {name: _share_of(of, output) for name, output in outputs.items()}
    operators = {name: _operator(source, name) for name in outputs}
    return Instrument(source, operators, outputs, variables)


def _share_of(what: str, output: Output) -> Output:
    about = f"share of {what} by {output.long_name or output.name}"
    return dataclasses.replace(output, units="1", long_name=about, standard_name="")


def _operator(source: InstrumentConfig, variable: str) -> Instrumental:
    given: Mapping[str, Any] = source.given
    match source.kind:
        case "slice":
            (axis, position), *_ = given.items()
            return Slice(variable, AXES.index(axis), position)
        case "probe":
            return PointSensors(variable, given["points"])
        case "line":
            return PointSensors(variable, line_points(given))
        case "box_mean":
            return BoxAverage(variable, [given["lower"]], [given["upper"]])
        case "histogram":
            return Histogram(variable, given["bins"], given["lower"], given["upper"])
    raise AssertionError(f"The configuration let through an instrument of kind {source.kind!r}.")


def _spectra(source: InstrumentConfig, programs: CompiledFields) -> tuple[dict[str, Any], dict[str, Output]]:
    """The energy of each variable or field by wavenumber, that of a vector summed over its components."""
    grid, along = programs.grid, source.given.get("along")
    axis = None if along is None else AXES.index(along)
    shells = source.given.get("shells") or (complete_shells(grid) if axis is None else (grid.shape[axis] - 1) // 2)
    operators, outputs = {}, {}
    for name in source.of:
        own = programs.outputs_named([name])
        key = f"{name}_spectrum"
        operators[key] = VectorSpectrum(key, tuple(output.name for output in own), shells, axis)
        which = "wavenumber" if along is None else f"wavenumber along {along}"
        text = f"energy of {name.replace('_', ' ')} by {which}, half the square in each shell"
        outputs[key] = Output(key, own[0].offset, squared(own[0].units), text)
    return operators, outputs
