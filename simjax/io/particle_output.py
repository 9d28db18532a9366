"""Writes the particles of a run in the layout "simjax particles/1": H5MD, and what ParaView opens beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simjax.errors import InputOutputError
from simjax.io import h5md
from simjax.io.files import replaced
from simjax.io.formats import output_format
from simjax.io.frame_layout import (
    FrameLayout,
    Variable,
    coordinates_attribute,
    diagnostic_variables,
    frame_layout,
    member_coordinate,
    parameter_variable,
    root_attributes,
    write_plain,
    write_virtual,
)
from simjax.io.frame_output import FrameWriter
from simjax.io.segments import WHOLE, Part

LAYOUT = "simjax particles/1"
MASTER_NAME, ENSEMBLE_NAME, TOPOLOGY_NAME = "particles.h5md", "ensemble.h5", "topology.xyz"
IN_ALL = "simjax_particles_in_all"
"""Attribute of files that hold some of the particles: how many there are in the run."""
# Names that stand for species where nothing else is known.
ELEMENTS = ("Ar", "Kr", "Xe", "Ne", "He", "Rn")


@output_format(
    "h5md",
    content="particles",
    patterns=(MASTER_NAME, "data/particles.p*.s*.h5"),
    programs=("MDAnalysis", "xarray"),
    about="trajectories: H5MD 1.1; of an ensemble `ensemble.h5` holds those of all members",
    how_to_open="import simjax as sj\n\nuniverse = sj.open_universe({folder})",
)
class ParticleWriter(FrameWriter):
    """Writes frames of particles: `fields[name]` is (frames, [member,] axes, particles), written as
    ([member,] time, particle, space) with zeros along the third axis of a plane; of `scalars`, without axes.

    about: attributes of parameters and diagnostics by name, such as units. One member makes `particles.h5md`; an
    ensemble `ensemble.h5` with an H5MD file for each member over it. numbers: of the particles that are written, where
    these are not all `of` the run.
    """

    def __init__(
        self,
        folder: Path,
        *,
        lower: Sequence[float],
        upper: Sequence[float],
        periodic: Sequence[bool],
        names: Sequence[str],
        species: np.ndarray,
        mass: np.ndarray,
        charge: np.ndarray | None,
        members: int | None,
        parameters: Mapping[str, np.ndarray],
        scalars: Sequence[str] = (),
        species_names: Sequence[str] = (),
        about: Mapping[str, Mapping[str, object]] | None = None,
        diagnostics: Sequence[str],
        attributes: Mapping[str, str | int],
        title: str,
        dtype: npt.DTypeLike = np.float32,
        rounding_bits: int | None = None,
        keep_until_step: int | None = None,
        segment_bytes: int = 64 << 20,
        parts: Sequence[Part] = (WHOLE,),
        numbers: np.ndarray | None = None,
        of: int | None = None,
    ):
        missing = h5md.AXES - len(lower)  # a plane is a box without thickness
        self._box = h5md.Box((*lower, *(0.0,) * missing), (*upper, *(0.0,) * missing), (*periodic, *(False,) * missing))
        self.members, self.species, self.placed = members, species, "position" in names
        layout = build_layout(
            names,
            species,
            mass,
            charge,
            scalars=scalars,
            species_names=species_names,
            members=members,
            parameters=parameters,
            diagnostics=diagnostics,
            dtype=np.dtype(dtype),
            rounding_bits=rounding_bits,
            about=about or {},
            numbers=numbers,
        )
        root = root_attributes(attributes, title, np.dtype(dtype), LAYOUT)
        root |= {"simjax_box_lower": np.asarray(lower), "simjax_box_upper": np.asarray(upper)}
        if of is not None and of != len(species):
            root[IN_ALL] = of
        master = MASTER_NAME if members is None else ENSEMBLE_NAME
        super().__init__(
            folder,
            master,
            "particles",
            layout,
            root,
            keep_until_step=keep_until_step,
            segment_bytes=segment_bytes,
            parts=parts,
        )

    def to_file(self, layout, variable, given, frames):
        shape = layout.shape(variable, frames)
        of_vectors = h5md.per_particle(variable) and "space" in variable.dims
        if not of_vectors:
            expected = (frames, *(size for size, dim in zip(shape, variable.dims, strict=True) if dim != "time"))
        else:
            axes = given.shape[-2] if given is not None and given.ndim >= 2 else 0
            expected = (frames, *shape[: variable.dims.index("time")], axes, shape[-2])
        if given is None or given.shape != expected:
            found = "nothing" if given is None else f"shape {given.shape}"
            raise InputOutputError(f"output {variable.name!r}: expected shape {expected}, got {found}.")
        values = np.moveaxis(given, 0, variable.dims.index("time"))
        if of_vectors:
            values = np.swapaxes(values, -1, -2)
            values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, h5md.AXES - values.shape[-1])])
        return np.ascontiguousarray(values, dtype=variable.dtype)

    def within(self, file, name):
        is_h5md = "h5md" in file
        return h5md.place_of(file, self._layout, name) if is_h5md else name

    def write_whole(self, path, attributes, steps, times, pieces):
        if self.members is None:
            h5md.write_whole(path, self._layout, self._box, attributes, steps, times, pieces)
        else:
            write_plain(path, self._layout, attributes, steps, times, pieces)

    def write_master(self, path, attributes, steps, times, sources):
        if self.members is None:
            h5md.write_over_segments(path, self._layout, self._box, attributes, steps, times, sources)
        else:
            write_virtual(path, self._layout, attributes, steps, times, sources)

    def stems(self) -> list[tuple[str, int | None]]:
        """Beginning of the names of each member's files, and its number; one without a number where it is alone."""
        if self.members is None:
            return [("particles", None)]
        return [(f"particles.m{member:04d}", member) for member in range(self.members)]

    def write_member(self, path: Path, member: int) -> None:
        """Write an H5MD file of one member over the frames of all."""
        h5md.write_member(
            path, self.layout, self._box, self._attributes, self._steps, self.times, ENSEMBLE_NAME, member
        )


