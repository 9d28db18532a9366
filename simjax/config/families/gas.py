"""Physics keys of the gas family."""

from simjax.config.model_schema import ModelSchema

SCHEMAS: tuple[ModelSchema, ...] = ()
