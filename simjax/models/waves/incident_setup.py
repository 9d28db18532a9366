"""The box of an incident wave in configurations and in Python."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simjax.core.boundary import Side
from simjax.grid import AXES, Grid
from simjax.models.declaration import Setup
from simjax.models.formulas import formula_refusals
from simjax.models.waves.incident import IncidentBox
from simjax.models.waves.margins import Margins, nearest_face, place_of_face, uniform_refusals
from simjax.models.waves.wave_setup import Signal, signal_of
from simjax.models.waves.yee import POLARISATION_OF, POLARISATIONS
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import Choice, ListOf, Nested, Real, Text, key

DIRECTIONS = tuple(f"{sign}{axis}" for axis in AXES for sign in ("", "-"))
CORNER = ListOf(Real(optional=True, formula=True), 1, 3, noun="numbers, one per axis")
PATH = "physics.incident"


@dataclass(frozen=True)
class IncidentWave:
    """A plane wave along an axis that enters a box: total fields are inside, scattered ones outside.

    lower, upper: corners of the box, moved to the nearest faces of cells; None along a periodic axis that it fills.
    direction: "x", "-x", "y", ... along: the component of E, where there are two across the direction.

    Examples:
        >>> wave = sj.IncidentWave((0.3, 0.3), (0.7, 0.7), direction="x")
        >>> sides = [(sj.AbsorbingSide(), sj.AbsorbingSide())] * 2
        >>> light = sj.Maxwell(sj.Domain(sj.Grid((64, 64))), sides, incident=wave)
    """

    lower: tuple[float | None, ...]
    upper: tuple[float | None, ...]
    direction: str
    along: str | None = None


@dataclass(frozen=True)
class IncidentConfig:
    """A plane wave that enters a box, and its field in time."""

    lower: tuple[float | None, ...] = key(CORNER, units="m", about="lower corner of the box")
    upper: tuple[float | None, ...] = key(CORNER, units="m", about="upper corner of the box")
    direction: str = key(Choice(DIRECTIONS), about="where the wave goes")
    signal: Any = key(Signal(), about="E of the wave one cell in front of the box, in time")
    along: str | None = key(
        Text(optional=True, pattern="[xyz]", described="x, y or z"), None, about="component of E that it has"
    )

    @property
    def wave(self) -> IncidentWave:
        return IncidentWave(self.lower, self.upper, self.direction, self.along)


@dataclass(frozen=True)
class IncidentKeys:
    """Keys of light that comes from afar."""

    incident: IncidentConfig | None = key(
        Nested(IncidentConfig, optional=True), None, about="a plane wave that enters a box"
    )


def box_of(
    wave: IncidentWave, grid: Grid, sides: Sequence[tuple[Side, Side]], layer_cells: int, order: int, polarisation: str
) -> IncidentBox:
    """The box in numbers of cells.

    Raises:
        ConfigurationError: there cannot be such a wave.
    """
    raise_first(refusals(wave, grid, Margins.of_sides(sides, layer_cells), order, polarisation))
    first, last = zip(*_faces(wave, grid), strict=True)
    axis = AXES.index(wave.direction[-1])
    electric, magnetic = POLARISATIONS[polarisation]
    along = _component(wave, electric)
    across, upwards = 3 - axis - along, len(wave.direction) == 1
    handed = int(np.linalg.det(np.eye(3)[[axis, along, across]]).round())
    # H is the direction times E, and what the line keeps of it is -E in a wave along the line.
    sign = -handed if upwards else handed
    return IncidentBox(first, last, axis, upwards, electric.index(along), magnetic.index(across), sign)


def _component(wave: IncidentWave, electric: Sequence[int]) -> int:
    if wave.along is not None:
        return AXES.index(wave.along)
    return next(component for component in reversed(electric) if AXES[component] != wave.direction[-1])


def _faces(wave: IncidentWave, grid: Grid) -> list[tuple[int | None, int | None]]:
    """Numbers of the faces at the box's sides, for each axis."""
    return [
        (None, None) if low is None or high is None else (nearest_face(grid, k, low), nearest_face(grid, k, high))
        for k, (low, high) in enumerate(zip(wave.lower, wave.upper, strict=True))
    ]


def refusals(
    wave: IncidentWave, grid: Any, margins: Margins, order: int, polarisation: str
) -> Iterator[tuple[str, str]]:
    """Sentences on a wave that there cannot be, each with its key path; grid: with shape, lower and upper."""
    unfit = [*uniform_refusals(PATH, grid, order)]
    if unfit:
        yield from unfit
        return
    axes = len(grid.shape)
    for name in ("lower", "upper"):
        corner = getattr(wave, name)
        if len(corner) != axes:
            yield f"{PATH}.{name}", f"{PATH}.{name} = {list(corner)}: expected {axes} number(s), one per axis of grid"
            return
    if wave.direction[-1] not in AXES[:axes]:
        yield f"{PATH}.direction", f"{PATH}.direction = {wave.direction}: expected an axis of the grid"
        return
    electric = POLARISATIONS[polarisation][0]
    possible = [AXES[c] for c in electric if AXES[c] != wave.direction[-1]]
    if wave.along is not None and wave.along not in possible:
        expected = f"expected {' or '.join(possible)}, a component of E across the direction"
        yield f"{PATH}.along", f"{PATH}.along = {wave.along}: {expected}"
    for axis, ends in enumerate(zip(wave.lower, wave.upper, strict=True)):
        yield from _along_axis(wave, grid, margins, axis, *ends)


def _along_axis(wave, grid, margins: Margins, axis: int, low, high) -> Iterator[tuple[str, str]]:
    name, path = AXES[axis], f"{PATH}.lower[{axis}]"
    if low is None and high is None and margins.periodic[axis] and wave.direction[-1] != name:
        return
    if low is None or high is None:
        across = "null at both ends along a periodic axis across the direction, or numbers"
        yield path, f"{PATH} has null along {name}: expected {across}"
        return
    first, last = (nearest_face(grid, axis, end) for end in (low, high))
    least, most = margins.room(grid, axis)
    if not least <= first < last <= most:
        begin, end = (place_of_face(grid, axis, number) for number in (least, most))
        room = f"from {begin:g} to {end:g}, two cells from sides and layers"
        yield path, f"{PATH} reaches from {low:g} to {high:g} along {name}: expected a box within the range {room}"


def check_incident(model: str) -> Callable[[Any], Iterator[tuple[str, str]]]:
    """Return the check of a configuration of the model of light that has this name."""

    def check(config: Any) -> Iterator[tuple[str, str]]:
        keys = config.physics.incident
        if keys is None:
            return
        margins, polarisation = Margins.of_configuration(config), POLARISATION_OF.get(model, "tm")
        yield from refusals(keys.wave, config.grid, margins, config.physics.order, polarisation)
        yield from formula_refusals(f"{PATH}.signal", keys.signal, ("t", *config.parameters))

    return check


def incident_of(setup: Setup) -> Any:
    """The signal of the incident wave of a configuration; None without one."""
    keys = setup.keys.incident
    return None if keys is None else signal_of(keys.signal, setup.values, setup.config.precision)
