"""One device, many devices, overlap, ensembles and the compiler's own partitioner: the same numbers.

Every model of `cases.CASES` runs in every layout that its grid admits. State and gradients are compared with those
of the undecomposed program; they differ only by the order of sums, so the bounds are a few hundred and 1e5 roundings.
"""

import functools

import cases_closures
import cases_particles
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import OPTIMISED, PLAIN, QUICK
from cases import CASES, DECLARED, WRITTEN
from equivalence import (
    SPACE,
    assert_close,
    assert_decomposed_run_is_the_same,
    assert_each_member_is_the_same,
    assert_same_run,
    reference,
    specs_of,
    undecomposed,
)
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.core.model import SemilinearModel
from simjax.models.registry import MODELS
from simjax.parallel import decompose, distribute, make_mesh, shardings
from simjax.solvers import dft, exchange, poisson, spectral
from simjax.stepping.checkpointing.plan import Binomial, Budget
from simjax.stepping.simulate import Clock

LAYOUTS = {
    1: {"8": ({"x": 8}, False), "4 overlap": ({"x": 4}, True)},
    2: {
        "2x4": ({"x": 2, "y": 4}, False),
        "4x2": ({"x": 4, "y": 2}, False),
        "8x1": ({"x": 8}, False),
        "2x4 overlap": ({"x": 2, "y": 4}, True),
    },
    3: {"2x2x2": ({"x": 2, "y": 2, "z": 2}, False), "2x2x2 overlap": ({"x": 2, "y": 2, "z": 2}, True)},
}
# The partitioner's own 3-D FFT fails on a CPU when the middle axis is cut (XLA checks a layout it did not keep), as do
# products of complex ones, however they are cut (jax 0.10), and real ones of a gradient in a periodic box, unless x
# alone is (0.10 and 0.12; `Case.partitioned`).
PARTITIONED = {1: {"x": 8}, 2: {"x": 2, "y": 4}, 3: {"x": 4, "z": 2}}
PARTICLES = cases_particles.CASES
COMBINATIONS = [
    (case, layout)
    for case in CASES
    if case.cuts
    for layout in LAYOUTS[case.grid.ndim]
    if not (case in PARTICLES and "overlap" in layout)  # which is about stencils
]
OTHERWISE = ("4x2", "8x1")
PLANS = {
    "none": "none", "every_step": "every_step", "two_level": "two_level", "binomial": Binomial(2), "budget": None,
    "reverse": "reverse",
}  # fmt: skip
# With the slow ones, a few cases of what hardly depends on the equations; the others are long.
SLOW = {
    "ensemble": ("flow-2d-walls", "semilinear-kdv-1d"),
    "partitioned": ("spectral-vorticity-2d",),
    "kernels": ("flow-2d-walls", "acoustic-3d"),
    "overlap": ("acoustic-3d",),
    "two_level": ("acoustic-1d",),
    "binomial": ("acoustic-3d", "semilinear-kdv-1d"),
    "closures": ("advection-2d-walls-pointwise space", "passive-scalar-2d-inflow space"),
    "pressure": ("spectral-space", "tridiagonal-ensemble", "multigrid-space"),
}
CHEAP = "advection-2d-walls budget space"
EXPLICIT = [(case, layout) for case, layout in COMBINATIONS if case.name.startswith("advection")]


# Compiled for every layout and differentiated, all cases take half an hour. In every run of the tests are those in 1-D
# and 2-D, but particles and the dear ones of a family that has a cheap one: the first layout and the observations. The
# rest is with the slow ones, but of gases and implicit transport in 3-D and in an atmosphere, and of what a stretched
# grid has as well.
DEAR = (
    "gas-1d-atmosphere", "gas-2d-walls", "acoustic-2d", "particles-water-2d", "particles-plasma-2d",
    "particles-stars-2d", "particles-liquid-2d", "passive-scalar-2d-walls", "spectral-vorticity-2d",
    "semilinear-gray-scott-2d", "transport-2d-implicit", "maxwell-2d", "burgers-1d-weno5",
    "particles-radiating-plasma-2d", "transport-2d-stretched-implicit", "burgers-2d-stretched",
    "acoustic-2d-stretched", "maxwell-2d-stretched", "gas-1d-stretched", "gas-2d-axisymmetric",
    "stretched-advection-2d", "boussinesq-2d-walls", "flow-2d-open", "axisymmetric-advection-2d",
    "transport-2d-axisymmetric", "acoustic-2d-axisymmetric", "maxwell-2d-axisymmetric", "passive-scalar-2d-eddies",
    "flow-2d-axisymmetric", "flow-2d-moving-solid", "flow-2d-outflow", "transport-2d-stretched",
    "flow-2d-central4", "flow-2d-upwind", "flow-2d-dynamic", "flow-2d-implicit",
    "passive-scalar-2d-solid", "boussinesq-2d-moving-solid", "flow-2d-free-body", "boussinesq-2d-scalars",
    "flow-2d-solid", "flow-2d-stretched", "declared-kuramoto_sivashinsky", "declared-swift_hohenberg",
    "declared-viscous_burgers", "declared-cahn_hilliard",
)  # fmt: skip
LONG = (
    "gas-3d-periodic", "transport-3d-implicit", "gas-1d-atmosphere", "maxwell-2d", "acoustic-2d",
    "transport-2d-implicit",
)  # fmt: skip


