"""The first steps of an experiment, whose derivative is certified: changes to the configuration, and the objective."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from simjax.certificate.directions import Unknowns
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.schema.config import Config
from simjax.schema.devices import MeshConfig
from simjax.schema.ensemble_section import EnsembleConfig
from simjax.schema.instruments import Instruments
from simjax.stepping.checkpointing.plan import Checkpoint

FRAMES = 2


class ShortRun(abc.ABC):
    """The first steps of an experiment, with the changes made to its configuration.

    config: the changed one. start: the unknowns, numbers by name and arrays by path. notes: sentences about the
    changes. blocks: per axis, numbers of blocks into which it can be cut. meshes: how many of one size are compared.
    """

    config: Config
    start: Unknowns
    notes: list[str]
    blocks: list
    meshes = 1

    @abc.abstractmethod
    def __init__(self, config: Config, steps: int):
        """Shorten a configuration to so many steps."""

    @staticmethod
    @abc.abstractmethod
    def blocks_of(config: Config) -> list:
        """Per axis, numbers of blocks into which a configuration can be cut."""

    @staticmethod
    @abc.abstractmethod
    def size_in_words(rollout: DifferentiableRun) -> str:
        """The size of a run in words, as they follow what is said of it."""

    def across(self) -> dict[str, Unknowns]:
        """Ways on which shapes move by a cell, by name: see `Objective.across`."""
        return {}

    @abc.abstractmethod
    def rollout(self, sizes: Mapping[str, int], plan: Checkpoint) -> DifferentiableRun:
        """The run on a mesh, with what reverse mode keeps."""

    @abc.abstractmethod
    def array_specs(self, rollout: DifferentiableRun) -> dict[str, Any]:
        """The partition of the unknowns that are arrays, by path."""

    @abc.abstractmethod
    def begin(self, rollout: DifferentiableRun, values, arrays) -> tuple[Any, Any, Any, Array]:
        """The values and fields of the run with these unknowns, its first state, and bits of `status`."""

    @abc.abstractmethod
    def measure(self, rollout: DifferentiableRun, fields) -> Callable:
        """The function `(model, t, state, params, values)` of a frame, summed over frames."""


def simplified(config: Config) -> tuple[Config, list[str]]:
    """Simplify to float64, one device, no ensemble, no instruments; return the configuration and notes on it."""
    changed = [f"in place of {config.precision}"] if config.precision != "float64" else []
    if config.ensemble.size > 1 or config.ensemble.vary:
        changed.append("without the ensemble")
    mesh = MeshConfig(overlap=config.mesh.overlap)
    return dataclasses.replace(
        config, precision="float64", ensemble=EnsembleConfig(), mesh=mesh, outputs=Instruments(), resume=None
    ), changed


def bounded(q: Array) -> Array:
    """sqrt(1 + q^2) - 1 + 0.3 sin q, of which no peak drowns the rest: smooth, and nowhere symmetric."""
    return jnp.sqrt(1 + q**2) - 1 + 0.3 * jnp.sin(q)


def numbers_and_arrays(unknowns: Unknowns, arrays: Mapping[str, Any]) -> tuple[Unknowns, Unknowns]:
    """Numbers by name, and unknown `arrays` by path."""
    numbers = {name: value for name, value in unknowns.items() if name not in arrays}
    return numbers, {path: unknowns[path] for path in arrays}
