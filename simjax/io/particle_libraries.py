"""Particles of files that libraries of their formats read: extended XYZ by ase, GSD by gsd."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np

from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.memory import require_memory, require_memory_for_text
from simjax.io.particle_contents import FileBox, FileParticles, one_type, orthogonal, refuse

# Columns of extended XYZ that are read, and those that are results.
READ = ("numbers", "positions", "masses", "momenta", "initial_charges", "velo")
MOST_COLUMNS = 1000
"""Columns of extended XYZ."""
LEAST_BYTES = 8
"""Bytes that a particle, bond or other group takes in a GSD file at least: two numbers of particles."""
BYTES_PER_BYTE_OF_GSD = 24
"""Memory to read a byte of GSD: what a frame does not say is filled in, and the first frame is kept twice."""
GROUPS_OF_GSD = ("particles", "bonds", "angles", "dihedrals", "impropers", "constraints", "pairs")
# What GSD says of a particle, besides what is read, and its value where nothing is said.
UNREAD = {"diameter": 1, "orientation": (1, 0, 0, 0), "angmom": 0, "moment_inertia": 0}


def _missing(path: Path, package: str) -> ConfigurationError:
    return ConfigurationError(
        f"particles.file={path}: reading it takes {package}, which is not installed; pip install 'simjax[particles]'."
    )


def read_extended_xyz(path: Path) -> FileParticles:
    """Particles of the last frame; species are the symbols, numbered in the order in which they first appear.

    Velocities are those of a column `velo`, or momenta over masses.

    Raises ConfigurationError for a symbol of no element, and for a box that is triclinic.
    """
    try:
        from ase.io.extxyz import read_xyz
    except ImportError:
        raise _missing(path, "ase") from None
    require_memory_for_text(path)
    _check_frames(path)
    with path.open(encoding="utf-8") as file:
        try:
            (atoms,) = read_xyz(file, -1)
        except KeyError as error:
            raise ConfigurationError(
                f"particles.file={path}: {error} is not known; expected chemical symbols, with X for no element."
            ) from None
    known = atoms.arrays
    _, first, inverse = np.unique(known["numbers"], return_index=True, return_inverse=True)
    order = np.argsort(first)
    arrays = {"position": atoms.get_positions(), "species": np.argsort(order)[inverse]}
    if "momenta" in known:
        arrays |= {"velocity": atoms.get_velocities(), "mass": atoms.get_masses()}
    elif "velo" in known:
        arrays["velocity"] = known["velo"]
    if "masses" in known:
        arrays["mass"] = known["masses"]
    results = {} if atoms.calc is None else atoms.calc.results
    charge = known.get("initial_charges", results.get("charges"))
    if charge is not None:
        arrays["charge"] = charge
    names = [atoms.symbols[k] for k in first[order]]
    notes = [f"Species of {path.name}: {', '.join(f'{k} is {name}' for k, name in enumerate(names))}."]
    if unread := [name for name in known if name not in READ]:
        notes.append(f"Of {path.name} {', '.join(unread)} are not read.")
    if atoms.constraints:
        refuse(path, {"constraints": len(atoms.constraints)})
    box = None
    if np.any(atoms.cell):
        lower = np.asarray(atoms.info.get("Origin", np.zeros(3)), np.float64)
        box = FileBox(orthogonal(path, np.asarray(atoms.cell)), lower, np.asarray(atoms.pbc))
    return FileParticles(arrays, box, tuple(notes))


def _check_frames(path: Path) -> None:
    """Refuse a file of which a frame ends before its particles do, or the last one has none: ase would read on."""
    said, count = f"particles.file={path}", 0
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.lstrip().startswith("VEC"):
                continue
            if not line.strip():
                break
            if not line.strip().isdecimal():
                raise InputOutputError(
                    f"{said}: expected the number of particles of a frame, got {line.strip()[:40]!r}."
                )
            count = int(line[:20])
            about = next(file, "")
            columns = re.search(r"Properties\s*=\s*\"?([^\s\"]*)", about)
            numbers = [int(n[:9]) for n in columns[1].split(":")[2::3] if n.isdecimal()] if columns else []
            if sum(numbers) > MOST_COLUMNS:
                raise ConfigurationError(f"{said} has {sum(numbers)} columns; expected at most {MOST_COLUMNS}.")
            held = sum(1 for _ in itertools.islice(file, count))
            if held < count:
                raise InputOutputError(f"{said} says {count} particles and has {held}; it is damaged or incomplete.")
    if not count:
        raise ConfigurationError(f"{said} has no particles in its last frame; expected one at least.")


def read_gsd(path: Path) -> FileParticles:
    """Particles of the last frame of a GSD file of HOOMD-blue, whose box has its middle at zero."""
    try:
        import gsd.hoomd
    except ImportError:
        raise _missing(path, "gsd") from None
    with gsd.hoomd.open(str(path)) as file:
        if not len(file):
            raise ConfigurationError(f"particles.file={path} has no frames; expected one at least.")
        _check_counts(path, file.file, (0, len(file) - 1))
        frame: Any = file[-1]
    of, box = frame.particles, np.asarray(frame.configuration.box, np.float64)
    counts = {name: getattr(frame, name).N for name in ("dihedrals", "impropers", "constraints", "pairs")}
    refuse(path, {**counts, "particles in rigid bodies": int(np.sum(of.body >= 0))})
    if np.any(box[3:]):
        raise ConfigurationError(
            f"particles.file={path} has a triclinic box; expected one with edges along x, y and z: write the particles "
            "in an orthogonal cell."
        )
    arrays = {"position": of.position, "species": of.typeid, "mass": of.mass, "charge": of.charge}
    if np.any(of.velocity):  # zero where the file says none
        arrays["velocity"] = of.velocity
    for name in ("bonds", "angles"):
        groups = getattr(frame, name)
        if groups.N:
            one_type(path, name, groups.typeid)
            arrays[name] = groups.group
    names = ", ".join(f"{k} is {name}" for k, name in enumerate(of.types))
    unread = [name for name, value in UNREAD.items() if np.any(getattr(of, name) != np.asarray(value, np.float32))]
    notes = [f"Species of {path.name}: {names}."]
    if unread:
        notes.append(f"Of {path.name} {', '.join(unread)} are not read.")
    return FileParticles(arrays, FileBox(box[:3], -box[:3] / 2), tuple(notes))


def _check_counts(path: Path, file: Any, frames: tuple[int, ...]) -> None:
    """Refuse frames that say more particles or bonds than the file has room for: gsd fills in what is not there."""
    size = path.stat().st_size
    require_memory(size * BYTES_PER_BYTE_OF_GSD, f"{path.name}, of {size / 2**20:.0f} MiB,", "write a smaller file")
    for frame in frames:
        for group in GROUPS_OF_GSD:
            if not file.chunk_exists(frame=frame, name=f"{group}/N"):
                continue
            count = int(np.ravel(file.read_chunk(frame=frame, name=f"{group}/N"))[0])
            if count * LEAST_BYTES > size:
                raise InputOutputError(
                    f"particles.file={path} says {count} {group} and has {size} bytes; it is damaged or incomplete."
                )
