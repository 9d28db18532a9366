"""Physics keys of the transport family."""

from simjax.config.model_schema import ModelSchema

SCHEMAS: tuple[ModelSchema, ...] = ()
