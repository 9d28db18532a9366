"""The least and the greatest of values, and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.ops.extremes import greatest, least


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_one_value_is_selected_and_has_the_whole_derivative(count):
    values = np.random.default_rng(0).normal(size=(count, 3))
    for selected, expected, index in ((least, np.min, np.argmin), (greatest, np.max, np.argmax)):
        np.testing.assert_array_equal(selected([*jnp.asarray(values)]), expected(values, 0))
        slope = jax.grad(lambda u, selected=selected: jnp.sum(selected([*u])))(jnp.asarray(values))
        np.testing.assert_array_equal(slope, np.arange(count)[:, None] == index(values, 0))


def test_equal_values_share_a_derivative_of_one():
    for selected in (least, greatest):
        assert float(jnp.sum(jax.grad(lambda u, selected=selected: selected([*u]))(jnp.ones(6)))) == 1.0
