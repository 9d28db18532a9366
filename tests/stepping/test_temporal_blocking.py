"""Several steps between two exchanges, and as one kernel: the same numbers, fewer messages, nothing computed twice."""

import dataclasses
import types
from typing import cast

import jax
import jax.numpy as jnp
import pytest
from case import PERIODIC, Case
from cases import CASES
from cases_waves import medium, rippled
from collectives import collectives
from equivalence import assert_decomposed_run_is_the_same, assert_each_member_is_the_same
from refusals import refusals

from simjax.core.boundary import SlipWall
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.driver.loop.call_length import TARGET_SECONDS, CallLength
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.driver.programs.programs_of_run import CompiledRun
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.waves import acoustic
from simjax.parallel import decompose, distribute, make_mesh
from simjax.stencil.kernels.launch import launch
from simjax.stencil.kernels.operands import Passes
from simjax.stepping.simulate import Clock, Schedule, advance
from simjax.stepping.temporal_blocking import blocked

WAVY = "s + 0.08*sin(2*pi*s)"
_plane = Grid((16, 24), (0.0, -1.0), (6.0, 3.0))
# Steps of two halves, through a medium: its arrays are surrounded too.
SOUND = Case(
    "acoustic-2d-rigid",
    _plane,
    lambda domain: acoustic.Acoustic(domain, [(SlipWall(), SlipWall()), PERIODIC], order=4),
    lambda: acoustic.Params(medium(_plane, 3), medium(_plane, 5), None, ()),
    rippled,
    "leapfrog",
    Schedule(0.05, dt=0.02),
    checkpoint="none",
)
_stretched = Grid(
    (16, 24), stretch=[lines("formula", "s - 0.1*s*(1 - s)", 16, 0.0, 6.0), lines("formula", WAVY, 24, -1.0, 3.0)]
)
UNEVEN = dataclasses.replace(
    SOUND,
    name="acoustic-2d-rigid-stretched",
    grid=_stretched,
    params=lambda: acoustic.Params(medium(_stretched, 3), medium(_stretched, 5), None, ()),
)
OF_STENCILS = {case.name: case for case in (*CASES, SOUND, UNEVEN)}
# Of three steps of a frame, two come in one block and the last, which is shorter, by itself. Those that are limited by
# the Courant number come one by one. On blocks of these sizes, as many as reach no further than the neighbour.
MESHES = {1: {"x": 2}, 2: {"x": 2, "y": 2}, 3: {"x": 2, "y": 2, "z": 2}}
USUAL = ("advection-1d pallas", "advection-3d-walls xla")
NAMES = (
    "advection-1d",
    "advection-2d-periodic",
    "advection-2d-walls",
    "advection-3d-walls",
    "gas-1d-weno",
    "gas-1d-atmosphere",
    "gas-2d-walls",
    "gas-2d-igr",
    "gas-3d-periodic",
    "transport-1d-walls",
    "burgers-1d-weno5",
    "acoustic-2d-rigid",
    "acoustic-2d-rigid-stretched",
    "declared-maxwell_tm",
)
DEAR = ("gas-1d-atmosphere", "gas-2d-walls", "gas-2d-igr", "gas-3d-periodic")


def marks(name, implementation):
    if f"{name} {implementation}" in USUAL:
        return ()
    dear = name in DEAR or implementation == "pallas" and not name.startswith("advection")
    return pytest.mark.long if dear else pytest.mark.slow


blocks = pytest.mark.parametrize(
    "name, implementation",
    [
        pytest.param(name, kind, id=f"{name} {kind}", marks=marks(name, kind))
        for name in NAMES
        for kind in ("xla", "pallas")
    ],
)


@blocks
def test_steps_between_exchanges_and_their_gradients_equal_those_with_them(name, implementation):
    case = OF_STENCILS[name]
    count = 1 if case.schedule.dt is None else 2
    sizes = MESHES[case.grid.ndim] if case.cuts else {}
    assert_decomposed_run_is_the_same(
        case, sizes, False, case.checkpoint, implementation=implementation, steps_per_exchange=count
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name not in NAMES and not case.name.startswith("particles")],
    ids=lambda case: case.name,
)
def test_what_is_not_tested_here_is_refused(case):
    """So that a new model of stencils has to be among the names above."""
    model, integrator = case.build(Domain(case.grid)), INTEGRATORS[case.integrator]
    with pytest.raises(ConfigurationError, match="is not made of stencils alone"):
        blocked(model, integrator, case.params(), None, case.initial_state(), 1, jnp.float64)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["xla", "pallas"])
def test_each_member_of_an_ensemble_equals_its_solo_run(implementation):
    case = OF_STENCILS["advection-2d-walls"]
    assert_each_member_is_the_same(case, "two_level", implementation=implementation, steps_per_exchange=2)


