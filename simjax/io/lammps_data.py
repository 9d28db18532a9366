"""Particles of LAMMPS data files, the format of `read_data`: https://docs.lammps.org/read_data.html."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.memory import require_memory_for_text
from simjax.io.particle_contents import FileBox, FileParticles, numbered, one_type, refuse
from simjax.io.stored_variable import check_size

# Atom style -> the columns between the number of an atom and its place; three of images may follow.
STYLES = {
    "atomic": ("type",),
    "charge": ("type", "charge"),
    "bond": ("molecule", "type"),
    "angle": ("molecule", "type"),
    "molecular": ("molecule", "type"),
    "full": ("molecule", "type", "charge"),
}
UNNAMED = {5: "atomic", 8: "atomic", 7: "full", 10: "full"}
"""Columns -> the style that is meant where none is named."""
READ = ("Atoms", "Velocities", "Masses", "Bonds", "Angles")
MOVING = {
    "Dihedrals": "dihedrals",
    "Impropers": "impropers",
    "Ellipsoids": "ellipsoids",
    "Lines": "lines",
    "Triangles": "triangles",
    "Bodies": "bodies",
}
HEADER = re.compile(r"([-+.\deE\s]+?)\s+([A-Za-z].*)")


@dataclass(frozen=True)
class _Text:
    """Lines of a file by section, without comments; "" is the header. styles: what stands behind names of sections."""

    path: Path
    sections: Mapping[str, list[str]]
    styles: Mapping[str, str]
    header: Mapping[str, list[float]]

    def table(self, name: str, counted: str) -> np.ndarray:
        """The numbers of a section, as many lines as the header says of `counted`."""
        lines = self.sections.get(name, [])
        wanted = int(self.header.get(counted, [len(lines)])[0])
        if len(lines) != wanted:
            raise InputOutputError(
                f"particles.file={self.path}: {len(lines)} lines of {name}, its header says {wanted} {counted}; it is "
                "damaged or incomplete."
            )
        return np.loadtxt(lines, ndmin=2) if lines else np.zeros((0, 1))


def read_lammps_data(path: Path) -> FileParticles:
    """Particles in the order of their numbers; types count from 0, units are as they are.

    Raises:
        ConfigurationError: a triclinic box, another atom style, what simjax has no potential for.
        InputOutputError: the file is damaged.
    """
    text = _read(path)
    _check_sections(text)
    check_size((int(text.header.get("atoms", [0])[0]), len("xyz")), 8, path, "Atoms")
    atoms, style = _atoms(text)
    atoms = atoms[np.argsort(atoms[:, 0])]
    columns = {name: atoms[:, 1 + k] for k, name in enumerate(STYLES[style])}
    first = 1 + len(columns)
    ids, kind = _whole(text, "Atoms", atoms[:, 0]), _whole(text, "Atoms", columns["type"])
    if len(np.unique(ids)) < len(ids) or kind.min() < 1:
        raise ConfigurationError(f"particles.file={path}: Atoms: expected each number once, and types from 1 on.")
    arrays = {"position": atoms[:, first : first + 3], "species": kind - 1}
    if "charge" in columns:
        arrays["charge"] = columns["charge"]
    if "Velocities" in text.sections:
        velocities = text.table("Velocities", "atoms")
        own = numbered(path, _whole(text, "Velocities", velocities[:, 0]), ids)
        arrays["velocity"] = velocities[own, 1:4]
    if "Masses" in text.sections:
        masses = text.table("Masses", "atom types")
        of_type = numbered(path, _whole(text, "Masses", masses[:, 0]), kind)
        arrays["mass"] = masses[of_type, 1]
    for name, ends in (("Bonds", 2), ("Angles", 3)):
        if len(entries := text.table(name, name.lower())):
            entries = _whole(text, name, entries)
            one_type(path, name.lower(), entries[:, 1])
            arrays[name.lower()] = numbered(path, ids, entries[:, 2 : 2 + ends])
    left = [name for name in text.sections if name.endswith("Coeffs")]
    notes = (f"Of {path.name} {', '.join(left)} are not read: physics says them.",) if left else ()
    return FileParticles(arrays, _box(text), notes)


def _read(path: Path) -> _Text:
    require_memory_for_text(path)
    sections: dict[str, list[str]] = {"": []}
    styles, name = {}, ""
    with path.open(encoding="utf-8") as file:
        next(file, None)  # a title
        for line in file:
            text, _, comment = line.partition("#")
            text = " ".join(text.split())
            if text[:1].isalpha():
                name = text
                sections[name], styles[name] = [], comment.strip()
            elif text:
                sections[name].append(text)
    header = {
        found[2]: [float(word) for word in found[1].split()]
        for line in sections[""]
        if (found := HEADER.fullmatch(line))
    }
    return _Text(path, sections, styles, header)


def _check_sections(text: _Text) -> None:
    """Refuse sections that simjax does not have, and files that are not LAMMPS data files."""
    path, sections = text.path, text.sections
    if "Atoms" not in sections or "atoms" not in text.header:
        raise ConfigurationError(
            f"particles.file={path} is none of NPZ, H5MD, extended XYZ (.xyz), GSD (.gsd) and LAMMPS data; write one "
            "of these."
        )
    refuse(path, {told: len(sections.get(name, ())) for name, told in MOVING.items()})
    for name in sections:
        if name and name not in READ and name not in MOVING and not name.endswith("Coeffs"):
            raise ConfigurationError(
                f"particles.file={path} has a section {name}; expected {', '.join(READ)} and coefficients, with types "
                "as numbers."
            )


def _atoms(text: _Text) -> tuple[np.ndarray, str]:
    """The lines of all atoms, and their style."""
    atoms = text.table("Atoms", "atoms")
    width = atoms.shape[1]
    style = text.styles["Atoms"] or UNNAMED.get(width, "")
    if style not in STYLES:
        named = f"style {style}" if style else f"{width} columns and no style"
        raise ConfigurationError(
            f"particles.file={text.path}: Atoms of {named}; expected one of {', '.join(STYLES)}, as in 'Atoms # full'."
        )
    most = 1 + len(STYLES[style]) + 3
    if width not in (most, most + 3):
        raise ConfigurationError(
            f"particles.file={text.path}: Atoms of style {style} in {width} columns; expected {most}, or {most + 3} "
            "with images."
        )
    return atoms, style


def _whole(text: _Text, name: str, values: np.ndarray) -> np.ndarray:
    if np.any(values != np.floor(values)):
        raise ConfigurationError(f"particles.file={text.path}: {name}: expected whole numbers and types.")
    return values.astype(np.int64)


def _box(text: _Text) -> FileBox:
    tilted = any(text.header.get("xy xz yz", ())) or "avec" in text.header
    corners = [text.header.get(f"{axis}lo {axis}hi", [-0.5, 0.5]) for axis in "xyz"]  # LAMMPS' own default
    if tilted:
        raise ConfigurationError(
            f"particles.file={text.path} has a triclinic box; expected one with edges along x, y and z: write the "
            "particles in an orthogonal cell."
        )
    lower, upper = np.asarray(corners, np.float64).T
    return FileBox(upper - lower, lower)
