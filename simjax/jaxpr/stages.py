"""Stages of a step, which reverse mode may keep."""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name

_NAME = "stage"
STAGES = jax.checkpoint_policies.save_only_these_names(_NAME)
"""Policy of `jax.checkpoint` that keeps what `stage` was given, where it is needed, and nothing else."""


def stage(tree):
    """`tree`, the state or the tendency of a stage, which `STAGES` keeps.

    Linear solves and transforms that made it are then not repeated for the derivatives of what follows.
    """
    return jax.tree.map(_named, tree)


def _named(x: Array) -> Array:
    # A kept array is rounded to its own precision by an operation that jax has for real numbers alone.
    if jnp.iscomplexobj(x):
        return lax.complex(_named(jnp.real(x)), _named(jnp.imag(x)))
    return checkpoint_name(x, _NAME)
