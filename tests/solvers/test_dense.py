"""Decompositions of dense matrices: of one and of several members, on a CPU one after the other."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import random

from simjax.jaxpr.platform import tracing_for
from simjax.solvers import dense

MEMBERS = random((3, 6, 6)) + jnp.swapaxes(random((3, 6, 6)), 1, 2) + 4 * jnp.eye(6)[None]


def decomposed(function):
    """Shapes of what the decomposition in a function of all members gives first, where it is traced for a platform."""
    # An own function each time: what is traced once is known.
    text = str(jax.make_jaxpr(jax.vmap(lambda matrix: function(matrix)))(MEMBERS))
    return re.findall(r":f64\[([\d,]+)\](?: \S+)* = (?:eigh|lu)\b", text)


@pytest.mark.parametrize("function", [dense.eigenvectors, dense.inverse], ids=["eigenvectors", "inverse"])
def test_members_are_decomposed_alone_on_a_cpu_and_together_elsewhere(function):
    assert decomposed(function) == ["6,6"]
    with tracing_for("gpu"):
        assert decomposed(function) == ["3,6,6"]


def test_members_have_their_own_decompositions():
    values, vectors = jax.jit(jax.vmap(dense.eigenvectors))(MEMBERS)
    inverses = jax.jit(jax.vmap(dense.inverse))(MEMBERS)
    for matrix, rates, modes, inverse in zip(MEMBERS, values, vectors, inverses, strict=True):
        # A hundred roundings of numbers up to ten.
        np.testing.assert_allclose(modes @ jnp.diag(rates) @ modes.T, matrix, rtol=0, atol=1e-13)
        np.testing.assert_allclose(inverse @ matrix, np.eye(6), rtol=0, atol=1e-12)
