"""Physics keys of the waves family."""

from simjax.config.model_schema import ModelSchema

SCHEMAS: tuple[ModelSchema, ...] = ()
