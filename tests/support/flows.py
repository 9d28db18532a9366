"""Analytic flows as the datasets that a run leaves on disk, for tests of figures and reports."""

from __future__ import annotations

import numpy as np
import xarray as xr

# As the models of flows declare their variables and numbers.
OF_VELOCITY = {"units": "m s-1", "vector": "velocity", "palette": "haline", "rank": 2}
OF_VORTICITY = {"units": "s-1", "palette": "diverging", "rank": 0, "singular": 1}
OF_ENERGY, OF_ENSTROPHY = {"units": "m2 s-2", "rank": 0}, {"units": "s-2", "rank": 1}
OF_DIVERGENCE = {"units": "s-1", "rank": 2}
HOSTILE = "<script>alert('1')</script> \"&\" <img src=x onerror=alert(1)> $x^2$ {0}"


def coordinates(sizes: dict[str, int], lengths: dict[str, float]) -> dict[str, tuple]:
    """Centre and face coordinates of a uniform grid, with CF attributes."""
    found = {}
    for axis, n in sizes.items():
        h = lengths[axis] / n
        for name, offset in ((axis, 0.5), (axis + "_face", 0.0)):
            attributes = {"units": "m", "axis": axis.upper()}
            found[name] = (name, (np.arange(n) + offset) * h, attributes)
    return found


def _time(end: float, frames: int) -> dict[str, tuple]:
    return {"time": ("time", np.linspace(0.0, end, frames), {"units": "s", "standard_name": "time"})}


def taylor_green(n: int = 64, frames: int = 11, viscosity: float = 0.02, end: float = 10.0) -> xr.Dataset:
    """Decaying Taylor-Green vortices: u = sin x cos y exp(-2 nu t) on the staggered grid."""
    box = 2 * np.pi
    coords = coordinates({"x": n, "y": n}, {"x": box, "y": box}) | _time(end, frames)
    t = coords["time"][1]
    decay = np.exp(-2 * viscosity * t)[:, None, None]
    xc, xf, yc, yf = (coords[name][1] for name in ("x", "x_face", "y", "y_face"))
    u = decay * (np.cos(yc)[:, None] * np.sin(xf)[None, :])
    v = -decay * (np.sin(yf)[:, None] * np.cos(xc)[None, :])
    w = 2 * decay * (np.sin(yf)[:, None] * np.sin(xf)[None, :])
    p = 0.25 * decay**2 * (np.cos(2 * yc)[:, None] + np.cos(2 * xc)[None, :])
    vector = OF_VELOCITY
    fields = {
        "velocity_x": (("time", "y", "x_face"), u.astype("f4"), vector | {"component": 0}),
        "velocity_y": (("time", "y_face", "x"), v.astype("f4"), vector | {"component": 1}),
        "pressure": (("time", "y", "x"), p.astype("f4"), {"units": "Pa", "rank": 3}),
        "vorticity": (
            ("time", "y_face", "x_face"),
            w.astype("f4"),
            OF_VORTICITY | {"long_name": "vorticity"},
        ),
        "kinetic_energy": ("time", 0.25 * np.exp(-4 * viscosity * t), OF_ENERGY),
        "enstrophy": ("time", 0.5 * np.exp(-4 * viscosity * t), OF_ENSTROPHY),
        "max_divergence": ("time", 1e-13 * (1 + 0.5 * np.sin(3 * t)), OF_DIVERGENCE),
        "courant": ("time", 0.5 * np.exp(-2 * viscosity * t), {"units": "1"}),
    }
    return xr.Dataset(fields, coords=coords, attrs={"title": "Taylor-Green vortices"})


def taylor_green_ensemble(viscosities, n: int = 32, frames: int = 6) -> xr.Dataset:
    """One Taylor-Green flow for each viscosity, with `viscosity(member)` as a coordinate."""
    members = [taylor_green(n, frames, float(viscosity)) for viscosity in viscosities]
    together = xr.concat(members, dim="member", data_vars="all")
    constant = {name: together[name] for name in together.data_vars}
    return xr.Dataset(constant, attrs=together.attrs).assign_coords(
        member=("member", np.arange(len(members)), {"standard_name": "realization"}),
        viscosity=("member", np.asarray(viscosities, dtype=float), {"units": "m2 s-1"}),
    )


