"""Balance of inflow and outflow of an incompressible box: refused before a run, watched in it, told after it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK
from jax.sharding import PartitionSpec

from simjax.config import validate
from simjax.core.boundary import Inflow, NoSlipWall, PeriodicSide, SlipWall
from simjax.core.domain import Domain
from simjax.driver.simulation import Simulation
from simjax.driver.start.build import check_sides
from simjax.errors import ConfigurationError, NumericalError
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.incompressible import Incompressible, Params, State
from simjax.models.flow.passive_scalar import PassiveScalar
from simjax.models.flow.sides import balance
from simjax.parallel import decompose, distribute, make_mesh
from simjax.status import OK, UNBALANCED
from simjax.stepping.simulate import Schedule, simulate

STILL, PERIODIC = (NoSlipWall(), NoSlipWall()), (PeriodicSide(), PeriodicSide())
PLANE = Grid((16, 8), (0.0, 0.0), (2.0, 1.0))


def through(*speeds):
    """Sides of x through which these velocities are prescribed."""
    return [tuple(Inflow((speed, 0.0)) for speed in speeds), STILL]


def profile(t, x, y):
    return 6 * y * (1 - y)


REFUSED = {
    "another speed": (
        through(1.0, 0.5),
        [
            "1 m2 s-1 flows in at boundaries.x.lower",
            "0.5 m2 s-1 flows out at",
            "multiply the velocity at boundaries.x.upper by 2.0.",
        ],
    ),
    "no way out": (
        [(Inflow((1.0, 0.0)), NoSlipWall()), STILL],
        [
            "1 m2 s-1 flows in at boundaries.x.lower and nothing through the other sides",
            "write outflow at another side, such as boundaries.x.upper",
        ],
    ),
    "both in": (through(1.0, -1.0), ["1 m2 s-1 flows in at boundaries.x.upper", "turn one of them around"]),
    # The midpoint rule takes 1 + h^2 / 2 for the integral of 6 y (1 - y).
    "a profile": (through(profile, 1.0), ["1.00781 m2 s-1 flows in", "boundaries.x.upper by 1.0078125."]),
    "in time": (through(lambda t, x, y: 2 - t + 0 * y, 1.0), ["but at t = 0 2 m2 s-1 flows in"]),
    "round a corner": (
        [(Inflow((1.0, 0.0)), SlipWall()), (NoSlipWall(), Inflow((0.0, 1.0)))],
        [
            "1 m2 s-1 flows in at boundaries.x.lower, 2 m2 s-1 flows out at boundaries.y.upper",
            "boundaries.y.upper by 0.5.",
        ],
    ),
    "a wall that does not hold": ([(NoSlipWall((0.25, 0.0)), NoSlipWall()), STILL], ["0.25 m2 s-1 flows in"]),
    "not a number": (through(1.0, float("nan")), ["nan m2 s-1"]),
}


@pytest.mark.parametrize("model", [Incompressible, PassiveScalar])
@pytest.mark.parametrize("sides, words", REFUSED.values(), ids=REFUSED)
def test_what_does_not_balance_is_refused_with_both_fluxes(sides, words, model):
    with pytest.raises(ConfigurationError) as refused:
        model(Domain(PLANE), sides)
    assert all(word in str(refused.value) for word in words), refused.value


def test_what_balances_is_taken():
    round_the_corner = [(Inflow((1.0, 0.0)), SlipWall()), (NoSlipWall(), Inflow((0.0, 0.5)))]
    in_3d = [through(1.0, 1.0)[0], STILL, PERIODIC]
    for grid, sides in (
        (PLANE, through(1.0, 1.0)),
        (PLANE, through(profile, profile)),
        (PLANE, round_the_corner),
        (PLANE, through(profile, 1.0078125)),
        (PLANE, [STILL, STILL]),
        (PLANE, [PERIODIC, STILL]),
        (Grid((4, 4, 4)), [tuple(Inflow((1.0, 0.0, 0.0)) for _ in range(2)), *in_3d[1:]]),
    ):
        assert not Incompressible(Domain(grid), sides).watched


def test_the_factor_that_is_told_balances():
    def odd(t, x, y):
        return jnp.exp(y) * jnp.sin(3 * y)

    with pytest.raises(ConfigurationError) as refused:
        Incompressible(Domain(PLANE), through(profile, odd))
    factor = float(str(refused.value).rpartition(" ")[2].rstrip("."))
    Incompressible(Domain(PLANE), through(profile, lambda t, x, y: factor * odd(t, x, y)))


def test_numbers_of_a_program_are_watched_in_it():
    @jax.jit
    def found(rate, t):
        model = Incompressible(Domain(PLANE), through(lambda t, x, y: 1 + rate * t + 0 * y, 1.0))
        assert model.watched
        return model.fault(t, Params(rate, rate))

    assert [int(found(rate, 0.5)) for rate in (0.0, 1.0, jnp.nan)] == [OK, UNBALANCED, UNBALANCED]


@pytest.mark.parametrize("sizes", [{"x": 2, "y": 4}, {"x": 8}], ids=str)
@pytest.mark.slow
def test_fluxes_and_faults_do_not_depend_on_the_decomposition(sizes):
    def at(domain):
        sides = [tuple(Inflow((speed, 0.0)) for speed in (lambda t, x, y: 1 + t * y, 1.0)), STILL]

        def look(t):
            layouts = Incompressible(domain, sides).layouts
            return balance.fluxes(domain, layouts, t, t.dtype), balance.fault(domain, layouts, t, t.dtype)

        return look

    mesh, grid = make_mesh(sizes), Grid((16, 8), (0.0, 0.0), (2.0, 1.0))
    run = distribute(at(decompose(grid, mesh)), mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec())
    for t, status in ((0.0, OK), (0.3, UNBALANCED)):
        (inward, outward), fault = jax.jit(run, compiler_options=QUICK)(jnp.asarray(t))
        # The mean of a linear profile over faces is exact, but for roundings of its sum in another order.
        np.testing.assert_allclose([inward, outward], [1 + 0.5 * t, -1], rtol=1e-15)
        assert int(fault) == status


def test_a_run_ends_where_it_goes_out_of_balance():
    """Status, and the last good state: that of the frame before."""
    model = Incompressible(Domain(PLANE), through(lambda t, x, y: jnp.where(t > 0.05, 2.0, 1.0) + 0 * y, 1.0))
    params = Params(jnp.asarray(0.01), jnp.asarray(0.0))
    start = State((jnp.ones((16, 8)), jnp.zeros((16, 8))))
    run = jax.jit(
        lambda params, state: simulate(
            model, INTEGRATORS["euler"], params, state, Schedule(0.02, dt=0.01), frames=4, checkpoint="none"
        ),
        compiler_options=QUICK,
    )
    end = run(params, start)
    assert int(end.clock.status) == UNBALANCED and int(end.clock.frame) == 2


def channel(upper, **sections):
    def side(speed):
        return {"kind": "inflow", "velocity": [speed, 0]}

    return validate(
        {
            "model": "incompressible",
            "precision": "float64",
            "physics": {"viscosity": 0.01},
            "grid": {"shape": [16, 8]},
            "boundaries": {"x": {"lower": side("6*y*(1-y)"), "upper": side(upper)}, "y": "no_slip"},
            "time": {"end": 0.04, "output_every": 0.02, "dt": 0.01},
            **sections,
        }
    )


def test_a_configuration_is_refused_for_every_member():
    grid = Domain(Grid((16, 8)))
    check_sides(channel("6*y*(1-y)"), grid)
    with pytest.raises(ConfigurationError, match="boundaries.x.upper by 2.0"):
        check_sides(channel("3*y*(1-y)"), grid)
    shares = {
        "parameters": {"share": 1.0},
        "ensemble": {"size": 3, "vary": {"parameters.share": {"values": [1.0, 1.0, 1.0]}}},
    }
    check_sides(channel("6*share*y*(1-y)", **shares), grid)
    vary = {"ensemble": {"size": 3, "vary": {"parameters.share": {"values": [1.0, 1.0, 0.5]}}}}
    with pytest.raises(ConfigurationError, match="boundaries.x.upper by 2.0"):
        check_sides(channel("6*share*y*(1-y)", **{**shares, **vary}), grid)


OUTPUT = {"report": False, "animation": False, "fields": []}


@pytest.mark.slow
def test_a_configured_run_that_goes_out_of_balance_says_how_and_when(tmp_path):
    config = channel("6*y*(1-y)*where(t > 0.025, 2, 1)", output={**OUTPUT, "root": str(tmp_path)})
    with pytest.raises(NumericalError) as failed:
        Simulation(config).run()
    for words in (
        "prescribed velocities brought in another volume",
        "1.00781 m2 s-1 flows in at boundaries.x.lower",
        "2.01562 m2 s-1 flows out at boundaries.x.upper",
        "at t=0.03, step 3",
        "after t=0.02",
        "balance at all times",
    ):
        assert words in str(failed.value), failed.value


@pytest.mark.slow
def test_a_failed_check_is_in_the_result_and_on_the_terminal(tmp_path, capsys):
    """An imbalance that a sum in float32 may hide leaves a divergence that rounding does not explain."""
    # 2e-4 of the flux: below 1000 roundings of both, above 100 times the cells along y.
    config = channel("6*y*(1-y)*(1 + 0.005*t)", precision="float32", output={**OUTPUT, "root": str(tmp_path)})
    result = Simulation(config).run(progress=True)
    assert result.exit_code == 0
    (sentence,) = result.failed_checks
    assert sentence.startswith("Largest divergence: 2.0e-04 s-1; expected: rounding: at most"), sentence
    assert f"check failed: {sentence}" in capsys.readouterr().out
    assert Simulation(channel("6*y*(1-y)", output={**OUTPUT, "root": str(tmp_path)})).run().failed_checks == ()
