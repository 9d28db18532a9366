"""What the modes of a waveguide carry through a plane of a run, from the Fourier integrals of the fields there."""

from __future__ import annotations

import dataclasses
import math
import numbers
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from simjax.arguments import require_count, require_kind, require_path
from simjax.config.composition import compose_from_run
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.driver.start.environment import set_up_jax
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.io.read import open_output
from simjax.io.time_statistics_files import IMAGINARY, REAL
from simjax.models.waves.maxwell import Maxwell
from simjax.models.waves.mode_setup import ModeSource, plane_of
from simjax.schema.config import Config
from simjax.schema.devices import MeshConfig
from simjax.schema.ensemble_section import EnsembleConfig
from simjax.schema.time_statistics import FOURIER

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
    import xarray as xr

    require_path("mode_amplitudes: folder", folder)
    require_count("mode_amplitudes: modes", modes)
    for option, end in (("lower", lower), ("upper", upper)):
        require_kind(f"mode_amplitudes: {option}", end, (numbers.Real, type(None)), "a number or None, such as 0.5")
    config = compose_from_run(Path(folder) / ".hydra" / "config.yaml").config()
    with open_output(Path(folder), name) as opened:
        dataset = opened.isel(time=-1).load()
    dt = float(dataset.time) / int(dataset.step)
    model, params = _built(config, name)
    electric, magnetic, about = _fields_on_plane(dataset, name)
    axis = AXES.index(about["across"])
    h, across = model.domain.grid.mean_spacing[axis], model.domain.grid.mean_spacing[1 - axis]
    medium = model.prepare(params)
    found: dict[str, list[list[Any]]] = {"forwards": [], "backwards": [], "wavenumber": []}
    for k, frequency in enumerate(dataset.frequency.values):
        rows: dict[str, list[Any]] = {name: [] for name in found}
        # The frequency that has the phase of a leapfrog in time where time is continuous.
        seen = math.sin(math.pi * frequency * dt) / (math.pi * dt)
        for number in range(modes):
            source = ModeSource(AXES[axis], about["place"], seen, number, lower, upper)
            plane = _plane(model, source, modes, config, name)
            mode = plane.mode(model.domain, medium.impermittivity, medium.impermeability)
            e, m = (np.asarray(u, np.float64) for u in (mode.electric, mode.magnetic))
            power = across * float(e @ m) if float(mode.square) > 0 else math.nan
            # H is a mean over both sides of the plane, and over the times around that of E.
            means = math.cos(0.5 * float(mode.wavenumber) * h) * math.cos(math.pi * frequency * dt)
            total = across * electric[..., k, :] @ m / power
            net = plane.sign * across * magnetic[..., k, :] @ e / (power * means)
            scale = math.sqrt(2 * power * means) if power > 0 else math.nan
            rows["forwards"].append(0.5 * scale * (total + net))
            rows["backwards"].append(0.5 * scale * (total - net))
            rows["wavenumber"].append(float(mode.wavenumber) if power > 0 else math.nan)
        for kind, row in rows.items():
            found[kind].append(np.stack(row, axis=-1))
    lead = ("member",) if "member" in dataset.dims else ()
    coordinates = {"frequency": dataset.frequency, "mode": np.arange(modes)}
    own = {
        kind: ((*(() if kind == "wavenumber" else lead), "frequency", "mode"), np.stack(rows, axis=-2))
        for kind, rows in found.items()
    }
    return xr.Dataset(own, coordinates)


def _built(config: Config, name: str) -> tuple[Maxwell, Any]:
    """The model of light of a run and its parameters, of one member on one device."""
    plain = dataclasses.replace(config, mesh=MeshConfig(), ensemble=EnsembleConfig(), steps_per_exchange=0)
    set_up_jax(plain)
    programs = compiled_run(plain)
    values = {number: jnp.asarray(value) for number, value in programs.host_values().items()}
    model, params = programs.build(values, programs.start_fields(None))
    if not isinstance(model, Maxwell) or model.domain.grid.ndim != 2:
        raise ConfigurationError(f"{name}: expected a run of maxwell_tm or maxwell_te, got model={config.model}.")
    return model, params


def _fields_on_plane(dataset: xr.Dataset, name: str) -> tuple[np.ndarray, np.ndarray, Any]:
    """Fourier integrals of E and H across the guide, `([member,] frequency, cells)`, and what is said of the place."""
    end = f"_{FOURIER}_{REAL}"
    fields = [str(one).removesuffix(end) for one in dataset.data_vars if str(one).endswith(end)]
    about = [dataset[f"{field}{end}"].attrs for field in fields]
    if len(fields) != 2 or any("place" not in one or "outwards" in one for one in about):
        raise ConfigurationError(f"{name}: expected an entry of statistics of the flux of energy through one plane.")
    parts = {
        field.partition("_")[0]: dataset[f"{field}{end}"].values + 1j * dataset[f"{field}_{FOURIER}_{IMAGINARY}"].values
        for field in fields
    }
    return parts["electric"], parts["magnetic"], about[0]


def _plane(model: Maxwell, source: ModeSource, modes: int, config: Config, name: str) -> Any:
    """The plane of a mode that goes towards larger coordinates."""
    grid, periodic = model.domain.grid, tuple(side.periodic for side in config.boundaries)
    count = source.free(grid, model.polarisation, periodic[1 - source.axis])
    if modes > count:
        raise ConfigurationError(
            f"mode_amplitudes, {name}: modes={modes}: expected at most {max(count, 0)}, the cells of the line."
        )
    return plane_of(source, grid, ((0, 0),) * 2, periodic, model.polarisation)
