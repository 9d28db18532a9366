"""What the compiled programs send between devices, read from the text of the optimised program.

Planned: two permutes per decomposed axis and exchange, however many fields and members share it; one `all_to_all` per
decomposed axis and direction of the pressure solve; no field ever gathered. A count above the plan is lost speed, a
count below it lost ghosts.
"""

import jax
import jax.numpy as jnp
import pytest
from cases import CASES
from collectives import collectives
from jax.sharding import PartitionSpec

from simjax.core.boundary import Dirichlet, Neumann, Periodic, center_layout
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.parallel import decompose, distribute, make_mesh, prepend_axis
from simjax.solvers.poisson import solve_poisson
from simjax.stepping.simulate import Clock, Schedule, advance

WALLS = {"periodic": Periodic(), "neumann": Neumann(0.0), "dirichlet": Dirichlet(0.0)}
LAYOUTS = {
    "2x4": (Grid((16, 24)), {"x": 2, "y": 4}),
    "8x1": (Grid((16, 24)), {"x": 8}),
    "2x2x2": (Grid((8, 12, 8)), {"x": 2, "y": 2, "z": 2}),
}


def on_blocks(domain, mesh, fn, count=1, result=None):
    """`fn` of `count` fields, distributed, and those fields."""
    run = distribute(fn, mesh, in_specs=(domain.spec(),) * count, out_specs=domain.spec() if result is None else result)
    return run, *(jnp.ones(domain.grid.shape),) * count


each_layout = pytest.mark.parametrize("grid, sizes", LAYOUTS.values(), ids=LAYOUTS)


@pytest.mark.parametrize("wall", WALLS)
@each_layout
@pytest.mark.slow
def test_an_exchange_is_two_permutes_per_decomposed_axis(grid, sizes, wall):
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    layout = center_layout([(WALLS[wall], WALLS[wall])] * grid.ndim)
    planned = {"collective-permute": 2 * len(sizes)}
    assert collectives(*on_blocks(domain, mesh, lambda u: domain.pad(u, layout, 1))) == planned
    assert collectives(*on_blocks(domain, mesh, lambda *u: domain.pad(u, layout, 1), 3)) == planned


@each_layout
def test_the_transpose_of_an_exchange_is_an_exchange(grid, sizes):
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    layout = center_layout([(Periodic(), Periodic())] * grid.ndim)
    padded = jax.ShapeDtypeStruct(
        tuple(n + 2 * k for n, k in zip(grid.shape, (*sizes.values(), 1, 1), strict=False)), float
    )

    def transpose(v):
        run, u = on_blocks(domain, mesh, lambda u: domain.pad(u, layout, 1))
        return jax.linear_transpose(run, u)(v)

    assert collectives(transpose, padded) == {"collective-permute": 2 * len(sizes)}


@pytest.mark.parametrize("wall", WALLS)
@each_layout
@pytest.mark.slow
def test_a_poisson_solve_is_one_all_to_all_per_decomposed_axis_and_direction(grid, sizes, wall):
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    layout = center_layout([(WALLS[wall], WALLS[wall])] + [(Periodic(), Periodic())] * (grid.ndim - 1))
    found = collectives(*on_blocks(domain, mesh, lambda s: solve_poisson(domain, layout, s)))
    assert found == {"all-to-all": 2 * len(sizes)}


@each_layout
def test_reductions_are_one_number_each(grid, sizes):
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh)
    for reduce in (domain.sum, domain.mean, domain.max, domain.min):
        assert collectives(*on_blocks(domain, mesh, reduce, result=PartitionSpec())) == {"all-reduce": 1}


def steps_of(name, sizes, integrator, schedule, members=None):
    """Collectives in a program of three steps of a case, the check of its result left out: one step's, as they loop."""
    case = next(case for case in CASES if case.name == name)
    mesh = make_mesh(sizes)
    domain = decompose(case.grid, mesh)
    model = case.build(domain)

    def run(params, state):
        clock = Clock.zero(jnp.float64)
        return advance(model, INTEGRATORS[integrator], params, state, clock, schedule, steps=3, until=1)[0]

    state, params = case.initial_state(), case.params()
    state_specs, params_specs = model.partition_specs(state, params)
    if members:
        run = jax.vmap(run, in_axes=(None, 0))
        state = jax.tree.map(lambda u: jnp.stack([u] * members), state)
        state_specs = prepend_axis(state_specs, "ensemble")
    return collectives(
        distribute(run, mesh, in_specs=(params_specs, state_specs), out_specs=state_specs), params, state
    )


FIXED, COURANT = Schedule(1.0, dt=1e-3), Schedule(1.0, courant=0.5, max_steps=9)
# One reduction asks at the end whether everything is finite; a Courant step has one more, for its length.
STEPS = {
    "transport": (("advection-2d-walls", {"x": 2, "y": 4}, "euler", FIXED), {"collective-permute": 4, "all-reduce": 1}),
    "transport, four stages": (
        ("advection-2d-periodic", {"x": 2, "y": 4}, "rk4", FIXED),
        {"collective-permute": 16, "all-reduce": 1},
    ),
    "transport, courant": (
        ("advection-3d-walls", {"x": 2, "y": 2, "z": 2}, "euler", COURANT),
        {"collective-permute": 6, "all-reduce": 2},
    ),
    # Three exchanges per stage: velocity for its tendency, with both neighbours along each axis, and for its divergence
    # with one, as the pressure for its gradient.
    "flow": (
        ("flow-2d-walls", {"x": 2, "y": 4}, "euler", FIXED),
        {"collective-permute": 8, "all-to-all": 4, "all-reduce": 1},
    ),
    "flow, courant": (
        ("flow-2d-walls", {"x": 2, "y": 4}, "euler", COURANT),
        {"collective-permute": 8, "all-to-all": 4, "all-reduce": 2},
    ),
    "flow, two stages": (
        ("flow-2d-periodic", {"x": 2, "y": 4}, "heun", FIXED),
        {"collective-permute": 16, "all-to-all": 8, "all-reduce": 1},
    ),
    "flow, slabs": (
        ("flow-2d-walls", {"x": 8}, "euler", FIXED),
        {"collective-permute": 4, "all-to-all": 2, "all-reduce": 1},
    ),
    "flow, three axes": (
        ("flow-3d-walls", {"x": 2, "y": 2, "z": 2}, "euler", FIXED),
        # Four of them are of lines beside the wall with a turbulent layer, along its two axes.
        {"collective-permute": 16, "all-to-all": 6, "all-reduce": 1},
    ),
    "flow, ensemble": (
        ("flow-2d-walls", {"ensemble": 2, "x": 2, "y": 2}, "euler", FIXED, 4),
        {"collective-permute": 8, "all-to-all": 4, "all-reduce": 1},
    ),
}


@pytest.mark.parametrize("arguments, planned", STEPS.values(), ids=STEPS)
@pytest.mark.slow
def test_collectives_of_a_step_are_as_planned(arguments, planned):
    assert steps_of(*arguments) == planned
