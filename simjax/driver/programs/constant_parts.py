"""Arrays that models form from their coefficients once, for all programs of a run: bodies at rest, media."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from simjax.core.domain import Domain
from simjax.driver.programs.used_names import used_names
from simjax.driver.start.build import bare_model
from simjax.jaxpr.varying import varying_axes
from simjax.models.formulas import Values
from simjax.parallel import distribute
from simjax.schema.config import Config


class ConstantParts(eqx.Module):
    """The `constant_parts` of a model, as an argument of programs.

    leaves: its arrays. axes: for each the mesh axes over which it differs between devices; the whole array has one more
    axis in front for each of them, as long as there are devices along it. known: what is no array.
    """

    leaves: tuple[Array, ...]
    axes: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    structure: Any = eqx.field(static=True)
    known: Any = eqx.field(static=True)

    @property
    def tree(self) -> Any:
        """The constant arrays of this device, as the model takes them."""
        own = [leaf.reshape(leaf.shape[len(names) :]) for leaf, names in zip(self.leaves, self.axes, strict=True)]
        return eqx.combine(jax.tree.unflatten(self.structure, own), self.known)

    def over(self, axes: tuple[tuple[str, ...], ...]) -> ConstantParts:
        """This device's share of the parts of all devices, which differ over `axes`."""
        leaves = [leaf.reshape((1,) * len(names) + leaf.shape) for leaf, names in zip(self.leaves, axes, strict=True)]
        return ConstantParts(tuple(leaves), axes, self.structure, self.known)

    @property
    def specs(self) -> Any:
        """The partition of each array, a tree like this one."""
        return jax.tree.unflatten(jax.tree.structure(self), [PartitionSpec(*names) for names in self.axes])


def form_parts(
    config: Config, domain: Domain, values: Values, files: Mapping[str, Any]
) -> tuple[ConstantParts | None, ConstantParts | None]:
    """The parts of this device, within a program, for steps and for the start; None if the model has none."""
    if not config.coefficients:
        return None, None
    model, params = bare_model(config, domain, values, files)
    first = model.parts_at_start(params)
    begun = model if first is None else model.with_parts(first)
    return _of_tree(begun.constant_parts(params)), _of_tree(first)


def _of_tree(parts: Any) -> ConstantParts | None:
    arrays, known = eqx.partition(parts, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    return ConstantParts(tuple(leaves), ((),) * len(leaves), structure, known) if leaves else None


def parts_on_devices(
    config: Config, domain: Domain, mesh: Mesh | None, values: Mapping[str, np.ndarray], fields: Any, absent: bool
) -> tuple[ConstantParts | None, set[str]]:
    """The parts of a run on its devices, of absent ones their shapes, and names of the numbers in them.

    values: numbers by name, of all members. fields: those that come from files. None where the model has no parts, and
    where members of an ensemble have different ones.
    """
    if not config.coefficients:
        return None, set()
    in_specs = PartitionSpec(), jax.tree.map(lambda _: domain.spec(), fields)
    given = {name: value if value.ndim == 0 else value[0] for name, value in values.items()}, fields
    traced: list[ConstantParts | None] = []
    varying: list[frozenset[str]] = []

    def look(values, files):
        traced.append(form_parts(config, domain, values, files)[0])
        varying.extend(varying_axes(leaf) for leaf in jax.tree.leaves(traced))
        return ()

    jax.eval_shape(distribute(look, mesh, in_specs=in_specs, out_specs=()), *given)
    (parts,), order = traced, () if mesh is None else mesh.axis_names
    if parts is None:
        return None, set()
    axes = tuple(tuple(name for name in order if name in names) for names in varying)

    def formed(values, files):
        parts, _ = form_parts(config, domain, values, files)
        assert parts is not None
        return parts.over(axes)

    specs = ConstantParts(parts.leaves, axes, parts.structure, parts.known).specs
    program = distribute(formed, mesh, in_specs=in_specs, out_specs=specs)
    used = used_names(program, *given)
    if used & {variation.value_name for variation in config.ensemble.vary}:
        return None, set()
    return (jax.eval_shape(program, *given) if absent else program(*given)), used
