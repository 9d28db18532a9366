"""Modules inside the model of an inverse problem: sought, or known."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from typing import Any

import equinox as eqx
import jax

from simjax.config.structure import frozen
from simjax.errors import ConfigurationError
from simjax.models.closure import Closure, LocalNetwork, in_precision
from simjax.schema.config import Config
from simjax.schema.inverse import NetworkConfig
from simjax.schema.model_schema import ModelSchema


class Modules:
    """By path ("modules.closure"): the weights of modules that are sought, and how they become modules again.

    Args:
        config: whose unknowns may describe networks.
        given: modules by name, those that are sought as they are at the start of the search.
        true: those of the truth in the place of sought ones, where that is not the configuration's own.
    """

    def __init__(self, config: Config, given: Mapping[str, Closure], true: Mapping[str, Closure]):
        assert config.inverse is not None
        schema, dtype = config.schema, config.precision
        unknowns = [unknown for unknown in config.inverse.unknowns if unknown.section == "modules"]
        networks = {u.name: _network(u.network, config) for u in unknowns if u.network is not None}
        self.given, self.true = {**networks, **given}, dict(true)
        for argument, modules in (("modules", self.given), ("true_modules", self.true)):
            _check(argument, modules, schema)
        modules = {f"modules.{name}": in_precision(module, dtype) for name, module in self.given.items()}
        of_truth = {f"modules.{name}": in_precision(module, dtype) for name, module in self.true.items()}
        self.weights, rest = {}, {}
        for path, name in ((unknown.path, unknown.name) for unknown in unknowns):
            if path not in modules:
                raise ConfigurationError(
                    f"inverse.unknowns.{path}: expected a module to start from; write network: {{hidden: [16, 16]}} "
                    f"there, or in Python simjax.InverseProblem(..., modules={{{name!r}: simjax.Closure(...)}})."
                )
            self.weights[path], rest[path] = eqx.partition(modules[path], eqx.is_inexact_array)
        known = {path: module for path, module in modules.items() if path not in self.weights}
        self.arrays, self._rest = eqx.partition((known, of_truth, rest), eqx.is_array)

    @property
    def structure(self) -> Hashable:
        """The key of a program with these modules in it: everything but their arrays."""
        return frozen(self._rest), jax.tree.structure(self.arrays), jax.tree.structure(self.weights)

    def bare(self) -> Modules:
        """A copy without arrays, to be kept with a compiled program."""
        bare = copy.copy(self)
        bare.given, bare.true, bare.arrays = {}, {}, None
        bare.weights = jax.tree.map(lambda _: 0, self.weights)
        return bare

    def whole(self, physical: Mapping[str, Any], arrays: Any = None) -> dict[str, Any]:
        """Unknowns with modules in the place of their weights, and the known modules; without weights, the truth's.

        arrays: those of `self.arrays`, where they are arguments of a program.
        """
        known, of_truth, rest = eqx.combine(self.arrays if arrays is None else arrays, self._rest)
        true = {path: module for path, module in of_truth.items() if path not in physical}
        sought = {path: eqx.combine(physical[path], own) for path, own in rest.items() if path in physical}
        return {**known, **true, **physical, **sought}


def _network(described: NetworkConfig, config: Config) -> Closure:
    """A network with no effect yet; its first weights are those of the configuration's seed."""
    fields = [field for field in config.fields if field.name in (described.fields or config.initial)]
    count = sum(len(field.components(config.ndim, config.counts.get(field.name, 0))) for field in fields)
    key = jax.random.key(config.seed)
    module = LocalNetwork(count, config.ndim, described.hidden, width=described.width, key=key)
    return Closure(module, tuple(field.name for field in fields), described.width)


def _check(argument: str, modules: Mapping[str, Any], schema: ModelSchema) -> None:
    for name, module in modules.items():
        if name not in schema.modules:
            known = ", ".join(schema.modules) or "none"
            raise ConfigurationError(f"{argument}: model={schema.name} has no module {name!r}; known there: {known}.")
        if not isinstance(module, Closure):
            raise ConfigurationError(
                f"{argument}[{name!r}]: expected a simjax.Closure, got {type(module).__name__}; write "
                "simjax.Closure(module, fields=(...), width=...)."
            )
