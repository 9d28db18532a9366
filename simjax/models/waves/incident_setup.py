"""The box of an incident wave in configurations and in Python."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simjax.core.boundary import PeriodicSide, Side
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.models.declaration import Setup
from simjax.models.waves.incident import IncidentBox
from simjax.models.waves.pml import AbsorbingSide
from simjax.models.waves.wave_setup import Signal, signal_of
from simjax.models.waves.yee import POLARISATION_OF, POLARISATIONS
from simjax.schema.config_errors import raise_first, unended
from simjax.schema.formula import Formula
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
    margins = [[layer_cells * isinstance(side, AbsorbingSide) for side in pair] for pair in sides]
    periodic = [isinstance(pair[0], PeriodicSide) for pair in sides]
    raise_first(refusals(wave, grid, margins, periodic, order, polarisation))
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
    places = zip(wave.lower, wave.upper, grid.lower, grid.mean_spacing, strict=True)
    return [
        (None, None) if low is None or high is None else (round((low - begin) / h), round((high - begin) / h))
        for low, high, begin, h in places
    ]


def refusals(
    wave: IncidentWave,
    grid: Any,
    margins: Sequence[Sequence[int]],
    periodic: Sequence[bool],
    order: int,
    polarisation: str,
) -> Iterator[tuple[str, str]]:
    """Sentences on a wave that there cannot be, each with its key path.

    grid: with shape, lower and upper. margins: cells of layers at both sides of each axis.
    """
    plain = "expected a Cartesian grid of equal cells and physics.order: 2 beside it"
    if order != 2 or grid.axisymmetric or any(line is not None for line in grid.stretch or ()):
        yield PATH, f"{PATH} is given: {plain}"
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
        yield from _along_axis(wave, grid, margins[axis], periodic[axis], axis, *ends)


def _along_axis(wave, grid, margins, periodic, axis: int, low, high) -> Iterator[tuple[str, str]]:
    name, path = AXES[axis], f"{PATH}.lower[{axis}]"
    if low is None and high is None and periodic and wave.direction[-1] != name:
        return
    if low is None or high is None:
        across = "null at both ends along a periodic axis across the direction, or numbers"
        yield path, f"{PATH} has null along {name}: expected {across}"
        return
    n, begin = grid.shape[axis], grid.lower[axis]
    h = (grid.upper[axis] - begin) / n
    first, last = round((low - begin) / h), round((high - begin) / h)
    least, most = margins[0] + 2, n - margins[1] - 2
    if not least <= first < last <= most:
        room = f"from {begin + least * h:g} to {begin + most * h:g}, two cells from sides and layers"
        yield path, f"{PATH} reaches from {low:g} to {high:g} along {name}: expected a box within the range {room}"


def check_incident(model: str) -> Callable[[Any], Iterator[tuple[str, str]]]:
    """Return the check of a configuration of the model of light that has this name."""

    def check(config: Any) -> Iterator[tuple[str, str]]:
        keys = config.physics.incident
        if keys is None:
            return
        pairs = [[pair.lower.kind, pair.upper.kind] for pair in config.boundaries]
        margins = [[config.physics.layer_cells * (kind == "absorbing") for kind in pair] for pair in pairs]
        periodic = ["periodic" in pair for pair in pairs]
        yield from refusals(
            keys.wave, config.grid, margins, periodic, config.physics.order, POLARISATION_OF.get(model, "tm")
        )
        if isinstance(keys.signal, Formula):
            try:
                keys.signal.check_names(("t", *config.parameters))
            except ConfigurationError as error:
                yield f"{PATH}.signal", unended(f"{PATH}.signal: {error}")

    return check


def incident_of(setup: Setup) -> Any:
    """The signal of the incident wave of a configuration; None without one."""
    keys = setup.keys.incident
    return None if keys is None else signal_of(keys.signal, setup.values, setup.config.precision)
