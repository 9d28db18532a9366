"""The wave far away from a box, from the Fourier integrals of the fields on its faces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simjax.arguments import require_one_of, require_path
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.io.read import open_output
from simjax.io.time_statistics_files import IMAGINARY, REAL
from simjax.schema.time_statistics import FOURIER

if TYPE_CHECKING:
    import xarray as xr

SCATTERED = "scattered"


def far_field(
    folder: str | Path,
    name: str,
    directions: Sequence[Any],
    *,
    speed: float = 1.0,
    density: float = 1.0,
    scattered: bool = False,
) -> xr.DataArray:
    """The amplitude F of the wave far away from a box, in directions: p = F exp(-i k r)/r, in a plane over sqrt(r).

    Kirchhoff's integral over the faces of the box of the pressure and the velocity there, with Green's function of free
    space; of light in a plane that of its only component and the other field along the faces. Of light in space it is
    the electric field, from the currents n x H and -n x E on the faces (Schelkunoff's equivalence principle; Taflove
    and Hagness 2005, ch. 8). The phase is that of a wave from the origin of the coordinates. All sources and media but
    the one around must lie inside the box.

    Args:
        folder: of the run.
        name: of the entry of `statistics` with `frequencies`, of a `flux` of energy out of a box.
        directions: angles in a plane, from x to y; in space vectors of length one, `(directions, 3)`.
        speed: of waves outside of the box.
        density: of the medium of sound there. Of light permeability (`maxwell_tm`, `maxwell`) or permittivity
            (`maxwell_te`).
        scattered: of what the object scatters, where the entry has a `reference`.

    Returns:
        Complex amplitudes `([member,] frequency, direction)`, in the units of the integral times a length, in a plane
        its root; of light in space `([member,] frequency, direction, component)`.

    Raises:
        ConfigurationError: there is no box in the file.

    Examples:
        >>> loud = sj.configure(
        ...     "acoustic", grid={"shape": [32, 32]}, boundaries={"x": "absorbing", "y": "absorbing"},
        ...     physics={"sources": [{"position": [0.5, 0.5], "signal": "exp(-(20*(t - 0.2))**2)"}], "layer_cells": 6},
        ...     time={"end": 0.8, "output_every": 0.8},
        ...     outputs=[{"flux": {"through": {"lower": [0.25, 0.25], "upper": [0.75, 0.75]}}, "of": "energy"}],
        ...     statistics=[{"of": "flux", "frequencies": [2.0], "name": "around"}],
        ... ).run()
        >>> sj.far_field(loud.folder, "around", [0.0, 1.5]).dims
        ('frequency', 'direction')
    """
    import xarray as xr

    require_path("far_field: folder", folder)
    require_one_of("far_field: scattered", scattered, (False, True))
    kind = SCATTERED if scattered else FOURIER
    with open_output(Path(folder), name) as opened:
        dataset = opened.isel(time=-1).load()
    towards = _unit_vectors(directions)
    wavenumber = 2 * math.pi * dataset.frequency.values / speed
    flows = [str(one).removesuffix(f"_{FOURIER}_{REAL}") for one, u in dataset.data_vars.items() if "times" in u.attrs]
    flows = [one for one in flows if f"{one}_{kind}_{REAL}" in dataset]
    faces = {(about["across"], about["outwards"]) for one in flows if "outwards" in (about := _about(dataset, one))}
    vector = towards.shape[1] == 3 and len(flows) == 2 * len(faces)
    if len(faces) != 2 * towards.shape[1] or not (vector or len(flows) == len(faces)):
        raise ConfigurationError(
            f"{name}: expected an entry of statistics of the flux of energy out of a box, {{lower, upper}}, of as many "
            f"axes as the directions have{', with a reference' if scattered else ''}."
        )
    lead = ("member",) if "member" in dataset.dims else ()
    coordinates = {"frequency": dataset.frequency, "direction": np.arange(len(towards))}
    dims = *lead, "frequency", "direction"
    if vector:
        found = _of_currents(dataset, flows, kind, towards, wavenumber, speed * density)
        return xr.DataArray(found, {**coordinates, "component": [*AXES]}, (*dims, "component"), name="far_field")
    total: Any = 0.0
    for flow in flows:
        about = _about(dataset, flow)
        axis, outwards = AXES.index(about["across"]), int(about["outwards"])
        along = wavenumber[:, None] * (outwards * towards[:, axis])  # k (r.n)
        total = total + 1j * along * _projected(dataset, f"{about['times']}_{kind}", about, towards, wavenumber)
        moved = (speed * density * outwards * int(about["sign"]) * 1j) * wavenumber[:, None]
        total = total + moved * _projected(dataset, f"{flow}_{kind}", about, towards, wavenumber)
    if towards.shape[1] == 2:
        green = -0.25j * np.sqrt(2 / (math.pi * wavenumber)) * np.exp(0.25j * math.pi)
    else:
        green = np.full_like(wavenumber, 1 / (4 * math.pi))
    return xr.DataArray(green[:, None] * total, coordinates, dims, name="far_field")


def _of_currents(
    dataset: xr.Dataset, flows: Sequence[str], kind: str, towards: np.ndarray, wavenumber: np.ndarray, impedance: float
) -> np.ndarray:
    """The electric field far away, `([member,] frequency, direction, component)`, of currents on the faces of a box."""
    shape = (*(dataset.sizes[dim] for dim in ("member",) if dim in dataset.sizes), len(wavenumber), len(towards), 3)
    electric, magnetic = np.zeros(shape, complex), np.zeros(shape, complex)
    for flow in flows:
        about = _about(dataset, flow)
        outwards, sign, axis = int(about["outwards"]), int(about["sign"]), AXES.index(about["across"])
        # The product of the one component and the other has this sign in the component of the cross product on `axis`.
        one, other = ((axis + 1) % 3, (axis + 2) % 3)[::sign]
        electric[..., one] -= outwards * sign * _projected(dataset, f"{flow}_{kind}", about, towards, wavenumber)
        seen = _projected(dataset, f"{about['times']}_{kind}", about, towards, wavenumber)
        magnetic[..., other] -= outwards * sign * seen
    across = electric - towards * np.sum(electric * towards, axis=-1, keepdims=True)
    waves = -impedance * across + np.cross(towards, magnetic)
    return (1j * wavenumber / (4 * math.pi))[:, None, None] * waves


def _unit_vectors(directions: Sequence[Any]) -> np.ndarray:
    """Unit vectors `(directions, axes)`, of angles in a plane or as they are."""
    given = np.asarray(directions, np.float64)
    if given.ndim == 1:
        return np.stack([np.cos(given), np.sin(given)], axis=1)
    if given.ndim != 2 or given.shape[1] != 3 or not np.allclose(np.linalg.norm(given, axis=1), 1, atol=1e-6):
        raise ConfigurationError(
            f"directions: expected angles in a plane, or vectors of length one, (directions, 3); got {given.shape}."
        )
    return given


def _about(dataset: xr.Dataset, name: str) -> Mapping[str, Any]:
    """The place of a field, and what it is multiplied by in the energy flux."""
    return dataset[f"{name}_{FOURIER}_{REAL}"].attrs


def _projected(
    dataset: xr.Dataset, name: str, about: Mapping[str, Any], towards: np.ndarray, wavenumber: np.ndarray
) -> np.ndarray:
    """The integral of a field over a face of the box times exp(i k r.x), `([member,] frequency, direction)`."""
    real, imaginary = (dataset[f"{name}_{part}"] for part in (REAL, IMAGINARY))
    own = [str(dim) for dim in real.dims if dim not in ("member", "frequency")]
    field = real.values + 1j * imaginary.values
    across = wavenumber[:, None] * (towards[:, AXES.index(about["across"])] * float(about["place"]))
    waves = np.exp(1j * across)[:, :, None]
    for dim in own:
        k = AXES.index(dim[0])
        x = dataset[dim].values
        lengths = _lengths_inside(x, about["lower"][k], about["upper"][k])
        along = lengths * np.exp(1j * wavenumber[:, None, None] * towards[None, :, k, None] * x)
        waves = (waves[..., None] * along[:, :, None, :]).reshape(*waves.shape[:2], -1)
    flat = field.reshape(*field.shape[: field.ndim - len(own)], -1)
    return np.einsum("...fp,fdp->...fd", flat, waves)


def _lengths_inside(x: np.ndarray, lower: float, upper: float) -> np.ndarray:
    """The lengths that values at `x` stand for, those between two ends."""
    middles = 0.5 * (x[1:] + x[:-1])
    edges = np.concatenate([[2 * x[0] - middles[0]], middles, [2 * x[-1] - middles[-1]]])
    return np.clip(np.minimum(edges[1:], upper) - np.maximum(edges[:-1], lower), 0.0, None)
