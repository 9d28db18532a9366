"""Results of an inverse problem, and the file it leaves: inversion.h5, NetCDF-4 on HDF5, "simjax inversion/1"."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simjax.core.model import Output
from simjax.errors import InputOutputError
from simjax.grid import AXES
from simjax.io.files import new_hdf5, replaced
from simjax.io.frame_layout import Variable, cf_attributes, write_variables, written_times
from simjax.io.grid_layout import field_variable, space_coordinates

if TYPE_CHECKING:
    from simjax.grid import Grid

INVERSION_NAME = "inversion.h5"
LAYOUT = "simjax inversion/1"


@dataclass(frozen=True)
class NumberResult:
    """A number that was sought, in `units`.

    truth: None where it is not known. lower, upper: the 95 % interval of Laplace's approximation, or None; an end is
    infinite where the measurements do not determine the number.
    """

    path: str
    units: str
    guess: float
    estimate: float
    truth: float | None = None
    lower: float | None = None
    upper: float | None = None

    @property
    def bounded(self) -> bool:
        """True if the number has an interval with finite ends."""
        return self.lower is not None and self.upper is not None and math.isfinite(self.lower + self.upper)


@dataclass(frozen=True)
class FieldResult:
    """A field that was sought: for each component a variable's name, an offset, and arrays of the grid's shape.

    Without offsets it is a vector of particles, whose arrays are `(particles,)`. deviation: posterior standard
    deviations. iterates: the estimate after `iterate_numbers` of the iterations. Everything is in `units`.
    """

    path: str
    units: str
    names: tuple[str, ...]
    offsets: tuple[tuple[float, ...], ...]
    guess: tuple[np.ndarray, ...]
    estimate: tuple[np.ndarray, ...]
    truth: tuple[np.ndarray, ...] | None = None
    deviation: tuple[np.ndarray, ...] | None = None
    iterates: tuple[tuple[np.ndarray, ...], ...] = ()
    iterate_numbers: tuple[int, ...] = ()

    @property
    def on_grid(self) -> bool:
        """Tell whether it is a field, not a vector of particles."""
        return bool(self.offsets)

    @property
    def versions(self) -> dict[str, tuple[np.ndarray, ...]]:
        """The components that there are of "truth", "guess", "estimate" and "deviation"."""
        found = {"truth": self.truth, "guess": self.guess, "estimate": self.estimate, "deviation": self.deviation}
        return {name: values for name, values in found.items() if values is not None}

    def error(self, values: tuple[np.ndarray, ...]) -> float:
        """The L2 norm of values - truth over that of the truth; NaN without a truth, or where it is zero."""
        if self.truth is None:
            return math.nan
        return relative_norm(np.stack(values) - np.stack(self.truth), np.stack(self.truth))

    def outputs(self) -> list[Output]:
        """The components as variables of a file."""
        vector = self.path.rpartition(".")[2] if len(self.names) > 1 else ""
        return [
            Output(name, offset, self.units, name.replace("_", " "), "", vector, component)
            for component, (name, offset) in enumerate(zip(self.names, self.offsets, strict=True))
        ]


@dataclass(frozen=True)
class Curve:
    """A term that is a function of one variable, over what was seen of it: `values` (k,) -> tendencies (k,) per second.

    truth: None where it is not known.
    """

    variable: str
    units: str
    values: np.ndarray
    guess: np.ndarray
    estimate: np.ndarray
    truth: np.ndarray | None = None


@dataclass(frozen=True)
class ModuleResult:
    """A module that was sought: its arrays by their names in it. file: where the module itself is kept.

    curve: of a module that is a function of one variable at each cell, else None.
    """

    path: str
    file: str
    guess: Mapping[str, np.ndarray]
    estimate: Mapping[str, np.ndarray]
    curve: Curve | None = None


@dataclass(frozen=True)
class InstrumentResult:
    """Measurements of an instrument at `times` (m,), and its readings in the runs of the guess and the estimate.

    measured, at_guess, at_estimate: (m, ...) in `units`; present: the same, False where nothing was measured, or
    None. deviation: standard deviation of the noise, a number or an array that broadcasts against `measured`.
    positions: (n, axes) of point sensors, whose readings are (m, n), else None. offset: of snapshots, else None.
    experiment: the name of the run that it was read in, where there are several. The kind "target" is of what is
    wanted, not measured.
    """

    name: str
    kind: str
    variable: str
    units: str
    times: np.ndarray
    measured: np.ndarray
    at_guess: np.ndarray
    at_estimate: np.ndarray
    present: np.ndarray | None = None
    deviation: float | np.ndarray = 1.0
    positions: np.ndarray | None = None
    offset: tuple[float, ...] | None = None
    experiment: str = ""

    def residuals(self, predicted: np.ndarray) -> np.ndarray:
        """Residuals of what was measured, predicted - measured in standard deviations, in one row."""
        relative = (predicted - self.measured) / self.deviation
        return relative[np.isfinite(self.measured) if self.present is None else self.present]


@dataclass(frozen=True)
class InversionResult:
    """All that is written and shown of an inverse problem.

    losses: (iterations,) or (iterations, members) of an ensemble; gradient_norms: the same shape, or empty where the
    solver has none. attributes: provenance, written as root attributes of the file. gradient_check: numbers and arrays
    (k,) by name, such as `norms` of the gradient by window of time and `cosine`. exit_message: how the search ended.
    particles: how many there are, where the model is one of particles; `grid` is then that of their cells.
    """

    title: str
    command: str
    grid: Grid
    solver: str
    losses: np.ndarray
    gradient_norms: np.ndarray
    numbers: tuple[NumberResult, ...]
    fields: tuple[FieldResult, ...]
    instruments: tuple[InstrumentResult, ...]
    notes: tuple[str, ...] = ()
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    gradient_check: Mapping[str, Any] | None = None
    exit_message: str = ""
    modules: tuple[ModuleResult, ...] = ()
    time_units: str = "s"
    length_units: str = "m"
    particles: int | None = None


def write_inversion(folder: Path, result: InversionResult) -> Path:
    """Writes `folder`/inversion.h5 in one piece and returns its path.

    On the grid, dimensions (z, y, x), or of particles by number: `<variable>` (the estimate), `<variable>_guess`, and
    where they are known `_truth` and `_deviation`. Numbers are scalars named by their path, arrays of modules
    `<path>.<name in it>` and the same with `_guess`. `loss` and `gradient_norm` are ([member,] iteration). Of every
    instrument: `measured_<name>`, `at_guess_<name>`, `at_estimate_<name>`, `deviation_<name>` and, where something is
    missing, `present_<name>` (1 or 0), over `time_<name>`. Raises InputOutputError where two variables have one name,
    and where arrays and dimensions do not fit.
    """
    path = Path(folder) / INVERSION_NAME
    variables = inversion_variables(result)
    _check(variables)
    attributes = {
        **cf_attributes(result.title),
        "simjax_layout": LAYOUT,
        "simjax_command": result.command,
        "simjax_solver": result.solver,
        "simjax_exit_message": result.exit_message,
        "simjax_notes": "\n".join(result.notes),
        **result.attributes,
    }
    with replaced(path) as temporary, new_hdf5(temporary) as file:
        write_variables(file, attributes, variables)
    return path


def inversion_variables(result: InversionResult) -> list[Variable]:
    """The variables of inversion.h5 with their values, coordinates among them."""
    on_grid = [sought for sought in result.fields if sought.on_grid]
    found = space_coordinates(result.grid, [o for sought in on_grid for o in sought.outputs()], result.length_units)
    for sought in on_grid:
        found += field_variables(sought)
    vectors = [sought for sought in result.fields if not sought.on_grid]
    found += [_index("particle", result.particles or 0, "number of the particle")] if vectors else []
    for sought in vectors:
        found += _particle_variables(sought)
    found += [_number(number) for number in result.numbers]
    for module in result.modules:
        found += _module(module)
    found += _convergence(result)
    for instrument in result.instruments:
        found += _instrument(instrument, result)
    return found + _health(result.gradient_check or {})


def field_variables(sought: FieldResult) -> list[Variable]:
    """The estimate, guess, truth and deviation of every component on the grid."""
    found = []
    for component, output in enumerate(sought.outputs()):
        for version, parts in sought.versions.items():
            suffix = "" if version == "estimate" else f"_{version}"
            long_name = f"{output.long_name}, {_LONG_NAMES[version]}"
            vector = output.vector + suffix if output.vector else ""
            named = replace(output, name=output.name + suffix, long_name=long_name, vector=vector)
            found.append(on_grid(named, parts[component]))
    return found


def _particle_variables(sought: FieldResult) -> list[Variable]:
    """The estimate, guess, truth and deviation of every component over the particles."""
    found = []
    for version, parts in sought.versions.items():
        suffix = "" if version == "estimate" else f"_{version}"
        for name, values in zip(sought.names, parts, strict=True):
            described = {"long_name": f"{name.replace('_', ' ')}, {_LONG_NAMES[version]}", "units": sought.units}
            found.append(Variable(name + suffix, ("particle",), np.dtype("f8"), described, np.asarray(values, "f8")))
    return found


_LONG_NAMES = {"estimate": "estimate", "truth": "truth", "guess": "guess", "deviation": "posterior standard deviation"}


def on_grid(output: Output, values: np.ndarray) -> Variable:
    """A field `[x, y, z]` as a variable (z, y, x), in float32 if it is that and else in float64."""
    dtype = np.dtype("f4" if values.dtype == np.float32 else "f8")
    variable = field_variable(output, values.ndim, (), dtype)
    return replace(variable, values=np.ascontiguousarray(values.T, dtype=dtype))


def relative_norm(difference: np.ndarray, reference: np.ndarray) -> float:
    """The L2 norm of a difference over that of its reference; NaN where the latter is zero."""
    size = float(np.linalg.norm(np.ravel(reference)))
    return float(np.linalg.norm(np.ravel(difference))) / size if size else math.nan


def _number(number: NumberResult) -> Variable:
    known = {name: getattr(number, name) for name in ("guess", "truth", "lower", "upper")}
    attributes = {name: np.float64(value) for name, value in known.items() if value is not None}
    described = {"long_name": f"{number.path}, estimate", "units": number.units}
    return Variable(number.path, (), np.dtype("f8"), described | attributes, np.asarray(number.estimate, "f8"))


def _module(module: ModuleResult) -> list[Variable]:
    """The arrays of a module at the estimate, and those at the guess."""
    found = []
    for kind, arrays in (("", module.estimate), ("_guess", module.guess)):
        for leaf, values in arrays.items():
            name = f"{module.path}.{leaf}"
            dims = tuple(f"{name}_{axis}" for axis in range(values.ndim))
            if not kind:
                found += [_index(dim, n, f"index of {name}") for dim, n in zip(dims, values.shape, strict=True)]
            described = {"long_name": f"{name}, {'guess' if kind else 'estimate'}", "units": "1"}
            found.append(Variable(name + kind, dims, np.dtype("f8"), described, np.asarray(values, "f8")))
    return found


def _convergence(result: InversionResult) -> list[Variable]:
    losses, norms = (np.asarray(values, "f8") for values in (result.losses, result.gradient_norms))
    dims = ("iteration",) if losses.ndim == 1 else ("member", "iteration")
    found = [_index("iteration", losses.shape[0], "iteration of the search")]
    if losses.ndim == 2:
        found.append(_index("member", losses.shape[1], "ensemble member", standard_name="realization", axis="E"))
    for name, values in (("loss", losses), ("gradient_norm", norms)):
        if values.size:
            long_name = f"{name.replace('_', ' ')} before each iteration"
            found.append(Variable(name, dims, values.dtype, {"long_name": long_name, "units": "1"}, values.T))
    return found


def _index(name: str, count: int, long_name: str, **attributes: str) -> Variable:
    described = {"long_name": long_name, "units": "1", **attributes}
    return Variable(name, (name,), np.dtype("i4"), described, np.arange(count, dtype="i4"))


def _instrument(instrument: InstrumentResult, result: InversionResult) -> list[Variable]:
    name, times = instrument.name, written_times(instrument.times)
    described = {"standard_name": "time", "long_name": f"time of {name}", "units": result.time_units}
    dims, found = _reading_dims(instrument, result)
    found.append(Variable(f"time_{name}", (f"time_{name}",), times.dtype, described, times))
    coordinates = {}
    if instrument.positions is not None:
        coordinates = {"coordinates": " ".join(f"{AXES[i]}_{name}" for i in range(instrument.positions.shape[1]))}
    values = {
        "measured": instrument.measured,
        "at_guess": instrument.at_guess,
        "at_estimate": instrument.at_estimate,
        "deviation": np.asarray(instrument.deviation),
        "present": instrument.present,
    }
    for kind, array in values.items():
        if array is None:
            continue
        if kind == "deviation" and array.ndim:
            array = np.broadcast_to(array, instrument.measured.shape)
        attributes: dict[str, object] = {
            "units": "1" if kind == "present" else instrument.units,
            "long_name": f"{instrument.variable}, {kind.replace('_', ' ')}, {instrument.kind.replace('_', ' ')}",
        }
        # Space is stored slowest axis first, as everywhere.
        array = array.transpose(0, *reversed(range(1, array.ndim))) if array.ndim else array
        dtype = np.dtype("i1" if kind == "present" else "f4" if array.dtype == np.float32 else "f8")
        attributes |= coordinates if array.ndim else {}
        attributes |= {"experiment": instrument.experiment} if instrument.experiment else {}
        variable = Variable(f"{kind}_{name}", dims if array.ndim else (), dtype, attributes, array.astype(dtype))
        found.append(variable)
    return found


def _reading_dims(instrument: InstrumentResult, result: InversionResult) -> tuple[tuple[str, ...], list[Variable]]:
    """The dimensions of what an instrument reads, and the variables that stand for those of its own."""
    name, shape = instrument.name, instrument.measured.shape[1:]
    if instrument.positions is not None:
        index = _index(f"sensor_{name}", len(instrument.positions), f"sensor of {name}")
        places = [
            Variable(
                f"{AXES[axis]}_{name}",
                (index.name,),
                np.dtype("f8"),
                {"long_name": f"{AXES[axis]} of the sensors of {name}", "units": result.length_units},
                np.asarray(instrument.positions[:, axis], "f8"),
            )
            for axis in range(instrument.positions.shape[1])
        ]
        return (f"time_{name}", index.name), [index, *places]
    for output in (o for sought in result.fields if sought.on_grid for o in sought.outputs()):
        if output.name == instrument.variable and shape == result.grid.shape and instrument.offset is not None:
            return (f"time_{name}", *field_variable(output, len(shape), (), np.dtype("f8")).dims), []
    own = [_index(f"index{axis}_{name}", count, f"index {axis} of {name}") for axis, count in enumerate(shape)]
    return (f"time_{name}", *(index.name for index in reversed(own))), own


def _health(gradient_check: Mapping[str, Any]) -> list[Variable]:
    found = []
    for name, value in gradient_check.items():
        if value is None:
            continue
        values = np.asarray(value, "f8")
        dims = tuple(f"health_{name}_{axis}" for axis in range(values.ndim))
        found += [_index(dim, count, f"index of {name}") for dim, count in zip(dims, values.shape, strict=True)]
        attributes = {"long_name": f"{name.replace('_', ' ')} of the gradient", "units": "1"}
        found.append(Variable(f"health_{name}", dims, values.dtype, attributes, values))
    return found


def _check(variables: list[Variable]) -> None:
    """Raises where HDF5 would write a type that netCDF cannot read."""
    sizes = {v.name: len(v.values) for v in variables if v.values is not None and v.dims == (v.name,)}
    names = [variable.name for variable in variables]
    for variable in variables:
        if names.count(variable.name) > 1 or "/" in variable.name:
            raise InputOutputError(
                f"{INVERSION_NAME} would hold {names.count(variable.name)} variables named {variable.name!r}; "
                "expected names that differ and have no '/': rename an unknown or an instrument."
            )
        shape, expected = np.asarray(variable.values).shape, tuple(sizes[dim] for dim in variable.dims)
        if shape != expected:
            raise InputOutputError(
                f"{INVERSION_NAME}: {variable.name!r} has shape {shape}; expected {expected}, the sizes of "
                f"{', '.join(variable.dims) or 'no dimension'}."
            )
