"""Places and widths of cells along a stretched axis, with those of ghost cells beyond its ends.

Beyond a wall lies the mirror image of the cells in front of it, beyond a periodic side the other end of the axis.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.jaxpr.jaxpr_table import table

Places = np.ndarray | Array
"""Values along one axis: known on the host, or traced."""


def widths_around(faces: Places, ghosts: int, periodic: bool) -> Places:
    """The widths of n cells with `faces`, and of `ghosts` cells beyond both ends: (n + 2 ghosts,)."""
    widths = faces[1:] - faces[:-1]
    n = widths.shape[0]
    first, last = widths[:ghosts], widths[n - ghosts :]
    parts = (last, widths, first) if periodic else (first[::-1], widths, last[::-1])
    return _module(faces).concatenate(parts)


def places_around(places: Places, faces: Places, ghosts: int, periodic: bool) -> Places:
    """`places` of n cells, those of lower faces or of centres, and of `ghosts` cells beyond both ends."""
    n = faces.shape[0] - 1
    lower, upper = faces[0], faces[-1]
    if periodic:
        length = upper - lower
        parts = (places[n - ghosts :] - length, places, places[:ghosts] + length)
        return _module(faces).concatenate(parts)
    # Lower faces below a wall are the images of those from the second on; beyond the upper wall it comes first.
    on_faces = places is faces
    places = faces[:-1] if on_faces else places
    below = faces[1 : ghosts + 1] if on_faces else places[:ghosts]
    above = faces[n - ghosts + 1 :] if on_faces else places[n - ghosts :]
    return _module(faces).concatenate((2 * lower - below[::-1], places, 2 * upper - above[::-1]))


def image_distances(faces: Places, side: int, count: int, on_face: bool) -> Places:
    """Distances of the first `count` ghosts from their images inside, over those of a uniform axis in spacings.

    That is 2 i + 1 of ghost i at cell centres, and 2 i + 2 on faces where the wall's own is not counted.
    """
    wall = faces[side and faces.shape[0] - 1]
    inwards = (wall - faces[::-1]) if side else (faces - wall)
    inwards = inwards[: count + 1]
    number = np.arange(count, dtype=faces.dtype)
    return inwards[1:] / (number + 1) if on_face else (inwards[1:] + inwards[:-1]) / (2 * number + 1)


def as_array(places: Places, dtype) -> Array:
    """Make an array of the places on the axis, in a program of this `dtype`."""
    return places.astype(dtype) if isinstance(places, jax.Array) else table(np.asarray(places, dtype))


def _module(places: Places):
    return jnp if isinstance(places, jax.Array) else np
