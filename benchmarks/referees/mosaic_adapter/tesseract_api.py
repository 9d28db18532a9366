"""simjax as a solver of Mosaic's Navier-Stokes problems in a periodic box, in two and three dimensions.

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
from periodic_flow import final_velocity, pulled_back, refusal  # noqa: E402

DIFFERENTIABLE = ("v0", "viscosity", "dt")


class InputSchema(make_differentiable(CanonicalInput, list(DIFFERENTIABLE))):
    """Mosaic's inputs, of a periodic box."""

    @model_validator(mode="after")
    def _check(self) -> InputSchema:
        sentence = refusal(self)
        if sentence is not None:
            raise ValueError(sentence)
        return self


class OutputSchema(make_differentiable(CanonicalOutput, ["result"])):
    """The velocity at the end."""


def apply(inputs: InputSchema) -> OutputSchema:
    """The velocity at the end, as a dictionary."""
    arrays, fixed = _parted(inputs)
    return {"result": final_velocity(arrays["v0"], arrays["viscosity"], arrays["dt"], **fixed)}


def vector_jacobian_product(
    inputs: InputSchema, vjp_inputs: set[str], vjp_outputs: set[str], cotangent_vector: dict[str, Any]
) -> dict[str, Any]:
    """Gradients of the velocity at the end, by reverse mode."""
    arrays, fixed = _parted(inputs)
    return pulled_back(arrays, jnp.asarray(cotangent_vector["result"]), wanted=tuple(sorted(vjp_inputs)), **fixed)


def abstract_eval(abstract_inputs: InputSchema) -> dict[str, Any]:
    """Shape and type of the velocity at the end: those of the first."""
    start = abstract_inputs.model_dump()["v0"]
    return {"result": {"shape": tuple(start["shape"]), "dtype": start["dtype"]}}


def _parted(inputs: InputSchema) -> tuple[dict[str, Any], dict[str, Any]]:
    given = inputs.model_dump()
    arrays = {name: jnp.asarray(given[name]) for name in DIFFERENTIABLE}
    return arrays, {"steps": given["steps"], "extent": given["domain_extent"]}
