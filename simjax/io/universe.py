"""Trajectories of particles in MDAnalysis."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.h5md import TRAJECTORY
from simjax.io.particle_output import ENSEMBLE_NAME, MASTER_NAME
from simjax.io.read import open_hdf5, require_readable
from simjax.schema.locate import usable_path

if TYPE_CHECKING:
    from MDAnalysis import Universe
    from MDAnalysis.coordinates.timestep import Timestep

IMAGE = "image"


def open_universe(run: str | Path | Any, member: int | None = None, *, unwrapped: bool = False) -> Universe:
    """The particles of a run as an MDAnalysis Universe: trajectory, time between frames, species, masses, charges.

    Lengths, times and masses are in the run's own units, of which MDAnalysis converts none: where it says Angstrom and
    ps it means these. `types` are the names of the species, or their numbers where they have none.

    Args:
        run: the folder of a run, or what `Simulation.run` returned.
        member: of an ensemble, which one.
        unwrapped: whether particles go on where they leave a periodic box, as diffusion and the sizes of molecules need
            them; else they come in again at its other side.

    Raises:
        ConfigurationError: an ensemble without a member, or a member that it does not have.
        InputOutputError: no run of particles is there, a part of it is missing, or MDAnalysis is not installed.

    Examples:
        >>> few = ["particles.spacing=0.1", "time.end=0.01", "output.report=false", "output.animation=false"]
        >>> universe = sj.open_universe(sj.load("dam_break", few).run())
        >>> len(universe.select_atoms("type wall")) > 0
        True
    """
    folder = usable_path(getattr(run, "folder", run), "open_universe")
    path = _trajectory(folder, member)
    require_readable(folder)
    try:
        import MDAnalysis
    except ImportError:
        raise InputOutputError("open_universe needs MDAnalysis; write `pip install MDAnalysis`.") from None
    with open_hdf5(path) as file:
        times = np.asarray(file[f"{TRAJECTORY}/time"])
        found = {name: np.asarray(file[f"{TRAJECTORY}/{name}"]) for name in ("species", "mass")}
        names = str(file[f"{TRAJECTORY}/species"].attrs.get("flag_meanings", "")).split()
        if unwrapped and f"{TRAJECTORY}/{IMAGE}" not in file:
            raise InputOutputError(f"{path} has no image, how often particles went round; write it in output.fields.")
        if f"{TRAJECTORY}/charge" in file:
            found["charge"] = np.asarray(file[f"{TRAJECTORY}/charge"])
    dt = float(times[1] - times[0]) if len(times) > 1 else 1.0
    universe = MDAnalysis.Universe.empty(len(found["species"]))
    types = [names[s] if s < len(names) else str(s) for s in found["species"].tolist()]
    universe.add_TopologyAttr("types", types)
    universe.add_TopologyAttr("names", types)
    universe.add_TopologyAttr("masses", found["mass"])
    if "charge" in found:
        universe.add_TopologyAttr("charges", found["charge"])
    universe.load_new(str(path), format="H5MD", convert_units=False, dt=dt)
    if unwrapped:
        universe.trajectory.add_transformations(functools.partial(_unwrap, path))
    return universe


def _unwrap(path: Path, frame: Timestep) -> Timestep:
    """A frame of MDAnalysis with particles as many boxes away as they went round."""
    with open_hdf5(path) as file:
        image = np.asarray(file[f"{TRAJECTORY}/{IMAGE}/value"][frame.frame], np.float64)  # pyright: ignore[reportIndexIssue]
    moved = image * frame.dimensions[:3]
    frame.positions = frame.positions.astype(np.float64) + moved[: len(frame.positions)]
    return frame


def _trajectory(folder: Path, member: int | None) -> Path:
    """The H5MD file of a run, or of a member of an ensemble."""
    if (folder / MASTER_NAME).is_file():
        if member not in (None, 0):
            raise ConfigurationError(f"member={member}: {folder} has one run of particles; leave it out.")
        return folder / MASTER_NAME
    if not (folder / ENSEMBLE_NAME).is_file():
        raise InputOutputError(f"{folder} holds no run of particles; expected a folder with {MASTER_NAME}.")
    with h5py.File(folder / ENSEMBLE_NAME, "r") as file:
        count = len(np.asarray(file["member"]))
    if member is None or not 0 <= member < count:
        raise ConfigurationError(f"member={member}: expected one of the ensemble's, 0 to {count - 1}.")
    path = folder / f"particles.m{member:04d}.h5md"
    if not path.is_file():
        raise InputOutputError(f"{path} is missing: it is written when a run ends or stops; resume the run.")
    return path
