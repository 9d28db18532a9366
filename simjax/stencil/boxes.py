"""Boxes: padded blocks without the ghost cells that a stencil never reads."""

from collections.abc import Callable, Sequence

from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Var

from simjax.jaxpr.replay import computed, replayed
from simjax.stencil.padding import Reach, reach_of


def reaches_of(closed: ClosedJaxpr, ndim: int, width: int) -> tuple[Reach, ...]:
    """How far a stencil reads its arguments, which are blocks with `width` ghost cells on every side.

    A block of which anything but slices is taken is read as a whole. On staggered grids most fields are read along one
    axis and to one side: half to three quarters of the ghost cells are not needed.
    """
    blocks = {variable: [reach_of(0, ndim)] for variable in closed.jaxpr.invars}
    for variable in closed.jaxpr.outvars:
        if isinstance(variable, Var) and variable in blocks:
            blocks[variable].append(reach_of(width, ndim))
    for equation in closed.jaxpr.eqns:
        for variable in equation.invars:
            if isinstance(variable, Var) and variable in blocks:
                blocks[variable].append(_read(equation, ndim, width))
    return tuple(_together(found) for found in blocks.values())


def of_boxes(closed: ClosedJaxpr, reaches: Sequence[Reach], width: int) -> Callable[..., list]:
    """A stencil of blocks with `width` ghost cells as a function of boxes, which have those of `reaches`."""
    whole = [reach_of(width, len(reach)) for reach in reaches]
    cut = {v: r for v, r, w in zip(closed.jaxpr.invars, reaches, whole, strict=True) if r != w}

    def result(equation: JaxprEqn, inputs: list) -> list:
        (variable, *_) = equation.invars or (None,)
        reach = cut.get(variable) if isinstance(variable, Var) else None
        if reach is None:
            return computed(equation, inputs)
        first = [0] * (inputs[0].ndim - len(reach)) + [width - lower for lower, _ in reach]
        starts, limits = equation.params["start_indices"], equation.params["limit_indices"]
        moved = ([k - f for k, f in zip(places, first, strict=True)] for places in (starts, limits))
        return [lax.slice(inputs[0], *moved, equation.params["strides"])]

    return replayed(closed, result)


def _read(equation: JaxprEqn, ndim: int, width: int) -> Reach:
    """Ghost cells of a block that an operation reads."""
    if equation.primitive.name != "slice":
        return reach_of(width, ndim)
    shape = equation.invars[0].aval.shape[-ndim:]
    starts, limits = (equation.params[name][-ndim:] for name in ("start_indices", "limit_indices"))
    sides = zip(starts, limits, shape, strict=True)
    return tuple((max(width - start, 0), max(limit - (n - width), 0)) for start, limit, n in sides)


def _together(found: Sequence[Reach]) -> Reach:
    """The reach that holds all of these."""
    return tuple((max(a for a, _ in axis), max(b for _, b in axis)) for axis in zip(*found, strict=True))
