"""Segments of a run's frames: what the file over them records, and whether they are still what was written.

The file over all frames has a group `segments`: of each segment the frames that are shown, the bytes of its file and
their SHA-256. Every dataset of a segment has Fletcher's checksum besides, so that HDF5 refuses to read a flipped bit.
Where several processes write, a chunk of frames is several segments, each with a part of every variable.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from simjax.errors import InputOutputError
from simjax.io.containment import require_contained
from simjax.io.files import fingerprint

SEGMENT_FOLDER = "data"
TABLE = "segments"
RUN_ID = "simjax_run_id"
ADVICE = "bring it back from a copy, or run again in another folder"


Ranges = Mapping[str, tuple[int, int]]
"""First index and one past the last along each dimension that is cut; whole along the others."""


@dataclass(frozen=True)
class Part:
    """The part of every variable that goes into segments of its own. number: its own among those of all processes."""

    number: int
    ranges: Ranges


WHOLE = Part(0, {})


def ranges_told(told: Mapping[str, Sequence[int]]) -> Ranges:
    """Index ranges received from another process."""
    return {dim: (first, last) for dim, (first, last) in told.items()}


def segment_name(chunk: int, stem: str = "fields", part: int = 0) -> str:
    """The path of a segment, relative to the run's folder."""
    return f"{SEGMENT_FOLDER}/{stem}.p{part:05d}.s{chunk:06d}.h5"


@dataclass(frozen=True)
class Segment:
    """A file with some frames of a part. name: relative to the run's folder. frames: those that are shown, the first
    ones in it. chunk: the number of the stretch of frames. size, sha256: of the file."""

    name: str
    frames: int
    size: int
    sha256: str
    chunk: int
    part: int = 0
    ranges: Ranges = field(default_factory=dict)


def chunks_of(segments: Iterable[Segment]) -> list[tuple[int, int, list[Segment]]]:
    """Stretches of frames in their order: the first frame, how many, and their segments by part."""
    found, start = [], 0
    for _, group in itertools.groupby(sorted(segments, key=lambda s: (s.chunk, s.part)), lambda s: s.chunk):
        own = list(group)
        found.append((start, own[0].frames, own))
        start += own[0].frames
    return found


def write_table(file: h5py.File, segments: Sequence[Segment]) -> None:
    """Records the segments in the file over them."""
    group = file.create_group(TABLE, track_order=True)
    scale = group.create_dataset("segment", data=np.arange(len(segments), dtype="i4"))
    byte = group.create_dataset("byte", data=np.arange(32, dtype="i4"))
    scale.make_scale("segment")
    byte.make_scale("byte")
    digests = [list(bytes.fromhex(s.sha256)) or [0] * 32 for s in segments]
    columns = {
        "frames": np.asarray([s.frames for s in segments], "i8"),
        "size": np.asarray([s.size for s in segments], "i8"),
        "sha256": np.asarray(digests, "u1").reshape(len(segments), 32),
    }
    if any(s.ranges for s in segments):
        columns |= {name: np.asarray([getattr(s, name) for s in segments], "i4") for name in ("chunk", "part")}
        # As text, since segments of a run that went on with other processes are cut along other dimensions.
        group.attrs["ranges"] = json.dumps([s.ranges for s in segments])
    for name, values in columns.items():
        dataset = group.create_dataset(name, data=values)
        for axis, along in enumerate((scale, byte)[: values.ndim]):
            dataset.dims[axis].attach_scale(along)


def read_table(file: h5py.File, stem: str) -> list[Segment]:
    """The segments that a file over them records; none where it holds its own values."""
    group = file.get(TABLE)
    if not isinstance(group, h5py.Group):
        return []
    frames, sizes, digests = (np.asarray(group[name]) for name in ("frames", "size", "sha256"))
    count = len(frames)
    chunks, parts, ranges = np.arange(count), np.zeros(count, int), [{}] * count
    if "ranges" in group.attrs:
        chunks, parts = np.asarray(group["chunk"]), np.asarray(group["part"])
        ranges = [
            {dim: (int(a), int(b)) for dim, (a, b) in own.items()}
            for own in json.loads(str(_plain(group.attrs["ranges"])))
        ]
    return [
        Segment(
            segment_name(int(chunks[i]), stem, int(parts[i])),
            int(frames[i]),
            int(sizes[i]),
            bytes(digests[i]).hex(),
            int(chunks[i]),
            int(parts[i]),
            ranges[i],
        )
        for i in range(count)
    ]


def is_plain(master: Path) -> bool:
    """Tell whether a file over all frames holds its own values."""
    with h5py.File(master, "r") as file:
        return int(np.asarray(file.attrs["simjax_segments"])) == 0