def marked(case, usual):
    """Marks of a test of `case` that is, or is not, among the `usual` ones."""
    usual = usual and case.grid.ndim < 3 and case.name not in DEAR
    return () if usual else (pytest.mark.long if case.name in LONG else pytest.mark.slow,)


def each(cases, marks):
    return pytest.mark.parametrize("case", [pytest.param(case, marks=marks(case), id=case.name) for case in cases])


def some(what):
    """Marks of what is tested of a few with the slow ones, and of the cheapest always."""

    def marks(case):
        if case.name.startswith("advection") and case.grid.ndim < 3:
            return ()
        return (pytest.mark.slow if case.name in SLOW[what] else pytest.mark.long,)

    return marks


def repeating(case, layout):
    """Marks of what other layouts show already.

    Overlap is in the exchange, whatever the equations, and a few cases show it. Cut otherwise, a flow differs from
    advection in the pressure solve, which test_poisson cuts in every way, and 4x2 is 2x4 turned.
    """
    simple = case.name.startswith("advection")
    if "overlap" in layout and not simple:
        return pytest.mark.slow if case.name in SLOW["overlap"] else pytest.mark.long
    if layout in OTHERWISE and not simple:
        return pytest.mark.slow if layout == "8x1" and case.name == "spectral-vorticity-2d" else pytest.mark.long
    return None


def named(pairs):
    first = {ndim: next(iter(layouts)) for ndim, layouts in LAYOUTS.items()}
    return pytest.mark.parametrize(
        "case, layout",
        [
            pytest.param(
                case, layout, id=f"{case.name} {layout}",
                marks=repeating(case, layout)
                or marked(case, usual=layout == first[case.grid.ndim] or case.name == "advection-2d-walls"),
            )
            for case, layout in pairs
        ],
    )  # fmt: skip


CUT = [case for case in CASES if case.cuts]


@named(COMBINATIONS)
def test_decomposed_run_and_its_gradients_equal_those_on_one_device(case, layout):
    assert_decomposed_run_is_the_same(case, *LAYOUTS[case.grid.ndim][layout], case.checkpoint)


@each(CASES, some("ensemble"))
def test_each_member_of_a_decomposed_ensemble_equals_its_solo_run(case):
    assert_each_member_is_the_same(case, case.checkpoint)


def with_kernels():
    """Every model that has stencils, as interpreted kernels: decomposed, overlapped, and in a decomposed ensemble.

    In every run of the tests those of one model, with the slow ones of a few decomposed, and the rest of one.
    Steps of all models are compiled as kernels in test_kernel_compilation.
    """
    result = []
    for case in CASES:
        if case in PARTICLES or isinstance(case.build(Domain(case.grid)), SemilinearModel):
            continue
        for where in ("space", "overlap", "ensemble"):
            simple, in_space = case.name == "advection-2d-walls", where == "space"
            usual, slow = simple and in_space, simple or in_space and case.name in SLOW["kernels"]
            marks = () if usual else pytest.mark.slow if slow else pytest.mark.long
            result.append(pytest.param(case, where, id=f"{case.name} {where}", marks=marks))
    return pytest.mark.parametrize(("case", "where"), result)


@with_kernels()
def test_kernels_and_their_gradients_equal_jax_on_one_device(case, where):
    if where == "ensemble":
        assert_each_member_is_the_same(case, case.checkpoint, implementation="pallas")
        return
    layouts = [layout for layout in LAYOUTS[case.grid.ndim].values() if layout[1] == (where == "overlap")]
    assert_decomposed_run_is_the_same(case, *layouts[0], case.checkpoint, implementation="pallas")


FLOWS = [case for case in CASES if case.name.startswith("flow")]


def with_pressure_methods():
    """Every flow with every method, cut in space and as an ensemble; with the slow ones each method once."""
    result = []
    for case in FLOWS:
        for method in ("spectral", "tridiagonal", "multigrid"):
            if case.grid.stretched and method == "tridiagonal":  # takes uniform grids only
                continue
            if case.name == "flow-2d-central4" and method != "spectral":  # has this one
                continue
            for where in ("space", "ensemble"):
                usual = case.name == "flow-2d-walls" and f"{method}-{where}" in SLOW["pressure"]
                marks = pytest.mark.slow if usual else pytest.mark.long
                result.append(pytest.param(case, method, where, id=f"{case.name}-{method}-{where}", marks=marks))
    return pytest.mark.parametrize(("case", "method", "where"), result)


