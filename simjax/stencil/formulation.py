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

    stores: values that several loops read are put into memory (`materialise`); else only the blocks that a stencil of
        many reads is of, and the others where a program is differentiated, as the reverse of one large kernel would
        compute them again for every cotangent.
    """

    stores: bool


FORMULATIONS = {"cpu": Formulation(stores=True), "gpu": Formulation(stores=False), "tpu": Formulation(stores=True)}
"""By platform. A TPU's is that of a CPU, as no other has been measured there."""


def formulation() -> Formulation:
    """That of the platform for which a program is traced."""
    return FORMULATIONS.get(platform(), FORMULATIONS["cpu"])
