"""Lines of cells that devices send to their neighbours."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax

from simjax.grid import LOWER, UPPER

Links = list[tuple[int, int]]


def exchanged(
    first: list[Array],
    last: list[Array],
    axis: int,
    split: tuple[str, int],
    periodic: bool,
    read: Sequence[tuple[int, int]],
) -> tuple[list[Array], list[Array]]:
    """The lower neighbour's last lines and the upper neighbour's first lines of several fields, in two messages.

    Args:
        first, last: lines at the ends of this device's blocks, as many as a stencil's width along `axis`.
        split: mesh axis, and number of devices along it. periodic: whether the last has the first beyond it.
        read: of each field, how many of the lines below and above are read. No others are sent, and a message without
            any is not either: in their place are lines of this device.
    """
    name, count = split
    upwards = [(k, (k + 1) % count) for k in range(count if periodic else count - 1)]
    downwards = [(upper, lower) for lower, upper in upwards]
    below = _received(last, axis, name, upwards, [lower for lower, _ in read], LOWER)
    return below, _received(first, axis, name, downwards, [upper for _, upper in read], UPPER)


def _received(own: list[Array], axis: int, name: str, links: Links, counts: Sequence[int], side: int) -> list[Array]:
    """Lines from the neighbour at a side, next to this device's block, with own ones beyond."""
    sent = [k for k, count in enumerate(counts) if count]

    def parts(k: int) -> tuple[Array, Array]:
        """Lines to be sent, and the rest."""
        u, width, count = own[k], own[k].shape[axis], counts[k]
        at = width - count if side == LOWER else count
        before, after = lax.slice_in_dim(u, 0, at, axis=axis), lax.slice_in_dim(u, at, width, axis=axis)
        return (after, before) if side == LOWER else (before, after)

    result, cut = list(own), {k: parts(k) for k in sent}
    for k, lines in zip(sent, _permute([cut[k][0] for k in sent], name, links), strict=True):
        rest = cut[k][1]
        joined = [rest, lines] if side == LOWER else [lines, rest]
        result[k] = jnp.concatenate(joined, axis=axis) if rest.shape[axis] else lines
    return result


def _permute(slabs: list[Array], name: str, links: Links) -> list[Array]:
    """Send this device's slabs along `links`, one message per dtype; devices that nobody sends to receive zeros."""
    received = list(slabs)
    for dtype in dict.fromkeys(slab.dtype for slab in slabs):
        alike = [k for k, slab in enumerate(slabs) if slab.dtype == dtype]
        for k, slab in zip(alike, _permute_alike([slabs[k] for k in alike], name, links), strict=True):
            received[k] = slab
    return received


def _permute_alike(slabs: list[Array], name: str, links: Links) -> list[Array]:
    """Send arrays as one flat message: on a TPU lines of one cell along the last axis would be sent as 128."""
    message = lax.ppermute(jnp.concatenate([slab.ravel() for slab in slabs]), name, links)
    received, start = [], 0
    for slab in slabs:
        received.append(lax.slice_in_dim(message, start, start + slab.size).reshape(slab.shape))
        start += slab.size
    return received
