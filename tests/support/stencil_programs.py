"""Programs for kernels, written by hand, and what they are on whole arrays."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from simjax.stencil.kernels.operands import Operand, Unpadded, as_passes, ghost_width
from simjax.stencil.kernels.steps import trace_steps
from simjax.stencil.kernels.trace_marks import kept, widened
from simjax.stencil.padding import disassembled


@dataclass(frozen=True)
class Formula:
    operands: tuple[Operand, ...]
    results: tuple[np.dtype, ...]
    evaluate: Callable


def diffusion(ndim, dtype="float32"):
    """u + (sum of the 2 ndim neighbours - 2 ndim u)/10, computed in single precision at least."""
    dtype = jnp.dtype(dtype)

    def evaluate(read):
        def at(*moved):
            offset = tuple(1 + dict([moved] if moved else []).get(axis, 0) for axis in range(ndim))
            value = read(0, 0, offset)
            return value.astype(jnp.float32) if dtype.itemsize == 2 else value

        around = sum(at(axis, side) for axis in range(ndim) for side in (-1, 1))
        return [(at() + (around - 2 * ndim * at()) / 10).astype(dtype)]

    return Formula((Operand(1, (2,) * ndim, dtype),), (dtype,), evaluate)


def wide(ndim, width, dtype="float32"):
    """A sum along every axis of the second of two components, with weights that tell the sides apart."""
    dtype = jnp.dtype(dtype)

    def evaluate(read):
        value = read(0, 0, (width,) * ndim)
        for axis in range(ndim):
            for step in range(-width, width + 1):
                offset = tuple(width + (step if k == axis else 0) for k in range(ndim))
                value = value + (step + 0.25) * read(0, 1, offset)
        return [value]

    return Formula((Operand(2, (2 * width,) * ndim, dtype),), (dtype,), evaluate)


def staggered(ndim=2, dtype="float32"):
    """Two coupled fields: a vector on faces and what it transports, with

    a coefficient on the faces of axis 0, a profile that is repeated along axis 0, one that is repeated along the last
    axis, and a scalar.
    """
    dtype = jnp.dtype(dtype)
    one = (1,) * ndim

    def shifted(axis, by):
        return tuple(1 + (by if k == axis else 0) for k in range(ndim))

    def evaluate(read):
        here = (0,) * ndim
        upper = (1, *here[1:])
        across, along = read(3, 0, one), read(4, 0, here)
        flux = read(2, 0, upper) * read(1, 0, shifted(0, 1)) - read(2, 0, here) * read(1, 0, one)
        last = read(1, 1, shifted(ndim - 1, 1)) - read(1, 1, one)
        scalar = read(5)
        transported = read(0, 0, one) - scalar * (across * flux + last)
        pushed = read(1, 0, one) + along * (read(0, 0, one) - read(0, 0, shifted(0, -1)))
        # The last one holds a value that is the same along axis 0.
        return [transported, pushed, across * scalar]

    inner, faces = (2,) * ndim, (1,) + (0,) * (ndim - 1)
    profile, column = (None,) + (2,) * (ndim - 1), (0,) * (ndim - 1) + (None,)
    operands = [Operand(1, inner, dtype), Operand(2, inner, dtype), Operand(1, faces, dtype)]
    operands += [Operand(1, profile, dtype), Operand(1, column, dtype), Operand(1, None, dtype)]
    return Formula(tuple(operands), (dtype,) * 3, evaluate)


def coupled_steps(interior, dtype="float32", target="interpret", steps=2):
    """Steps of two fields that act on each other in turns, one through a medium: two stencils in each."""
    ndim = len(interior)

    def difference(u, axis, by):
        """Along an axis, to the neighbour `by` cells away, on all but the outermost cells."""
        here = (slice(1, -1),) * ndim
        there = tuple(slice(1 + by, n - 1 + by) if k == axis else slice(1, -1) for k, n in enumerate(u.shape))
        return (u[there] - u[here]) * (0.1 * by)

    def step(u, v, dt, medium):
        push = widened(sum(difference(kept(u), axis, 1) for axis in range(ndim)), 1, ndim)
        v = v + dt * push
        pull = widened(sum(difference(kept(v), axis, -1) for axis in range(ndim)), 1, ndim)
        return u + dt * medium * pull, v

    field, scalar = jax.ShapeDtypeStruct((16,) * ndim, dtype), jax.ShapeDtypeStruct((), dtype)
    closed = jax.make_jaxpr(step)(field, field, scalar, field)
    return trace_steps(closed, 2, 1, steps, field.shape).passes(target)


def arrays_of(program, interior, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=o.shape(interior)), o.dtype) for o in program.operands]


def on_whole_arrays(program, arrays, interior):
    passes, arrays = as_passes(program, len(interior)), list(arrays)
    operands = (*passes.operands, *passes.kept)
    for program, around in zip(passes.programs, passes.margins, strict=True):
        whole = tuple(n + 2 * m for n, m in zip(interior, around, strict=True))

        def read(k, component=None, offset=None, arrays=tuple(arrays), whole=whole, around=around):
            if component is None:
                return arrays[k]
            place = [
                slice(None) if e is None else slice(o - m, o - m + n)
                for o, n, m, e in zip(offset, whole, around, operands[k].extents, strict=True)
            ]
            return arrays[k][(component, *place)]

        found = [jnp.broadcast_to(value, whole) for value in program.evaluate(read)]
        arrays += [u[None] for u in found]
    return found


def unpadded(program, arrays):
    """The arrays, those with ghost cells on all sides without them."""
    found = []
    for operand, u in zip(program.operands, arrays, strict=True):
        if operand.extents is None or len(set(operand.extents)) > 1 or operand.extents[0] == 0:
            found.append(u)
        else:
            (field,), (ghosts,) = disassembled([u], len(operand.extents), ghost_width(operand))
            found.append(Unpadded(field, ghosts))
    return found


def shapes_of(program, interior, **options):
    return [jax.ShapeDtypeStruct(o.shape(interior), o.dtype, **options) for o in program.operands]
