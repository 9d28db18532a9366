"""Variables that several models of fluids write, and how pictures have them."""

from collections.abc import Sequence

from simjax.core.model import Measure, Output
from simjax.grid import AXES, CENTER, Grid
from simjax.models.axisymmetric_grid import directions

RANK_OF_TEMPERATURE, RANK_OF_VORTICITY, RANK_OF_SPEED, RANK_OF_PRESSURE = -1, 0, 2, 3
"""Places among the scalars of pictures, the lowest drawn first."""


def velocity_outputs(grid: Grid, offsets: Sequence[tuple[float, ...]], units: str = "m s-1") -> tuple[Output, ...]:
    """The components of a velocity at the given places of a cell."""
    return tuple(
        Output(
            f"velocity_{axis}",
            offset,
            units,
            f"{direction}velocity",
            vector="velocity",
            component=number,
            palette="haline",
            rank=RANK_OF_SPEED,
        )
        for number, (axis, direction, offset) in enumerate(zip(AXES, directions(grid), offsets, strict=False))
    )


def pressure_output(offset: tuple[float, ...], units: str, long_name: str) -> Output:
    """A pressure, whose meaning is told by `long_name`."""
    return Output("pressure", offset, units, long_name, rank=RANK_OF_PRESSURE)


def vorticity_output(ndim: int) -> Output:
    """The vorticity of a plane flow, the magnitude of that of another, at cell centres."""
    name, palette = ("vorticity", "diverging") if ndim == 2 else ("vorticity_magnitude", "amp")
    place = (CENTER,) * ndim
    return Output(name, place, "s-1", name.replace("_", " "), palette=palette, rank=RANK_OF_VORTICITY, singular=True)


def flow_measures(ndim: int) -> dict[str, Measure]:
    """Units and meanings of the diagnostics of an incompressible flow, but for those of bodies."""
    return {
        "kinetic_energy": Measure("m2 s-2", "mean kinetic energy", shown="energy"),
        "enstrophy": Measure("s-2", "mean enstrophy", shown="enstrophy"),
        "max_divergence": Measure("s-1", "largest divergence", shown="divergence"),
        "mean_eddy_viscosity": Measure("m2 s-1", "mean eddy viscosity"),
        "mean_coefficient": Measure("1", "mean coefficient of the eddy viscosity"),
        **{f"driving_{axis}": Measure("m s-2", f"{axis}-force that keeps the bulk velocity") for axis in AXES[:ndim]},
    }
