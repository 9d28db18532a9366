"""One device, many devices, overlap, ensembles and the compiler's own partitioner: the same numbers.

Every case of `cases.CASES` runs decomposed. In other layouts, as kernels, in ensembles and with other checkpoint plans
a few run in every run of the tests or with the slow ones, and long tests combine these so that each two of them have
run together, and each of them with every model (`combined`). State and gradients are compared with those of the
undecomposed program; they differ only by the order of sums, so the bounds are a few hundred and 1e5 roundings.
"""

import functools
import itertools

import cases_closures
import cases_particles
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import OPTIMISED, PLAIN, QUICK
from cases import CASES, DECLARED, WRITTEN
from combined import Combination, covering
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
from simjax.models.troubles import field_of
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
POLICIES = ("none", "every_few", "every_stage", "every_step", "two_level", "binomial", "budget", "reverse")
# With the slow ones, a few cases of what hardly depends on the equations; the others are among the combinations.
SLOW = {
    "ensemble": ("flow-2d-walls", "semilinear-kdv-1d"),
    "overlap": ("acoustic-3d",),
    "pressure": {"spectral": "space", "tridiagonal": "ensemble", "multigrid": "space"},
}
EXPLICIT = [(case, layout) for case, layout in COMBINATIONS if case.name.startswith("advection")]


# Compiled for every layout and differentiated, all cases take half an hour. In every run of the tests are those in 1-D
# and 2-D, but particles and the dear ones of a family that has a cheap one: the first layout and the observations. The
# rest is with the slow ones, but of gases and implicit transport in 3-D and in an atmosphere, and of what a stretched
# grid has as well.
DEAR = (
    "gas-1d-atmosphere",
    "gas-2d-walls",
    "gas-2d-igr",
    "gas-2d-characteristic",
    "gas-2d-solid",
    "gas-2d-moving-solid",
    "acoustic-2d",
    "particles-water-2d",
    "particles-plasma-2d",
    "particles-stars-2d",
    "particles-liquid-2d",
    "passive-scalar-2d-walls",
    "spectral-vorticity-2d",
    "semilinear-gray-scott-2d",
    "transport-2d-implicit",
    "maxwell-2d",
    "burgers-1d-weno5",
    "particles-radiating-plasma-2d",
    "transport-2d-stretched-implicit",
    "burgers-2d-stretched",
    "acoustic-2d-stretched",
    "maxwell-2d-stretched",
    "gas-1d-stretched",
    "gas-2d-axisymmetric",
    "gas-2d-warm-solid",
    "stretched-advection-2d",
    "boussinesq-2d-walls",
    "flow-2d-open",
    "axisymmetric-advection-2d",
    "transport-2d-axisymmetric",
    "acoustic-2d-axisymmetric",
    "maxwell-2d-axisymmetric",
    "passive-scalar-2d-eddies",
    "flow-2d-axisymmetric",
    "flow-2d-moving-solid",
    "flow-2d-outflow",
    "transport-2d-stretched",
    "flow-2d-central4",
    "flow-2d-upwind",
    "flow-2d-dynamic",
    "flow-2d-implicit",
    "passive-scalar-2d-solid",
    "boussinesq-2d-moving-solid",
    "flow-2d-free-body",
    "boussinesq-2d-scalars",
    "flow-2d-axisymmetric-solid",
    "flow-2d-solid",
    "flow-2d-stretched",
    "declared-kuramoto_sivashinsky",
    "declared-swift_hohenberg",
    "declared-viscous_burgers",
    "declared-cahn_hilliard",
)
LONG = (
    "gas-3d-periodic",
    "transport-3d-implicit",
    "gas-1d-atmosphere",
    "maxwell-2d",
    "acoustic-2d",
    "transport-2d-implicit",
)


def marked(case, usual):
    """Marks of a test of `case` that is, or is not, among the `usual` ones."""
    usual = usual and case.grid.ndim < 3 and case.name not in DEAR
    return () if usual else (pytest.mark.long if case.name in LONG else pytest.mark.slow,)


def each(cases, marks):
    return pytest.mark.parametrize("case", [pytest.param(case, marks=marks(case), id=case.name) for case in cases])


def is_simple(case):
    return case.name.startswith("advection")


