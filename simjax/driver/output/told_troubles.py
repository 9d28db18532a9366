"""Sentences on the troubles of a run: how many cells had one, how large it was, where and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from simjax.grid import AXES
from simjax.io.run_numbers import read_numbers
from simjax.models.troubles import CELLS, WORST, extreme
from simjax.schema.troubles import Trouble


def said_of_run(troubles: Sequence[Trouble], folder: Path, member_named: Callable[[int], str] | None) -> list[str]:
    """A sentence for each of these troubles on the output time of the run in `folder`, and the member, of the worst.

    That is where most cells had it, or where it was largest if cells are not counted. member_named: the name of a
    member by its row; None of a run without members.
    """
    if not troubles:
        return []
    numbers, said = read_numbers(folder), []
    for one in troubles:
        series = numbers.series[_size(one)] * (-1 if one.lowest else 1)
        if np.all(np.isnan(series)):
            continue
        row, frame = (int(k) for k in np.unravel_index(int(np.nanargmax(series)), series.shape))
        text = _said(one, {name: float(own[row, frame]) for name, own in numbers.series.items()})
        text = text[:1].upper() + text[1:]
        if series[row, frame] == 0 and not one.lowest:
            said.append(f"{text} at any output time.")
            continue
        whose = "" if member_named is None else f", {member_named(row)}"
        said.append(f"{text}{' at most' if one.counted else ''}, at t={numbers.time[frame]:.6g}{whose}.")
    return said


def said_of_state(troubles: Sequence[Trouble], numbers: Mapping[str, float]) -> list[str]:
    """A phrase for each trouble that a state has, of its numbers by name."""
    known = [one for one in troubles if f"{one.name}_{WORST}" in numbers]
    return [_said(one, numbers) for one in known if one.lowest or numbers[_size(one)] != 0]


def _size(one: Trouble) -> str:
    """The name of the number by which states are compared: of cells, or of the worst of them."""
    return f"{one.name}_{CELLS if one.counted else WORST}"


def _said(one: Trouble, numbers: Mapping[str, float]) -> str:
    """A phrase on how many cells have a trouble, how large it is, and where: "3 cells with a sonic point (...)"."""
    if not one.lowest and numbers[_size(one)] == 0:
        return f"no cell with {one.having}" if one.counted else f"no {one.long_name}"
    units = "" if one.units == "1" else f" {one.units}"
    places = [(axis, numbers[f"{one.name}_{axis}"]) for axis in AXES if f"{one.name}_{axis}" in numbers]
    where = ", ".join(f"{axis}={x:.4g}" for axis, x in places)
    worst = f"{extreme(one)} {one.long_name} {numbers[f'{one.name}_{WORST}']:.4g}{units} at {where}"
    if not one.counted:
        return worst
    cells = int(numbers[f"{one.name}_{CELLS}"])
    return f"{cells} cell{'' if cells == 1 else 's'} with {one.having} ({worst})"
