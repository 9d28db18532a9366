"""Runs without an object, by which statistics of Fourier integrals are compared: made before the run, in its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simjax.config.structure import frozen
from simjax.config.validate import validate
from simjax.errors import ConfigurationError
from simjax.io.read import open_output
from simjax.io.time_statistics_files import FREQUENCY, IMAGINARY, REAL
from simjax.schema.config import Config
from simjax.schema.time_statistics import FOURIER, StatisticsConfig

REFERENCES = "references"


def reference_configs(config: Config) -> dict[str, Config]:
    """The configurations of the reference runs, by the name of their folder below that of the run.

    Entries of `statistics` with the same `reference` share a run.

    Raises:
        ConfigurationError: a reference is no configuration.
    """
    found = {}
    for name, sources in _by_reference(config).items():
        mapping = config.write()
        for path, value in (sources[0].reference or {}).items():
            _set(mapping, path, value)
        read = {one.of[0] for one in sources if one.of_instrument}
        mapping |= {
            "statistics": [dataclasses.replace(one, reference=None).write() for one in sources],
            "outputs": [one for one in mapping["outputs"] or () if one["name"] in read] or None,
            "events": None,
            "stop": None,
            "resume": None,
        }
        mapping["output"] |= {"report": False, "animation": False, "copy_to": None}
        mapping["title"] = f"{config.title or config.experiment_name}, without the object"
        try:
            found[name] = validate(mapping)
        except ConfigurationError as error:
            raise ConfigurationError(f"statistics, {sources[0].name}.reference: {error}") from None
    return found


def _by_reference(config: Config) -> dict[str, list[StatisticsConfig]]:
    groups: dict[Any, list[StatisticsConfig]] = {}
    for one in config.statistics:
        if one.reference is not None:
            groups.setdefault(frozen(one.reference), []).append(one)
    return {group[0].name: group for group in groups.values()}


def _set(mapping: dict[str, Any], path: str, value: Any) -> None:
    *sections, last = path.split(".")
    for section in sections:
        mapping = mapping.setdefault(section, {})
    mapping[last] = value


def with_places(configs: Mapping[str, Config], folder: Path) -> Iterator[Config]:
    """The configurations with places below the folder of the run."""
    for name, config in configs.items():
        output = dataclasses.replace(config.output, root=str(folder / REFERENCES), folder=name)
        yield dataclasses.replace(config, output=output)


def reference_integrals(config: Config, folder: Path) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Real and imaginary parts of the Fourier integrals of the reference runs in a run's folder, by statistic and
    variable, `([member,] frequency, *axes)`."""
    found = {}
    for name, sources in _by_reference(config).items():
        for source in sources:
            with open_output(folder / REFERENCES / name, source.name) as opened:
                dataset = opened.isel(time=-1).load()
            end = f"_{FOURIER}_{REAL}"
            names = [str(one).removesuffix(end) for one in dataset.data_vars if str(one).endswith(end)]
            found[source.name] = {one: _parts(dataset, one) for one in names}
    return found


def _parts(dataset: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    real, imaginary = (_in_order(dataset[f"{name}_{FOURIER}_{part}"]) for part in (REAL, IMAGINARY))
    return real, imaginary


def _in_order(variable: Any) -> np.ndarray:
    """The values with axes as programs have them: files have the slowest axis first."""
    lead = [dim for dim in ("member", FREQUENCY) if dim in variable.dims]
    own = [dim for dim in variable.dims if dim not in lead]
    return variable.transpose(*lead, *reversed(own)).values.astype(np.float64)