def read_master(
    master: Path, stem: str, step_path: Callable[[h5py.File], str]
) -> tuple[object, list[Segment], np.ndarray]:
    """The run that the file over all frames belongs to, its segments (none where it is plain), and the frames' steps.

    Raises:
        InputOutputError: it is missing or damaged, or does not record every segment.
    """
    if not master.is_file():
        raise InputOutputError(f"{master} is missing; {ADVICE}.")
    try:
        with h5py.File(master, "r") as file:
            count = int(np.asarray(file.attrs["simjax_segments"]))
            owner, table = _plain(file.attrs.get(RUN_ID)), read_table(file, stem)
            steps = np.asarray(file[step_path(file)])
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise InputOutputError(f"{master} is damaged ({_first_line(error)}); {ADVICE}.") from error
    if len(table) != count or (count and sum(frames for _, frames, _ in chunks_of(table)) != len(steps)):
        raise InputOutputError(
            f"{master} records {len(table)} segments where {count} with {len(steps)} frames were written; {ADVICE}."
        )
    return owner, table, steps


def require_intact(
    folder: Path,
    segments: Sequence[Segment],
    owner: object,
    steps: Sequence[np.ndarray] = (),
    *,
    grows: bool = False,
    thorough: bool = True,
) -> None:
    """Raises InputOutputError, with all that is wrong with segments that begin with `steps`.

    grows: whether the last ones are the last of the run. thorough: as of `segment_problem`.
    """
    problems = []
    for index, segment in enumerate(segments):
        own = steps[index] if steps else np.zeros(0, "i8")
        last = grows and segment.chunk == segments[-1].chunk
        problems.append(segment_problem(folder, segment, own, owner, last=last, thorough=thorough))
    if any(problems):
        raise InputOutputError("; ".join(problem for problem in problems if problem) + ".")


def kept_segments(
    folder: Path,
    table: Sequence[Segment],
    steps: np.ndarray,
    keep_until_step: int,
    owner: object,
    *,
    thorough: bool = True,
) -> list[tuple[Segment, np.ndarray]]:
    """The segments that have a frame up to a step, each with the steps of its frames, once they are known to be intact.

    Raises InputOutputError, with all that is wrong with them. thorough: as of `segment_problem`.
    """
    kept = []
    for start, frames, segments in chunks_of(table):
        own = steps[start : start + frames]
        if own[0] > keep_until_step:
            break
        kept += [(segment, own) for segment in segments]
    grows = len(kept) == len(table)
    own = [own for _, own in kept]
    require_intact(folder, [segment for segment, _ in kept], owner, own, grows=grows, thorough=thorough)
    return kept


def pieces_of(segments: Sequence[tuple[Path, int]]) -> Iterator[tuple[int, int, Mapping]]:
    """(first frame, frames, file) of segments given by their paths and frames."""
    start = 0
    for segment, frames in segments:
        with h5py.File(segment, "r") as file:
            yield start, frames, file
        start += frames


def segment_problem(
    folder: Path, segment: Segment, steps: np.ndarray, run_id: object, *, last: bool, thorough: bool
) -> str | None:
    """Describe the fault of a segment in a sentence that names it; None if it is whole.

    The last segment grows: it is replaced by a file that begins with the same frames, a moment before the file over it.

    Args:
        steps: those of the frames that it should begin with.
        run_id: that of the run.
        last: whether it is the last one.
        thorough: read all of it, rather than its size, its steps and the run that it names.
    """
    path = folder / segment.name
    if not path.is_file():
        return f"{path} is missing; {ADVICE}"
    try:
        require_contained(path)
        with h5py.File(path, "r") as file:
            found, owner = np.asarray(file["step"]), _plain(file.attrs.get(RUN_ID))
    except InputOutputError as error:
        return str(error).removesuffix(".")
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        return f"{path} is damaged ({_first_line(error)}); {ADVICE}"
    if owner != run_id:
        return f"{path} belongs to another run, {owner}; expected a segment of {run_id}: {ADVICE}"
    if not np.array_equal(found[: len(steps)], steps):
        return f"{path} does not hold the {len(steps)} frames that were written to it; {ADVICE}"
    replaced = last and len(found) > segment.frames
    size = path.stat().st_size
    if not replaced and size != segment.size:
        return f"{path} has {size} bytes where {segment.size} were written; {ADVICE}"
    if not thorough:
        return None
    if not replaced and fingerprint(path)[1] != segment.sha256:
        return f"{path} has changed since it was written (its checksum differs); {ADVICE}"
    return unreadable(path) if replaced else None


def unreadable(path: Path) -> str | None:
    """Name, in a sentence, the dataset of a file that cannot be read by its checksums; None if all can."""
    name = "its list of datasets"
    try:
        with h5py.File(path, "r") as file:
            datasets: list[str] = []
            file.visititems(lambda name, item: datasets.append(name) if isinstance(item, h5py.Dataset) else None)
            for name in datasets:
                _read_through(file[name])
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        return f"{path}: {name} is damaged ({_first_line(error)}); {ADVICE}"
    return None


def _read_through(dataset) -> None:
    """Reads a dataset piece by piece; of one that lies in other files nothing."""
    if dataset.is_virtual:
        return
    if dataset.chunks is None or dataset.size == 0:
        np.asarray(dataset)
        return
    for chunk in dataset.iter_chunks():
        dataset[chunk]


def _plain(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())
