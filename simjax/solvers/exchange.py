"""An axis of a decomposed field made whole: the exchange between devices, and a transform beside it.

One `all_to_all` where it is fast. On TPUs it is a single synchronous instruction, so there the same data travel in
pieces, by permutes that compile to asynchronous pairs, and a field in batches: one is transformed while the next one
travels.
"""

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array, lax

from simjax.jaxpr.platform import platform

Transform = Callable[[Array], Array]

# More batches hide more of the exchange, all but the first one's, and send smaller messages.
BATCHES = 2
# A link carries this much in the microsecond that a message takes to start (45 GB/s on a TPU v5e).
LEAST_MESSAGE = 1 << 16


def exchange(u: Array, names: Sequence[str], *, split: int, concatenate: int) -> Array:
    """Hand the mesh axes `names` from array axis `concatenate` of `u`, which becomes whole, to array axis `split`.

    `lax.all_to_all`, or the same in pieces on TPUs; the same bits. Axes may be counted from the last.
    """
    split, concatenate = split % u.ndim, concatenate % u.ndim
    if platform() != "tpu":
        return lax.all_to_all(u, tuple(names), split, concatenate, tiled=True)
    return _in_pieces(u, names, split, concatenate)


def exchange_then(transform: Transform, u: Array, names: Sequence[str], *, split: int, concatenate: int) -> Array:
    """`transform` of the exchanged field, along any axis but `split`: on TPUs in batches of lines along `split`."""
    split, concatenate = split % u.ndim, concatenate % u.ndim
    count = blocks(names)
    parts = []
    for batch in _batches(u, split, count):
        parts.append(transform(exchange(batch, names, split=split, concatenate=concatenate)))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=split)


def then_exchange(transform: Transform, u: Array, names: Sequence[str], *, split: int, concatenate: int) -> Array:
    """The exchange of `transform` of a field, along any axis but `concatenate`: the inverse of `exchange_then`."""
    split, concatenate = split % u.ndim, concatenate % u.ndim
    count = blocks(names)
    batches = _batches(u, concatenate, 1, count)
    parts = [exchange(transform(batch), names, split=split, concatenate=concatenate) for batch in batches]
    if len(parts) == 1:
        return parts[0]
    # Each holds a part of what every device has sent.
    apart = [_reshaped(part, concatenate, (count, -1)) for part in parts]
    return _reshaped(jnp.concatenate(apart, axis=concatenate + 1), concatenate, (-1,), axes=2)


def blocks(names: Sequence[str]) -> int:
    """Number of blocks into which the mesh axes `names` cut an axis."""
    return math.prod(lax.axis_size(name) for name in names)


def block_index(names: Sequence[str]) -> Array | int:
    """This device's number among the blocks into which the mesh axes `names` cut an axis."""
    return lax.axis_index(tuple(names)) if names else 0


def swap(u: Array, name: str) -> Array:
    """Entry k of the first axis, as long as mesh axis `name`, sent to device k; entry k is what device k has sent.

    Device i has a piece for each device i + s, with shifts s from -(p - 1) / 2 to p / 2. Messages hop 1, 2, 4, ...
    devices, upwards or downwards, and a piece takes those that add up to its shift. So it passes as many links as on
    the shortest way, and all permutes are asynchronous, where TPUs have no asynchronous one of another distance (v5e,
    jax 0.10): 7 instead of 15 permutes along 16 devices, 3 along 4.
    """
    count, here = lax.axis_size(name), lax.axis_index(name)
    shifts = [s if s <= count // 2 else s - count for s in range(1, count)]
    pieces = {s: lax.dynamic_index_in_dim(u, (here + s) % count, 0, keepdims=False) for s in shifts}
    # Long hops first: pieces of short shifts can still be in the making.
    for hop in [1 << k for k in reversed(range((count // 2).bit_length()))]:
        for sign in (1, -1):
            moving = [s for s in shifts if s * sign > 0 and abs(s) & hop]
            if moving:
                message = jnp.stack([pieces[s] for s in moving])
                links = [(k, (k + sign * hop) % count) for k in range(count)]
                pieces |= dict(zip(moving, lax.ppermute(message, name, links), strict=True))
    # What device i keeps is in its place already.
    for s in shifts:
        u = lax.dynamic_update_index_in_dim(u, pieces[s], (here - s) % count, 0)
    return u


def _in_pieces(u: Array, names: Sequence[str], split: int, concatenate: int) -> Array:
    """One mesh axis after the other, so that pieces stay within a ring of devices."""
    sizes = [lax.axis_size(name) for name in names]
    lines = u.shape[split] // math.prod(sizes)
    u = _reshaped(u, split, (*sizes, lines))
    u = jnp.moveaxis(u, [split + k for k in range(len(names))], [*range(len(names))])
    for k, name in enumerate(names):
        u = jnp.moveaxis(swap(jnp.moveaxis(u, k, 0), name), 0, k)
    u = jnp.moveaxis(u, [*range(len(names))], [concatenate + k for k in range(len(names))])
    return _reshaped(u, concatenate, (-1,), axes=len(names) + 1)


def _batches(u: Array, axis: int, outer: int, count: int = 1) -> list[Array]:
    """`u` in batches of lines along `axis`, a share of each of its `outer` pieces in every one."""
    if platform() != "tpu":
        return [u]
    lines = u.shape[axis] // outer
    message = u.size * u.dtype.itemsize // max(outer, count)
    number = math.gcd(lines, BATCHES)
    while number > 1 and message < number * LEAST_MESSAGE:
        number //= 2
    if number == 1:
        return [u]
    apart = _reshaped(u, axis, (outer, number, lines // number))
    return [_reshaped(lax.index_in_dim(apart, k, axis + 1, keepdims=False), axis, (-1,), axes=2) for k in range(number)]


def _reshaped(u: Array, axis: int, shape: Sequence[int], axes: int = 1) -> Array:
    """`u` with `axes` of its axes, from `axis` on, in the place of which are those of `shape`."""
    return u.reshape(*u.shape[:axis], *shape, *u.shape[axis + axes :])
