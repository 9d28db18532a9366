"""Certificates of small functions, right and wrong: every check sees the mistakes that it is there for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import linear_call

from simjax.certificate.certificate import Certificate, Check, Objective, certify
from simjax.certificate.remainder import computational_noise, taylor_remainder
from simjax.errors import ConfigurationError, NumericalError
from simjax.stepping.checkpointing.plan import Binomial

START = {"rate": np.asarray(0.7), "speed": np.asarray(-1.3), "field": (np.linspace(0.2, 1.5, 12), np.full(5, -0.4))}
# A mistake that cosines do not see: as large as a thousandth of one term's derivative.
FACTOR = 1.001


def function(unknowns, change=lambda x: x):
    """Four steps of a small nonlinear map; `change` is applied to one of its terms."""
    a, b = unknowns["field"]
    for _ in range(4):
        a = a + 0.1 * (unknowns["rate"] * jnp.sin(a) - unknowns["speed"] * change(a**2) * jnp.mean(b))
        b = b + 0.1 * jnp.cos(b) * jnp.sum(a)
    return jnp.mean(a**2 + 0.3 * a**3) + jnp.mean(b**2)


def objective(change=lambda x: x, *, wrong=lambda sizes, plan: True, **options):
    """An objective whose function is changed where `wrong(sizes, plan)`."""

    def on(sizes, plan):
        return functools.partial(function, change=change) if wrong(sizes, plan) else function

    options = {"meshes": ({"x": 2},), "plans": ("none", Binomial(3))} | options
    return Objective(START, on, **options)


@jax.custom_vjp
def wrong_in_reverse(x):
    return x


wrong_in_reverse.defvjp(lambda x: (x, None), lambda _, g: (FACTOR * g,))


def wrong_transpose(x):
    """Right in forward mode, wrong in reverse, as a solve that is taken for symmetric."""
    return linear_call(lambda _, x: x, lambda _, g: FACTOR * g, (), x)


@jax.custom_jvp
def wrong_in_both(x):
    return x


wrong_in_both.defjvp(lambda primals, tangents: (primals[0], FACTOR * tangents[0]))

TAYLOR = {"Taylor remainder, all unknowns", "Taylor remainder, 2 numbers, each", "Taylor remainder, 1 field"}
MODES = {"forward against reverse, 9 directions"}
DIFFERENCES = {"central differences, 8 directions: relative"}
COSINE = {"central differences, 8 directions: 1 - cosine"}
MESHES = {"one device against 2, x=2"}
PLANS = {"every_step against none", "every_step against Binomial(states=3)"}


def names(certificate, passed):
    return {check.name for check in certificate.checks if check.passed is passed}


def test_a_right_gradient_passes_every_check():
    certificate = certify(objective())
    assert names(certificate, True) == TAYLOR | MODES | DIFFERENCES | COSINE | MESHES | PLANS
    assert certificate.passed and certificate.verdict == "PASSED: all 9 checks"
    assert repr(certificate) == "Certificate: PASSED: all 9 checks"


@pytest.mark.parametrize(
    ("change", "wrong", "failed"),
    [
        (wrong_transpose, lambda sizes, plan: True, TAYLOR | MODES | DIFFERENCES),
        (wrong_in_both, lambda sizes, plan: True, TAYLOR | DIFFERENCES),
        # A whole term of the derivative is missing.
        (jax.lax.stop_gradient, lambda sizes, plan: True, TAYLOR | DIFFERENCES | COSINE),
        (wrong_in_reverse, lambda sizes, plan: sizes, MESHES),
        (jax.lax.stop_gradient, lambda sizes, plan: sizes, MESHES),
        (wrong_in_reverse, lambda sizes, plan: plan == "none", {"every_step against none"}),
        (wrong_in_reverse, lambda sizes, plan: plan == Binomial(3), {"every_step against Binomial(states=3)"}),
        # Another value, of which the derivative is that of the value.
        (lambda x: x * (1 + 1e-9), lambda sizes, plan: sizes, MESHES),
    ],
)
def test_a_wrong_gradient_fails_where_it_is_wrong(change, wrong, failed):
    certificate = certify(objective(change, wrong=wrong))
    assert names(certificate, False) == failed
    assert not certificate.passed and certificate.verdict.startswith(f"FAILED: {len(failed)} of 9 checks: ")


def test_a_mistake_of_a_millionth_fails_the_taylor_test():
    """The others' bounds of 1e-6 would let it through."""

    @jax.custom_jvp
    def slightly_wrong(x):
        return x

    slightly_wrong.defjvp(lambda primals, tangents: (primals[0], (1 + 1e-6) * tangents[0]))
    certificate = certify(objective(slightly_wrong, meshes=(), plans=()))
    assert TAYLOR & names(certificate, False) and not DIFFERENCES & names(certificate, False)


