"""The function that a certificate differentiates, made from a configuration."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from simjax.certificate.certificate import Objective
from simjax.certificate.inverse_loss import inverse_objective
from simjax.certificate.meshes import DEVICES
from simjax.certificate.run_objective import run_objective
from simjax.driver.start.environment import set_up_jax
from simjax.errors import ConfigurationError, ResourceError
from simjax.inverse.problem import InverseProblem
from simjax.schema.config import Config
from simjax.schema.devices import MeshConfig


def prepared_objective(problem: Any, *, steps: int, devices: int | None = None) -> Objective:
    """`objective_of` after jax has been set up for it: float64 and, on a CPU that jax has not begun to use, devices.

    Raises ResourceError where `devices` or the mesh of the configuration ask for more than there are.
    """
    config = getattr(problem, "config", problem)
    if not isinstance(config, Config):
        raise ConfigurationError(
            f"certify({type(problem).__name__}): expected a Simulation, a Config, an InverseProblem, an Objective or "
            'what has a method objective(); write simjax.certify(simjax.load("fluid")).'
        )
    if devices is not None and not 1 <= devices <= DEVICES:
        raise ConfigurationError(f"devices={devices}: expected 1 to {DEVICES}; write --devices {DEVICES}.")
    own = dataclasses.replace(config.mesh, ensemble=1)
    asked = own.devices if own.devices > 1 else devices
    # Without a wish, what is there will do.
    with contextlib.nullcontext() if asked else contextlib.suppress(ResourceError):
        set_up_jax(dataclasses.replace(config, precision="float64", mesh=MeshConfig(x=asked or DEVICES)))
    if isinstance(problem, InverseProblem):
        return inverse_objective(problem, devices=devices)
    return objective_of(config, steps=steps, devices=devices)


def objective_of(config: Config, *, steps: int, devices: int | None = None) -> Objective:
    """The objective that a configuration stands for: the loss of its section `inverse`, else a function of its run."""
    if config.inverse is not None:
        return inverse_objective(config, devices=devices)
    return run_objective(config, steps=steps, devices=devices)
