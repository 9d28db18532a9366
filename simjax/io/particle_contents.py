"""Particles read from a file, with checks of shapes, units and finiteness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES

PER_PARTICLE = ("species", "mass", "charge")
GROUPS = {"bonds": 2, "angles": 3}
WHOLE = ("species", *GROUPS)
NAMES = ("position", "velocity", *PER_PARTICLE, *GROUPS)


@dataclass(frozen=True)
class FileBox:
    """The box of a file, one number per axis. lower: None where the file does not say it, and so periodic."""

    lengths: np.ndarray
    lower: np.ndarray | None = None
    periodic: np.ndarray | None = None


@dataclass(frozen=True)
class FileParticles:
    """Arrays that a file has of particles, `NAMES` as far as they are there.

    position, velocity: `(particles, axes)`. species, mass, charge: `(particles,)`. bonds `(bonds, 2)`, angles
    `(angles, 3)`: numbers of particles, the vertex in the middle. notes: sentences about what is left out.
    """

    arrays: Mapping[str, np.ndarray]
    box: FileBox | None = None
    notes: tuple[str, ...] = ()


def checked(path: Path, found: FileParticles, ndim: int) -> FileParticles:
    """The particles in a box of `ndim` axes, float64 and int32.

    Raises ConfigurationError for a name that is missing, a shape that does not fit, a value that is no such number, and
    particles that do not lie in a plane where the box does.
    """
    said, arrays = f"particles.file={path}", dict(found.arrays)
    if "position" not in arrays:
        raise ConfigurationError(f"{said}: expected an array position, of (particles, {ndim}).")
    for name in ("position", "velocity"):
        if name in arrays and arrays[name].ndim == 2 and ndim < arrays[name].shape[1] == len(AXES):
            _check_flat(said, name, arrays[name][:, ndim:], ndim)
            arrays[name] = arrays[name][:, :ndim]
    count = arrays["position"].shape[0] if arrays["position"].ndim else 1
    for name, values in arrays.items():
        own = (len(values), GROUPS[name]) if name in GROUPS and values.ndim else (count, ndim)
        _check_values(said, name, values, (count,) if name in PER_PARTICLE else own)
    arrays = {name: u.astype(np.int32 if name in WHOLE else np.float64) for name, u in arrays.items()}
    return FileParticles(arrays, None if found.box is None else _checked_box(said, found.box, ndim), found.notes)


def _checked_box(said: str, box: FileBox, ndim: int) -> FileBox:
    """The first axes of a box."""
    lengths, lower, periodic = (None if u is None else np.atleast_1d(u)[:ndim] for u in vars(box).values())
    for name, values in (("lengths", lengths), ("lower corner", lower), ("boundary", periodic)):
        if values is None:
            continue
        if values.shape != (ndim,) or values.dtype.kind not in "biuf" or not np.all(np.isfinite(values)):
            raise ConfigurationError(
                f"{said}: the {name} of its box: {str(values.tolist())[:80]}; expected {ndim} numbers, one per axis."
            )
    assert lengths is not None
    return FileBox(lengths, lower, periodic)


def _check_flat(said: str, name: str, across: np.ndarray, ndim: int) -> None:
    """Refuse particles that leave the plane of the box."""
    out = np.flatnonzero(np.any(across != across[:1], axis=1))
    if out.size:
        raise ConfigurationError(
            f"{said}: {name} of particle {out[0]} has {across[out[0], 0]:g} along {AXES[ndim]}, that of particle 0 "
            f"{across[0, 0]:g}; expected the same of all in a box of {ndim} axes, or write box.upper with three."
        )


def _check_values(said: str, name: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ConfigurationError(f"{said}: {name} is {values.shape}; expected {shape}.")
    if values.dtype.kind not in ("iu" if name in WHOLE else "fiu"):
        numbers = "whole numbers" if name in WHOLE else "real numbers"
        raise ConfigurationError(f"{said}: {name} holds {values.dtype}; expected {numbers}.")
    if name in WHOLE and values.size and not 0 <= values.min() <= values.max() < 2**31:
        raise ConfigurationError(f"{said}: {name} from {values.min()} to {values.max()}; expected numbers from 0 on.")
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        raise ConfigurationError(f"{said}: {name} of particle {wrong[0][0]} is not finite.")


def one_type(path: Path, name: str, types: np.ndarray) -> None:
    """Refuse bonds or angles of several types, for which a configuration has one potential."""
    if (kinds := len(np.unique(types))) > 1:
        raise ConfigurationError(
            f"particles.file={path} holds {name} of {kinds} types; expected one, as physics.{name[:-1]} is one for all."
        )


def refuse(path: Path, counts: Mapping[str, int]) -> None:
    """Refuse what moves the particles of a file and has no place in a model."""
    for name, count in counts.items():
        if count:
            raise ConfigurationError(
                f"particles.file={path} holds {count} {name}, for which the model has no place; write a file without "
                "them."
            )


def numbered(path: Path, ids: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Numbers of particles, in their order, in the place of the `ids` that a file gives them."""
    if not len(ids):
        return groups
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids[order], groups), len(ids) - 1)
    found = order[place]
    if np.any(ids[found] != groups):
        strange = groups[ids[found] != groups][0]
        raise ConfigurationError(f"particles.file={path} names a particle {strange} that it does not hold; write it.")
    return found


def orthogonal(path: Path, edges: np.ndarray) -> np.ndarray:
    """Lengths of a box from its edges, `(axes,)` or the rows of a matrix; refuses one that is tilted."""
    edges = np.asarray(edges, np.float64)
    if edges.ndim < 2:
        return edges
    lengths = np.diagonal(edges)
    if np.any(np.abs(edges - np.diag(lengths)) > 1e-9 * np.abs(lengths).max()):
        raise ConfigurationError(
            f"particles.file={path} has a triclinic box; expected one with edges along x, y and z: write the particles "
            "in an orthogonal cell."
        )
    return lengths