@with_pressure_methods()
def test_flows_do_not_depend_on_how_the_pressure_is_solved(monkeypatch, case, method, where):
    """With exchanges in pieces and transforms by matrices, as on TPUs; the references have neither."""
    for member in range(4):
        reference(case, member)
    for module in (dft, exchange, spectral):
        monkeypatch.setattr(module, "platform", lambda: "tpu")
    monkeypatch.setattr(poisson, "choose", lambda *_: method)
    monkeypatch.setattr(exchange, "LEAST_MESSAGE", 1)
    if where == "space":
        assert_decomposed_run_is_the_same(case, *next(iter(LAYOUTS[case.grid.ndim].values())), case.checkpoint)
        return
    assert_each_member_is_the_same(case, case.checkpoint)


def with_closures():
    """Every model that takes a closure, beside every kind of side: decomposed, overlapped, as an ensemble in space.

    The cheapest one in every run of the tests, and with the slow ones those on a staggered grid.
    """
    result = []
    for case in cases_closures.CASES:
        for where in ("space", "overlap", "ensemble") if case.cuts else ("ensemble",):
            name = f"{case.name} {where}"
            marks = pytest.mark.slow if name in SLOW["closures"] else pytest.mark.long
            result.append(pytest.param(case, where, id=name, marks=() if name == "advection-2d-walls space" else marks))
    return pytest.mark.parametrize(("case", "where"), result)


@with_closures()
def test_closures_and_their_gradients_do_not_depend_on_the_decomposition(case, where):
    if where == "ensemble":
        assert_each_member_is_the_same(case, case.checkpoint)
        return
    layouts = [layout for layout in LAYOUTS[case.grid.ndim].values() if layout[1] == (where == "overlap")]
    assert_decomposed_run_is_the_same(case, *layouts[0], case.checkpoint)


def test_every_model_has_a_case():
    """A grid model gets one by its declaration; one of particles is to be added to `cases_particles` and `cases`."""
    known = {case.name: case for case in CASES}
    assert {*WRITTEN, *DECLARED} == {*MODELS}
    for name, problems in WRITTEN.items():
        for problem in problems:
            case = known.pop(problem)
            built = case.build(Domain(case.grid))
            if not MODELS[name].of_particles:
                assert name in built.declarations, f"{problem} is {type(built).__name__}, not {name}"
    assert {*known.values()} == {*DECLARED.values()}


def test_every_model_that_takes_a_closure_has_a_case_with_one():
    assert {*cases_closures.MODELS} == {name for name, schema in MODELS.items() if schema.modules}


def planned():
    """Every case with every plan but its own, which the tests above have, cut in space and as an ensemble cut in space.

    In every run of the tests one; with the slow ones a few of other families, cut in space, from fewer states than
    steps.
    """
    result = []
    for case in CASES:
        for plan in PLANS:
            if plan == kind_of(case.checkpoint) or plan == "reverse" and not can_be_reversed(case):
                continue
            if plan == "budget" and case in PARTICLES:  # the arrays of a case are not the state that is stored
                continue
            for ensemble in (False, True) if case.cuts else (True,):
                chosen = case.name in SLOW.get(plan, ()) and not ensemble
                marks = pytest.mark.slow if chosen else pytest.mark.long
                name = f"{case.name} {plan} {'ensemble' if ensemble else 'space'}"
                result.append(pytest.param(case, plan, ensemble, id=name, marks=() if name == CHEAP else marks))
    return pytest.mark.parametrize(("case", "plan", "ensemble"), result)


def kind_of(checkpoint):
    return checkpoint if isinstance(checkpoint, str) else type(checkpoint).__name__.lower()


def can_be_reversed(case):
    fixed = case.integrator == "leapfrog" and case.schedule.dt is not None
    return fixed and not case.build(Domain(case.grid)).irreversible(case.params())


