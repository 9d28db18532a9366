"""Formulas: the numbers that numpy and jax give, derivatives, hashability, refusal of everything else."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.errors import ConfigurationError
from simjax.schema.formula import FUNCTIONS, MAXIMUM_DEPTH, MAXIMUM_LENGTH, Formula

X = np.linspace(0.1, 0.9, 7)[:, None]
Y = np.linspace(-1.0, 1.0, 5)[None, :]
erf = np.vectorize(math.erf)

EXPRESSIONS = {
    "1 + 2*x - y/4": 1 + 2 * X - Y / 4,
    "-x**2": -(X**2) + 0 * Y,
    "x**-0.5 + 2**x": X**-0.5 + 2**X,
    "2**3**2 * x": 512 * X,
    "sin(x)*cos(y) + tan(x)": np.sin(X) * np.cos(Y) + np.tan(X),
    "exp(-x) + log(x) + sqrt(x) + abs(y)": np.exp(-X) + np.log(X) + np.sqrt(X) + np.abs(Y),
    "tanh(x) + sinh(x) + cosh(x)": np.tanh(X) + np.sinh(X) + np.cosh(X),
    "asin(x) + acos(x) + atan(x) + atan2(y, x)": np.arcsin(X) + np.arccos(X) + np.arctan(X) + np.arctan2(Y, X),
    "minimum(x, y) + maximum(x, 0.5)": np.minimum(X, Y) + np.maximum(X, 0.5),
    "mod(7*x, 2) + floor(3*y)": np.mod(7 * X, 2) + np.floor(3 * Y),
    "erf(y) + step(y)": erf(Y) + np.where(Y < 0, 0.0, 1.0),
    "where(0.2 < x <= 0.6 and not y > 0, x, y)": np.where((X > 0.2) & (X <= 0.6) & ~(Y > 0), X, Y),
    "where(x == 0.1 or y != 1, 1, 0)": np.where((X == 0.1) | (Y != 1), 1.0, 0.0),
    "pi*x": np.pi * X,
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_values_agree_with_numpy(text):
    formula, expected = Formula(text), EXPRESSIONS[text]
    in_numpy = formula({"x": X, "y": Y})
    in_jax = jax.jit(lambda x, y: formula({"x": x, "y": y}, jnp))(X, Y)
    # a few operations, each to a few units in the last place of float64
    np.testing.assert_allclose(np.broadcast_to(in_numpy, expected.shape), expected, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(np.broadcast_to(in_jax, expected.shape), expected, rtol=1e-14, atol=1e-14)


def test_every_function_occurs_above():
    assert all(any(f"{name}(" in text for text in EXPRESSIONS) for name in FUNCTIONS)


def test_step_is_one_at_zero():
    assert Formula("step(0)").constant == 1.0 and Formula("step(-1e-300)").constant == 0.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtype_is_that_of_the_coordinates_under_strict_promotion(dtype):
    text = "2*a*sin(3*x) + where(x > 0.5, x**2, 1) + erf(x)/7 + maximum(x, 0.2) + step(x - 1)*x"
    value = jax.jit(lambda x, a: Formula(text)({"x": x, "a": a}, jnp))(jnp.asarray(X, dtype), jnp.asarray(2.0, dtype))
    assert value.dtype == dtype and value.shape == X.shape


def test_derivatives():
    formula = Formula("a*x**2 + exp(-a*x)")
    slope = jax.grad(lambda a, x: formula({"a": a, "x": x}, jnp))(0.7, 1.3)
    # d/da, to rounding
    np.testing.assert_allclose(slope, 1.3**2 - 1.3 * math.exp(-0.7 * 1.3), rtol=1e-14)


@pytest.mark.parametrize("power", ["x**2", "x**2.0", "x**(1 + 1)"])
def test_whole_powers_have_a_finite_derivative_at_zero(power):
    assert jax.grad(lambda x: Formula(power)({"x": x}, jnp))(0.0) == 0.0
    assert jax.grad(jax.grad(lambda x: Formula(power)({"x": x}, jnp)))(0.0) == 2.0


def test_equal_texts_are_equal_and_hash_alike():
    assert Formula("x + 1") == Formula("x + 1") and hash(Formula("x + 1")) == hash(Formula("x + 1"))
    assert Formula("x + 1") != Formula("x + 2")
    assert len({Formula("x"), Formula("x"), Formula("y")}) == 2


def test_names_and_constants():
    formula = Formula("a*sin(x) + 0.5*noise(4, 1) - pi")
    assert formula.names == {"a", "x"} and formula.uses_noise and formula.constant is None
    assert Formula("2*pi").constant == 2 * math.pi
    assert Formula(3).constant == 3.0 and Formula(1e-5).constant == 1e-5
    assert Formula("noise(4)").constant is None


def test_noise_is_the_callers():
    asked = []

    def noise(wavenumber, index):
        asked.append((wavenumber, index))
        return X * (index + 1)

    value = Formula("noise(4) + noise(4, 1) + 2*noise(8.5, 2)")({"noise": noise})
    assert asked == [(4.0, 0), (4.0, 1), (8.5, 2)]
    np.testing.assert_allclose(value, X * (1 + 2 + 6), rtol=1e-15)


def test_missing_name_in_the_namespace():
    with pytest.raises(ConfigurationError, match="needs y; the namespace holds x"):
        Formula("x + y")({"x": 1.0})


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "": "empty",
        "sin(x": "column 4.*never closed",
        "x +": "column 1|column 4",
        "x ^ 2": r"column 1 of 'x \^ 2'.*write \*\* for a power",
        "x // 2": "only",
        "x % 2": "only",
        "y + sin(2*sim(x))": "column 11 .*unknown function 'sim'; did you mean 'sin'",
        "atan2(x)": "atan2 takes 2 argument",
        "sin(a=x)": "plain arguments",
        "sin(*x)": "plain arguments",
        "x + sin": r"column 5 .*sin\(\.\.\.\)",
        "x < 1": "first argument of where",
        "where(x, 1, 0)": "must be a comparison",
        "where(x in y, 1, 0)": "compare",
        "1 + 1j": "not a real number",
        "'a'": "not a real number",
        "True": "not a real number",
        "x.real": r"'x\.real' is not part",
        "x[0]": r"'x\[0\]' is not part",
        "[x]": "is not part",
        "(x, y)": "is not part",
        "x if y else z": "is not part",
        "lambda: x": "is not part",
        "(x := 1)": "is not part",
        "f'{x}'": "is not part",
        "[i for i in x]": "is not part",
        "__import__('os').system('true')": "column 1",
        "exp(x).__class__": "is not part",
        "(sin)(x)(y)": "only the functions",
        "x; y": "column 2",
        "import os": "column 1",
        "1/0": "column 1.*division by zero",
        "x + log(0)": "column 5 .*cannot be evaluated",
        "sqrt(-1)": "cannot be evaluated",
        "(-8)**0.5": "not a finite real number",
        "exp(1000)": "cannot be evaluated",
        "9**9**9**9": r"cannot be evaluated \(Numerical result out of range\)",
        "1e999": "float64",
        "9" * 1500: "float64",
        "noise(x)": "constant numbers",
        "noise(noise(2))": "constant numbers",
        "noise(0)": "positive wavenumber",
        "noise(2, 0.5)": "whole index",
        "noise(1, 2, 3)": "3 arguments",
        "x" * (MAXIMUM_LENGTH + 1): "characters",
        "(" * 250 + "x" + ")" * 250: "nested parentheses",
        "-" * (MAXIMUM_DEPTH + 2) + "x": "levels of nesting",
        "-" * 1990 + "x": "levels of nesting",
        "x**" * 600 + "x": "levels of nesting",
        "*".join(["(x+x+x+x+x+x+x+x+x+x)"] * 110): "more than 2000 terms",
        "x+" * 4000 + "x": "2000 terms",
        "minimum(x," * 150 + "x" + ")" * 150: "nested parentheses|nesting",
    }.items(),
)
def test_refusals_name_the_position(text, said):
    with pytest.raises(ConfigurationError, match=said) as refused:
        Formula(text)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


LONG = {
    "sum": ("x" + "+x" * 900, 901.0 * 0.5),
    "alternating sum": ("0" + "+x-0.5" * 300, 0.0),
    "product": ("x" + "*2*x" * 300, 0.5),
    "quotients and sums": ("(" * 80 + "x" + "/2+x)" * 80, 1.0),  # 80 levels of parentheses, which tends to 2 x
    "sum of functions": ("floor(x)" + "+floor(x+1)" * 300, 300.0),
}


@pytest.mark.parametrize("name", LONG)
def test_long_sums_and_products_are_flat(name):
    text, expected = LONG[name]
    assert Formula(text)({"x": np.float64(0.5)}) == pytest.approx(expected, rel=1e-12)  # rounding of 900 terms


def test_a_long_sum_is_traced_and_differentiated():
    formula = Formula("+".join(f"{n}*x**2" for n in range(150)))
    slope = jax.grad(lambda x: formula({"x": x}, module=jnp))(jnp.asarray(0.5))
    assert slope == pytest.approx(sum(range(150)), rel=1e-12)


@pytest.mark.parametrize("value", [True, None, 1j, ["x"], b"x"])
def test_only_texts_and_numbers_are_formulas(value):
    with pytest.raises(ConfigurationError, match="not a formula"):
        Formula(value)


def test_unknown_names_are_told_with_the_nearest():
    with pytest.raises(ConfigurationError, match="column 5 .*'viscosty'; did you mean 'viscosity'"):
        Formula("x + viscosty").check_names(["x", "viscosity"])
    with pytest.raises(ConfigurationError, match="initial conditions only"):
        Formula("noise(3)").check_names(["x"])
    Formula("noise(3) + x").check_names(["x"], noise=True)
