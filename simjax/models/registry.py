"""The registry of models a configuration can name, and their numbers. Importing it does not import jax."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from simjax.models.flow import fourier_keys
from simjax.models.flow import keys as flow_keys
from simjax.models.gas import keys as gas_keys
from simjax.models.gravity import keys as gravity_keys
from simjax.models.molecular import keys as molecular_keys
from simjax.models.plasma import electromagnetic_keys
from simjax.models.plasma import keys as plasma_keys
from simjax.models.scalar import keys as scalar_keys
from simjax.models.sph import keys as sph_keys
from simjax.models.waves import keys as waves_keys
from simjax.schema.kinds import ListOf, Real, entry
from simjax.schema.model_schema import AXES, SCALAR_WALLS, FieldSchema, ModelSchema

MODELS: dict[str, ModelSchema] = {
    schema.name: schema
    for family in (
        flow_keys,
        gas_keys,
        waves_keys,
        fourier_keys,
        scalar_keys,
        molecular_keys,
        gravity_keys,
        plasma_keys,
        electromagnetic_keys,
        sph_keys,
    )
    for schema in family.SCHEMAS
}


def declare(
    name: str, parameters: Mapping[str, float], fields: Sequence[str], units: str = "1", **properties: Any
) -> None:
    """Add a model with scalar `parameters` (name -> default) and cell-centred scalar `fields` in `units`.

    `properties` are those of `ModelSchema` in which it differs from an explicit model with any walls.
    """
    numbers = [(key, float, entry(Real(), float(value))) for key, value in parameters.items()]
    physics = dataclasses.make_dataclass(f"{name}Physics", numbers, frozen=True)
    schema = ModelSchema(name, physics, tuple(FieldSchema(field, units=units) for field in fields), SCALAR_WALLS)
    MODELS[name] = dataclasses.replace(schema, **properties)


def parameter_values(physics: Any) -> dict[str, float]:
    """The numbers of a validated physics section by the names that formulas know (`velocity_x`, ...)."""
    values: dict[str, float] = {}
    for field in dataclasses.fields(physics):
        kind, value = field.metadata["kind"], getattr(physics, field.name)
        if isinstance(kind, Real) and value is not None and not field.metadata["fixed"]:
            values[field.name] = value
        elif isinstance(kind, ListOf) and kind.per_axis:
            values |= {f"{field.name}_{axis}": number for axis, number in zip(AXES, value or (0.0,) * 3, strict=False)}
    return values


def parameter_attributes(physics: type, ndim: int) -> dict[str, dict[str, str]]:
    """Units and meanings of the numbers of a section, by the names of `parameter_values`, as its keys declare them."""
    found: dict[str, dict[str, str]] = {}
    for field in dataclasses.fields(physics):
        about, units = field.metadata["about"], field.metadata["units"]
        kind, meaning = field.metadata["kind"], (about or field.name.replace("_", " "))
        if isinstance(kind, ListOf) and kind.per_axis:
            found |= {
                f"{field.name}_{axis}": {"long_name": f"{meaning}, {axis}", "units": units} for axis in AXES[:ndim]
            }
        else:
            found[field.name] = {"long_name": meaning, "units": units}
    return found
