"""Device meshes, the only `shard_map`, and arrays between the host and devices, which may belong to other processes."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from simjax.arguments import require_function, require_kind
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError, ResourceError
from simjax.grid import AXES, Grid

ENSEMBLE = "ensemble"

Bounds = tuple[tuple[int, int], ...]
"""First index and one past the last, along each axis of an array."""

# On these chips a periodic ring of eight or more compiles to synchronous permutes unless neighbours along the
# ring are at most two links apart: the line is folded.
_FOLDED_KINDS = ("TPU v5 lite", "TPU v5e")
# A whole pod of 16 x 16 closes its rings by links of its own.
_WHOLE_POD = 256


def make_mesh(sizes: Mapping[str, int], devices: Sequence | None = None) -> Mesh | None:
    """A device mesh with the axes of `sizes` longer than one, in their order; None if there are none.

    Neighbours along the last axis are on devices that follow each other: `{"y": 4, "x": 2}` puts those along x there.

    Raises:
        ResourceError: more devices are asked for than there are.

    Examples:
        >>> dict(sj.make_mesh({"x": 2, "y": 1}).shape)
        {'x': 2}
        >>> sj.make_mesh({"x": 1}) is None
        True
    """
    require_kind("make_mesh: sizes", sizes, Mapping, "devices by mesh axis, such as {'x': 2, 'y': 1}")
    order = [name for name, size in sizes.items() if size > 1]
    unknown = set(sizes) - {ENSEMBLE, *AXES}
    if unknown:
        raise ConfigurationError(f"mesh axis {sorted(unknown)[0]!r} is unknown; write ensemble, x, y or z.")
    if not order:
        return None
    shape = tuple(sizes[name] for name in order)
    devices = jax.devices() if devices is None else list(devices)
    if math.prod(shape) > len(devices):
        raise ResourceError(
            f"mesh {dict(zip(order, shape, strict=True))} needs {math.prod(shape)} devices, {len(devices)} are "
            f"present; choose sizes whose product is at most {len(devices)}."
        )
    grid = _arranged(devices[: math.prod(shape)], shape)
    return Mesh(grid, tuple(order), axis_types=(AxisType.Auto,) * len(order))


def _arranged(devices: Sequence, shape: tuple[int, ...]) -> np.ndarray:
    """Devices as an array of `shape`; on TPUs neighbours in it are neighbours on the torus, where that can be."""
    if devices[0].platform != "tpu":
        return np.asarray(devices, dtype=object).reshape(shape)
    places = np.array([device.coords for device in devices])
    extents = np.ptp(places, axis=0) + 1
    if math.prod(extents) != len(devices):  # a part of a slice, or several devices on a chip
        return np.asarray(devices, dtype=object).reshape(shape)
    lengths = [int(n) for n in extents if n > 1]
    if sorted(lengths) != sorted(shape):
        return mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    grid = np.empty(len(devices), dtype=object)
    grid[:] = [devices[number] for number in np.lexsort(places.T[::-1])]
    grid = grid.reshape(lengths).transpose(_axes_of(lengths, shape))
    if devices[0].device_kind in _FOLDED_KINDS and grid.size < _WHOLE_POD:
        for axis, count in enumerate(shape):
            grid = np.take(grid, folded_ring(count), axis=axis) if count >= 8 else grid
    return grid


def _axes_of(lengths: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Axes of the torus, of these lengths, that become the axes of a mesh of `shape`, which has the same lengths."""
    left, found = list(range(len(lengths))), []
    for length in shape:
        found.append(next(axis for axis in left if lengths[axis] == length))
        left.remove(found[-1])
    return found


def folded_ring(count: int) -> list[int]:
    """0, 2, 4, ..., 5, 3, 1: an order in which neighbours on the ring are at most two apart on a line."""
    return [*range(0, count, 2), *reversed(range(1, count, 2))]


def _require_mesh(name: str, mesh: Mesh | None) -> None:
    """Raises ConfigurationError for what is no mesh of devices."""
    expected = "a mesh of devices or None; write make_mesh({'x': 2})"
    require_kind(f"{name}: mesh", mesh, (Mesh, AbstractMesh, type(None)), expected)


def decompose(grid: Grid, mesh: Mesh | None, **options) -> Domain:
    """The domain that cuts `grid` over the mesh axes named like its spatial axes; `options` as `Domain` takes them.

    Raises:
        ConfigurationError: the cells along an axis cannot be divided among its devices.

    Examples:
        >>> mesh = sj.make_mesh({"x": 2})
        >>> sj.decompose(sj.Grid((16, 16)), mesh).block_shape  # cells of one device
        (8, 16)
    """
    require_kind("decompose: grid", grid, Grid, "a Grid; write Grid((16, 16))")
    _require_mesh("decompose", mesh)
    shape = {} if mesh is None else dict(mesh.shape)
    beyond = [name for name in AXES[grid.ndim :] if name in shape]
    if beyond:
        raise ConfigurationError(f"mesh.{beyond[0]}={shape[beyond[0]]} but the grid has {grid.ndim} axes; set it to 1.")
    split = [(name, shape[name]) if name in shape else None for name in AXES[: grid.ndim]]
    return Domain(grid, split, **options)


