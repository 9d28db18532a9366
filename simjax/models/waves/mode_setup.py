"""Mode sources in configurations and in Python."""

import math
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simjax.arguments import require_at_least, require_kind, require_one_of
from simjax.core.boundary import Side
from simjax.core.face_planes import ModeOnPlane
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.models.declaration import Setup
from simjax.models.formulas import formula_refusals
from simjax.models.waves.guided_modes import Window
from simjax.models.waves.margins import Margins, nearest_face, place_of_face, uniform_refusals
from simjax.models.waves.mode_sources import ModePlane
from simjax.models.waves.wave_setup import Signal, signal_of
from simjax.models.waves.yee import POLARISATION_OF, POLARISATIONS
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import Choice, Integer, ListOf, Nested, Real, key

DIRECTIONS = ("x", "-x", "y", "-y")
PATH = "physics.mode_sources"


@dataclass(frozen=True)
class ModeSource:
    """A mode of a waveguide in a plane, which goes out from a line across the guide, one way.

    direction: "x", "-x", "y" or "-y". at: place of the line along it, moved to the nearest faces of cells. frequency:
    at which the mode is exact. mode: its number, 0 of the largest wavenumber. lower, upper: ends of the line, None at
    the sides of the grid; the mode is that between conductors at these ends.

    Examples:
        >>> guide = sj.ModeSource("x", at=0.5, frequency=1.0)
        >>> sides = [(sj.AbsorbingSide(), sj.AbsorbingSide())] * 2
        >>> light = sj.Maxwell(sj.Domain(sj.Grid((64, 64))), sides, mode_sources=[guide])
    """

    direction: str
    at: float
    frequency: float
    mode: int = 0
    lower: float | None = None
    upper: float | None = None

    def __post_init__(self):
        require_one_of("ModeSource: direction", self.direction, DIRECTIONS)
        for name in ("at", "frequency"):
            require_kind(f"ModeSource: {name}", getattr(self, name), numbers.Real, "a number, such as 0.5")
        require_at_least("ModeSource", {"frequency": self.frequency}, strictly=True)
        require_kind("ModeSource: mode", self.mode, numbers.Integral, "a whole number from 0 on")
        require_at_least("ModeSource", {"mode": self.mode})
        for name in ("lower", "upper"):
            end = getattr(self, name)
            require_kind(f"ModeSource: {name}", end, (numbers.Real, type(None)), "a number or None, such as 0.5")

    @property
    def axis(self) -> int:
        """The number of the axis that the mode goes along."""
        return AXES.index(self.direction[-1])

    def faces(self, grid: Grid) -> tuple[int, int, int]:
        """Numbers of the faces in its line, along its axis, and at the ends of the line, across it."""
        axis, across = self.axis, 1 - self.axis
        ends = self.lower, self.upper
        sides = grid.lower[across], grid.upper[across]
        places = [side if end is None else end for end, side in zip(ends, sides, strict=True)]
        first, last = (nearest_face(grid, across, place) for place in places)
        return nearest_face(grid, axis, self.at), first, last

    def free(self, grid: Grid, polarisation: str, periodic: bool) -> int:
        """The number of modes on its line; periodic: across the guide."""
        _, first, last = self.faces(grid)
        whole = periodic and self.lower is None and self.upper is None
        return last - first - (polarisation == "tm" and not whole)


@dataclass(frozen=True)
class ModeSourceConfig:
    """A mode of a waveguide that goes out from a line across it, one way, and its field in time."""

    direction: str = key(Choice(DIRECTIONS), about="where the mode goes")
    at: float = key(Real(formula=True), units="m", about="place of the line along its direction")
    frequency: float = key(Real(above=0.0, formula=True), units="s-1", about="at which the mode is exact")
    signal: Any = key(Signal(), about="largest E of the mode on the line, in time")
    mode: int = key(Integer(0, 10_000), 0, about="number of the mode, 0 of the largest wavenumber")
    lower: float | None = key(Real(optional=True, formula=True), None, units="m", about="lower end of the line")
    upper: float | None = key(Real(optional=True, formula=True), None, units="m", about="upper end of the line")

    @property
    def source(self) -> ModeSource:
        return ModeSource(self.direction, self.at, self.frequency, self.mode, self.lower, self.upper)


@dataclass(frozen=True)
class ModeKeys:
    """Keys of light in waveguides."""

    mode_sources: tuple[ModeSourceConfig, ...] = key(
        ListOf(Nested(ModeSourceConfig), noun="mode sources"), (), about="modes of waveguides that go out one way"
    )


def planes_of(
    sources: Sequence[ModeSource],
    grid: Grid,
    sides: Sequence[tuple[Side, Side]],
    layer_cells: int,
    order: int,
    polarisation: str,
) -> tuple[ModePlane, ...]:
    """The planes of mode sources in numbers of cells.

    Raises:
        ConfigurationError: there cannot be such a source.
    """
    margins = Margins.of_sides(sides, layer_cells)
    for number, source in enumerate(sources):
        raise_first(refusals(f"{PATH}[{number}]", source, grid, margins, order, polarisation))
    return tuple(plane_of(source, grid, margins, polarisation) for source in sources)


