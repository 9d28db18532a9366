"""The section `storage`: the format in which fields are kept between steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simjax.schema.kinds import Choice, Table, key

STORAGE = ("bfloat16", "float16")


@dataclass(frozen=True)
class StorageConfig:
    """16-bit fields between steps, as deviations from a uniform state; see `integrators.storage.Stored`."""

    dtype: str = key(Choice(STORAGE), about="type of fields between steps")
    rest: Mapping[str, Any] = key(
        Table("initial fields with numbers"), None, about="uniform state that is taken off first; left out: zero"
    )
