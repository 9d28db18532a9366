"""The meshes on which a gradient is compared with that of one device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax

from simjax.certificate.certificate import REFERENCE
from simjax.certificate.directions import Unknowns
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.processes import processes
from simjax.schema.config import Config

DEVICES = 8
BLOCKS = (1, 2, 4, 8)


def blocks_of_grid(config: Config) -> list[list[int]]:
    """Numbers of blocks into which each axis of the grid can be cut."""
    return [[n for n in BLOCKS if cells % n == 0] for cells in config.grid_of_fields().shape]


def meshes_to_compare(
    config: Config,
    start: Unknowns,
    function: Callable,
    devices: int | None,
    *,
    blocks: Sequence[Sequence[int]],
    most: int = 1,
) -> tuple[tuple[Mapping[str, int], ...], dict[str, str], list[str]]:
    """Meshes to compare with one device, reasons for meshes left out, and notes.

    blocks: per axis, numbers of blocks into which it can be cut. most: how many meshes of as many devices are wanted.
    """
    own = {name: getattr(config.mesh, name) for name in AXES if getattr(config.mesh, name) > 1}
    if own:
        return (own,), {}, []
    if devices == 1:
        return (), {}, ["on one device only, as was asked for"]
    present = min(jax.device_count(), devices or DEVICES)
    if present == 1:
        return (), {"one device against many": "1 device present; --devices 1 leaves this out"}, []
    refusals: list[str] = []
    found: list[Mapping[str, int]] = []
    for sizes in _candidates(blocks, present):
        count = math.prod(sizes.values())
        if len(found) == most or (found and count < math.prod(found[0].values())):
            break
        try:
            jax.eval_shape(function(sizes, REFERENCE), start)
        except ConfigurationError as error:
            refusals.append(str(error))
        else:
            found.append(sizes)
    if found:
        fewer = math.prod(found[0].values()) < min(DEVICES, devices or DEVICES)
        return tuple(found), {}, ["fewer devices are present or fit the grid than eight"] if fewer else []
    reason = refusals[0] if refusals else f"no axis can be cut into 2, 4 or 8 blocks: {_extent(config)}."
    return (), {}, [f"on one device only, as nothing else can be run: {reason}"]


def _extent(config: Config) -> str:
    if config.grid is not None:
        return f"grid.shape={list(config.grid.shape)}"
    assert config.box is not None
    return f"box.upper={list(config.box.upper)}"


def _candidates(blocks: Sequence[Sequence[int]], present: int) -> Iterator[dict[str, int]]:
    """Sizes of meshes of 8, 4 and 2 devices with these blocks, those first that cut most axes, then most evenly."""
    axes = AXES[: len(blocks)]
    # Every process of several has a part in each program.
    counts = (8, 4, 2) if processes().count == 1 else (present,)
    for count in counts:
        found = (sizes for sizes in itertools.product(*blocks) if math.prod(sizes) == count <= present)
        for sizes in sorted(found, key=lambda sizes: (sizes.count(1), max(sizes), sizes)):
            yield {name: size for name, size in zip(axes, sizes, strict=True) if size > 1}
