"""Sources, receivers, layers and media in configurations of acoustic and electromagnetic waves."""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.errors import ConfigurationError, SimjaxError
from simjax.grid import AXES
from simjax.io.memory import require_memory_for_text
from simjax.models.axisymmetric_grid import across_of_configuration
from simjax.models.declaration import Setup
from simjax.models.formulas import FormulaValue, Values, formula_refusals
from simjax.models.waves import axisymmetric_waves
from simjax.models.waves.pml import layer_refusals
from simjax.models.waves.point_sources import SampledSignal
from simjax.models.waves.shot_setup import ShotFile, points_of_shot, receivers_of, shot_refusals, single_sources
from simjax.schema.config_errors import ConfigErrors, unended
from simjax.schema.formula import Formula
from simjax.schema.kinds import Choice, Integer, ListOf, Nested, Plain, Real, key
from simjax.schema.locate import input_folders


@dataclass(frozen=True)
class SignalFile:
    """A signal in a text file with a time and a value per line, separated by a comma; the first line may be names."""

    file: str


@dataclass(frozen=True)
class Signal(Plain):
    """A formula of t and parameters, or {file: NAME.csv}."""

    @property
    def allowed(self) -> str:
        return "a formula of t and parameters, or {file: NAME.csv} with a time and a value per line"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Formula | SignalFile | None:
        if isinstance(value, Mapping):
            return self._read_file(path, value, problems)
        try:
            return Formula(value)
        except ConfigurationError as error:
            problems.add(path, value, self.allowed, unended(error))
            return None

    def _read_file(self, path: str, value: Mapping, problems: ConfigErrors) -> SignalFile | None:
        found = _from_file(path, value, read_signal, self.allowed, problems)
        return None if found is None else SignalFile(str(found[0]))


@dataclass(frozen=True)
class Positions(ListOf):
    """A list of positions, or {file: NAME.csv}."""

    @property
    def allowed(self) -> str:
        return f"{super().allowed}, or {{file: NAME.csv}} with a number per axis in each line"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> tuple | None:
        if not isinstance(value, Mapping):
            return super().read(path, value, problems)
        found = _from_file(path, value, read_positions, self.allowed, problems)
        return None if found is None else super().read(path, found[1], problems)


@dataclass(frozen=True)
class Sources(ListOf):
    """A list of sources, {file: NAME.csv, signal: ...} of sources that send the same, or {shots: FILE}."""

    @property
    def allowed(self) -> str:
        return (
            f"{super().allowed}, or {{file: NAME.csv, signal: ...}} with the number per axis of each in a line, or "
            "{shots: FILE}"
        )

    def read(self, path: str, value: Any, problems: ConfigErrors) -> Any:
        if isinstance(value, Mapping) and "shots" in value:
            return self._read_shots(path, value, problems)
        if not isinstance(value, Mapping) or "signal" not in value:
            return super().read(path, value, problems)
        placed = {key: given for key, given in value.items() if key != "signal"}
        found = _from_file(path, placed, read_positions, self.allowed, problems)
        if found is None:
            return None
        return super().read(path, [{"position": place, "signal": value["signal"]} for place in found[1]], problems)

    def write(self, value: Any) -> Any:
        return value.write() if isinstance(value, ShotFile) else super().write(value)

    def _read_shots(self, path: str, value: Mapping, problems: ConfigErrors) -> ShotFile | None:
        for name in value:
            if name not in ("shots", "signal", "axes"):
                problems.unknown(path, str(name), ("shots", "signal", "axes"))
                return None
        signal = Signal().read(f"{path}.signal", value["signal"], problems) if "signal" in value else None
        axes = ListOf(Choice(AXES), 1, 3, noun="axes").read(f"{path}.axes", value.get("axes", ("x", "z")), problems)
        if axes is None or signal is None and "signal" in value:
            return None
        if not isinstance(value["shots"], str):
            problems.add(f"{path}.shots", value["shots"], "the name of a file of shots, NetCDF or SEG-Y")
            return None
        file = _found(value["shots"])
        if file is None:
            problems.say(f"{path}.shots", f"{path}.shots = {value['shots']!r}: no such file")
            return None
        try:
            return ShotFile.of(file, signal, axes)
        except (SimjaxError, OSError) as error:
            problems.say(f"{path}.shots", unended(f"{path}.shots = {value['shots']!r}: {error}"))
            return None


def _from_file(
    path: str, value: Mapping, read: Callable[[Path], Any], allowed: str, problems: ConfigErrors
) -> tuple[Path, Any] | None:
    """The file that {file: NAME} names, and what it holds; None after telling what is wrong."""
    if set(value) != {"file"} or not isinstance(value["file"], str):
        problems.add(path, dict(value), allowed)
        return None
    found = _found(value["file"])
    if found is None:
        problems.say(f"{path}.file", f"{path}.file = {value['file']!r}: no such file")
        return None
    try:
        return found, read(found)
    except ConfigurationError as error:
        problems.say(f"{path}.file", f"{path}.file: {error}")
        return None


