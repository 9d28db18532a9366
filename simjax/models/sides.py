"""Sides given to a model: checks of them, made before anything is computed, and what they prescribe."""

from collections.abc import Sequence

from simjax.core.boundary import (
    FieldLayout,
    GasInflow,
    NoSlipWall,
    Outflow,
    PeriodicSide,
    ScalarSide,
    Side,
    face_layout,
)
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.models.waves.pml import Absorbing, FreeSurface

WAVES_ALONE = (Absorbing, FreeSurface)


def check_sides(domain: Domain, sides: Sequence[tuple[Side, Side]], name: str) -> None:
    """Raises ConfigurationError unless there is a pair of sides for each axis, periodic at both ends or at none."""
    ndim = domain.grid.ndim
    if len(sides) != ndim:
        raise ConfigurationError(
            f"{name}: expected {ndim} pair(s) of sides, one per axis of the grid, got {len(sides)}; write "
            "[(lower, upper), ...], such as [(PeriodicSide(), PeriodicSide())] for one axis."
        )
    for axis, pair in enumerate(sides):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(side, Side) for side in pair):
            raise ConfigurationError(
                f"boundaries.{AXES[axis]}: expected a pair of sides (lower, upper), got {pair!r}; write for instance "
                "(NoSlipWall(), NoSlipWall())."
            )
        if isinstance(pair[0], PeriodicSide) != isinstance(pair[1], PeriodicSide):
            kinds = " and ".join(type(side).__name__ for side in pair)
            raise ConfigurationError(
                f"boundaries.{AXES[axis]}: {kinds} at the two ends of one axis; write PeriodicSide() at both or at "
                "neither, as they are the same place."
            )
        for side in pair:
            velocity = getattr(side, "velocity", None)
            if velocity is not None and isinstance(side, NoSlipWall) and len(velocity) != ndim:
                raise ConfigurationError(
                    f"boundaries.{AXES[axis]}: a velocity of {len(velocity)} value(s) where {ndim} were expected; "
                    "write one per axis."
                )


def refuse_sides(sides: Sequence[tuple[Side, Side]], refused: tuple[type[Side], ...], takes: str) -> None:
    """Raises ConfigurationError for a side of a kind that a model cannot have; `takes` says which ones it can."""
    for axis, pair in enumerate(sides):
        for side in pair:
            if isinstance(side, refused):
                raise ConfigurationError(f"boundaries.{AXES[axis]}: {takes} sides; got {type(side).__name__}.")


def check_flow_sides(domain: Domain, sides: Sequence[tuple[Side, Side]], name: str) -> None:
    """`check_sides` for an incompressible flow."""
    check_sides(domain, sides, name)
    refused = (Outflow, GasInflow, ScalarSide, *WAVES_ALONE)
    refuse_sides(
        sides, refused, "incompressible flow takes periodic, no_slip, slip or inflow (a prescribed velocity)"
    )  # fmt: skip


def check_scalar_sides(domain: Domain, sides: Sequence[tuple[Side, Side]], name: str) -> None:
    """`check_sides` for a scalar."""
    check_sides(domain, sides, name)
    takes = f"{name} takes periodic, no_slip, slip, inflow, outflow and scalar (dirichlet, neumann)"
    refuse_sides(sides, (GasInflow, *WAVES_ALONE), takes)


def velocity_layouts(sides: Sequence[tuple[Side, Side]], units: str) -> tuple[FieldLayout, ...]:
    """Layouts of the components of a velocity on the faces normal to them, with what the sides prescribe."""
    return tuple(
        face_layout(i, [[s.velocity_boundary(i, axis) for s in pair] for axis, pair in enumerate(sides)], units)
        for i in range(len(sides))
    )
