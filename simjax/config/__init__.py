"""Configurations: composed from files and overrides, validated as a whole, typed; without importing jax."""

from typing import TYPE_CHECKING, Any

from simjax.config.validate import validate
from simjax.models.registry import MODELS, parameter_values
from simjax.schema.config import AxisBoundary, Config, FieldSource, FileSource, Variation, Wall
from simjax.schema.ensemble import sample_members
from simjax.schema.inverse import InverseConfig, ObservationConfig, ShootingConfig, SolverConfig, UnknownConfig
from simjax.schema.locate import Experiment, conf_folder, config_folders, list_experiments
from simjax.schema.model_schema import FieldSchema, ModelSchema

if TYPE_CHECKING:
    from simjax.config.composition import Composition, compose, compose_from_run, expand_sweep, load_config

_COMPOSING = ("Composition", "compose", "compose_from_run", "expand_sweep", "load_config")

__all__ = [
    "MODELS",
    "AxisBoundary",
    "Composition",
    "Config",
    "Experiment",
    "FieldSchema",
    "FieldSource",
    "FileSource",
    "InverseConfig",
    "ModelSchema",
    "ObservationConfig",
    "ShootingConfig",
    "SolverConfig",
    "UnknownConfig",
    "Variation",
    "Wall",
    "compose",
    "compose_from_run",
    "conf_folder",
    "config_folders",
    "expand_sweep",
    "list_experiments",
    "load_config",
    "parameter_values",
    "sample_members",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Composing loads Hydra, which listing experiments and validating do without."""
    if name in _COMPOSING:
        from simjax.config import composition

        return getattr(composition, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
