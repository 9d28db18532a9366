"""Modules inside the model of an inverse problem: sought, or known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from simjax.config.model_schema import ModelSchema
from simjax.core.errors import ConfigurationError
from simjax.models.closure import Closure


class Modules:
    """By path ("modules.closure"): the weights of modules that are sought, and how they become modules again.

    Args:
        given: modules by name, those that are sought as they are at the start of the search.
        true: those of the truth in the place of sought ones; where there is none, the truth has no such term.
        sought: paths of unknowns that are modules.
        schema: of the model that they are in.
    """

    def __init__(
        self, given: Mapping[str, Closure], true: Mapping[str, Closure], sought: Iterable[str],
        schema: ModelSchema, dtype,
    ):  # fmt: skip
        self.given, self.true = dict(given), dict(true)
        for argument, modules in (("modules", self.given), ("true_modules", self.true)):
            _check(argument, modules, schema)
        modules = {f"modules.{name}": _cast(module, dtype) for name, module in self.given.items()}
        self._of_truth = {f"modules.{name}": _cast(module, dtype) for name, module in self.true.items()}
        self.weights, self._rest = {}, {}
        for path in sought:
            if path not in modules:
                name = path.partition(".")[2]
                raise ConfigurationError(
                    f"inverse.unknowns.{path}: expected a module to start from, which is Python code and none came; "
                    f"write simjax.InverseProblem(..., modules={{{name!r}: simjax.Closure(...)}})."
                )
            self.weights[path], self._rest[path] = eqx.partition(modules[path], eqx.is_inexact_array)
        self._known = {path: module for path, module in modules.items() if path not in self.weights}

    def whole(self, physical: Mapping[str, Any]) -> dict[str, Any]:
        """Unknowns with modules in the place of their weights, and the known modules; without weights, the truth's."""
        known = {path: module for path, module in self._of_truth.items() if path not in physical}
        sought = {path: eqx.combine(physical[path], rest) for path, rest in self._rest.items() if path in physical}
        return {**self._known, **known, **physical, **sought}


def _check(argument: str, modules: Mapping[str, Any], schema: ModelSchema) -> None:
    for name, module in modules.items():
        if name not in schema.modules:
            known = ", ".join(schema.modules) or "none"
            raise ConfigurationError(f"{argument}: model={schema.name} has no module {name!r}; known there: {known}.")
        if not isinstance(module, Closure):
            raise ConfigurationError(
                f"{argument}[{name!r}]: expected a simjax.Closure, {type(module).__name__} came; write "
                "simjax.Closure(module, fields=(...), width=...)."
            )


def _cast(module: Closure, dtype) -> Closure:
    """The module with its floating-point arrays in the precision of the run."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if eqx.is_inexact_array(leaf) else leaf, module)
