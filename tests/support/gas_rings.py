"""A steady vortex of a gas between two round walls, and which cells of a model of a gas lie in the gas."""

import math

import jax.numpy as jnp
import numpy as np
from gas_runs import PERIODIC, centers, run, seen, start

from simjax.models.flow.bodies.solids import Solid

BOX = (-2.4, -2.4), (2.4, 2.4)


def fluid(model):
    return np.asarray(model.bodies.fluid(model.domain, jnp.zeros(()).dtype))


def vortex(model, mach):
    """A steady flow in circles between walls of radius 1 and 2 (Aftosmis, Gaitonde and Tavares 1994)."""
    x, y = centers(model)
    r = jnp.clip(jnp.hypot(x, y), 0.9, 2.2)
    density = (1 + 0.2 * mach**2 * (1 - 1 / r**2)) ** 2.5
    return density, [mach * y / r**2, -mach * x / r**2], density**1.4 / 1.4


def around_a_ring(gas, cells, scheme, mach=2.25, end=0.1):
    """Mean and largest error of pressure in the vortex after a time, of the model of `gas`, as of `gas_runs.gas`."""
    between = Solid(lambda t, x, y: jnp.minimum(jnp.hypot(x, y) - 1, 2 - jnp.hypot(x, y)))
    model = gas((cells, cells), [PERIODIC] * 2, scheme, *BOX, solid=between)
    exact = vortex(model, mach)
    pressure = seen(model, run(model, start(model, *exact), end, quick=False))[2]
    error = np.abs(np.asarray(pressure - exact[2]))[fluid(model)]
    return error.mean(), error.max()


def orders_around_a_ring(gas, scheme):
    """Orders of the mean and the largest error from 48 to 96 cells along an axis.

    The largest error is that of single ghost cells, whose places differ between grids: ask less of its order.
    """
    coarse, fine = (around_a_ring(gas, cells, scheme) for cells in (48, 96))
    return [math.log2(a / b) for a, b in zip(coarse, fine, strict=True)]
