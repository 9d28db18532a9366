"""Frames of fields that are numbers of their steps, and the writer of them."""

import jax.numpy as jnp
import numpy as np

from simjax.core.model import Output
from simjax.grid import Grid
from simjax.io.grid_output import GridWriter

GRID = Grid((6, 4), (-1.0, 0.0), (2.0, 1.0))
OUTPUTS = (
    Output("velocity_x", (0.0, 0.5), "m s-1", "velocity along x", "", "velocity", 0),
    Output("velocity_y", (0.5, 0.0), "m s-1", "velocity along y", "", "velocity", 1),
    Output("temperature", (0.5, 0.5), "K", "temperature", "air_temperature"),
)
MEMBERS = 3
FRAME_BYTES = MEMBERS * (3 * GRID.cells * 4 + 8)
VISCOSITY = np.array([1e-4, 1e-3, 1e-2])


def make_writer(folder, grid=GRID, outputs=OUTPUTS, members=MEMBERS, **options) -> GridWriter:
    settings = {
        "parameters": {"viscosity": VISCOSITY if members else np.float64(1e-3)},
        "diagnostics": ["energy"],
        "attributes": {"simjax_seed": 7, "simjax_config_yaml": "grid:\n  shape: [6, 4]\n"},
        "title": "a test",
        "segment_bytes": 3 * FRAME_BYTES,
    }
    return GridWriter(folder, grid, outputs, members=members, **(settings | options))


def frames(steps, grid=GRID, outputs=OUTPUTS, members=MEMBERS):
    """Fields whose every value names its step, member, cell and variable; exact in float32."""
    steps = np.asarray(steps)
    lead = (len(steps),) if members is None else (len(steps), members)
    cell = np.arange(grid.cells, dtype="f8").reshape(grid.shape)
    member = 0.0 if members is None else 64.0 * np.arange(members).reshape(1, -1, *(1,) * grid.ndim)
    base = 1024.0 * steps.reshape(-1, *(1,) * (len(lead) - 1 + grid.ndim)) + member
    fields = {output.name: jnp.asarray(base + cell + 0.25 * i) for i, output in enumerate(outputs)}
    diagnostics = {"energy": np.broadcast_to(steps.reshape(-1, *(1,) * (len(lead) - 1)), lead) + 0.5}
    return steps, np.round(0.1 * steps, 1), fields, diagnostics  # times as files say them


def write_frames(writer: GridWriter, steps, chunk=2, **shape) -> None:
    for start in range(0, len(steps), chunk):
        writer.write(*frames(steps[start : start + chunk], **shape))