def test_an_unknown_whose_influence_has_no_gradient_fails():
    def on(sizes, plan):
        return lambda unknowns: function(unknowns | {"rate": jax.lax.stop_gradient(unknowns["rate"])})

    certificate = certify(Objective(START, on))
    assert "zero gradient, 1 unknown(s)" in names(certificate, False)


def test_an_unknown_without_influence_is_named():
    start = START | {"unused": np.asarray(0.0), "untouched": np.ones(3)}
    certificate = certify(Objective(start, lambda sizes, plan: function))
    assert certificate.passed and "zero gradient, 2 unknown(s)" in names(certificate, True)
    assert certificate.notes == ("the function does not depend on untouched, unused here",)
    assert certificate.verdict == "PASSED: all 7 checks, on one device only"


@pytest.mark.slow
def test_without_forward_mode_nothing_is_certified():
    @jax.custom_vjp
    def only_reverse(x):
        return x

    only_reverse.defvjp(lambda x: (x, None), lambda _, g: (g,))
    certificate = certify(objective(only_reverse))
    assert names(certificate, False) == set() and names(certificate, None) == MODES and not certificate.passed
    assert certificate.verdict == "NOT CERTIFIED: not tested: forward against reverse, 9 directions"


@pytest.mark.slow
def test_what_could_not_be_tested_is_not_certified():
    certificate = certify(objective(untested={"one device against many": "1 device present"}))
    assert not certificate.passed and certificate.verdict.startswith("NOT CERTIFIED: ")


def with_kink(distance, change=lambda x: x):
    """A function with a kink at zero, to be differentiated at a distance of it."""
    start = {"u": np.asarray([1.0, distance])}
    return Objective(start, lambda sizes, plan: lambda x: jnp.sum(jnp.abs(x["u"]) + change(x["u"] ** 2)))


def test_a_kink_beside_the_start_does_not_matter():
    certificate = certify(with_kink(1e-4))
    assert certificate.passed and "beside" not in certificate.verdict


@pytest.mark.parametrize("distance", [0.0, 1e-7, 1e-6])
def test_a_start_on_a_kink_or_near_it_is_told(distance):
    certificate = certify(with_kink(distance))
    assert certificate.verdict == "PASSED: all 5 checks, on one device only, 1e-03 beside the start"
    assert certificate.notes[0].startswith("at the start, perhaps by a kink: Taylor remainder, all unknowns: slope ")


@pytest.mark.parametrize("change", [wrong_in_both, jax.lax.stop_gradient])
@pytest.mark.parametrize("distance", [0.0, 1e-6])
@pytest.mark.slow
def test_a_kink_hides_no_wrong_derivative(change, distance):
    assert not certify(with_kink(distance, change)).passed


def test_a_function_without_curvature_passes_by_its_derivative():
    start, weights = {"u": np.asarray([0.3, -2.0])}, jnp.asarray([1.5, 0.25])
    certificate = certify(Objective(start, lambda sizes, plan: lambda x: jnp.sum(weights * x["u"])))
    assert certificate.passed and certificate.checks[0].measured.startswith("linear to ")
    wrong = certify(Objective(start, lambda sizes, plan: lambda x: jnp.sum(wrong_in_both(weights * x["u"]))))
    assert "Taylor remainder, all unknowns" in names(wrong, False)


def test_remainders_stand_clear_of_a_function_s_own_noise():
    """Of a value in single precision."""

    def loss(unknowns):
        return float(np.float32(np.sum(np.exp(unknowns["u"]))))

    start, direction = {"u": np.linspace(0.1, 0.4, 7)}, {"u": np.ones(7)}
    slope = float(np.sum(np.exp(start["u"])))
    noise = computational_noise(loss, start, direction)
    assert noise < 2 * np.finfo(np.float32).eps * slope
    found = taylor_remainder(loss, start, direction, slope, slope)
    # Third-order terms are h / 3 of the second, h = 1/16 or so here.
    assert found.fault < 0.05 and found.shortest > 1e-3
    assert taylor_remainder(loss, start, direction, 1.01 * slope, slope).fault > 0.3


