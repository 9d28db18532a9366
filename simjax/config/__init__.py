"""Configurations: composed from files and overrides, validated as a whole, typed; without importing jax."""

from typing import TYPE_CHECKING, Any

from simjax.config.composed import Composition
from simjax.config.validate import validate
from simjax.models.registry import MODELS
from simjax.schema.config import AxisBoundary, Config, FieldSource, FileSource, SideSpec
from simjax.schema.ensemble import sample_members
from simjax.schema.ensemble_section import Variation
from simjax.schema.inverse import InverseConfig, ObservationConfig, ShootingConfig, SolverConfig, UnknownConfig
from simjax.schema.locate import Experiment, conf_folder, config_folders, list_experiments
from simjax.schema.model_schema import FieldSchema, ModelSchema

if TYPE_CHECKING:
    from simjax.config.composition import compose, compose_from_run, load_config
    from simjax.config.overrides import expand_sweep, sample_sweep

_COMPOSING = {
    "compose": "composition",
    "compose_from_run": "composition",
    "load_config": "composition",
    "expand_sweep": "overrides",
    "sample_sweep": "overrides",
}

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
    "SideSpec",
    "compose",
    "compose_from_run",
    "conf_folder",
    "config_folders",
    "expand_sweep",
    "list_experiments",
    "load_config",
    "sample_members",
    "sample_sweep",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Composing loads Hydra, which listing experiments and validating do without."""
    if name in _COMPOSING:
        import importlib

        return getattr(importlib.import_module(f"simjax.config.{_COMPOSING[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
