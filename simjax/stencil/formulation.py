"""Formulation of stencils and of loops by the platform of their program: the one place where platforms differ in it.

The result is the same but for rounding.
"""

from simjax.jaxpr.platform import launches_count, platform


def stores_values() -> bool:
    """Tell whether a stencil puts values that several of its loops read into memory (`materialise`).

    XLA on a CPU fuses what is cheap into every reader and computes it again there. On a GPU it makes one kernel of all
    that is computed at the same points, where a value that is stored is a pass over memory and a kernel more. There
    only the blocks are stored of which a stencil takes many reads (`padding.formed_together`); and where a program is
    differentiated what lies between its parts, as its reverse would form that again for every cotangent: the compiler
    did not come to an end of it in minutes. Counts for an H100 are in `docs/performance.md`.
    """
    return platform() != "gpu"


def gathers_in_reverse() -> bool:
    """Tell whether a stencil is transposed to one that gathers from its neighbours (`stencil.adjoint`).

    Transposed as it stands, it is a sum of arrays that are padded with zeros. XLA on a CPU stores each of them. On a
    GPU it takes them into the kernel that adds them up, and what a gather is surrounded by would be kernels of their
    own (counts in `docs/performance.md`).
    """
    return platform() in ("cpu", "tpu")


def loops_over_long_stages() -> bool:
    """Tell whether stages whose tendency is long, but not so long as a solve, are taken in a loop.

    A program then holds the tendency once, and compiles in half the time. Of large eddies in a box a step on a CPU
    moves a third less, as XLA fuses less into every reader (90 MB in place of 140 at 32^3); on a GPU, which reads the
    slopes of all stages in each, it would move 29 MB in place of 20, with 83 launches in place of 58.
    """
    return not launches_count()


def batches_alike() -> bool:
    """Tell whether a few computations that differ in numbers alone are one, batched, so that a program holds it once.

    Unless launches count: a GPU stores what is batched, and fuses what is written one by one into its readers. A step
    of a falling plate on 288 x 480 cells would move 344 MB in place of 303, though with 342 launches in place of 350.
    """
    return not launches_count()


def transforms_in_part_by_products() -> bool:
    """Tell whether a field is found in a small part of a grid from its spectrum by products with matrices.

    Where launches count: of a step around a disc on 256 x 256 cells they are 87 in place of 95. On a CPU all of an
    inverse transform takes less time than the products.
    """
    return launches_count()


def kernels_may_win() -> bool:
    """Tell whether `auto` considers kernels: they are interpreted on a CPU, which is slower than XLA."""
    return platform() != "cpu"


def fresh_memory_is_dear() -> bool:
    """Tell whether it takes longer to write to memory that a program has not used yet than to advance a step again.

    The system hands it to a CPU in pages of 4 KiB, each at its first touch, and takes it back after each run: a third
    of the gradient of a run of sound went into that. What is formed again stays in the caches. Accelerators keep the
    memory that they have been given.
    """
    return platform() == "cpu"
