"""Sides given to a model: the check of them, made before anything is computed, and what they prescribe."""

from collections.abc import Sequence

from simjax.arguments import require_kind, shown
from simjax.core.boundary import FieldLayout, PeriodicSide, Side, SlipWall, face_layout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.schema.config_errors import raise_first
from simjax.schema.side_declarations import declared_sides, sides_of, wrapping_refusals

SCALAR_SIDES = ("scalar",)


def require_domain(name: str, domain: Domain) -> None:
    """Raises ConfigurationError for what is no Domain, given to the model `name`."""
    require_kind(f"{name}: domain", domain, Domain, "a Domain; write Domain(Grid((16, 16)))")


def check_sides(
    domain: Domain,
    sides: Sequence[tuple[Side, Side]],
    groups: Sequence[str],
    name: str,
    *,
    axisymmetric: bool = False,
) -> None:
    """Refuse sides that the model `name` cannot have; `groups` are those of the sides that it declares.

    A class of sides that is not declared, one of a user's own, is taken as it is. axisymmetric: whether the model takes
    such grids.

    Raises:
        ConfigurationError: unless there is a pair of sides for each axis, periodic at both ends or at none, of kinds
            that are declared for the model, with a velocity of one value per axis where there is one; or the grid is
            axisymmetric and the model takes none.
    """
    require_domain(name, domain)
    if domain.grid.axisymmetric and not axisymmetric:
        raise ConfigurationError(f"{name} takes Cartesian grids only; leave axisymmetric out of its Grid.")
    ndim = domain.grid.ndim
    if not isinstance(sides, Sequence) or isinstance(sides, str):
        raise ConfigurationError(
            f"{name}: sides={shown(sides)}: expected a pair of sides for each axis; write [(lower, upper), ...], such "
            "as [(PeriodicSide(), PeriodicSide())] for one axis."
        )
    if len(sides) != ndim:
        raise ConfigurationError(
            f"{name}: expected {ndim} pair(s) of sides, one per axis of the grid, got {len(sides)}; write "
            "[(lower, upper), ...], such as [(PeriodicSide(), PeriodicSide())] for one axis."
        )
    for axis, pair in enumerate(sides):
        where = f"boundaries.{AXES[axis]}"
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(side, Side) for side in pair):
            raise ConfigurationError(
                f"{where}: expected a pair of sides (lower, upper), got {pair!r}; write for instance "
                "(NoSlipWall(), NoSlipWall())."
            )
        raise_first(wrapping_refusals(where, *(kind_of(side, groups) for side in pair)))
        for side in pair:
            _check_side(side, where, ndim, groups, name)


def _check_side(side: Side, where: str, ndim: int, groups: Sequence[str], name: str) -> None:
    taken = sides_of(groups)
    known = {c for one in taken.values() for c in (one.side, one.plain)}
    declared = {one.side for one in declared_sides(())}  # a class that is here has been imported and declared
    kind = next((cls for cls in type(side).__mro__ if cls in declared), None)
    if kind is not None and kind not in known:
        kinds = ", ".join(("periodic", *taken))
        instead = "one of these" if taken else f"{where}=periodic"
        raise ConfigurationError(
            f"{where}: {name} takes sides of the kinds {kinds}, got {type(side).__name__}; write {instead}."
        )
    velocity = getattr(side, "velocity", None)
    if not isinstance(velocity, (tuple, list, type(None))):
        raise ConfigurationError(
            f"{where}: {type(side).__name__}.velocity={shown(velocity)}: expected one value per axis; write "
            f"velocity=({', '.join(['1.0'] + ['0.0'] * (ndim - 1))}{',' if ndim == 1 else ''})."
        )
    if velocity is not None and len(velocity) != ndim:
        raise ConfigurationError(
            f"{where}: a velocity of {len(velocity)} value(s) where {ndim} were expected; write one per axis."
        )


def kind_of(side: Side, groups: Sequence[str]) -> str:
    """The kind of a side in the words of a configuration, or the name of a class of a user's own.

    One derived from a slip wall need not be a mirror; others are what they are derived from.
    """
    if isinstance(side, PeriodicSide):
        return "periodic"
    kinds = {cls: one.kind for one in sides_of(groups).values() for cls in (one.side, one.plain)}
    found = next((cls for cls in type(side).__mro__ if cls in kinds), None)
    if found is None or (found is SlipWall and type(side) is not SlipWall):
        return type(side).__name__
    return kinds[found]


def velocity_layouts(sides: Sequence[tuple[Side, Side]], units: str) -> tuple[FieldLayout, ...]:
    """Layouts of the components of a velocity on the faces normal to them, with what the sides prescribe."""
    return tuple(
        face_layout(i, [[s.velocity_boundary(i, axis) for s in pair] for axis, pair in enumerate(sides)], units)
        for i in range(len(sides))
    )
