"""Sound in cylindrical coordinates (r, z): what it takes there."""

from collections.abc import Iterator, Sequence
from typing import Any

from simjax.core.boundary import Side, SlipWall
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.ops.axisymmetric import RADIAL

ENDS = ("lower", "upper")


def refusals(rigid: Sequence[bool], order: int) -> Iterator[tuple[str, str]]:
    """Sentences on what sound does not take, each with its key path; `rigid`: whether the two sides across r are."""
    for end, wall in zip(ENDS, rigid, strict=True):
        if not wall:
            path = f"boundaries.x.{end}"
            yield path, f"{path}: expected rigid on an axisymmetric grid, at the axis and at sides across r"
    if order > 2:
        yield "physics.order", f"physics.order = {order}: expected 2 on an axisymmetric grid"


def check_configuration(config: Any) -> Iterator[tuple[str, str]]:
    """The `refusals` of a configuration with an axisymmetric grid, and that of sources off the axis."""
    across = config.boundaries[RADIAL]
    yield from refusals([side.kind == "rigid" for side in (across.lower, across.upper)], config.physics.order)
    for number, source in enumerate(config.physics.sources):
        if source.position[RADIAL] != 0:
            path = f"physics.sources[{number}].position[{RADIAL}]"
            yield (
                path,
                f"{path} = {source.position[RADIAL]:g}: expected 0 on an axisymmetric grid, as points lie on the axis",
            )


def check(domain: Domain, sides: Sequence[tuple[Side, Side]], order: int) -> None:
    """Refuse what sound does not take on an axisymmetric grid.

    Raises:
        ConfigurationError: see `refusals`.
    """
    if domain.grid.axisymmetric:
        # A layer is a wall of its own kind.
        for _, sentence in refusals([type(side) is SlipWall for side in sides[RADIAL]], order):
            raise ConfigurationError(f"{sentence}.")
