"""Particles read from a file, whose properties must agree with the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.io.particle_contents import FileParticles
from simjax.models.capacities import Bounds, bounds_of
from simjax.schema.config import Config

FURTHEST_IMAGE = 1e6  # of a position in a file, in lengths of the box: float32 has seven digits
SAME = 1e-6  # relative: GSD files have single precision, and text files often seven digits


@dataclass(frozen=True)
class Difference:
    """A value on which a file and a configuration disagree. write: overrides with which they do."""

    path: str
    here: str
    there: str
    write: str

    @classmethod
    def of(cls, path: str, here: Iterable | None, there: Iterable) -> Difference:
        """Lists that differ; those of the file are to be written."""
        return cls(path, listed_numbers(here), listed_numbers(there), f"{path}={listed_numbers(there)}")


def listed_numbers(values: Iterable | None) -> str:
    """A list as the command line takes it, without spaces."""
    if values is None:
        return "null"
    each = (str(v).lower() if isinstance(v, (bool, np.bool_)) else f"{v:.9g}" for v in values)
    return f"[{','.join(each)}]"


def same(here: np.ndarray, there: np.ndarray, scale: float | np.ndarray = 0.0) -> bool:
    """Tell whether numbers are the same as far as files hold them; scale: of what they are small parts."""
    return bool(np.all(np.abs(here - there) <= SAME * np.maximum(np.abs(there), scale)))


def require_same(file: str, differences: Sequence[Difference]) -> None:
    """Raises ConfigurationError that tells all differences, and what to write."""
    if differences:
        told = "; ".join(f"{d.path} is {d.here} here, {d.there} there" for d in differences)
        raise ConfigurationError(
            f"particles.file={file} differs from the configuration: {told}. Write "
            f"{' '.join(d.write for d in differences)}."
        )


def require_masses(file: str, mass: np.ndarray) -> None:
    """Refuse masses that no configuration can have, which are not to be told as what to write."""
    wrong = np.flatnonzero(mass <= 0)
    if wrong.size:
        raise ConfigurationError(
            f"particles.file={file}: expected masses above zero, got {mass[wrong[0]]:g} of particle {wrong[0]} "
            f"({wrong.size} such); correct them in the file."
        )


def box_differences(config: Config, found: FileParticles) -> Iterator[Difference]:
    """Differences of the boxes: their lengths, where axes close on themselves, and where others begin."""
    box, said = bounds_of(config), found.box
    if said is None:
        return
    lower, upper = np.asarray(box.lower), np.asarray(box.upper)
    begin = lower if said.lower is None else said.lower
    walls = ~np.asarray(box.periodic)
    if not same(upper - lower, said.lengths) or not same(lower[walls], begin[walls], said.lengths[walls]):
        if not same(lower, begin, said.lengths):
            yield Difference.of("box.lower", box.lower, begin)
        yield Difference.of("box.upper", box.upper, begin + said.lengths)
    if said.periodic is not None and tuple(said.periodic) != box.periodic:
        yield Difference.of("box.periodic", box.periodic, said.periodic)


def require_inside(file: str, box: Bounds, position: np.ndarray) -> None:
    """Refuse particles `(ndim, particles)` outside of a box, along axes that do not close on themselves."""
    for axis, (x, a, b, periodic) in enumerate(zip(position, box.lower, box.upper, box.periodic, strict=True)):
        far = np.flatnonzero(np.abs(x - a) > FURTHEST_IMAGE * (b - a))
        if far.size:
            raise ConfigurationError(
                f"particles.file={file}: particle {far[0]} at {AXES[axis]}={x[far[0]]:g} is more than "
                f"{FURTHEST_IMAGE:g} lengths of the box away, where rounding leaves no place in it; write positions in "
                "the box."
            )
        outside = np.flatnonzero((x < a) | (x >= b))
        if not periodic and outside.size:
            raise ConfigurationError(
                f"particles.file={file}: particle {outside[0]} at {AXES[axis]}={x[outside[0]]:g} ({outside.size} such) "
                f"is outside the box from {a:g} to {b:g}; use a larger box."
            )


def count_outside(box: Bounds, position: np.ndarray) -> int:
    """Count the particles `(ndim, particles)` outside of a box, which are wrapped into it where it closes on itself."""
    lower, upper = (np.asarray(ends)[:, None] for ends in (box.lower, box.upper))
    return int(np.sum(np.any((position < lower) | (position >= upper), axis=0)))