@pytest.mark.parametrize("integrator, count", [("rk4", 1), ("rk4", 2), ("euler", 3)])
@pytest.mark.slow
def test_devices_exchange_once_for_all_steps_of_a_block(integrator, count):
    """Four permutes on a mesh cut along two axes, whatever the stages and steps; and one sum, for the status."""
    case = dataclasses.replace(OF_STENCILS["advection-2d-walls"], grid=Grid((32, 64)))
    mesh = make_mesh({"x": 2, "y": 4})
    domain = decompose(case.grid, mesh, steps_per_exchange=count)
    model = case.build(domain)
    state, params = case.initial(case.build(Domain(case.grid)), case.params()), case.params()
    specs = model.partition_specs(state, params)

    def run(params, state):
        # More than two blocks of steps, or the loop would be unrolled.
        return advance(
            model,
            INTEGRATORS[integrator],
            params,
            state,
            Clock.zero(jnp.float64),
            Schedule(1.0, dt=1e-3),
            steps=4 * count,
            until=1,
        )[0]

    found = collectives(distribute(run, mesh, in_specs=(specs[1], specs[0]), out_specs=specs[0]), params, state)
    assert found == {"collective-permute": 4, "all-reduce": 1}


@pytest.mark.parametrize(
    "integrator, steps, depth, levels",
    # One cell for each application of the Laplacian. Kept are the stages that it is applied to, and of earlier slopes
    # what is added up of them; of ssprk3 also by how much they are ahead of the step's beginning, which means need.
    [("euler", 1, 1, []), ("euler", 4, 4, [1, 1, 1]), ("ssprk3", 1, 3, [2, 2]), ("rk4", 1, 4, [2, 2, 2])],
)
def test_only_what_is_needed_is_kept_and_as_far_as_it_is_read(integrator, steps, depth, levels):
    case = OF_STENCILS["advection-2d-walls"]
    state = case.initial_state()
    model = case.build(Domain(case.grid))
    order = blocked(model, INTEGRATORS[integrator], case.params(), None, state, steps, jnp.float64).traced.order
    assert order.depth == depth
    assert [len(level) for level in order.levels] == levels
    assert order.reaches == tuple((depth - 1 - k,) * 2 for k in range(depth))


@pytest.mark.parametrize("cells, kernels", [(5, 1), (4, 0)])
def test_all_steps_of_a_block_are_one_kernel_where_it_is_thick_enough(monkeypatch, cells, kernels):
    """Twice as thick as the steps read, for walls' strips not to meet; thinner ones take kernels of single stencils."""
    launched = []

    def counted(program, *arguments, **options):
        if isinstance(program, Passes):
            launched.append(len(program.programs))
        return launch(program, *arguments, **options)

    monkeypatch.setattr("simjax.stencil.kernels.launch.launch", counted)
    case = dataclasses.replace(OF_STENCILS["advection-1d"], grid=Grid((cells,)))
    domain = Domain(case.grid, implementation="pallas", steps_per_exchange=2)
    jax.jit(case.runner(domain)).lower(case.params(), case.initial_state())
    assert launched == [2] * kernels


@pytest.mark.parametrize("affordable", [1, 6, 100])
def test_steps_of_a_block_stay_together_wherever_a_run_is_cut(affordable):
    pace = CallLength.__new__(CallLength)
    pace.step_seconds = TARGET_SECONDS / affordable
    pace.programs = cast(CompiledRun, types.SimpleNamespace(steps_together=4))
    unlimited = types.SimpleNamespace(most_steps=lambda schedule, steps: steps)
    pace.instruments = cast(CompiledInstruments, unlimited)
    schedule = Schedule(1.0, dt=1 / 30)
    whole = list(pace.pieces(schedule))
    assert sum(whole) == 30 and whole[-1] == 2 and all(n % 4 == 0 for n in whole[:-1])
    for cut in range(len(whole)):
        done = sum(whole[:cut])
        rest = list(pace.pieces(schedule, done))
        assert sum(rest) == 30 - done and rest[-1] == 2 and all(n % 4 == 0 for n in rest[:-1])


def attempt(name, count, **changed):
    case = dataclasses.replace(OF_STENCILS[name], **changed)
    domain = Domain(case.grid, steps_per_exchange=count)
    return lambda: jax.eval_shape(case.runner(domain), case.params(), case.initial_state())


test_refusals = refusals(
    {
        "a solve": (
            attempt("flow-2d-walls", 1),
            "steps_per_exchange=1: a step of Incompressible by RungeKutta is not made of stencils alone, as with "
            "solves, transforms, sources at points and absorbing layers (the operation iota); write "
            "steps_per_exchange=0.",
        ),
        "Courant": (
            attempt("advection-2d-periodic", 3),
            "steps_per_exchange=3 with steps limited by the Courant number, which all devices have to agree on at "
            "every step; write steps_per_exchange=1 or a fixed time.dt.",
        ),
        "too deep": (
            attempt("advection-3d-walls", 8, schedule=Schedule(1.0, dt=0.02)),
            "A block has 6 cells along z, fewer than the 8 that a stencil with a halo of 8 needs; use at least 8 "
            "cells.",
        ),
    }
)
