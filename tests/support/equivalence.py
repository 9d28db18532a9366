"""A case in one layout or another: the run on one device, decomposed, and as members of an ensemble."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from case import QUICK
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.parallel import decompose, distribute, make_mesh, prepend_axis

STATE_TOLERANCE, GRADIENT_TOLERANCE = 1e-12, 1e-10
SPACE = {1: {"x": 4}, 2: {"x": 2, "y": 2}, 3: {"x": 2, "z": 2}}


def differentiated(run):
    """(params, state) -> ((loss, final state), gradients with respect to both), compiled as one program."""
    return jax.jit(jax.value_and_grad(run, argnums=(0, 1), has_aux=True), compiler_options=QUICK)


@functools.cache
def undecomposed(case):
    """The program on one device and its initial state."""
    return differentiated(case.runner(Domain(case.grid))), case.initial_state()


@functools.cache
def reference(case, member):
    """Loss, final state and gradients of one ensemble member on one device."""
    program, state = undecomposed(case)
    return program(case.member(member), state)


def specs_of(case, domain):
    return case.specs(domain, undecomposed(case)[1])


UNREAD = ("[1].reaction.force", "[1].reaction.torque", "[0].body.initial")
"""Parts of the state that the next stage does not read, and parameters of the state at the start."""
SPENT = ("[1].reaction.impulse", "[1].reaction.elapsed", "[1].reaction.beside", "[1].body.gained", "[1].body.pushed")
"""Parts of the state that each stage sets to zero."""


def assert_close(found, expected, tolerance, what):
    """Each array within `tolerance` of its largest entry; what a step writes anew has no gradient in either."""
    paths = jax.tree.leaves_with_path(expected)
    zero = UNREAD if what == "gradient" else SPENT
    if what == "gradient" and not any("[1].body" in jax.tree_util.keystr(path) for path, _ in paths):
        zero = (*zero, "[1].reaction.beside")  # it moves a free body, and no other
    kept = [not jax.tree_util.keystr(path).startswith(zero) for path, _ in paths]
    if not all(kept):
        found, others, expected, none = (
            [leaf for leaf, keep in zip(jax.tree.leaves(tree), kept, strict=True) if keep is chosen]
            for tree in (found, expected)
            for chosen in (True, False)
        )
        assert all(not np.any(leaf) for leaf in (*others, *none))
    for path, wanted in jax.tree.leaves_with_path(expected):
        scale = np.abs(wanted).max()
        assert scale > 0, f"{what}{jax.tree_util.keystr(path)} vanishes or is not a number: nothing is tested"
    errors = jax.tree.map(lambda a, b: np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(b).max(), found, expected)
    for path, error in jax.tree.leaves_with_path(errors):
        assert error <= tolerance, f"{what}{jax.tree_util.keystr(path)} differs by {error:.1e} of its scale"


def state_tolerance(case, state):
    """That of sums in another order; around bodies the pressure is solved for, to a hundred roundings of its residual:
    these times the condition of the Laplacian, its largest over its smallest rate.
    """
    if getattr(state, "reaction", None) is None:
        return STATE_TOLERANCE
    largest = sum(4 / h**2 for h in case.grid.mean_spacing)
    return 100 * np.finfo(float).eps * largest / min((np.pi / length) ** 2 for length in case.grid.lengths)


def assert_same_run(case, found, expected):
    (loss, state), gradients = found
    (wanted_loss, wanted_state), wanted_gradients = expected
    assert_close((loss, state), (wanted_loss, wanted_state), state_tolerance(case, wanted_state), "state")
    assert_close(gradients, wanted_gradients, GRADIENT_TOLERANCE, "gradient")


def of_blocks(case, domain, checkpoint):
    """The run on a domain, with a checkpoint plan."""
    return dataclasses.replace(case, checkpoint=checkpoint).runner(domain)


def assert_decomposed_run_is_the_same(case, sizes, overlap, checkpoint, **options):
    mesh = make_mesh(sizes)
    domain = decompose(case.grid, mesh, overlap=overlap, **options)
    state_specs, params_specs = specs_of(case, domain)
    run = distribute(
        of_blocks(case, domain, checkpoint),
        mesh,
        in_specs=(params_specs, state_specs),
        out_specs=(PartitionSpec(), state_specs),
    )
    assert_same_run(case, differentiated(run)(case.params(), undecomposed(case)[1]), reference(case, 0))


def assert_each_member_is_the_same(case, checkpoint, **options):
    """Of an ensemble on half the devices, each member on several."""
    mesh = make_mesh({"ensemble": 2, **(SPACE[case.grid.ndim] if case.cuts else {})})
    domain = decompose(case.grid, mesh, **options)
    state_specs, params_specs = (prepend_axis(specs, "ensemble") for specs in specs_of(case, domain))
    run = distribute(
        jax.vmap(of_blocks(case, domain, checkpoint)),
        mesh,
        in_specs=(params_specs, state_specs),
        out_specs=(PartitionSpec("ensemble"), state_specs),
    )

    def total(params, state):
        losses, final = run(params, state)
        return jnp.sum(losses), (losses, final)

    members = 4
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(case.member(k) for k in range(members)))
    state = jax.tree.map(lambda u: jnp.stack([u] * members), undecomposed(case)[1])
    (_, outcome), gradients = differentiated(total)(params, state)
    for k in range(members):
        found = jax.tree.map(lambda leaf, k=k: leaf[k], (outcome, gradients))
        assert_same_run(case, found, reference(case, k))
