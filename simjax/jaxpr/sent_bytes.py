"""Bytes that a traced program sends between devices."""

import math
from collections.abc import Iterator, Mapping
from typing import Any


def sent_bytes(jaxpr: Any, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Bytes that each device sends in one call, and in how many messages.

    A loop counts as often as it runs, where that is known, else once; of branches the first that sends the most.

    Args:
        jaxpr: of a program on one device, such as the `jaxpr` of `jax.jit(f).trace(...)`.
        sizes: devices along each axis of the device mesh.
    """
    total, messages = 0.0, 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        inner = [sent_bytes(inside, sizes) for inside in _inside(equation)]
        if name == "cond":
            own = max(inner)
        else:
            times = equation.params["length"] if name == "scan" else 1
            own = times * sum(b for b, _ in inner), times * sum(m for _, m in inner)
        total, messages = total + own[0], messages + own[1]
        share = _share(name, equation, sizes)
        if share:
            arrays = [v.aval for v in equation.invars]
            total += share * sum(math.prod(a.shape) * a.dtype.itemsize for a in arrays)
            messages += 1
    return round(total), messages


def _share(name: str, equation: Any, sizes: Mapping[str, int]) -> float:
    """Bytes that an equation sends over those that it takes; 0 where it sends nothing."""
    given = equation.params.get("axis_name", equation.params.get("axes", ()))
    names = (given,) if isinstance(given, str) else tuple(given if isinstance(given, tuple) else ())
    count = math.prod(sizes.get(axis, 1) for axis in names)
    if count == 1:
        return 0.0
    if name == "ppermute":
        return 1.0
    if name == "all_to_all":
        return (count - 1) / count
    if name.startswith("all_gather"):
        return count - 1.0
    if name.startswith(("psum", "pmax", "pmin", "reduce_scatter")):
        return 2 * (count - 1) / count
    return 0.0


def _inside(equation: Any) -> Iterator[Any]:
    """Programs that an equation calls."""
    for value in equation.params.values():
        for one in value if isinstance(value, (tuple, list)) else (value,):
            inside = getattr(one, "jaxpr", one)
            if hasattr(inside, "eqns"):
                yield inside
