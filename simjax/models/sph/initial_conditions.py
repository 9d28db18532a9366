"""Beginnings of flows of smoothed particles: boxes, and particles given one after the other."""

import math
from collections.abc import Iterator, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.models.sph.pair_terms import FLUID, WALL
from simjax.schema.config_errors import raise_first

LAYERS = 4
"""Layers of wall particles: as many spacings as a kernel may reach."""
LARGEST_SHARE = 1e-6
"""Largest distance of a length from a multiple of the spacing, as a share of the spacing."""


class InitialCondition(eqx.Module):
    """Particles in a box.

    lower, upper, periodic: the box, by axis. position, velocity: `(ndim, particles)`; pressure, species (int32):
    `(particles,)`.
    """

    lower: tuple[float, ...] = eqx.field(static=True)
    upper: tuple[float, ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)
    position: Array
    velocity: Array
    pressure: Array
    species: Array


def taylor_green(count: int, length: float, speed: Array, density: Array, scatter: float = 0.2) -> InitialCondition:
    """Vortices in a periodic square of `count`^2 particles: u = U sin kx cos ky, v = -U cos kx sin ky, k = 2 pi / L.

    They decay as exp(-2 k^2 nu t). Taylor and Green (1937), Proc. R. Soc. A 158, 499. Particles are up to `scatter` / 2
    spacings off a lattice, at random: a perfect one is squeezed flat where the flow stagnates before it gives way, and
    that costs a tenth of the velocity.
    """
    points = (np.arange(count) + 0.5) * (length / count)
    lattice = np.stack(np.meshgrid(points, points, indexing="ij")).reshape(2, -1)
    off = np.random.default_rng(0).uniform(-0.5, 0.5, lattice.shape) * (scatter * length / count)
    x, y = jnp.asarray(lattice + off, speed.dtype)
    k = 2 * math.pi / length
    velocity = speed * jnp.stack([jnp.sin(k * x) * jnp.cos(k * y), -jnp.cos(k * x) * jnp.sin(k * y)])
    pressure = density * speed**2 / 4 * (jnp.cos(2 * k * x) + jnp.cos(2 * k * y))
    fluid = jnp.full(x.shape, FLUID, jnp.int32)
    return InitialCondition((0.0, 0.0), (length, length), (True, True), jnp.stack([x, y]), velocity, pressure, fluid)


def tank(
    fluid: Sequence[float],
    size: Sequence[float],
    spacing: float,
    density: Array,
    gravity: Array,
    *,
    lid: bool = False,
    headroom: float = 0.0,
) -> InitialCondition:
    """A block of fluid at rest in the lower corner of a tank with walls, its pressure hydrostatic.

    Args:
        fluid: lengths of the block, whole multiples of `spacing`. With those of the tank, a column at rest; narrower,
            the column of a dam that breaks.
        size: lengths of the tank, whole multiples of `spacing`, inside its walls.
        spacing: of the particles.
        density: of the fluid.
        gravity: `(ndim,)`, along the last axis.
        lid: whether there is a wall above.
        headroom: length of the box above the walls.

    Raises:
        ConfigurationError: a length is not a whole multiple of `spacing`.
    """
    ndim = len(size)
    cells = _counted("box.upper", size, spacing)
    filled = _counted("particles.fluid", fluid, spacing)
    above = [LAYERS] * (ndim - 1) + [LAYERS if lid else 0]
    index = np.stack(
        np.meshgrid(*(np.arange(-LAYERS, n + more) for n, more in zip(cells, above, strict=True)), indexing="ij")
    ).reshape(ndim, -1)
    limits = np.array(cells)[:, None]
    inside = np.all((index >= 0) & (index < limits), axis=0)
    wet = np.all((index >= 0) & (index < np.array(filled)[:, None]), axis=0)
    index, wet = index[:, wet | ~inside], wet[wet | ~inside]
    position = jnp.asarray((index + 0.5) * spacing, density.dtype)
    depth = filled[-1] * spacing - position[-1]
    pressure = jnp.where(jnp.asarray(wet), -density * gravity[-1] * depth, 0)
    species = jnp.where(jnp.asarray(wet), FLUID, WALL).astype(jnp.int32)
    lower = (-LAYERS * spacing,) * ndim
    upper = [(n + more) * spacing for n, more in zip(cells, above, strict=True)]
    upper[-1] += headroom
    return InitialCondition(lower, tuple(upper), (False,) * ndim, position, jnp.zeros_like(position), pressure, species)


def _counted(what: str, lengths: Sequence[float], spacing: float) -> list[int]:
    """Particles along each axis."""
    for axis, length in enumerate(lengths):
        raise_first(multiple_refusals(f"{what}[{axis}]", length, spacing))
    return [round(length / spacing) for length in lengths]


def multiple_refusals(path: str, length: float, spacing: float) -> Iterator[tuple[str, str]]:
    """A sentence on a length, at this key path, that is not one or more spacings of the particles."""
    count = round(length / spacing)
    if abs(count * spacing - length) > LARGEST_SHARE * spacing or not count:
        near = max(1, count) * spacing
        wanted = f"a length that is a multiple of particles.spacing={spacing:g}"
        yield path, f"{path}: expected {wanted}, got {length:g}; write one of {near:g}"
