"""Components of E and H on Yee's grid: where they are, how they go on beyond sides, and the terms of their curls."""

from collections.abc import Sequence

from simjax.core.boundary import Boundary, Dirichlet, FieldLayout, Neumann, Periodic, PeriodicSide, Side
from simjax.grid import CENTER, FACE, Grid
from simjax.models.waves.axisymmetric_waves import on_axis
from simjax.models.waves.staggered_waves import Terms
from simjax.ops.axisymmetric_divergence import RADIAL

POLARISATIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "tm": ((2,), (0, 1)),
    "te": ((0, 1), (2,)),
    "full": ((0, 1, 2), (0, 1, 2)),
}
"""Name -> components of E and of H that there are."""

POLARISATION_OF = {"maxwell_tm": "tm", "maxwell_te": "te", "maxwell": "full"}
"""Name of a model in configurations -> its polarisation."""

ELECTRIC, MAGNETIC = "V m-1", "A m-1"
"""Units of E and H."""


def terms_of_curl(grid: Grid, of: Sequence[int], there: Sequence[int]) -> tuple[Terms, ...]:
    """For every component in `of`, the terms of the curl of a field with the components `there`."""
    sign = -1 if grid.axisymmetric else 1  # (r, z, phi) is left-handed
    result = []
    for c in of:
        j, k = (c + 1) % 3, (c + 2) % 3
        terms = ((j, k, sign), (k, j, -sign))
        result.append(tuple((axis, there.index(f), s) for axis, f, s in terms if axis < grid.ndim and f in there))
    return tuple(result)


def layouts_of(
    grid: Grid, sides: Sequence[tuple[Side, Side]], electric: Sequence[int], magnetic: Sequence[int]
) -> tuple[tuple[FieldLayout, ...], tuple[FieldLayout, ...]]:
    """Layouts of these components of E, on edges, and of H, on faces."""
    at_axis = grid.axisymmetric and grid.lower[RADIAL] == 0

    def layouts(components: Sequence[int], own: float, others: float, units: str) -> tuple[FieldLayout, ...]:
        offsets = [[own if axis == c else others for axis in range(grid.ndim)] for c in components]
        numbers = components if at_axis else [None] * len(components)
        return tuple(layout_of(offset, sides, units, c) for offset, c in zip(offsets, numbers, strict=True))

    return layouts(electric, CENTER, FACE, ELECTRIC), layouts(magnetic, FACE, CENTER, MAGNETIC)


def layout_of(
    offset: Sequence[float], sides: Sequence[tuple[Side, Side]], units: str = "1", component: int | None = None
) -> FieldLayout:
    """On a conductor a field with values on the wall vanishes there, one without is mirrored evenly.

    component: its number where r begins at the axis of an axisymmetric grid.
    """

    def boundary(axis: int, side: Side) -> Boundary:
        if isinstance(side, PeriodicSide):
            return Periodic()
        return Dirichlet(0.0) if offset[axis] == FACE else Neumann(0.0)

    pairs = [(boundary(axis, lower), boundary(axis, upper)) for axis, (lower, upper) in enumerate(sides)]
    if component is not None:
        pairs[RADIAL] = (on_axis(component, offset[RADIAL]), pairs[RADIAL][1])
    return FieldLayout(tuple(offset), tuple(pairs), units)
