"""simjax as a solver of Mosaic's Navier-Stokes problems: in periodic boxes, and past a cylinder in the plane.

It is imported by Mosaic's harness (`inprocess:.../tesseract_api.py`), with `mosaic_shared` of its wheel on the path.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from mosaic_shared.problems.navier_stokes_grid import InputSchema as CanonicalInput
from mosaic_shared.problems.navier_stokes_grid import OutputSchema as CanonicalOutput
from mosaic_shared.schema_types import make_differentiable
from pydantic import model_validator

sys.path.append(str(Path(__file__).resolve().parent))
from solved import channel_of, pulled_back, refusal, solved  # noqa: E402

DIFFERENTIABLE = ("v0", "viscosity", "dt", "inflow_profile")


class InputSchema(make_differentiable(CanonicalInput, list(DIFFERENTIABLE))):
    """Mosaic's inputs, of a periodic box or of a square with a cylinder."""

    @model_validator(mode="after")
    def _check(self) -> InputSchema:
        sentence = refusal(self)
        if sentence is not None:
            raise ValueError(sentence)
        return self


class OutputSchema(make_differentiable(CanonicalOutput, ["result", "drag"])):
    """The velocity at the end and, of a cylinder, the drag."""


def apply(inputs: InputSchema) -> OutputSchema:
    """The velocity at the end and, of a cylinder, the drag, as a dictionary."""
    arrays, fixed = _parted(inputs)
    return solved(arrays, **fixed)


def vector_jacobian_product(
    inputs: InputSchema, vjp_inputs: set[str], vjp_outputs: set[str], cotangent_vector: dict[str, Any]
) -> dict[str, Any]:
    """Gradients of what `apply` gives, by reverse mode."""
    arrays, fixed = _parted(inputs)
    cotangents = {name: jnp.asarray(cotangent_vector[name]) for name in vjp_outputs}
    return pulled_back(arrays, cotangents, wanted=tuple(sorted(vjp_inputs)), **fixed)


def abstract_eval(abstract_inputs: InputSchema) -> dict[str, Any]:
    """Shapes and types of what `apply` gives: the velocity's are those of the first."""
    start = abstract_inputs.model_dump()["v0"]
    found = {"result": {"shape": tuple(start["shape"]), "dtype": start["dtype"]}}
    return found if abstract_inputs.obstacle is None else found | {"drag": {"shape": (1,), "dtype": start["dtype"]}}


def _parted(inputs: InputSchema) -> tuple[dict[str, Any], dict[str, Any]]:
    given = inputs.model_dump()
    arrays = {name: jnp.asarray(given[name]) for name in DIFFERENTIABLE if given[name] is not None}
    return arrays, {"steps": given["steps"], "extent": given["domain_extent"], "channel": channel_of(inputs)}
