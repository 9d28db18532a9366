"""Values of face fields for files: on upper wall faces, which no cell stores, and at cell centres."""

import itertools
from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array, lax

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.core.model import GridModel, Output
from simjax.grid import CENTER, FACE
from simjax.ops import staggered


def output_layouts(model: GridModel) -> dict[str, FieldLayout]:
    """Layouts of the outputs that are components of initial fields, by the outputs' names."""
    found, outputs = {}, model.outputs()
    for field, layouts in model.component_layouts().items():
        components = {output.component: output.name for output in outputs if output.vector == field}
        single = any(output.name == field for output in outputs)
        names = [field] if single else [components.get(k, f"{field}_{k}") for k in range(len(layouts))]
        found |= dict(zip(names, layouts, strict=True))
    return found


def walled_faces(output: Output, layout: FieldLayout) -> tuple[int, ...]:
    """Axes along which an output lies on faces and has walls: there it has one face more than cells."""
    return tuple(a for a, offset in enumerate(output.offset) if offset == FACE and not layout.is_periodic(a))


def upper_faces(domain: Domain, u: Array, layout: FieldLayout, axes: tuple[int, ...], free: Array | None, t) -> dict:
    """Values on the upper wall faces of `axes`: a tuple of some of these axes -> the lines beyond their upper ends.

    Each block gives the lines beyond its own end, one line along these axes; those of the last block are on the wall.
    free: as of `GridModel.free_faces`.
    """
    padded = domain.pad(u, layout, 1, t)
    pieces = {}
    for beyond in subsets(axes):
        piece = padded
        for axis in range(domain.grid.ndim):
            where = u.ndim + axis - domain.grid.ndim
            n = u.shape[where]
            start, stop = (n + 1, n + 2) if axis in beyond else (1, n + 1)
            piece = lax.slice_in_dim(piece, start, stop, axis=where)
        if free is not None and len(beyond) == 1:
            where = u.ndim + beyond[0] - domain.grid.ndim
            piece = lax.slice_in_dim(free, u.shape[where] - 1, u.shape[where], axis=where)
        pieces[beyond] = piece
    return pieces


def subsets(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Non-empty subsets of the axes."""
    return [chosen for count in range(1, len(axes) + 1) for chosen in itertools.combinations(axes, count)]


def at_centers(domain: Domain, u: Array, layout: FieldLayout, free: Array | None, t) -> Array:
    """A field averaged from its faces, those on walls among them, to cell centres: second order."""
    place = (CENTER,) * domain.grid.ndim
    if layout.offset == place:
        return u
    centred = domain.apply(lambda padded: staggered.mean_at(padded, layout.offset, place), u, layout, 1, t)
    if free is None:
        return centred
    axis = layout.offset.index(FACE)
    beyond = upper_faces(domain, u, layout, (axis,), None, t)[axis,]  # what the mean took for them
    return centred + 0.5 * (free - as_last_line(domain, beyond, axis))


def as_last_line(domain: Domain, line: Array, axis: int) -> Array:
    """A field of this block that is zero but for `line`, in the last line of the whole grid along an axis."""
    n, where = domain.block_shape[axis], line.ndim + axis - domain.grid.ndim
    last = domain.block_index(axis) == domain.grid.shape[axis] // n - 1
    sizes = [(n - 1 if k == where else 0, 0) for k in range(line.ndim)]
    return jnp.pad(jnp.where(last, line, jnp.zeros_like(line)), sizes)


def centered_components(
    model: GridModel, fields: Mapping[str, Array], free: Mapping[str, Array], names: tuple[str, ...], t
) -> tuple[Array, ...]:
    """Some of a model's observed fields at cell centres."""
    layouts = output_layouts(model)
    return tuple(
        at_centers(model.domain, fields[name], layouts[name], free.get(name), t) if name in layouts else fields[name]
        for name in names
    )


def magnitude(components: tuple[Array, ...]) -> Array:
    """The length of a vector."""
    return jnp.sqrt(sum(u * u for u in components))
