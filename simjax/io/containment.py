"""Containment of HDF5 files: a file that reads anything outside its own folder is refused.

A dataset may be made of others (virtual datasets), lie in raw files (external storage), stand behind a link into
another file, and have dimension scales of which the same is true. HDF5 follows all of these without a word, to any
depth. It also loads a library of its folder of plug-ins where a dataset names a filter that it does not have itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import h5py

from simjax.errors import InputOutputError, SimjaxError
from simjax.io.memory import require_memory

PARTS_OF_A_CHUNK = 4
"""Copies of a chunk that are held while it is read: as it lies there, and between its filters."""
MAXIMUM_LINKS = 20
MAXIMUM_HOPS = 8
MAXIMUM_SOURCES = 1_000_000
FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}
"""Filters that HDF5 and h5py have themselves, by their numbers."""

_Place = tuple[Path, str]  # a file, and a dataset in it


def require_contained(path: Path, variable: str | None = None) -> None:
    """Refuse an HDF5 file that takes values from outside its folder.

    Args:
        path: the file. A link in the place of the file must lead to a file of the same folder.
        variable: the dataset to be read; without it all datasets and links of the file, and of the files that it
            names, are looked at.

    Raises:
        InputOutputError: a source of any level lies outside the folder, is missing, damaged or a link into another
            file, needs a plug-in of HDF5, or sources are nested without end; the sentence names the source.
        ResourceError: it has chunks that do not fit into memory.
    """
    path = Path(path)
    try:
        _Sources(path.parent.resolve(), whole=variable is None).gather(path, variable or "")
    except SimjaxError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, IndexError, SystemError) as error:
        # What h5py was seen to raise on files with flipped bits.
        reason = " ".join(str(error).split())
        raise InputOutputError(f"{path} is damaged ({reason}); bring it back from a copy.") from error


@dataclass
class _Sources:
    """The datasets that a dataset needs, gathered file by file before anything is read."""

    root: Path
    whole: bool
    needs: dict[_Place, list[_Place]] = field(default_factory=dict)

    def gather(self, path: Path, variable: str) -> None:
        _refuse_outside(path, path, self.root)
        waiting: dict[Path, set[str]] = {path: {variable} if variable else set()}
        searched: set[Path] = set()
        for _ in range(MAXIMUM_HOPS + 1):
            later: dict[Path, set[str]] = {}
            for where, names in waiting.items():
                with _opened(where) as file:
                    if self.whole and where not in searched:
                        searched.add(where)
                        names = names | set(_every_dataset(file, where))
                    for name in names:
                        found = self.needs[where, name] = list(_needed(file, where, name, self.root))
                        for target, source in found:
                            if (target, source) not in self.needs:
                                later.setdefault(target, set()).add(source)
                        if len(self.needs) > MAXIMUM_SOURCES:
                            raise InputOutputError(f"{path} takes its values from over {MAXIMUM_SOURCES} datasets.")
            waiting = {
                where: {name for name in names if (where, name) not in self.needs} for where, names in later.items()
            }
            waiting = {where: names for where, names in waiting.items() if names or where not in searched}
            if not waiting:
                break
        else:
            raise _too_deep(path)
        self._refuse_circles(path)

    def _refuse_circles(self, path: Path) -> None:
        """Sources of sources without end, or so many that reading one value reads millions."""
        counted: dict[_Place, tuple[int, int]] = {}  # datasets read, levels of sources
        open_: set[_Place] = set()

        def count(place: _Place) -> tuple[int, int]:
            if place in counted:
                return counted[place]
            if place in open_ or len(open_) > MAXIMUM_HOPS:
                raise _too_deep(path)
            open_.add(place)
            below = [count(source) for source in self.needs[place]]
            open_.remove(place)
            reads, levels = 1 + sum(n for n, _ in below), max((1 + k for _, k in below), default=0)
            if levels > MAXIMUM_HOPS:
                raise _too_deep(path)
            if reads > MAXIMUM_SOURCES:
                raise InputOutputError(
                    f"{path}: {place[1]!r} reads {reads} datasets; expected at most {MAXIMUM_SOURCES}: copy the values "
                    "into one dataset."
                )
            counted[place] = reads, levels
            return counted[place]

        for place in self.needs:
            count(place)


def _too_deep(path: Path) -> InputOutputError:
    return InputOutputError(
        f"{path} takes its values from datasets that take theirs from others, more than {MAXIMUM_HOPS} times over or "
        "in a circle; expected a file that holds its own values: copy them into it."
    )


def _opened(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        state = "damaged or not HDF5" if path.is_file() else "missing"
        raise InputOutputError(f"{path} is {state} ({error}); bring back the whole folder from a copy.") from error


def _refuse_outside(owner: Path, target: Path, root: Path) -> None:
    """Raises where `target`, which `owner` names, is not in the folder once links are followed."""
    if not target.resolve().is_relative_to(root):
        raise _outside(owner, str(target))


def _outside(owner: Path, source: str) -> InputOutputError:
    return InputOutputError(
        f"{owner} takes values from {source!r}, outside the file's folder; expected a file that holds its own values: "
        "copy them into it."
    )


def _every_dataset(file: h5py.File, path: Path) -> list[str]:
    """Names of all datasets; a link into another file is refused."""

    linked: list[tuple[str, h5py.ExternalLink]] = []  # raised after: HDF5 takes no exception out of a visit

    def look_at(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            linked.append((name, link))

    names: list[str] = []

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(name)

    file.visititems_links(look_at)
    for name, link in linked[:1]:
        raise _linked(path, name, link)
    file.visititems(keep)
    return names


def _linked(path: Path, name: str, link: h5py.ExternalLink) -> InputOutputError:
    return InputOutputError(
        f"{path}: {name!r} is a link into another file, {link.filename!r}, which is not followed; expected a file that "
        "holds its own values: copy them into it."
    )


def _needed(file: h5py.File, path: Path, name: str, root: Path) -> Iterator[_Place]:
    """The datasets that dataset `name` takes values or coordinates from."""
    dataset = _find(file, path, name)
    if dataset is None:
        raise InputOutputError(f"{path} has no dataset {name!r}, of which another one is made; bring it back.")
    _refuse_plugins(dataset, path, name)
    if dataset.chunks is not None:
        require_memory(
            PARTS_OF_A_CHUNK * math.prod(dataset.chunks) * dataset.dtype.itemsize,
            f"a chunk of {name!r} in {path.name}, of shape {dataset.chunks},",
            "write it with smaller chunks",
        )
    if dataset.external:
        raise _outside(path, str(dataset.external[0][0]))
    for source in dataset.virtual_sources() if dataset.is_virtual else ():
        written = PurePosixPath(source.file_name)
        # A "%" stands for numbers that HDF5 fills in later, so for files that are not known yet.
        if written.is_absolute() or ".." in written.parts or "%" in source.file_name + source.dset_name:
            raise _outside(path, source.file_name)
        target = path if source.file_name == "." else path.parent / written
        if not target.is_file():
            raise InputOutputError(
                f"{path.name} needs {source.file_name}, which is missing; bring back the whole folder from a copy."
            )
        _refuse_outside(path, target, root)
        yield target, source.dset_name.strip("/")
    # Not by `values`, which reads labels: HDF5 was seen to abort on a damaged one.
    axes = [dataset.dims[axis] for axis in range(dataset.ndim)]
    for scale in (scales[number] for scales in axes for number in range(len(scales))):
        if scale.name is None:
            raise InputOutputError(f"{path}: an axis of {name!r} has coordinates without a name; write them anew.")
        if scale.name.strip("/") != name:
            yield path, scale.name.strip("/")


def _refuse_plugins(dataset: h5py.Dataset, path: Path, name: str) -> None:
    """Raises where reading a dataset would load a library: its filters are looked up, not used."""
    written = dataset.id.get_create_plist()
    for place in range(written.get_nfilters()):
        number, _, _, about = written.get_filter(place)
        if number not in FILTERS:
            told = about.decode("utf-8", "replace")[:60]
            raise InputOutputError(
                f"{path}: {name!r} is written with filter {number} ({told or 'without a name'}), for which HDF5 would "
                f"load a plug-in; expected {', '.join(FILTERS.values())}: write it anew, as by h5repack -f GZIP=4."
            )


def _find(file: h5py.File, path: Path, name: str) -> h5py.Dataset | None:
    """The dataset behind a name, link by link."""
    here: Any = file
    parts, links = [part for part in name.split("/") if part], 0
    while parts:
        part = parts.pop(0)
        link = here.get(part, getlink=True) if isinstance(here, h5py.Group) else None
        if isinstance(link, h5py.ExternalLink):
            raise _linked(path, name, link)
        if isinstance(link, h5py.SoftLink):
            links += 1
            if links > MAXIMUM_LINKS:
                raise _too_deep(path)
            here = file if link.path.startswith("/") else here
            parts = [step for step in link.path.split("/") if step] + parts
            continue
        if link is None:
            return None
        here = here[part]
    return here if isinstance(here, h5py.Dataset) else None
