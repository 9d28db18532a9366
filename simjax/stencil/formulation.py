"""How a program is written for the platform that it is traced for: the one place where platforms differ in that.

The result is the same but for rounding; what differs is which values are put into memory. XLA on a CPU fuses what is
cheap into every reader and computes it again there, and its loops vectorise where displaced reads are of one array.
XLA on a GPU makes one kernel of all that reads the same points; there each value that is stored is a pass over memory,
and each kernel takes 2 microseconds to start. Counted for an H100 (`docs/performance.md`).
"""

from dataclasses import dataclass

from simjax.jaxpr.platform import platform


@dataclass(frozen=True)
class Formulation:
    """What a platform wants.

    Attributes:
        stores: values that several loops read are put into memory (`materialise`); else only where a program is
            differentiated, as the reverse of one large kernel would compute them again for every cotangent.
        joins: ghost lines are joined to a block along every axis (`padding`), which XLA takes into the kernel that
            reads the block; else they are written into it.
    """

    stores: bool
    joins: bool


FORMULATIONS = {
    "cpu": Formulation(stores=True, joins=False),
    "gpu": Formulation(stores=False, joins=True),
    "tpu": Formulation(stores=True, joins=False),
}
"""By platform. A TPU's are those of a CPU, as no other has been measured there."""


def formulation() -> Formulation:
    """That of the platform for which a program is traced."""
    return FORMULATIONS.get(platform(), FORMULATIONS["cpu"])
