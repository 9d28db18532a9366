"""Open the files of a run, and describe damage to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray

from simjax.arguments import require_path
from simjax.errors import InputOutputError
from simjax.io.checkpoint import list_checkpoints, verify_checkpoint
from simjax.io.containment import require_contained
from simjax.io.formats import output_formats
from simjax.io.frame_output import DIAGNOSTICS_NAME
from simjax.io.grid_output import EVENTS_FOLDER, FIELDS_NAME
from simjax.io.h5md import TRAJECTORY
from simjax.io.instrument_files import FOLDER, SAMPLES_NAME
from simjax.io.inverse_output import INVERSION_NAME
from simjax.io.particle_output import ENSEMBLE_NAME, MASTER_NAME
from simjax.io.segments import chunks_of, read_master, segment_problem, unreadable
from simjax.io.staggering import RunAccessor as RunAccessor  # registers `dataset.simjax`
from simjax.io.stored import open_stored
from simjax.io.time_statistics_files import FOLDER as STATISTICS_FOLDER
from simjax.schema.config_errors import closest
from simjax.schema.locate import usable_path

SPECIES_NAMES = ("flag_values", "flag_meanings")
OF_PARTICLES = ("mass", "charge")


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """Opens an HDF5 file for reading after making sure that it reads nothing outside its own folder.

    A file that takes values from elsewhere (see `containment`), is not HDF5 or is truncated raises InputOutputError; so
    do the files that it refers to.
    """
    path = Path(path)
    require_contained(path)
    with h5py.File(path, "r") as file:
        yield file


def open_run(folder: Path) -> xarray.Dataset:
    """The fields or particles, diagnostics and parameters of a run, read on demand; also while the run goes on.

    Dimensions are ([member,] time, z, y, x) or ([member,] time, particle, space); `dataset.simjax.centered()` brings
    fields on faces (`x_face`, ...) to cell centres. Raises InputOutputError where a
    segment is missing or damaged, which HDF5 itself would show as NaN.

    Examples:
        >>> folder = sj.load("sod", ["grid.shape=[32]", "output.report=false", "output.animation=false"]).run().folder
        >>> sj.open_run(folder).density.sizes["x"]
        32
    """
    require_path("open_run: folder", folder)
    master = require_readable(Path(folder))
    if master.name == MASTER_NAME:
        return _open_h5md(master)
    dataset = open_stored(master)
    return dataset.set_coords(["step", *(name for name in dataset.data_vars if _is_parameter(dataset[name]))])


def open_output(folder: Path, name: str) -> xarray.Dataset:
    """The samples of an entry of `outputs` of a run, or the sets of one of `statistics`, read on demand; also while
    the run goes on.

    `time` is that of its samples, or the end of each set. A probe has the dimensions ([member,] station, time), others
    ([member,] time, ...).

    Raises:
        InputOutputError: the run has no such entry, or a file is missing or damaged.

    Examples:
        >>> probe = "outputs=[{probe: {points: [[0.25], [0.75]]}, of: [density], every: step}]"
        >>> few = ["grid.shape=[32]", "output.report=false", "output.animation=false"]
        >>> folder = sj.load("sod", [*few, probe]).run().folder
        >>> sj.open_output(folder, "probe").density.dims
        ('station', 'time')
    """
    there = _output_masters(usable_path(folder, "open_output"))
    if not isinstance(name, str) or name not in there:
        close = closest(str(name), there)
        hint = f"did you mean '{close}'?" if close else f"it has {', '.join(there) or 'none'}."
        raise InputOutputError(f"{folder}: no output named {name!r}; {hint}")
    master = there[name]
    problems = _field_problems(master)
    if problems:
        raise InputOutputError("; ".join(problems))
    dataset = open_stored(master)
    fixed = [name for name in dataset.data_vars if "time" not in dataset[name].dims and name != "status"]
    return dataset.set_coords(["step", *fixed])


def output_names(folder: Path) -> list[str]:
    """Names of the instruments whose samples a run's folder holds, in their order."""
    return sorted(path.parent.name for path in (folder / FOLDER).glob(f"*/{SAMPLES_NAME}"))


def statistics_names(folder: Path) -> list[str]:
    """Names of the statistics in time that a run's folder holds, in their order."""
    return sorted(path.parent.name for path in (folder / STATISTICS_FOLDER).glob(f"*/{SAMPLES_NAME}"))


def _output_masters(folder: Path) -> dict[str, Path]:
    """The files of instruments and of statistics in time by name."""
    instruments = {name: folder / FOLDER / name / SAMPLES_NAME for name in output_names(folder)}
    return instruments | {name: folder / STATISTICS_FOLDER / name / SAMPLES_NAME for name in statistics_names(folder)}


def require_readable(folder: Path) -> Path:
    """The file that shows all frames of a run; InputOutputError where it or a segment is missing or is not the run's.

    Looks at sizes, steps and what files name as theirs; `check_files` reads everything.
    """
    master = _master_of(folder)
    problems = _field_problems(master)
    if problems:
        raise InputOutputError("; ".join(problems))
    return master


def _master_of(folder: Path) -> Path:
    """The file that shows all frames of a run."""
    folder = usable_path(folder, "folder")
    there = [folder / name for name in (MASTER_NAME, ENSEMBLE_NAME) if (folder / name).is_file()]
    return there[0] if there else folder / FIELDS_NAME


