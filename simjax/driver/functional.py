"""A configured run in the parts that `simulate` and `advance` take: model, parameters, state, integrator, schedule."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from simjax.core.model import Model
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.start.environment import set_up_jax
from simjax.errors import ConfigurationError
from simjax.integrators.integrator import Integrator
from simjax.schema.config import Config
from simjax.stepping.simulate import Schedule


@dataclass(frozen=True)
class FunctionalParts:
    """The arguments of `simulate(model, integrator, params, state, schedule, frames=frames)`."""

    model: Model
    integrator: Integrator | None
    params: Any
    state: Any
    schedule: Schedule
    frames: int


def functional_parts(config: Config) -> FunctionalParts:
    """The parts of a configured run of one member on one device, with the initial state that it begins with.

    Raises:
        ConfigurationError: an ensemble, several devices, an end between two output times, or an initial state that is
            not finite or not physical.
    """
    if config.mesh.devices > 1:
        raise ConfigurationError(
            f"mesh: expected one device where a simulation is taken apart, got {config.mesh.devices}; leave out mesh, "
            "and decompose the functions that you write of its parts with simjax.decompose and simjax.distribute."
        )
    set_up_jax(config)
    rollout = DifferentiableRun(config)
    state, _ = rollout.programs.start()
    rollout.programs.refuse_start(state)
    values = jax.tree.map(jnp.asarray, rollout.start_values())
    several = config.steps_per_exchange
    assert isinstance(several, int)  # `DifferentiableRun` refuses others
    model, params = rollout.programs.build(values, rollout.start_fields(), several)
    return FunctionalParts(model, rollout.programs.integrator, params, state, rollout.schedule, rollout.frames)
