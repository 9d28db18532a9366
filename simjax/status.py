"""Status of a running simulation: a bitmask in the carry, one per ensemble member, never an exception."""

import jax
import jax.numpy as jnp
from jax import Array

OK = 0
NON_FINITE = 1
STEP_COLLAPSED = 2
FRAME_UNFINISHED = 4
UNPHYSICAL = 8
CELL_FULL = 16
LIST_FULL = 32
SKIN_PASSED = 64
ESCAPED = 128
BLOCK_FULL = 256
BOX_SHRUNK = 512
BOND_LOST = 1024
FEW_SAMPLES = 2048
STEP_SHRUNK = 4096
UNBALANCED = 8192
TOLERANCE_MISSED = 16384

REASONS = {
    NON_FINITE: "a field became infinite or not a number",
    STEP_COLLAPSED: "the stable time step fell below a billionth of the output interval",
    TOLERANCE_MISSED: "no step was so short that its error met the tolerance",
    STEP_SHRUNK: "the stable time step fell below the least share of the first one (limits.step_shrink)",
    FRAME_UNFINISHED: "a frame needed more steps than Schedule.max_steps",
    UNPHYSICAL: "the state left the range in which it means anything",
    CELL_FULL: "a cell had more particles than its capacity",
    LIST_FULL: "a particle had more neighbours than a list holds",
    BLOCK_FULL: "a device had more particles than its lists hold",
    SKIN_PASSED: "particles moved further between two arrangements than the skin allows",
    ESCAPED: "a particle left the box through a side that is not periodic",
    BOND_LOST: "a bond became longer than it may be, or one of its particles was gone",
    FEW_SAMPLES: "parameters went so far from those of a sampling run that few of its frames count",
    UNBALANCED: "prescribed velocities brought in another volume than they took out",
    BOX_SHRUNK: "the box became so small that the cutoff passed what the cells were made for (cutoff and skin)",
}

# No smaller step helps against these.
HOPELESS = ESCAPED | STEP_COLLAPSED | STEP_SHRUNK | TOLERANCE_MISSED | UNBALANCED


def reasons(status: int) -> str:
    """The sentence fragments of all bits set in `status`."""
    return " and ".join(text for bit, text in REASONS.items() if int(status) & bit) or "no fault"


def all_finite(tree) -> Array:
    """Tell whether every real or complex leaf of this block is finite, as a scalar bool."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    checks = [jnp.all(jnp.isfinite(leaf)) for leaf in leaves]
    return jnp.all(jnp.stack(checks)) if checks else jnp.asarray(True)


def spoiled(tree, status: Array):
    """`tree`, whose real and complex leaves are NaN where `status` tells of a fault; so are their derivatives.

    A product, not a choice: where all went well it is one with 1, exact there and in derivatives of any mode, and
    after a fault no derivative is taken for that of a good run.
    """

    def of(leaf):
        leaf = jnp.asarray(leaf)
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        factor = jnp.where(status == OK, 1, jnp.nan).astype(jnp.finfo(leaf.dtype).dtype)
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            return jax.lax.complex(leaf.real * factor, leaf.imag * factor)
        return leaf * factor

    return jax.tree.map(of, tree)
