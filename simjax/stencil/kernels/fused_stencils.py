"""Several stencils, one after the other, as one kernel: what lies between them stays in fast memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simjax.stencil.kernels.expressions import Expression, Kept, Operation, Point, PointProgram, Read, evaluated
from simjax.stencil.kernels.operands import Operand, Passes
from simjax.stencil.kernels.tracing import in_order

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Staged:
    """Points of results, and of what is kept before them, level by level; `depth`: how far they read."""

    points: tuple[Point, ...]
    levels: tuple[tuple[Kept, ...], ...]
    reaches: tuple[Sizes, ...]
    depth: int


def staged(points: Sequence[Point], ndim: int) -> Staged:
    """The order in which kept expressions are computed, and on how many cells around those of the results.

    Kept is what `marks.kept` says, and what one level takes from an earlier one unless it is made of values at the
    point itself: a slope of an earlier stage is not computed again.
    """
    points, level = _between_levels(points)
    last = max((level[p.expression] for p in points), default=0)
    levels: list[list[Kept]] = [[] for _ in range(last)]
    for expression in in_order(points):
        if isinstance(expression, Kept):
            levels[level[expression.expression]].append(expression)
    needed: dict[Kept, list[int]] = {kept: [0] * ndim for group in levels for kept in group}
    reaches, depth = [], 0
    for group in (*([Point(kept.expression, (0,) * ndim) for kept in group] for group in levels), list(points))[::-1]:
        mine = [needed[kept] for kept in levels[last - len(reaches)]] if reaches else [[0] * ndim]
        reach = tuple(max(sizes) for sizes in zip(*mine, strict=True))
        for read, offset in _reads(group):
            far = [r + abs(o) for r, o in zip(reach, offset, strict=True)]
            if isinstance(read, Kept):
                needed[read] = [max(a, b) for a, b in zip(needed[read], far, strict=True)]
            else:
                depth = max(depth, *far)
        reaches.append(reach)
    return Staged(tuple(points), tuple(map(tuple, levels)), tuple(reversed(reaches)), depth)


def _between_levels(points: Sequence[Point]) -> tuple[list[Point], dict[Expression, int]]:
    """The points with what passes from one level to a later one kept, and the level of every expression."""
    renamed: dict[Expression, Expression] = {}
    level: dict[Expression, int] = {}
    here: dict[Expression, bool] = {}  # whether it is made of values at the point itself
    keeping: dict[Expression, Kept] = {}

    def keep(expression: Expression) -> Kept:
        assert isinstance(expression, Operation)
        found = keeping.setdefault(expression, Kept(expression))
        level[found], here[found] = level[expression] + 1, True
        return found

    for expression in in_order(points):
        match expression:
            case Kept():
                new = keep(renamed[expression.expression])
            case Operation():
                arguments = [Point(renamed[a.expression], a.offset) for a in expression.arguments]
                highest = max((level[a.expression] for a in arguments), default=0)
                arguments = [
                    Point(keep(a.expression), a.offset)
                    if level[a.expression] < highest and not here[a.expression]
                    else a
                    for a in arguments
                ]
                new = replace(expression, arguments=tuple(arguments))
                level[new] = highest
                here[new] = all(
                    here[a.expression] and (a.expression.everywhere or not any(a.offset)) for a in arguments
                )
            case _:
                new = expression
                level[new], here[new] = 0, True
        renamed[expression] = new
    found = [Point(renamed[p.expression], p.offset) for p in points]
    last = max((level[p.expression] for p in found), default=0)
    found = [
        Point(keep(p.expression), p.offset) if level[p.expression] < last and not here[p.expression] else p
        for p in found
    ]
    return found, level


def _reads(points: Sequence[Point]) -> list[tuple[Read | Kept, Sizes]]:
    """Reads for these points, kept values included, and their displacements."""
    seen: list[tuple[Read | Kept, Sizes]] = []

    def read(expression, offset):
        if not expression.everywhere:
            seen.append((expression, offset))

    evaluated(points, read, lambda *_: None)
    return seen


def passes(order: Staged, operands: Sequence[Operand], results: Sequence[np.dtype], target: str) -> Passes:
    """The programs of `order`, whose operands along the grid have `order.depth` cells on every side."""
    ndim = len(order.reaches[-1])
    deep = [o if o.extents is None else replace(o, extents=_margins(o.extents, order.depth)) for o in operands]
    reach = {kept: sizes for group, sizes in zip(order.levels, order.reaches, strict=False) for kept in group}
    spaces = [Operand(1, tuple(2 * r for r in sizes), kept.expression.dtype) for kept, sizes in reach.items()]
    renamed: dict[Expression, Expression] = {kept: Read(len(deep) + k) for k, kept in enumerate(reach)}

    def placed(point: Point) -> Point:
        """The point in terms of operands, displacements being counted from their first cells."""
        source = point.expression
        if source.everywhere or isinstance(source, Operation):
            return Point(renamed[source], point.offset)
        margin = reach[source] if isinstance(source, Kept) else (order.depth,) * ndim
        return Point(renamed[source], tuple(o + m for o, m in zip(point.offset, margin, strict=True)))

    for expression in in_order(order.points):
        if isinstance(expression, Operation):
            renamed[expression] = replace(expression, arguments=tuple(map(placed, expression.arguments)))
        else:
            renamed.setdefault(expression, expression)

    def program(points: Sequence[Point], dtypes: Sequence[np.dtype]) -> PointProgram:
        return PointProgram((*deep, *spaces), tuple(map(placed, points)), tuple(dtypes), target)

    here = (0,) * ndim
    kept = [program([Point(k.expression, here) for k in g], [k.expression.dtype for k in g]) for g in order.levels]
    return Passes(tuple(deep), tuple(spaces), order.reaches, (*kept, program(order.points, results)))


def _margins(extents: Sequence[int | None], depth: int) -> tuple[int | None, ...]:
    return tuple(None if e is None else 2 * depth for e in extents)
