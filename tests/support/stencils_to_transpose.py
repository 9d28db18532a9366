"""Stencils of every kind, in one tree of arrays and in several."""

import functools

import jax.numpy as jnp
from jax import lax

from simjax.core.boundary import Dirichlet, Neumann, Periodic, center_layout
from simjax.ops.difference import laplacian, shift_by


def nonlinear(ndim, width, viscosity, weights, *fields):
    """Products of displaced reads of all fields, limited, of fluxes formed on faces and differenced."""
    shift = functools.partial(shift_by, width=width)
    result = []
    for k, u in enumerate(fields):
        far = tuple(width if axis == k % ndim else -1 for axis in range(ndim))
        near = tuple(-width if axis == 0 else 0 for axis in range(ndim))
        other = fields[k - 1]
        product = shift(u, far) * jnp.sin(shift(other, near)) + weights[k] * shift(other, (0,) * ndim) ** 2
        limited = jnp.where(shift(u, near) > 0.1, product, jnp.minimum(product, shift(u, (0,) * ndim)))
        faces = u * other, jnp.exp(0.1 * u)
        flux = lax.slice_in_dim(faces[0], 1, None) * lax.slice_in_dim(faces[1], 0, -1)
        start, n = width - 1, u.shape[0] - 2 * width
        difference = lax.slice_in_dim(flux, start + 1, start + 1 + n) - lax.slice_in_dim(flux, start, start + n)
        inner = tuple(slice(None) if axis == 0 else slice(width, m - width) for axis, m in enumerate(u.shape))
        result.append(limited + viscosity * laplacian(u, (0.1,) * ndim, width) + difference[inner])
    return tuple(result)


def components(ndim, width, viscosity, weights, u):
    """Of one array with a leading axis of components: mixed, summed, repeated."""
    shift = functools.partial(shift_by, width=width)
    ahead, here = (shift(u, (by,) + (0,) * (ndim - 1)) for by in (1, 0))
    squares = jnp.sum(ahead * here, axis=0)
    mixed = jnp.stack([here[1] * viscosity, here[0] * squares])
    return mixed * weights.reshape(2, *(1,) * ndim) + jnp.broadcast_to(squares, mixed.shape)


def layout_of(ndim):
    """Walls along the first axis, with slopes that are not zero, and periodic along the others."""
    return center_layout([(Dirichlet(0.3), Neumann(0.2)), *[(Periodic(), Periodic())] * (ndim - 1)])


def mechanical(domain, stencil, fields, layout, width, t=0.0):
    """`Domain.apply` without an adjoint of its own."""
    return stencil(*domain.pad(fields, layout, width, t))
