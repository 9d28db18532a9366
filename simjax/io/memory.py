"""The memory that an input needs, compared with the machine's before any is allocated."""

from __future__ import annotations

import os
from pathlib import Path

from simjax.errors import ResourceError

BYTES_PER_BYTE_OF_TEXT = 16
"""Memory to read a byte of a text, or of triangles: lines become objects of words and numbers."""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def host_memory() -> int:
    """Bytes of memory that this machine, or the container that it stands for, has in all."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in _CGROUP_LIMITS:
        try:
            most = min(most, int(Path(name).read_text()))
        except (OSError, ValueError):  # no such file, or the word "max"
            continue
    return most


def require_memory(needed: float, what: str, advice: str, *, share: float = 0.5) -> None:
    """Raises ResourceError where `what` needs more than its `share` of the machine's memory.

    Args:
        needed: bytes, estimated from counts or declared shapes.
        what: the beginning of the sentence, such as "1000000000000 particles".
        advice: what to write instead.
        share: of the memory; the rest is for the run itself.
    """
    most = share * host_memory()
    if needed > most:
        raise ResourceError(
            f"{what} would need about {needed / 2**30:.3g} GiB of memory to set up; at most {most / 2**30:.3g} GiB, "
            f"{share:.0%} of this machine's, are used for it: {advice}."
        )


def require_memory_for_text(path: Path) -> None:
    """Raises ResourceError where a text, or a surface of triangles, is too large to be read whole."""
    size = path.stat().st_size
    require_memory(size * BYTES_PER_BYTE_OF_TEXT, f"{path.name}, of {size / 2**20:.0f} MiB,", "write a smaller file")