def plane_of(source: ModeSource, grid: Grid, margins: Margins, polarisation: str) -> ModePlane:
    """The plane of a source, which `refusals` has nothing against."""
    electric, magnetic = POLARISATIONS[polarisation]
    axis, across, upwards = source.axis, 1 - source.axis, len(source.direction) == 1
    face, first, last = source.faces(grid)
    whole = margins.periodic[across] and source.lower is None and source.upper is None
    window = Window(polarisation == "tm", *((None, None) if whole else (first, last)))
    before, after = margins.layers[across]
    absorbs = first < before or last > grid.shape[across] - after
    components = (2, across) if polarisation == "tm" else (across, 2)
    numbers = electric.index(components[0]), magnetic.index(components[1])
    along = (magnetic if polarisation == "tm" else electric).index(axis)
    # E, H and the direction are right-handed.
    handed = int(np.linalg.det(np.eye(3)[[axis, *components]]).round())
    sign = handed if upwards else -handed
    return ModePlane(axis, upwards, face, window, absorbs, source.frequency, source.mode, *numbers, along, sign)


def refusals(
    path: str, source: ModeSource, grid: Any, margins: Margins, order: int, polarisation: str
) -> Iterator[tuple[str, str]]:
    """Sentences on a mode source that there cannot be, each with its key path; grid: with shape, lower and upper."""
    if len(grid.shape) != 2:
        yield path, f"{path} is given: expected a grid of two axes beside it, as modes in space are not known"
        return
    unfit = [*uniform_refusals(path, grid, order)]
    if unfit:
        yield from unfit
        return
    axis, across = source.axis, 1 - source.axis
    face, first, last = source.faces(grid)
    least, most = margins.room(grid, axis)
    if not least <= face <= most:
        low, high = (place_of_face(grid, axis, number) for number in (least, most))
        room = f"a number from {low:g} to {high:g}, two cells from sides and layers"
        yield f"{path}.at", f"{path}.at = {source.at:g}: expected {room}"
    for name, place in (("lower", source.lower), ("upper", source.upper)):
        low, high = grid.lower[across], grid.upper[across]
        if place is not None and not low <= place <= high:
            expected = f"expected a number in the box, from {low:g} to {high:g}, or null"
            yield f"{path}.{name}", f"{path}.{name} = {place:g}: {expected}"
            return
    if last - first < 4:
        low, high = (place_of_face(grid, across, number) for number in (first, last))
        told = f"its line reaches from {low:g} to {high:g} along {AXES[across]}"
        yield f"{path}.upper", f"{path}: {told}: expected at least 4 cells"
        return
    count = source.free(grid, polarisation, margins.periodic[across])
    if source.mode >= count:
        yield f"{path}.mode", f"{path}.mode = {source.mode}: expected a number below {count}, the cells of its line"


def check_modes(model: str) -> Callable[[Any], Iterator[tuple[str, str]]]:
    """Return the check of a configuration of the model of light that has this name."""

    def check(config: Any) -> Iterator[tuple[str, str]]:
        margins, polarisation = Margins.of_configuration(config), POLARISATION_OF.get(model, "tm")
        for number, keys in enumerate(config.physics.mode_sources):
            path = f"{PATH}[{number}]"
            yield from refusals(path, keys.source, config.grid, margins, config.physics.order, polarisation)
            yield from formula_refusals(f"{path}.signal", keys.signal, ("t", *config.parameters))

    return check


def mode_signals_of(setup: Setup) -> tuple[Any, ...]:
    """The signals of the mode sources of a configuration."""
    return tuple(signal_of(keys.signal, setup.values, setup.config.precision) for keys in setup.keys.mode_sources)


def modes_on_faces(
    model: Any, params: Any, axis: int, place: float, frequency: float, dt: float, count: int, ends: tuple
) -> list[ModeOnPlane]:
    """See `Model.guided_modes`."""
    grid = model.domain.grid
    if grid.ndim != 2:
        raise ConfigurationError("mode_amplitudes: expected a grid of two axes, as modes in space are not known.")
    # Layers do not matter here: also a mode that reaches them is taken apart.
    margins = Margins(((0, 0),) * 2, tuple(model.medium_layout.is_periodic(k) for k in range(2)))
    # A leapfrog sees this frequency where time is continuous.
    seen = math.sin(math.pi * frequency * dt) / (math.pi * dt)
    medium, found = model.medium_of_modes(params), []
    names = [components for _, components, _ in model.named_fields()]
    for number in range(count):
        source = ModeSource(AXES[axis], place, seen, number, *ends)
        free = source.free(grid, model.polarisation, margins.periodic[1 - axis])
        if count > free:
            expected = f"expected at most {max(free, 0)}, the cells of the line"
            raise ConfigurationError(f"mode_amplitudes: modes={count}: {expected}.")
        plane = plane_of(source, grid, margins, model.polarisation)
        mode = plane.mode(model.domain, *medium)
        electric, magnetic = (np.asarray(u, np.float64) for u in (mode.electric, mode.magnetic))
        wavenumber, h = float(mode.wavenumber), grid.mean_spacing
        # H on the faces is a mean over both sides, and over the times around that of E.
        means = math.cos(0.5 * wavenumber * h[axis]) * math.cos(math.pi * frequency * dt)
        kept, turned = (names[0][plane.electric], electric), (names[1][plane.magnetic], plane.sign * means * magnetic)
        found.append(ModeOnPlane(kept, turned, h[1 - axis], wavenumber))
    return found
