"""Steps of a simulation traced to passes over a tile: how far they read, and what one kernel does of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from jax import Array
from jax.extend.core import ClosedJaxpr

from simjax.stencil.kernels.fused_stencils import Passes, Staged, passes, staged
from simjax.stencil.kernels.operands import NotLowered, Operand, Unpadded, arranged, operands_of
from simjax.stencil.kernels.tracing import Points, Tracer

Sizes = tuple[int, ...]

# Wider stencils than this would be taken for arrays of another kind.
WIDEST = 8


@dataclass(frozen=True)
class TracedSteps:
    """Steps without walls.

    Attributes:
        order: what is computed.
        operands: what is read, without cells around it; sources: see `Traced`.
        fields: which of the carried arrays lie on the grid; shapes: of these.
        grid: per argument, which of its axes are axes of the grid.
    """

    order: Staged
    operands: tuple[Operand, ...]
    sources: tuple
    fields: tuple[bool, ...]
    shapes: tuple[Sizes, ...]
    dtypes: tuple
    grid: tuple[tuple[bool, ...], ...]

    @property
    def depth(self) -> int:
        """Cells that a result depends on beyond itself, in any direction."""
        return self.order.depth

    def passes(self, target: str) -> Passes:
        return passes(self.order, self.operands, self.dtypes, target)

    def arrays(self, arguments: Sequence[Array | Unpadded]) -> list[Array | Unpadded]:
        """The operands, from the arguments: those of the grid with `depth` cells around them, or these beside them."""
        return operands_of(self.sources, arguments, len(self.order.reaches[-1]))

    def arranged(self, values: Sequence[Array]) -> list[Array]:
        """The carried fields, from their components."""
        return arranged(values, self.shapes, len(self.order.reaches[-1]))


def trace_steps(step: ClosedJaxpr, carried: int, own: int, steps: int, block: Sizes) -> TracedSteps:
    """`steps` steps.

    Args:
        step: from `carried` arrays, `own` scalars of this step, and what is the same in every step, to what is carried;
            of a model on `core.tile.Unbounded`.
        block: cells of an array of the grid.

    The arguments of what is traced are those that are carried, those that are the same in every step, and the scalars
    of one step after the other.

    Raises:
        NotLowered: a step mixes cells otherwise than by stencils.
    """
    widest = [min(WIDEST, (n - 1) // 2) for n in block]
    tracer = Tracer(tuple(n - 2 * w for n, w in zip(block, widest, strict=True)), 4 * max(widest))
    avals = [variable.aval for variable in step.jaxpr.invars]
    state = [tracer.argument(aval) for aval in avals[:carried]]
    fixed = [tracer.argument(aval) for aval in avals[carried + own :]]
    consts = [tracer.known(value) for value in step.consts]
    fields = tuple(any(points.along_grid()) for points in state)
    shapes = tuple(points.shape for points, field in zip(state, fields, strict=True) if field)
    for _ in range(steps):
        scalars = [tracer.argument(aval) for aval in avals[carried : carried + own]]
        state = tracer.run(step.jaxpr, consts, [*state, *scalars, *fixed])
    found: list[Points] = [points for points, field in zip(state, fields, strict=True) if field]
    points = [point for output in found for point in output.values.ravel()]
    dtypes = [a.dtype for a, f, x in zip(avals, fields, state, strict=False) if f for _ in range(x.values.size)]
    points, operands, sources = tracer.reading(points)
    grid = tuple(tuple(tracer.grid_axes(shape)) for shape, _ in tracer.inputs)
    for (shape, _), axes in zip(tracer.inputs, grid, strict=True):
        if any(along and n != m for along, n, m in zip(axes[-len(block) :], shape[-len(block) :], block, strict=False)):
            raise NotLowered(f"an array of shape {shape} on blocks of {block}")
    order = staged(points, len(block))
    return TracedSteps(order, operands, sources, fields, shapes, tuple(dtypes), grid)