def shear_layer(n: int = 256, frames: int = 120, seed: int = 0) -> xr.Dataset:
    """Two rolled-up shear layers with small-scale vorticity: a picture as rich as a real flow."""
    coords = coordinates({"x": n, "y": n}, {"x": 1.0, "y": 1.0}) | _time(2.0, frames)
    x, y, t = coords["x_face"][1], coords["y_face"][1], coords["time"][1]
    noise = np.random.default_rng(seed).standard_normal((n, n))
    k = np.hypot(*np.meshgrid(np.fft.rfftfreq(n, 1 / n), np.fft.fftfreq(n, 1 / n)))
    eddies = np.fft.irfft2(np.fft.rfft2(noise) * k * np.exp(-k / 12), s=(n, n))
    eddies *= 6 / eddies.std()
    w = np.empty((frames, n, n), dtype=np.float32)
    for i, now in enumerate(t):
        bend = 0.06 * now * np.sin(2 * np.pi * (x[None, :] - 0.2 * now))
        lower, upper = (y[:, None] - 0.25 - bend) * 30, (y[:, None] - 0.75 + bend) * 30
        shift = int(0.3 * now * n)
        w[i] = 30 / np.cosh(lower) ** 2 - 30 / np.cosh(upper) ** 2 + np.roll(eddies, shift, axis=1) * now / 2
    u = np.broadcast_to(np.tanh(np.sin(2 * np.pi * coords["y"][1]) * 8)[:, None], w.shape).astype("f4")
    v = (
        0.4 * np.sin(2 * np.pi * (coords["x"][1][None, None, :] - 0.2 * t[:, None, None])) * t[:, None, None]
    ) * np.ones((1, n, 1))
    vector = OF_VELOCITY
    fields = {
        "velocity_x": (("time", "y", "x_face"), u, vector | {"component": 0}),
        "velocity_y": (("time", "y_face", "x"), v.astype("f4"), vector | {"component": 1}),
        "vorticity": (("time", "y_face", "x_face"), w, OF_VORTICITY | {"long_name": "vorticity"}),
        "kinetic_energy": ("time", 0.4 * np.exp(-0.1 * t), OF_ENERGY),
        "enstrophy": ("time", (w.astype(float) ** 2).mean((1, 2)) / 2, OF_ENSTROPHY),
        "max_divergence": ("time", 1e-6 * (1 + 0.3 * np.sin(20 * t)), OF_DIVERGENCE),
        "courant": ("time", 0.5 + 0.001 * np.cos(9 * t), {"units": "1"}),
    }
    return xr.Dataset(fields, coords=coords, attrs={"title": "Double shear layer"})


def taylor_green_3d(n: int = 24, frames: int = 5) -> xr.Dataset:
    """The decaying velocity (sin x cos y cos z, -cos x sin y cos z, 0) and its vorticity's magnitude."""
    box = 2 * np.pi
    coords = coordinates(dict.fromkeys("xyz", n), dict.fromkeys("xyz", box)) | _time(4.0, frames)
    t = coords["time"][1]
    decay = np.exp(-0.2 * t)[:, None, None, None]
    c = {name: coords[name][1] for name in coords}
    u = np.cos(c["z"])[:, None, None] * np.cos(c["y"])[:, None] * np.sin(c["x_face"])
    v = -np.cos(c["z"])[:, None, None] * np.sin(c["y_face"])[:, None] * np.cos(c["x"])
    z, y, x = c["z"][:, None, None], c["y"][:, None], c["x"]
    parts = (
        np.sin(z) * np.sin(x) * np.cos(y),
        np.sin(z) * np.cos(x) * np.sin(y),
        2 * np.cos(z) * np.sin(x) * np.sin(y),
    )
    magnitude = np.sqrt(sum(part**2 for part in parts))
    vector = OF_VELOCITY
    fields = {
        "velocity_x": (("time", "z", "y", "x_face"), (decay * u).astype("f4"), vector | {"component": 0}),
        "velocity_y": (("time", "z", "y_face", "x"), (decay * v).astype("f4"), vector | {"component": 1}),
        "velocity_z": (
            ("time", "z_face", "y", "x"),
            np.zeros((frames, n, n, n), "f4"),
            vector | {"component": 2},
        ),
        "vorticity_magnitude": (
            ("time", "z", "y", "x"),
            (decay * magnitude).astype("f4"),
            OF_VORTICITY | {"palette": "amp"},
        ),
        "kinetic_energy": ("time", 0.125 * np.exp(-0.4 * t), OF_ENERGY),
        "enstrophy": ("time", 0.375 * np.exp(-0.4 * t), OF_ENSTROPHY),
    }
    return xr.Dataset(fields, coords=coords, attrs={"title": "Taylor-Green vortex in three dimensions"})


def advected_pulse(n: int = 128, frames: int = 41) -> xr.Dataset:
    """A Gaussian pulse that travels and spreads on a line: u_t + u_x = 0.01 u_xx."""
    coords = coordinates({"x": n}, {"x": 1.0}) | _time(0.6, frames)
    t = coords["time"][1][:, None]
    width = 0.003 + 0.02 * t
    u = np.sqrt(0.003 / width) * np.exp(-((coords["x"][1] - 0.2 - t) ** 2) / width)
    fields = {
        "concentration": (("time", "x"), u.astype("f4"), {"units": "kg m-3", "long_name": "concentration"}),
        "mean": ("time", u.mean(1), {"units": "kg m-3"}),
        "minimum": ("time", u.min(1), {"units": "kg m-3"}),
        "maximum": ("time", u.max(1), {"units": "kg m-3"}),
        "variance": ("time", u.var(1), {"units": "kg2 m-6"}),
    }
    return xr.Dataset(fields, coords=coords, attrs={"title": "Advected pulse"})


def with_gap(dataset: xr.Dataset, member: int, frame: int) -> xr.Dataset:
    """The ensemble with one member that is not a number from `frame` on."""
    lost = (dataset["member"] == member) & (xr.DataArray(np.arange(dataset.sizes["time"]), dims="time") >= frame)
    return dataset.map(lambda variable: variable.where(~lost, np.nan) if "time" in variable.dims else variable)


def noise(n: int, frames: int) -> xr.Dataset:
    """White noise: what compresses worst."""
    dataset = taylor_green(n, frames)
    values = np.random.default_rng(0).standard_normal((frames, n, n), dtype=np.float32)
    dataset["vorticity"] = (("time", "y_face", "x_face"), values)
    return dataset