def _open_h5md(master: Path) -> xarray.Dataset:
    """Particles and observables of an H5MD file as one dataset."""
    with h5py.File(master, "r") as file:
        groups = {}
        for parent in (TRAJECTORY, "observables"):
            inside = _members(file, parent)
            groups |= {n: f"{parent}/{n}" for n, g in inside.items() if isinstance(g, h5py.Group) and n != "box"}
        attributes = {name: _plain_attribute(value) for name, value in file.attrs.items()}
        parameters = {
            name: ((), np.asarray(value)[()], {key: _plain_attribute(text) for key, text in value.attrs.items()})
            for name, value in _members(file, "parameters").items()
        }
        there = [name for name in OF_PARTICLES if f"{TRAJECTORY}/{name}" in file]
        fixed = {name: np.asarray(file[f"{TRAJECTORY}/{name}"]) for name in ("time", "step", "id", "species", *there)}
        about = {name: _plain_attribute(v) for name, v in file[f"{TRAJECTORY}/species"].attrs.items()}
    opened = {name: open_stored(master, group) for name, group in groups.items()}
    dataset = xarray.Dataset(
        {
            name: part["value"].rename(_own_names(part["value"])).reset_coords(drop=True)
            for name, part in opened.items()
        },
        attrs=attributes,
    )
    status = parameters.pop("status", None)
    coordinates = {
        "time": ("time", fixed["time"], {"long_name": "time", "units": "1"}),
        "step": ("time", fixed["step"]),
        "particle": ("particle", fixed["id"]),
        "species": ("particle", fixed["species"], {k: v for k, v in about.items() if k in SPECIES_NAMES}),
        **{name: ("particle", fixed[name]) for name in there},
    }
    dataset = dataset.assign_coords(coordinates | parameters)
    if status is not None:
        dataset["status"] = status

    def close() -> None:
        for part in opened.values():
            part.close()

    dataset.set_close(close)
    return dataset


def _members(file: h5py.File, name: str) -> dict[str, Any]:
    """Members of an HDF5 group; empty if the file has no such group."""
    group = file.get(name)
    return dict(group.items()) if isinstance(group, h5py.Group) else {}


def _own_names(variable: xarray.DataArray) -> dict[str, str]:
    return {"id": "particle"} if "id" in variable.dims else {}


def _plain_attribute(value):
    return value.decode() if isinstance(value, bytes) else value


def _is_parameter(variable: xarray.DataArray) -> bool:
    return "time" not in variable.dims and set(variable.dims) <= {"member"}


def check_files(folder: Path) -> list[str]:
    """Everything that is wrong with the files of a run, one sentence each; empty where nothing is.

    Reads all of it: fields and their segments, whose checksums are compared, diagnostics, checkpoints, and what other
    programs open.

    Examples:
        >>> folder = sj.load("sod", ["grid.shape=[32]", "output.report=false", "output.animation=false"]).run().folder
        >>> sj.check_files(folder)
        []
    """
    require_path("check_files: folder", folder)
    folder = Path(folder)
    problems = _field_problems(_master_of(folder), thorough=True)
    for master in _output_masters(folder).values():
        problems += _field_problems(master, thorough=True)
    at_end = [form for form in output_formats() if form.write is not None and form.hdf5]
    for path in (folder / DIAGNOSTICS_NAME, *sorted(path for form in at_end for path in form.files(folder))):
        try:
            with open_hdf5(path):
                pass
        except InputOutputError as error:
            problems.append(str(error))
        else:
            problems.extend(filter(None, [unreadable(path)]))
    for checkpoint in list_checkpoints(folder / "checkpoints"):
        problem = verify_checkpoint(checkpoint)
        if problem:
            problems.append(f"{checkpoint}: {problem}")
    for master in sorted(folder.glob(f"{EVENTS_FOLDER}/*/{FIELDS_NAME}")):
        problems += check_files(master.parent)
    return list(dict.fromkeys(problems))


def _what_else(folder: Path) -> str:
    """A sentence on a folder that holds no run: whether it has a search, or runs below it."""
    found = f"{folder} holds no run"
    if (folder / INVERSION_NAME).is_file():
        pictures = ", ".join(sorted(path.name for path in folder.glob("*.png")))
        beside = f", beside {pictures} and report.html" if pictures else ""
        return f"{found} but a search; write xarray.open_dataset({str(folder / INVERSION_NAME)!r}){beside}"
    runs = sorted(path.parent for name in (FIELDS_NAME, MASTER_NAME) for path in folder.glob(f"*/{name}"))
    if runs:
        return f"{found} itself, but has {len(runs)} below it; write for instance {str(runs[-1])!r}"
    return f"{found}; expected a folder with {FIELDS_NAME} or {MASTER_NAME}"


def _field_problems(master: Path, *, thorough: bool = False) -> list[str]:
    if not master.is_file():
        return [_what_else(master.parent)]
    try:
        with h5py.File(master, "r") as file:
            if "simjax_segments" not in file.attrs:
                return [f"{master} was not written by simjax: it has no attribute simjax_segments"]
        problems = _segment_problems(master, thorough)
        if not problems:
            with open_hdf5(master):
                pass
        return problems
    except InputOutputError as error:
        return [str(error).removesuffix(".")]
    except OSError as error:
        return [f"{master} is damaged or not HDF5 ({error}); bring back the whole folder from a copy"]


def _segment_problems(master: Path, thorough: bool) -> list[str]:
    """Compares the segments that are there with what the master records of them."""
    stem = {FIELDS_NAME: "fields", SAMPLES_NAME: "samples"}.get(master.name, "particles")
    owner, table, steps = read_master(master, stem, lambda f: f"{TRAJECTORY}/step" if TRAJECTORY in f else "step")
    if thorough and not table:
        problem = unreadable(master)
        return [problem] if problem else []
    chunks, problems = chunks_of(table), []
    for number, (start, frames, segments) in enumerate(chunks):
        expected, last = steps[start : start + frames], number == len(chunks) - 1
        for segment in segments:
            problems.append(segment_problem(master.parent, segment, expected, owner, last=last, thorough=thorough))
    return [problem for problem in problems if problem]
