"""Output formats: what each leaves in the folder of a run, who opens it and how, declared beside its writer.

A format is a function declared with `@output_format` and one line of `HOMES`. Writing, clearing, checking, the report
and the table in `docs/files.md` read the declaration.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

HOMES = {
    "netcdf": "grid_output",
    "vtkhdf_image": "vtkhdf",
    "xdmf": "xdmf",
    "h5md": "particle_output",
    "h5md_members": "particle_output",
    "topology": "particle_output",
    "vtkhdf_points": "vtkhdf_particles",
}
"""Format -> the module in `io` that declares it. The file that holds the frames comes before those that show it."""

MOST_MEMBERS = 10_000
"""Members of an ensemble up to which formats with a part for each of them are written: one takes some milliseconds."""
_DECLARED: dict[str, OutputFormat] = {}
Declared = TypeVar("Declared")


@dataclass(frozen=True)
class OutputFormat:
    """A kind of file in the folder of a run.

    content: of which runs, "fields" or "particles". patterns: the files it leaves, the one to open first. about: what
    is in them. programs: what opens them, the one of `how_to_open` first. how_to_open: the line of shell or Python that
    the report shows, in which `file` and `folder` in braces stand for quoted paths; empty where there is none to show.
    hdf5: whether they are HDF5, so that checking a run reads them. by_member: whether an ensemble has a part for each
    member in them, so that they are not written for more than `MOST_MEMBERS`. write: called with the writer of a run
    (`FrameWriter`) at its end; None for the file that holds the frames themselves.
    """

    name: str
    content: str
    patterns: tuple[str, ...]
    about: str
    programs: tuple[str, ...]
    how_to_open: str = ""
    hdf5: bool = True
    by_member: bool = False
    write: Callable[[Any], None] | None = None

    def files(self, folder: Path) -> list[Path]:
        """Its files in a folder, in the order of `patterns`."""
        return [path for pattern in self.patterns for path in sorted(folder.glob(pattern))]

    def opening(self, folder: Path) -> str:
        """The line that opens its first file in a folder; empty where there is none, or nothing to say."""
        found = self.files(folder)
        if not found or not self.how_to_open:
            return ""
        quoted = repr if self.how_to_open.startswith("import ") else shlex.quote
        return self.how_to_open.format(file=quoted(str(found[0])), folder=quoted(str(folder)))


def output_format(name: str, **properties: Any) -> Callable[[Declared], Declared]:
    """Declare a function as the writer of a format at the end of a run, or a class as the writer of its frames.

    `properties` are those of `OutputFormat`.
    """

    def declare(declared: Declared) -> Declared:
        write: Any = None if inspect.isclass(declared) else declared
        _DECLARED[name] = OutputFormat(name, write=write, **properties)
        return declared

    return declare


def output_formats(content: str | None = None) -> list[OutputFormat]:
    """Registered output formats; all of them, or those that write "fields" or "particles"."""
    for module in HOMES.values():
        import_module(f"simjax.io.{module}")
    return [_DECLARED[name] for name in HOMES if content in (None, _DECLARED[name].content)]


def formats_at_end(content: str, members: int = 1) -> list[OutputFormat]:
    """Formats written when a run of so many members ends, over the file of its frames."""
    at_end = [one for one in output_formats(content) if one.write is not None]
    return [one for one in at_end if members <= MOST_MEMBERS or not one.by_member]