@output_format(
    "h5md_members",
    content="particles",
    patterns=("particles.m*.h5md",),
    programs=("MDAnalysis", "xarray"),
    about="one member of an ensemble, without a copy",
    by_member=True,
    how_to_open="import simjax as sj\n\nuniverse = sj.open_universe({folder}, member=0)",
)
def write_members(writer: ParticleWriter) -> None:
    """Write an H5MD file for each member of an ensemble."""
    for stem, member in writer.stems():
        if member is not None:
            with replaced(writer.folder / f"{stem}.h5md") as path:
                writer.write_member(path, member)


@output_format(
    "topology",
    content="particles",
    patterns=(TOPOLOGY_NAME,),
    programs=("MDAnalysis",),
    about="an element for each species, for the trajectory",
    hdf5=False,
)
def write_topology(writer: ParticleWriter) -> None:
    """Write the particles as an XYZ file with an element for each species, which stands for it alone."""
    if not writer.placed:  # else there is nothing to see
        return
    names = [ELEMENTS[s % len(ELEMENTS)] for s in writer.species.tolist()]
    lines = "".join(f"{name} 0 0 0\n" for name in names)
    with replaced(writer.folder / TOPOLOGY_NAME) as path:
        text = f"{len(names)}\nelements stand for species; positions are in the H5MD file\n{lines}"
        path.write_text(text, encoding="ascii")


def build_layout(
    names: Sequence[str],
    species: np.ndarray,
    mass: np.ndarray,
    charge: np.ndarray | None,
    *,
    scalars: Sequence[str],
    species_names: Sequence[str],
    members: int | None,
    parameters: Mapping[str, np.ndarray],
    diagnostics: Sequence[str],
    dtype: np.dtype,
    rounding_bits: int | None,
    about: Mapping[str, Mapping[str, object]],
    numbers: np.ndarray | None = None,
) -> FrameLayout:
    """The variables of a run of particles: per particle ([member,] time, particle, space), diagnostics by time."""
    leading = () if members is None else ("member",)
    number = np.arange(len(species), dtype="i8") if numbers is None else numbers.astype("i8")
    fixed = [
        *member_coordinate(members),
        Variable("particle", ("particle",), np.dtype("i8"), {"long_name": "number of the particle"}, number),
        Variable("space", ("space",), np.dtype("i4"), {"long_name": "axis of space"}, np.arange(3, dtype="i4")),
        Variable("species", ("particle",), np.dtype("i4"), _of_species(species_names), species.astype("i4")),
        _of_particles("mass", mass),
        *([] if charge is None else [_of_particles("charge", charge)]),
        *(parameter_variable(name, value, members, about.get(name)) for name, value in parameters.items()),
    ]
    meaning = {"image": "how often it has gone round the box"}
    framed = [
        Variable(
            name,
            (*leading, "time", "particle", *(() if name in scalars else ("space",))),
            np.dtype("i4") if name == "image" else dtype,
            {"long_name": meaning.get(name, name), **coordinates_attribute(parameters)},
        )
        for name in names
    ]
    framed += diagnostic_variables(diagnostics, leading, parameters, about)
    return frame_layout(fixed, framed, "1", rounding_bits)


def _of_particles(name: str, values: np.ndarray) -> Variable:
    return Variable(name, ("particle",), np.dtype("f4"), {"long_name": name}, values.astype("f4"))


def _of_species(names: Sequence[str]) -> dict[str, object]:
    """Attributes of the species, with their names as CF writes those of flags."""
    flags = {"flag_values": np.arange(len(names), dtype="i4"), "flag_meanings": " ".join(names)}
    return {"long_name": "species", **(flags if names else {})}