def _found(given: str) -> Path | None:
    """The file of a name, where there is one."""
    name = Path(given).expanduser()
    candidates = [name] if name.is_absolute() else [folder / name for folder in input_folders(())]
    return next((candidate.resolve() for candidate in candidates if candidate.is_file()), None)


def read_positions(file: str | Path) -> list[list[float]]:
    """Positions in a text file, one per line; raises ConfigurationError unless they are one to three finite numbers,
    as many in each line. The first line may be names."""
    found: list[list[float]] = []
    for number, row in _rows(file):
        try:
            place = [float(cell) for cell in row]
        except ValueError:
            if number == 1:
                continue
            raise ConfigurationError(f"line {number} of {file}: expected numbers; got {','.join(row)!r}.") from None
        if not all(map(math.isfinite, place)):
            raise ConfigurationError(f"line {number} of {file}: expected finite numbers; got {','.join(row)!r}.")
        if len(place) > 3 or found and len(place) != len(found[0]):
            expected = f"{len(found[0])} number(s), as in the lines before" if found else "one to three numbers"
            raise ConfigurationError(f"line {number} of {file}: expected {expected}; got {','.join(row)!r}.")
        found.append(place)
    if not found:
        raise ConfigurationError(f"{file} holds no positions; write one in each line, such as 0.3,0.9.")
    return found


