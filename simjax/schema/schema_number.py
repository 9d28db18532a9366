"""The number of the schema: the version of the form in which a configuration is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simjax.errors import ConfigurationError

SCHEMA = 1
"""Number of the form of configurations. It rises where one that this simjax writes means something else to the last."""


def read_schema(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without its key `schema`, which one written by hand may leave out: it is of the present form.

    Raises:
        ConfigurationError: the number is none, or that of a newer simjax.
    """
    number = mapping.get("schema", SCHEMA)
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ConfigurationError(f"schema = {number!r}: expected a whole number from 1 to {SCHEMA}; leave it out.")
    if number > SCHEMA:
        raise ConfigurationError(
            f"schema = {number}: the configuration is that of a newer simjax; this one reads schemas up to {SCHEMA}. "
            "Install a newer simjax to use it."
        )
    return {name: value for name, value in mapping.items() if name != "schema"}
