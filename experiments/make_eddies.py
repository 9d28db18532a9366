"""Writes eddies.nc, the sample that conf/experiment/from_file.yaml starts from.

Surface currents of a field of mesoscale eddies on a 10 km grid, 64 x 48 cells, in m/s: periodic in both
directions, from a stream function (so without divergence) of Gaussian eddies of both signs. Sizes and speeds
are those that altimetry sees in the open ocean: radii of 30 to 60 km, up to 0.7 m/s.
"""

from pathlib import Path

import numpy as np
from scipy.io import netcdf_file

CELLS = (64, 48)
SPACING = 10e3
EDDIES = 18
SEED = 1989


def stream_function(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sum of Gaussian eddies and of their periodic images, in m2/s, with zero mean circulation."""
    random = np.random.default_rng(SEED)
    lengths = np.array(CELLS) * SPACING
    psi = np.zeros(np.broadcast_shapes(x.shape, y.shape))
    for eddy in range(EDDIES):
        center = random.uniform(0.0, 1.0, 2) * lengths
        radius, speed = random.uniform(30e3, 60e3), random.uniform(0.1, 0.4)
        sign = 1.0 if eddy % 2 else -1.0
        for i in (-1, 0, 1):
            for j in (-1, 0, 1):
                r2 = (x - center[0] - i * lengths[0]) ** 2 + (y - center[1] - j * lengths[1]) ** 2
                psi += sign * speed * radius * np.exp(0.5 * (1.0 - r2 / radius**2))
    return psi


def write(file: Path) -> None:
    x, y = ((np.arange(n) + 0.5) * SPACING for n in CELLS)
    step = 1.0  # m: centred differences of an analytic stream function, exact to rounding of single precision
    u = -(stream_function(x[None], y[:, None] + step) - stream_function(x[None], y[:, None] - step)) / (2 * step)
    v = (stream_function(x[None] + step, y[:, None]) - stream_function(x[None] - step, y[:, None])) / (2 * step)
    with netcdf_file(file, "w") as out:
        out.Conventions = "CF-1.11"
        out.title = "Synthetic mesoscale eddies, periodic, on a 10 km grid"
        for name, values in (("x", x), ("y", y)):
            out.createDimension(name, values.size)
            axis = out.createVariable(name, "f8", (name,))
            axis[:], axis.units, axis.axis = values, "m", name.upper()
        for name, values, standard_name in (
            ("u", u, "surface_eastward_sea_water_velocity"),
            ("v", v, "surface_northward_sea_water_velocity"),
        ):
            field = out.createVariable(name, "f4", ("y", "x"))
            field[:], field.units, field.standard_name = values.astype(np.float32), "m s-1", standard_name


if __name__ == "__main__":
    write(Path(__file__).with_name("eddies.nc"))