def budget(case, sizes):
    """Of all states but one, which are stored on each device: not every step fits."""
    state = jax.tree.leaves(undecomposed(case)[1])

    def devices(shape):
        """The number of devices that a field is cut over: those along axes of which it has more than a line."""
        if not case.cuts or len(shape) < case.grid.ndim:
            return 1
        along = zip("xyz", shape[-case.grid.ndim :], strict=False)
        return np.prod([sizes.get(axis, 1) for axis, n in along if n > 1], dtype=int)

    one = sum(u.nbytes // devices(u.shape) for u in state)
    one += sum(u.nbytes for u in jax.tree.leaves(Clock.zero(jnp.float64)))
    return Budget(int(max(case.frames * case.schedule.steps - 1, min(case.frames, 2)) * one))


@planned()
def test_gradients_are_the_same_with_every_plan(case, plan, ensemble):
    layout, overlap = next(iter(LAYOUTS[case.grid.ndim].values()))
    checkpoint = PLANS[plan] or budget(case, SPACE[case.grid.ndim] if ensemble else layout)
    if ensemble:
        assert_each_member_is_the_same(case, checkpoint)
    else:
        assert_decomposed_run_is_the_same(case, layout, overlap, checkpoint)


@each([case for case in CUT if case.partitioned != ()], some("partitioned"))
@pytest.mark.slow
def test_compiler_partitioned_program_agrees(case):
    """The oracle that shares no exchange: the undecomposed model, its inputs cut over the mesh."""
    mesh = make_mesh(dict(case.partitioned or ()) or PARTITIONED[case.grid.ndim])
    state_specs, params_specs = specs_of(case, decompose(case.grid, mesh))
    program, state = undecomposed(case)
    found = program(
        jax.device_put(case.params(), shardings(mesh, params_specs)),
        jax.device_put(state, shardings(mesh, state_specs)),
    )
    assert_same_run(case, found, reference(case, 0))


@each([case for case in CUT if case not in PARTICLES], functools.partial(marked, usual=True))
@pytest.mark.slow
def test_observations_and_diagnostics_do_not_depend_on_the_decomposition(case):
    mesh = make_mesh({1: {"x": 8}, 2: {"x": 2, "y": 4}, 3: {"x": 2, "y": 2, "z": 2}}[case.grid.ndim])
    domain = decompose(case.grid, mesh)
    state = undecomposed(case)[1]
    state_specs, params_specs = specs_of(case, domain)

    def look(domain):
        model = case.build(domain)

        def at_start(params, state):
            numbers = model.diagnostics(0.3, state, params)
            numbers.pop("max_divergence", None)  # rounding itself; the bound on it is in test_incompressible
            return model.observe(0.3, state, params), numbers, domain.min(model.stable_dt(state, params))

        return at_start

    out_specs = (domain.spec(), PartitionSpec(), PartitionSpec())
    run = distribute(look(domain), mesh, in_specs=(params_specs, state_specs), out_specs=out_specs)
    found = jax.jit(run, compiler_options=QUICK)(case.params(), state)
    expected = jax.jit(look(Domain(case.grid)), compiler_options=QUICK)(case.params(), state)
    # Pressure is the solution of a Poisson problem whose source has second differences in it.
    assert_close(found, expected, 1e-11, "observed")


def forward(case, domain, mesh, **options):
    """Final concentration of a run without gradients."""
    state_specs, params_specs = specs_of(case, domain)
    run = distribute(
        lambda params, state: case.runner(domain)(params, state)[1].concentration, mesh,
        in_specs=(params_specs, state_specs), out_specs=domain.spec(),
    )  # fmt: skip
    return jax.jit(run, **options)(case.params(), undecomposed(case)[1])


@functools.cache
def plainly_compiled(case):
    return forward(case, Domain(case.grid), None, compiler_options=PLAIN)


@named(EXPLICIT)
def test_explicit_model_is_bitwise_equal_on_every_layout(case, layout):
    """No sum over cells enters an explicit step, so not even a rounding differs, overlap or not.

    That holds of the arithmetic as written. Optimised code agrees only to rounding: the compiler fuses a product
    into a sum in one loop and not in another, and evaluates in advance what it knows on one device only.
    """
    sizes, overlap = LAYOUTS[case.grid.ndim][layout]
    mesh = make_mesh(sizes)
    found = forward(case, decompose(case.grid, mesh, overlap=overlap), mesh, compiler_options=PLAIN)
    np.testing.assert_array_equal(found, plainly_compiled(case))


@pytest.mark.parametrize(
    "case", sorted({case for case, _ in EXPLICIT}, key=lambda case: case.name), ids=lambda case: case.name
)
def test_optimised_explicit_model_is_equal_to_rounding(case):
    layout = next(iter(LAYOUTS[case.grid.ndim]))
    mesh = make_mesh(LAYOUTS[case.grid.ndim][layout][0])
    found = forward(case, decompose(case.grid, mesh), mesh, compiler_options=OPTIMISED)
    expected = forward(case, Domain(case.grid), None, compiler_options=OPTIMISED)
    # Four to six steps of values of order one, a rounding or two each.
    np.testing.assert_allclose(found, expected, rtol=0, atol=20 * np.finfo(float).eps)
