"""Boxes: padded blocks without the ghost cells that a stencil never reads."""

from collections.abc import Callable, Sequence

from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Var

from simjax.jaxpr.replay import computed, replayed
from simjax.stencil.padding import Reach, reach_of


def reaches_of(closed: ClosedJaxpr, widths: Sequence[int], ndim: int) -> tuple[Reach, ...]:
    """Reach of a stencil into each of its arguments, which are blocks with so many ghost cells on every side.

    A block of which anything but slices is taken is read as a whole. On staggered grids most fields are read along one
    axis and to one side: half to three quarters of the ghost cells are not needed.
    """
    whole = {v: reach_of(width, ndim) for v, width in zip(closed.jaxpr.invars, widths, strict=True)}
    found = {variable: [reach_of(0, ndim)] for variable in whole}
    for variable in closed.jaxpr.outvars:
        if isinstance(variable, Var) and variable in whole:
            found[variable].append(whole[variable])
    for equation in closed.jaxpr.eqns:
        for variable in equation.invars:
            if isinstance(variable, Var) and variable in whole:
                found[variable].append(_read(equation, whole[variable]))
    return tuple(_together(reaches) for reaches in found.values())


def of_boxes(closed: ClosedJaxpr, reaches: Sequence[Reach], widths: Sequence[int]) -> Callable[..., list]:
    """A stencil of blocks with so many ghost cells as a function of boxes, which have those of `reaches`."""
    blocks = zip(closed.jaxpr.invars, reaches, widths, strict=True)
    # Slices are all that is taken of what is not whole.
    cut = {v: (reach, width) for v, reach, width in blocks if reach != reach_of(width, len(reach))}

    def result(equation: JaxprEqn, inputs: list) -> list:
        (variable, *_) = equation.invars or (None,)
        if not isinstance(variable, Var) or variable not in cut:
            return computed(equation, inputs)
        reach, width = cut[variable]
        first = [0] * (inputs[0].ndim - len(reach)) + [width - lower for lower, _ in reach]
        starts, limits = equation.params["start_indices"], equation.params["limit_indices"]
        begin, end = ([k - f for k, f in zip(places, first, strict=True)] for places in (starts, limits))
        return [lax.slice(inputs[0], begin, end, equation.params["strides"])]

    return replayed(closed, result)


def _read(equation, whole: Reach) -> Reach:
    """Ghost cells of a block that an operation reads, of those that the `whole` has."""
    if equation.primitive.name != "slice":
        return whole
    ndim = len(whole)
    sizes = equation.invars[0].aval.shape[-ndim:]
    starts, limits = (equation.params[name][-ndim:] for name in ("start_indices", "limit_indices"))
    sides = zip(starts, limits, sizes, whole, strict=True)
    return tuple((max(lower - start, 0), max(limit - (n - upper), 0)) for start, limit, n, (lower, upper) in sides)


def _together(found: Sequence[Reach]) -> Reach:
    """The smallest reach that contains all given reaches."""
    return tuple((max(a for a, _ in axis), max(b for _, b in axis)) for axis in zip(*found, strict=True))