@pytest.mark.parametrize("curvature", [0.0, 1e-5])
def test_a_derivative_is_certified_where_there_is_little_curvature(curvature):
    """The remainder then is of third order, and one of first order is found in it."""

    def loss(unknowns):
        h = float(unknowns["u"]) - 1.0
        return 1.0 + h + curvature * h**2 + h**3

    start, direction = {"u": np.asarray(1.0)}, {"u": np.asarray(1.0)}
    found = taylor_remainder(loss, start, direction, 1.0, 1.0)
    # A remainder of 300 roundings: their share in the part of first order is at most 1 / 100.
    assert found.slope is not None and found.slope > 2.05 and found.fault < 0.01
    # At that step, 4e-5, the derivative is off by twice the remainder of third order.
    wrong = taylor_remainder(loss, start, direction, 1.0 + 2 * found.shortest**2, 1.0)
    assert wrong.fault > 0.05


def test_a_given_direction_is_followed():
    """Along which the function is linear, though it is not along others."""
    start = {"u": np.asarray([0.7, -0.4])}
    objective = Objective(
        start, lambda sizes, plan: lambda x: x["u"][0] + x["u"][1] ** 2, direction={"u": np.asarray([1.0, 0.0])}
    )
    assert certify(objective).checks[0].measured.startswith("linear to ")


def test_the_table():
    checks = (Check("first", "1.0e-12", "<= 1e-10", True), Check("second one", "2.0", "<= 1", False))
    assert str(Certificate(checks, ("a note",))).splitlines() == [
        "check       measured  required  verdict",
        "----------  --------  --------  -------",
        "first       1.0e-12   <= 1e-10  passed",
        "second one  2.0       <= 1      FAILED",
        "note: a note",
        "FAILED: 1 of 2 checks: second one",
    ]


def test_what_cannot_be_certified_is_refused():
    with pytest.raises(ConfigurationError, match=r"start\['u'\]: expected an array of float64.*got .*float32"):
        Objective({"u": np.ones(2, np.float32)}, lambda sizes, plan: lambda x: jnp.sum(x["u"]))
    with pytest.raises(ConfigurationError, match=r"expected an array of float64.*got .*float"):
        Objective({"u": 1.0}, lambda sizes, plan: lambda x: x["u"])
    with pytest.raises(NumericalError, match="expected finite numbers"):
        certify(Objective({"u": np.asarray(-1.0)}, lambda sizes, plan: lambda x: jnp.log(x["u"])))


# ---- shapes over a cell


def over_a_cell(function):
    """The certificate of a function of a place, which moves by a cell of 0.1."""
    start, cell = {"place": np.asarray(0.3)}, {"along x": {"place": np.asarray(0.1)}}
    return certify(Objective(start, lambda sizes, plan: lambda u: function(u["place"]), across=cell))


def test_a_jump_that_no_derivative_sees_is_found():
    # Two hundredths of what the sine changes by over the cell: twice the bound.
    jump = 0.02 * (np.sin(0.35) - np.sin(0.25))
    found = over_a_cell(lambda x: jnp.sin(x) + jnp.where(x > 0.317, jump, 0.0))
    assert [check.name for check in found.checks if not check.passed] == ["shape over a cell, along x"]


def test_hundreds_of_kinks_are_no_jump():
    """At the first places the derivative is off by more than the bound, so that they must not decide."""
    draw = np.random.default_rng(0)
    places, turns = draw.uniform(0.25, 0.35, 300), draw.choice([-1.0, 1.0], 300)
    first = np.linspace(0.25, 0.35, 26)
    slopes = np.cos(first) + 0.5 * np.sum(turns * np.sign(first[:, None] - places), axis=1)
    values = np.sin(first) + 0.5 * np.sum(turns * np.abs(first[:, None] - places), axis=1)
    pieces = 0.5 * np.diff(first) * (slopes[1:] + slopes[:-1])
    assert abs(values[-1] - values[0] - pieces.sum()) > 0.01 * np.abs(pieces).sum()
    found = over_a_cell(lambda x: jnp.sin(x) + 0.5 * jnp.sum(turns * jnp.abs(x - places)))
    assert found.passed, str(found)


def test_a_steep_change_is_no_jump():
    # As steep as a thousandth of a cell, where places 64 times as far apart would not see it.
    found = over_a_cell(lambda x: jnp.sin(x) + 0.1 * jnp.tanh((x - 0.317) / 1e-4))
    assert found.passed, str(found)