def repeats(case, layout):
    """Tell whether other layouts show what this one does.

    Overlap is in the exchange, whatever the equations, and a few cases show it. Cut otherwise, a flow differs from
    advection in the pressure solve, which test_poisson cuts in every way, and 4x2 is 2x4 turned.
    """
    if is_simple(case):
        return False
    if "overlap" in layout:
        return case.name not in SLOW["overlap"]
    return layout in OTHERWISE and (layout, case.name) != ("8x1", "spectral-vorticity-2d")


def named(pairs):
    first = {ndim: next(iter(layouts)) for ndim, layouts in LAYOUTS.items()}

    def marks(case, layout):
        usual = layout == first[case.grid.ndim] or case.name == "advection-2d-walls"
        return pytest.mark.slow if layout in OTHERWISE and not is_simple(case) else marked(case, usual)

    return pytest.mark.parametrize(
        "case, layout",
        [
            pytest.param(case, layout, id=f"{case.name} {layout}", marks=marks(case, layout))
            for case, layout in pairs
            if not repeats(case, layout)
        ],
    )


NAMED = {case.name: case for case in CASES}
CLOSED = {case.name: case for case in cases_closures.CASES}
COMBINED = {**NAMED, **{f"{name} closed": case for name, case in CLOSED.items()}}
CUT = [case for case in CASES if case.cuts]


@named(COMBINATIONS)
def test_decomposed_run_and_its_gradients_equal_those_on_one_device(case, layout):
    assert_decomposed_run_is_the_same(case, *LAYOUTS[case.grid.ndim][layout], case.checkpoint)


@each(
    [case for case in CASES if case.name in SLOW["ensemble"] or is_simple(case)],
    lambda case: () if is_simple(case) and case.grid.ndim < 3 else (pytest.mark.slow,),
)
def test_each_member_of_a_decomposed_ensemble_equals_its_solo_run(case):
    assert_each_member_is_the_same(case, case.checkpoint)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("advection-2d-walls", "space"),
        pytest.param("advection-2d-walls", "overlap", marks=pytest.mark.slow),
        pytest.param("advection-2d-walls", "ensemble", marks=pytest.mark.slow),
        pytest.param("flow-2d-walls", "space", marks=pytest.mark.slow),
        pytest.param("acoustic-3d", "space", marks=pytest.mark.slow),
    ],
)
def test_kernels_and_their_gradients_equal_jax_on_one_device(name, where):
    """Decomposed, overlapped, and in a decomposed ensemble; in test_kernel_compilation steps of all models compile."""
    case = NAMED[name]
    if where == "ensemble":
        assert_each_member_is_the_same(case, case.checkpoint, implementation="pallas")
        return
    layouts = [layout for layout in LAYOUTS[case.grid.ndim].values() if layout[1] == (where == "overlap")]
    assert_decomposed_run_is_the_same(case, *layouts[0], case.checkpoint, implementation="pallas")


FLOWS = [case for case in CASES if case.name.startswith("flow")]


def with_pressure_methods():
    """Every flow with every method, cut in space or as an ensemble in turns; with the slow ones each method once."""
    result = []
    for k, case in enumerate(FLOWS):
        for j, method in enumerate(("spectral", "tridiagonal", "multigrid")):
            if case.grid.stretched and method == "tridiagonal":  # takes uniform grids only
                continue
            if case.name == "flow-2d-central4" and method != "spectral":  # has this one
                continue
            slow = case.name == "flow-2d-walls"
            where = SLOW["pressure"][method] if slow else ("space", "ensemble")[(j + k) % 2]
            marks = pytest.mark.slow if slow else pytest.mark.long
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


@pytest.mark.parametrize(
    "name",
    [
        "advection-2d-walls",
        pytest.param("advection-2d-walls-pointwise", marks=pytest.mark.slow),
        pytest.param("passive-scalar-2d-inflow", marks=pytest.mark.slow),
    ],
)
def test_closures_and_their_gradients_do_not_depend_on_the_decomposition(name):
    case = CLOSED[name]
    assert_decomposed_run_is_the_same(case, *next(iter(LAYOUTS[case.grid.ndim].values())), case.checkpoint)


def test_every_model_has_a_case():
    """A grid model gets one by its declaration; one of particles is to be added to `cases_particles` and `cases`."""
    known = dict(NAMED)
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