def distribute(fn: Callable, mesh: Mesh | None, *, in_specs, out_specs, donate: Sequence[int] = ()) -> Callable:
    """`fn` compiled for one device, or run on every device of `mesh` on its own blocks.

    Args:
        fn: a function of positional arguments; for an ensemble, a function already under `jax.vmap` (the map is
            inside the one `shard_map`, over this device's members).
        mesh: from `make_mesh`; None compiles `fn` as it is.
        in_specs, out_specs: a `PartitionSpec` (or tree of them) per argument and result.
        donate: arguments whose memory the results may take over.


    Examples:
        >>> from jax.sharding import PartitionSpec as P
        >>> mesh = sj.make_mesh({"x": 2})
        >>> domain = sj.decompose(sj.Grid((16,)), mesh)
        >>> total = sj.distribute(domain.sum, mesh, in_specs=P("x"), out_specs=P())
        >>> float(total(jnp.ones(16)))
        16.0
    """
    require_function("distribute: fn", fn, "of arrays")
    _require_mesh("distribute", mesh)
    if mesh is not None:
        fn = jax.shard_map(fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    return jax.jit(fn, donate_argnums=tuple(donate))


def prepend_axis(specs, name: str | None):
    """Specs of the same arrays with one more leading axis, cut over mesh axis `name` (None: not cut)."""
    return jax.tree.map(lambda s: PartitionSpec(name, *s), specs, is_leaf=lambda s: isinstance(s, PartitionSpec))


def shardings(mesh: Mesh | None, specs, device: Any = None):
    """`NamedSharding`s of a tree of specs, or placement on `device`, by default the first, without a mesh."""
    if mesh is None:
        device = jax.sharding.SingleDeviceSharding(device or jax.local_devices()[0])
        return jax.tree.map(lambda _: device, specs, is_leaf=lambda s: isinstance(s, PartitionSpec))
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda s: isinstance(s, PartitionSpec))


def place(values, sharding: jax.sharding.Sharding) -> jax.Array:
    """An array of the host, the same on every process, or one that is on devices, put where `sharding` says."""
    if sharding.is_fully_addressable or isinstance(values, jax.Array) and not values.is_fully_addressable:
        return jax.device_put(values, sharding)
    values = np.asarray(values)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def place_parts(
    read: Callable[[Bounds], np.ndarray], shape: Sequence[int], sharding: jax.sharding.Sharding
) -> jax.Array:
    """An array of which each process makes what its own devices hold, put where `sharding` says.

    read: function that returns the values between bounds; called once for each part, however many devices hold it.
    """
    made: dict[Bounds, np.ndarray] = {}

    def part(index) -> np.ndarray:
        bounds = tuple(one.indices(size)[:2] for one, size in zip(index, shape, strict=True))
        if bounds not in made:
            made[bounds] = read(bounds)
        return made[bounds]

    return jax.make_array_from_callback(tuple(shape), sharding, part)


def whole(array) -> np.ndarray:
    """All values of an array on the host. Of one that is spread over processes all of them call this together."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(array, tiled=True))


def on_first_device(array) -> jax.Array:
    """All values of an array on a device of this process; as `whole`."""
    return jax.device_put(whole(array), jax.local_devices()[0])


def region(array, bounds: Sequence[tuple[int, int]]) -> np.ndarray:
    """The values between `bounds`, first and one past the last along each axis, which are on this process's devices."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return np.asarray(array)[tuple(slice(*one) for one in bounds)]
    result = np.empty([last - first for first, last in bounds], array.dtype)
    for shard in array.addressable_shards:
        there = [part.indices(size)[:2] for part, size in zip(shard.index, array.shape, strict=True)]
        common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(bounds, there, strict=True)]
        if all(first < last for first, last in common):
            to = tuple(slice(a - o, b - o) for (a, b), (o, _) in zip(common, bounds, strict=True))
            of = tuple(slice(a - o, b - o) for (a, b), (o, _) in zip(common, there, strict=True))
            result[to] = np.asarray(shard.data[of])
    return result


def first_true(flags) -> tuple[int, list[int]] | None:
    """Count the flags that are set on this process's devices, and find the index of the first of them."""
    found = [(np.argwhere(np.asarray(own)), start) for start, own in _own_blocks(flags)]
    firsts = [(places[0] + start).tolist() for places, start in found if len(places)]
    return (sum(len(places) for places, _ in found), min(firsts)) if firsts else None


def rows_true(flags) -> list[int]:
    """Indices along the first axis at which any flag is set on this process's devices."""
    found = ((np.asarray(own).reshape(len(own), -1).any(axis=1), start[0]) for start, own in _own_blocks(flags))
    return sorted({int(row + first) for own, first in found for row in np.flatnonzero(own)})


def largest(array) -> tuple[float, list[int]]:
    """The largest absolute value of an array on this process's devices, and its index."""
    found = []
    for start, own in _own_blocks(array):
        size = np.abs(np.asarray(own))
        at = np.unravel_index(np.argmax(size), size.shape)
        found.append((float(size[at]), (np.asarray(at, int) + start).tolist()))
    return max(found)


def _own_blocks(array) -> list[tuple[np.ndarray, Any]]:
    """The blocks of an array on this process's devices, each once, with the index at which it begins."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return [(np.zeros(np.ndim(array), int), array)]
    blocks = {
        tuple(part.indices(n)[0] for part, n in zip(s.index, array.shape, strict=True)): s.data
        for s in array.addressable_shards
    }
    return [(np.asarray(start, int), own) for start, own in blocks.items()]
