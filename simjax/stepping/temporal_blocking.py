"""Several steps between two exchanges: on blocks with deep ghost cells, or as one kernel on tiles in fast memory.

The cells around a block lose their meaning from outside in, one stencil after the other; the block itself stays right.
What is computed twice there saves messages between devices, and in a kernel all memory traffic but that of the first
reads and the last writes. (Temporal blocking: Wolf 1992; communication-avoiding: Demmel et al. 2008, IPDPS.)
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.boundary import Periodic, center_layout
from simjax.core.domain import Domain
from simjax.core.model import GridModel, Model
from simjax.core.tile import Tile, Unbounded
from simjax.errors import ConfigurationError
from simjax.grid import LOWER, UPPER
from simjax.integrators.integrator import Integrator
from simjax.integrators.stochastic import Stochastic
from simjax.stencil.kernels.operands import NotLowered, Unpadded
from simjax.stencil.kernels.primitive import bound, shape_of
from simjax.stencil.kernels.steps import TracedSteps, trace_steps
from simjax.stencil.padding import Sides, assembled, strip

if TYPE_CHECKING:
    from simjax.stencil.kernels.launch import Candidates

Times = tuple[Array, Array, Array]
"""Of each step, its beginning, its length and its number since the start: (steps,)."""


def step_of(model: Model, integrator: Integrator, t, dt, number, state, params, prepared):
    """Advance `state` by one step of `dt`, walls and random forcing included."""
    state = integrator.numbered_step(model, number, t, dt, state, params, prepared)
    return model.perturb(number, t, dt, state, params)


@dataclasses.dataclass(frozen=True)
class Blocked:
    """Steps of a simulation between two exchanges: `advance(state, times)`.

    Attributes:
        traced: how far the steps read, and what a kernel does of them.
        constants: arrays of parameters and of what is prepared, those of the grid with cells around them.
        rest: what of both is no array; constants_tree, state_tree: how constants and the state are arranged.
    """

    model: GridModel
    integrator: Integrator
    traced: TracedSteps
    constants: list[Array]
    rest: Any
    constants_tree: Any
    state_tree: Any

    @property
    def domain(self) -> Domain:
        return self.model.domain

    def advance(self, state, times: Times):
        """`state` after these steps."""
        leaves = jax.tree.leaves(state)
        fields = self._fields(leaves)
        depth, ndim = self.traced.depth, self.domain.grid.ndim
        fields, ghosts = self.domain.around(fields, [_periodic(ndim)] * len(fields), depth)
        if self.domain.implementation != "xla" and all(n > 2 * depth for n in self.domain.block_shape):
            computed = iter(self._by_kernel(leaves, fields, ghosts, times))
            found = self._numbers(leaves, times)
            found = [next(computed) if field else u for u, field in zip(found, self.traced.fields, strict=True)]
        else:
            deep = iter(assembled(fields, ghosts, depth))
            around = [next(deep) if field else u for u, field in zip(leaves, self.traced.fields, strict=True)]
            found = self._on(Tile(self.domain, depth), around, times, self.constants)
        return self.state_tree.unflatten(found)

    def _numbers(self, leaves: Sequence[Array], times: Times) -> list[Array]:
        """The leaves of the state after these steps, of which those that do not lie on the grid are right.

        They are the same for any cells: here for one in a corner.
        """
        if all(self.traced.fields):
            return list(leaves)
        ndim = self.domain.grid.ndim
        tile = Tile(self.domain, self.traced.depth, sizes=(1,) * ndim, walls=False, implementation="xla")

        def corner(u: Array, grid: Sequence[bool]) -> Array:
            ends = (n if along else None for n, along in zip(tile.block_shape, grid[-ndim:], strict=True))
            return u[(..., *map(slice, ends))]

        both = zip([*leaves, *self.constants], self.traced.grid, strict=False)
        cut = [corner(u, grid) if any(grid) else u for u, grid in both]
        return self._on(tile, cut[: len(leaves)], times, cut[len(leaves) :])

    def _on(self, tile: Tile, leaves: Sequence[Array], times: Times, constants: Sequence[Array]) -> list[Array]:
        """The leaves of the state after these steps, on a tile; those of the grid without the cells around it."""
        model = _on_domain(self.model, tile)
        params, prepared = eqx.combine(self.constants_tree.unflatten(constants), self.rest)

        def one(leaves, time):
            t, dt, number = time
            state = self.state_tree.unflatten(leaves)
            return jax.tree.leaves(step_of(model, self.integrator, t, dt, number, state, params, prepared)), None

        leaves = lax.scan(one, list(leaves), times)[0]
        inner = tuple(slice(tile.depth, tile.depth + n) for n in tile.sizes)
        return [u[(..., *inner)] if field else u for u, field in zip(leaves, self.traced.fields, strict=True)]

    # ------------------------------------------------------------------ as a kernel

    def _by_kernel(self, leaves, fields: list[Array], ghosts: list[list[Sides]], times: Times) -> list[Array]:
        """The fields after these steps: a kernel that knows no walls, and what lies near walls from thin strips."""
        # Imports Pallas: see `stencil.kernels.primitive`.
        from simjax.stencil.kernels.launch import candidates, launch

        traced, domain = self.traced, self.domain
        parts = iter(Unpadded(*both) for both in zip(fields, ghosts, strict=True))
        carried = [next(parts) if field else u for u, field in zip(leaves, traced.fields, strict=True)]
        flat, structure = jax.tree.flatten((carried, self.constants, times))

        def operands(*flat: Array) -> list[Array | Unpadded]:
            carried, constants, times = structure.unflatten(flat)
            scalars = [time[k] for k in range(len(times[0])) for time in times]
            return traced.arrays([*carried, *constants, *scalars])

        def run(target: str, tile: tuple[int, ...] | None, *flat: Array) -> list[Array]:
            passes, arrays = traced.passes(target), operands(*flat)
            return traced.arranged(launch(passes, arrays, domain.block_shape, target=target, tile=tile))

        shapes = [shape_of(x) for x in flat]

        def tiles(target: str) -> "Candidates":
            return candidates(traced.passes(target), jax.eval_shape(operands, *shapes), domain.block_shape, target)

        steps = dataclasses.replace(self, constants=[])  # the kernel outlives what is traced now

        def plainly(*flat: Array) -> list[Array]:
            carried, constants, times = structure.unflatten(flat)
            blocks = [
                assembled([x.field], [x.ghosts], traced.depth)[0] if isinstance(x, Unpadded) else x for x in carried
            ]
            return steps._fields(steps._on(Tile(domain, traced.depth, walls=False), blocks, times, constants))

        found = bound(run, plainly, flat, domain.implementation == "pallas", tiles)
        for axis in range(domain.grid.ndim):
            if not self._is_periodic(axis):
                for side in (LOWER, UPPER):
                    found = self._near_wall(found, carried, axis, side, times)
        return found

    def _fields(self, leaves: Sequence[Array]) -> list[Array]:
        """Leaves of the state that lie on the grid."""
        return [u for u, field in zip(leaves, self.traced.fields, strict=True) if field]

    def _is_periodic(self, axis: int) -> bool:
        layouts = [layout for group in self.model.component_layouts().values() for layout in group]
        return all(layout.is_periodic(axis) for layout in layouts)

    def _near_wall(self, found: list[Array], carried: list, axis: int, side: int, times: Times) -> list[Array]:
        """`found` with the `depth` lines at a wall computed anew, from a strip along it."""
        domain, depth = self.domain, self.traced.depth
        ndim, n = domain.grid.ndim, domain.block_shape[axis]
        begin = 0 if side == LOWER else n - depth
        strips = [strip(*x, axis, begin, depth) if isinstance(x, Unpadded) else x for x in carried]
        tile = Tile(
            domain,
            depth,
            [begin if k == axis else 0 for k in range(ndim)],
            [depth if k == axis else size for k, size in enumerate(domain.block_shape)],
            implementation="xla",
        )
        constants = [
            lax.slice_in_dim(x, begin, begin + 3 * depth, axis=x.ndim + axis - ndim) if _along(grid, axis, ndim) else x
            for x, grid in zip(self.constants, self.traced.grid[len(carried) :], strict=False)
        ]
        computed = self._on(tile, strips, times, constants)
        fresh = self._fields(computed)
        return [
            lax.dynamic_update_slice_in_dim(u, line, begin, u.ndim + axis - ndim)
            for u, line in zip(found, fresh, strict=True)
        ]


def blocked(model: GridModel, integrator: Integrator, params, prepared, state, count: int, real) -> Blocked:
    """`count` steps of a simulation between two exchanges; `real` is the type of times.

    Raises:
        ConfigurationError: a step needs more than stencils of a block and of cells around it.
    """
    if isinstance(integrator, Stochastic):
        raise ConfigurationError(
            f"steps_per_exchange={count}: expected 0, as {type(model).__name__} has noise, which is drawn for each "
            "step; write steps_per_exchange=0."
        )
    domain = model.domain
    leaves, state_tree = jax.tree.flatten(state)
    arrays, rest = eqx.partition((params, prepared), eqx.is_array)
    constants, constants_tree = jax.tree.flatten(arrays)
    unbounded = _on_domain(model, Unbounded(domain))

    def step(*arguments):
        state, (t, dt, number) = state_tree.unflatten(arguments[: len(leaves)]), arguments[len(leaves) :][:3]
        params, prepared = eqx.combine(constants_tree.unflatten(arguments[len(leaves) + 3 :]), rest)
        return jax.tree.leaves(step_of(unbounded, integrator, t, dt, number, state, params, prepared))

    own = (jax.ShapeDtypeStruct((), real),) * 2 + (jax.ShapeDtypeStruct((), jnp.int32),)
    shapes = [[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays] for arrays in (leaves, constants)]
    try:
        closed = jax.make_jaxpr(step)(*shapes[0], *own, *shapes[1])
        traced = trace_steps(closed, len(leaves), len(own), count, domain.block_shape)
    except NotLowered as error:
        raise ConfigurationError(
            f"steps_per_exchange={count}: a step of {type(model).__name__} by {type(integrator).__name__} is not made "
            f"of stencils alone, as with solves, transforms, sources at points and absorbing layers ({error}); write "
            "steps_per_exchange=0."
        ) from None
    grid = traced.grid[len(leaves) :][: len(constants)]
    deep = [_deepened(domain, x, axes, traced.depth) for x, axes in zip(constants, grid, strict=True)]
    return Blocked(model, integrator, traced, deep, rest, constants_tree, state_tree)


def _on_domain(model: Model, domain: Domain) -> Model:
    """The model, and all that it is made of, on another domain."""
    is_domain: Callable = lambda node: isinstance(node, Domain)  # noqa: E731
    return jax.tree.map(lambda node: domain if is_domain(node) else node, model, is_leaf=is_domain)


def _periodic(ndim: int):
    """Exchange as if no side were a wall: cells beyond walls are those of the opposite one, until filled."""
    return center_layout([(Periodic(), Periodic())] * ndim)


def _along(grid: Sequence[bool], axis: int, ndim: int) -> bool:
    return len(grid) >= ndim and grid[len(grid) - ndim + axis]


def _deepened(domain: Domain, x: Array, grid: Sequence[bool], depth: int) -> Array:
    """An array with `depth` cells of its neighbours at both ends of its axes of the grid."""
    ndim = domain.grid.ndim
    for axis in range(ndim):
        if _along(grid, axis, ndim):
            ((lower, upper),) = domain.beside([x], _periodic(ndim), axis, depth)
            x = jnp.concatenate([lower, x, upper], axis=axis - ndim)
    return x
