"""Compiled programs of runs on devices that may not be there: `simjax.inspect_program(problem, target)`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from simjax.errors import ConfigurationError
from simjax.inspect.target import Target
from simjax.schema.config import Config

if TYPE_CHECKING:
    from simjax.inspect.inspection import Inspection

# What compiles for absent devices looks for present ones first, at length. Read when jax starts.
ABSENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
}


def inspect_program(problem: Any, target: str, *, scaling: bool = True) -> Inspection:
    """Compile the steps of a run for devices that need not be there, and read the program.

    Args:
        problem: a `Simulation` or a `Config`. Its mesh has as many devices as the target; a mesh of one becomes as
            square as can be.
        target: `v5e:16x16`, a slice of TPUs (v4, v5e, v5p, v6e); `h100`, a GPU, and `h100:8`,
            several; `cpu:8`, processors of this machine.
        scaling: also compile for fewer devices with the same block of the grid on each, for the weak scaling.

    Returns:
        An inspection: `print` shows it, `as_dict()` is for JSON.

    Raises:
        ConfigurationError: the target is unknown, or the run cannot be cut so.
        ResourceError: what compiles for the target is not installed.

    Examples:
        >>> found = sj.inspect_program(sj.load("dye", ["mesh.x=2"]), "cpu:2")
        >>> found.counts()
        {'collective-permute': 6.0}
    """
    config = getattr(problem, "config", problem)
    if not isinstance(config, Config):
        raise ConfigurationError(
            f"inspect_program({type(problem).__name__}): expected a Simulation or a Config; write "
            'simjax.inspect_program(simjax.load("fluid"), "v5e:4x4").'
        )
    wanted = Target.read(target)
    if wanted.chip is not None:
        for name, value in ABSENT.items():
            os.environ.setdefault(name, value)
    from simjax.inspect.run_program import inspected

    return inspected(config, wanted, scaling=scaling)
