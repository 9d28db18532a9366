"""Amplitudes of the modes of a waveguide that pass a plane of a run."""

from __future__ import annotations

import dataclasses
import numbers
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from simjax.arguments import require_count, require_kind, require_path
from simjax.config.composition import compose_from_run
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.driver.start.environment import set_up_jax
from simjax.io.mode_amplitudes import amplitudes_in_file
from simjax.schema.devices import MeshConfig
from simjax.schema.ensemble_section import EnsembleConfig

if TYPE_CHECKING:
    import xarray as xr


def mode_amplitudes(
    folder: str | Path, name: str, *, modes: int = 1, lower: float | None = None, upper: float | None = None
) -> xr.Dataset:
    """Amplitudes of the modes of a waveguide that pass a plane in both directions, by frequency.

    Modes are those of the medium in the plane, on the scheme's own grid: products of E of one and H of another vanish,
    so that each is separated from the others and from the wave that goes the other way. |amplitude|^2 is the energy
    that a mode carries per frequency, as `energy_flux_spectrum` counts it. A ratio of two amplitudes is an element of
    the scattering matrix, with the phases of the planes.

    Args:
        folder: of the run, of `maxwell_tm` or `maxwell_te`. Of an ensemble the medium is that without variation.
        name: of the entry of `statistics` with `frequencies`, of a `flux` of energy through a plane.
        modes: how many, from the one of the largest wavenumber on.
        lower: end of the part of the plane that the guide has, None at the side of the grid, as of `ModeSource`.
        upper: the other end.

    Returns:
        `forwards` (towards larger coordinates) and `backwards`, complex, and `wavenumber`, `([member,] frequency,
        mode)`; NaN where a mode does not go on.

    Raises:
        ConfigurationError: there is no such plane in the file, or not so many modes.

    Examples:
        >>> guide = sj.configure(
        ...     "maxwell_tm", grid={"shape": [48, 24], "upper": [2, 1]},
        ...     boundaries={"x": "absorbing", "y": "conductor"}, physics={"layer_cells": 8, "mode_sources": [
        ...         {"direction": "x", "at": 0.6, "frequency": 1.0, "signal": "exp(-(2*(t - 2))**2)*sin(2*pi*t)"}]},
        ...     time={"end": 4.0, "output_every": 4.0}, output={"report": False, "animation": False},
        ...     outputs=[{"flux": {"through": {"x": 1}}, "of": "energy"}],
        ...     statistics=[{"of": "flux", "frequencies": [1.0], "name": "port"}],
        ... ).run()
        >>> sj.mode_amplitudes(guide.folder, "port").forwards.dims
        ('frequency', 'mode')
    """
    require_path("mode_amplitudes: folder", folder)
    require_count("mode_amplitudes: modes", modes)
    for option, end in (("lower", lower), ("upper", upper)):
        require_kind(f"mode_amplitudes: {option}", end, (numbers.Real, type(None)), "a number or None, such as 0.5")
    config = compose_from_run(Path(folder) / ".hydra" / "config.yaml").config()
    alone = dataclasses.replace(config, mesh=MeshConfig(), ensemble=EnsembleConfig(), steps_per_exchange=0)
    set_up_jax(alone)
    programs = compiled_run(alone)
    values = {number: jnp.asarray(value) for number, value in programs.host_values().items()}
    built: Any = programs.build(values, programs.start_fields(None))
    model, params = built

    def modes_at(axis: int, place: float, frequency: float, dt: float):
        return model.guided_modes(params, axis, place, frequency, dt, modes, (lower, upper))

    return amplitudes_in_file(Path(folder), name, modes_at)