def plan_of(case, policy, sizes):
    return Binomial(2) if policy == "binomial" else budget(case, sizes) if policy == "budget" else policy


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("advection-2d-walls", "budget"),
        pytest.param("acoustic-1d", "two_level", marks=pytest.mark.slow),
        pytest.param("acoustic-3d", "binomial", marks=pytest.mark.slow),
    ],
)
def test_gradients_are_the_same_with_every_plan(name, policy):
    case = NAMED[name]
    sizes, overlap = next(iter(LAYOUTS[case.grid.ndim].values()))
    assert_decomposed_run_is_the_same(case, sizes, overlap, plan_of(case, policy, sizes))


def offered():
    """By model, every run that there could be of its cases; cases with a closure are together."""
    runs: dict[str, list[Combination]] = {}
    models = {name: model for model, names in WRITTEN.items() for name in names}
    models |= {case.name: model for model, case in DECLARED.items()}
    for name, case in COMBINED.items():
        particles, built = case in PARTICLES, case.build(Domain(case.grid))
        plain = particles or isinstance(built, SemilinearModel)
        where = [*(layout for layout in LAYOUTS[case.grid.ndim] if not (particles and "overlap" in layout)), "ensemble"]
        plans = [policy for policy in POLICIES if policy != "reverse" or can_be_reversed(case)]
        if particles:  # the arrays of a case are not the state that is stored
            plans.remove("budget")
        runs.setdefault(models.get(name, "closures"), []).extend(
            Combination(name, *choices)
            for choices in itertools.product(
                where if case.cuts else ["ensemble"], ["xla"] if plain else ["xla", "pallas"], plans
            )
        )
    return runs


OFFERED = offered()
TAKEN = covering(OFFERED)


def test_each_two_choices_are_combined_and_each_with_every_model():
    runs = {model: [run for run in TAKEN if run in offers] for model, offers in OFFERED.items()}
    assert sum(map(len, runs.values())) == len(TAKEN) == len(set(TAKEN))
    for shown, groups in (
        (Combination.of_its_model, zip(runs.values(), OFFERED.values(), strict=True)),
        (Combination.of_any_model, [(TAKEN, itertools.chain(*OFFERED.values()))]),
    ):
        for some, everything in groups:
            assert set().union(*map(shown, some)) == set().union(*map(shown, everything))
    # Of a flow: its cases, each cut and in an ensemble; and for example stored few steps at a time by kernels.
    cut_or_not = {*itertools.product(WRITTEN["incompressible"], (False, True))}
    assert {(run.case, run.where == "ensemble") for run in runs["incompressible"]} == cut_or_not
    assert any(run.plan == "every_few" and run.implementation == "pallas" for run in TAKEN)


@pytest.mark.parametrize(("case", "run"), [pytest.param(COMBINED[run.case], run, id=str(run)) for run in TAKEN])
@pytest.mark.long
def test_combinations_and_their_gradients_equal_the_run_on_one_device(case, run):
    options = {} if run.implementation == "xla" else {"implementation": run.implementation}
    if run.where == "ensemble":
        assert_each_member_is_the_same(case, plan_of(case, run.plan, SPACE[case.grid.ndim]), **options)
        return
    sizes, overlap = LAYOUTS[case.grid.ndim][run.where]
    assert_decomposed_run_is_the_same(case, sizes, overlap, plan_of(case, run.plan, sizes), **options)


@each(
    [case for case in CUT if case.partitioned != ()],
    lambda case: (pytest.mark.slow if case.name == "spectral-vorticity-2d" or is_simple(case) else pytest.mark.long,),
)
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
            if "limited_faces" in numbers:  # a smooth gas has none
                numbers["limited_faces"] += 1
            fields = model.observe(0.3, state, params)
            dtype = jnp.result_type(*fields.values())
            troubles = [one for one in model.troubles if not one.lowest and one.name != "divergence"]  # rounding too
            # Many have none, from which a difference is measured by 1.
            fields |= {one.name: 1 + field_of(model, one, 0.3, state, params, dtype) for one in troubles}
            return fields, numbers, domain.min(model.stable_dt(state, params))

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
        lambda params, state: case.runner(domain)(params, state)[1].concentration,
        mesh,
        in_specs=(params_specs, state_specs),
        out_specs=domain.spec(),
    )
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