def _rows(file: str | Path) -> list[tuple[int, list[str]]]:
    """The lines of a text file that hold anything, cut at commas, with their numbers."""
    try:
        require_memory_for_text(Path(file))
        with Path(file).open(encoding="utf-8", newline="") as lines:
            return [(number, row) for number, row in enumerate(csv.reader(lines), start=1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{file} cannot be read as text ({error}).") from None


def read_signal(file: str | Path) -> tuple[list[float], list[float]]:
    """Times and values of a signal file; raises ConfigurationError unless they are finite and times increase."""
    times, values = [], []
    for number, row in _rows(file):
        try:
            time, value = (float(cell) for cell in row)
        except ValueError:
            if number == 1 and len(row) == 2:
                continue
            raise ConfigurationError(f"line {number} of {file}: expected time,value; got {','.join(row)!r}.") from None
        if not (math.isfinite(time) and math.isfinite(value)):
            raise ConfigurationError(f"line {number} of {file}: expected finite numbers; got {','.join(row)!r}.")
        if times and time <= times[-1]:
            raise ConfigurationError(f"line {number} of {file}: time {time:g} does not follow {times[-1]:g}; sort it.")
        times.append(time)
        values.append(value)
    if len(times) < 2:
        raise ConfigurationError(f"{file} holds {len(times)} line(s) with a time and a value; two are the least.")
    return times, values


@dataclass(frozen=True)
class SourceConfig:
    """A point that feeds the field: where, and how strongly in time."""

    position: tuple[float, ...] = key(
        ListOf(Real(formula=True), 1, 3, noun="numbers, one per axis"), units="m", about="where the source is"
    )
    signal: Any = key(Signal(), about="strength in time")


@dataclass(frozen=True)
class WaveKeys:
    """The section `physics` of any waves."""

    order: int = key(Integer(2, 4), 2, about="order in space: 2 or 4")
    layer_cells: int = key(Integer(1, 100), 12, about="cells of an absorbing layer")
    sources: tuple[SourceConfig, ...] = key(
        Sources(Nested(SourceConfig), noun="sources"), (), about="point sources, anywhere in the box"
    )
    receivers: tuple[tuple[float, ...], ...] = key(
        Positions(ListOf(Real(formula=True), 1, 3, noun="numbers, one per axis"), noun="positions"),
        (),
        units="m",
        about="where the field is recorded, anywhere in the box",
    )
    shot: float | None = key(
        Real(low=0.0, optional=True),
        None,
        about="number of the one shot of a file that is fired; null: all, a member each",
    )

    def receiver_places(self, config: Any) -> tuple:
        """Places of the receivers: `(receivers, axes)`, or those of each member in front."""
        return receivers_of(config)


def check_waves(config: Any, wall: str = "rigid", rings: bool = False) -> Iterator[tuple[str, str]]:
    """Sentences about layers, sources and receivers that do not fit the box.

    wall: the kind of side that reflects. rings: whether sources on an axisymmetric grid are rings around the axis.
    """
    physics, grid = config.physics, config.grid
    if physics.order == 3:
        yield "physics.order", "physics.order = 3: expected 2 or 4"
    layers = [[side.kind == "absorbing" for side in (pair.lower, pair.upper)] for pair in config.boundaries]
    yield from layer_refusals(grid.shape, physics.layer_cells, layers)
    yield from axisymmetric_waves.refusals(across_of_configuration(config), physics.order, wall)
    if grid.axisymmetric:
        yield from axisymmetric_waves.source_refusals(config, rings)
    yield from shot_refusals(config)
    for number, source in enumerate(single_sources(physics)):
        path = f"physics.sources[{number}]"
        yield from _check_position(f"{path}.position", source.position, grid)
        yield from formula_refusals(f"{path}.signal", source.signal, ("t", *config.parameters))
    for number, position in enumerate(physics.receivers):
        yield from _check_position(f"physics.receivers[{number}]", position, grid)


def check_light(components: tuple[str, ...]) -> Callable[[Any], Iterator[tuple[str, str]]]:
    """Return the check of a configuration of light whose electric field has these components."""

    def check(config: Any) -> Iterator[tuple[str, str]]:
        yield from check_waves(config, "conductor", rings=components == ("z",))
        along = config.physics.along
        if config.grid.axisymmetric and along == "x" and config.physics.sources:
            yield from axisymmetric_waves.EXCLUSIONS.refusals(axisymmetric_waves.ALONG_AXIS)
        yield from along_refusals(along, components)

    return check


def checks(*parts: Callable[[Any], Iterator[tuple[str, str]]]) -> Callable[[Any], Iterator[tuple[str, str]]]:
    """Several checks of a configuration, one after the other."""

    def check(config: Any) -> Iterator[tuple[str, str]]:
        for part in parts:
            yield from part(config)

    return check


def along_refusals(along: str | None, components: Sequence[str]) -> Iterator[tuple[str, str]]:
    """A sentence on sources of light along an axis along which the electric field has no component, with its path."""
    if along is not None and along not in components:
        expected = f"expected one of {', '.join(components)}, the components of E; write one"
        yield "physics.along", f"physics.along = {along}: {expected}"


def _check_position(path: str, position: tuple[float, ...], grid: Any) -> Iterator[tuple[str, str]]:
    if len(position) != len(grid.shape):
        axes = f"{len(grid.shape)} number(s), one per axis of grid.shape"
        yield path, f"{path} = {list(position)}: expected {axes}"
        return
    for axis, value in enumerate(position):
        low, high = grid.lower[axis], grid.upper[axis]
        if not low <= value <= high:
            expected = f"a number in the box, from {low:g} to {high:g}"
            yield f"{path}[{axis}]", f"{path}[{axis}] = {value:g}: expected {expected}"


def medium_property(setup: Setup, name: str) -> Array | None:
    """A coefficient: one number where its formula is constant, as that is faster, else the field; None: not given."""
    config = setup.config
    source = config.coefficients.get(name)
    if source is None:
        return None
    if isinstance(source, tuple) and source[0].constant is not None:
        return jnp.asarray(source[0].constant, jnp.dtype(config.precision))
    return setup.coefficients[name][0]


class MediumFormula(eqx.Module):
    """A property of a medium by a formula, at the start, as a function of place."""

    value: FormulaValue
    dtype: Any = eqx.field(static=True)

    def __call__(self, *coordinates: Array) -> Array:
        x = [coordinate.astype(self.dtype) for coordinate in coordinates]
        return jnp.asarray(self.value(jnp.zeros((), self.dtype), *x), self.dtype)


def medium_function(setup: Setup, name: str) -> Array | MediumFormula | None:
    """A coefficient as `medium_property` has it, but one by a formula that varies, without noise, as a function."""
    source = setup.config.coefficients.get(name)
    if not isinstance(source, tuple) or source[0].constant is not None or source[0].uses_noise:
        return medium_property(setup, name)
    return MediumFormula(named_formula(source[0], setup.values), jnp.dtype(setup.config.precision))


def named_formula(formula: Formula, values: Values) -> FormulaValue:
    """A formula with those of the values that it names."""
    return FormulaValue(formula, {name: value for name, value in values.items() if name in formula.names})


def points_of(setup: Setup) -> dict[str, Any]:
    """Sources, their signals, and receivers, as parameters."""
    dtype, keys = jnp.dtype(setup.config.precision), setup.keys
    if isinstance(keys.sources, ShotFile):
        own = None if keys.sources.signal is None else signal_of(keys.sources.signal, setup.values, dtype)
        return points_of_shot(keys.sources, setup.values, own, dtype)
    return {
        "sources": jnp.asarray([s.position for s in keys.sources], dtype) if keys.sources else None,
        "signals": tuple(signal_of(source.signal, setup.values, dtype) for source in keys.sources),
        "receivers": jnp.asarray(keys.receivers, dtype) if keys.receivers else None,
    }


def signal_of(signal: Any, values: Values, dtype: Any) -> SampledSignal | FormulaValue:
    """A signal of a configuration as a function of time."""
    if isinstance(signal, SignalFile):
        return SampledSignal(*(jnp.asarray(column, dtype) for column in read_signal(signal.file)))
    return named_formula(signal, values)
