"""Physics keys of the spectral family."""

from simjax.config.model_schema import ModelSchema

SCHEMAS: tuple[ModelSchema, ...] = ()
