"""A function of this device's blocks and its derivatives, on one device and cut over many."""

import jax
import jax.numpy as jnp
import numpy as np
from case import QUICK
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.parallel import decompose, distribute, make_mesh


def random(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def value_and_derivatives(function, grid, sizes, arguments, cuts, result_spec, shape):
    """`function(domain, *arguments)`, its derivative along random tangents and its transpose at random cotangents.

    `cuts` says which arguments are fields, `result_spec(domain)` how the result of `shape` is cut. All derivatives are
    taken inside the distributed function, as a run takes them.
    """
    mesh = make_mesh(sizes)
    domain = decompose(grid, mesh) if sizes else Domain(grid)
    specs = tuple(domain.spec(jnp.ndim(a)) if cut else PartitionSpec() for a, cut in zip(arguments, cuts, strict=True))
    tangents = tuple(random(jnp.shape(a), 11 + k) for k, a in enumerate(arguments))
    cotangent = random(shape, 7)

    def derive(arguments, tangents, cotangent):
        value, forward = jax.jvp(lambda *a: function(domain, *a), arguments, tangents)
        backward = jax.vjp(lambda *a: function(domain, *a), *arguments)[1](cotangent)
        return value, forward, backward

    spec = result_spec(domain)
    run = distribute(derive, mesh, in_specs=(specs, specs, spec), out_specs=(spec, spec, specs))
    found = jax.jit(run, compiler_options=QUICK)(arguments, tangents, cotangent)
    return jax.tree.map(np.asarray, (*found, tangents, cotangent))


def check_decompositions(function, grid, meshes, arguments, cuts, result_spec, *, rtol=1e-12):
    """Both modes are transposes of each other, and neither value nor derivatives depend on the decomposition.

    `rtol`, of the largest entry: sums of a few hundred terms in another order, unless the caller has a reason.
    """
    alone = Domain(grid)
    shape = jax.eval_shape(lambda *a: function(alone, *a), *arguments).shape
    reference = value_and_derivatives(function, grid, {}, arguments, cuts, result_spec, shape)
    _, forward, backward, tangents, cotangent = reference
    left = np.vdot(forward, cotangent)
    right = sum(np.vdot(d, g) for d, g in zip(tangents, backward, strict=True))
    scale = np.linalg.norm(forward) * np.linalg.norm(cotangent)
    np.testing.assert_allclose(left, right, rtol=0, atol=rtol * scale)
    for sizes in meshes:
        found = value_and_derivatives(function, grid, sizes, arguments, cuts, result_spec, shape)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(reference), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=rtol * max(1e-300, np.abs(other).max()))
    return reference[0]
