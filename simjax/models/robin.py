"""Sides through which a scalar passes in proportion to its difference from what is outside."""

import jax.numpy as jnp

from simjax.arguments import require_at_least
from simjax.core.boundary import Boundary, Side, lines
from simjax.core.given_values import Value, evaluate, require_value
from simjax.errors import ConfigurationError
from simjax.grid import CENTER
from simjax.schema.model_schema import FieldSchema
from simjax.schema.side_declarations import side


class Robin(Boundary):
    """dc/dn = transfer (outside - c) on the side, with n the outward normal, of a field at cell centres.

    transfer: 1 / length, not negative; of heat it is the transfer coefficient over the conductivity. Second order: each
    ghost and its mirror image have the mean and the difference of a line that obeys the condition on the side.

    Examples:
        >>> cooled = sj.Robin(transfer=2.0, outside=20.0)
    """

    transfer: Value
    outside: Value = 0.0

    def __check_init__(self):
        require_value("Robin.transfer", self.transfer)
        require_value("Robin.outside", self.outside)
        if not callable(self.transfer):
            require_at_least("Robin", {"transfer": self.transfer})

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        if offset != CENTER:
            raise ConfigurationError("A Robin condition is one on fields at cell centres; this one lies on faces.")
        array_axis = axis - len(spacing)
        rate, outside = (evaluate(value, t, positions, edge) for value in (self.transfer, self.outside))
        shape = tuple(width if k == array_axis % edge.ndim else 1 for k in range(edge.ndim))
        distance = spacing[axis] * (2 * jnp.arange(width, dtype=edge.dtype).reshape(shape) + 1)  # ghost to image
        reached = rate * distance
        return ((2 - reached) * lines(edge, array_axis, 0, width) + 2 * reached * outside) / (2 + reached)

    def conductance(self, spacing):
        if callable(self.transfer):
            return None
        return 2 * self.transfer * spacing / (2 + self.transfer * spacing)


@side(
    "robin",
    groups=("scalar",),
    keys=(FieldSchema("transfer", units="m-1", default=None), FieldSchema("outside", units="u")),
    about="slope along the outward normal = transfer * (outside - value), such as heat lost to the surroundings",
)
class ExchangeSide(Side):
    """A side that exchanges a scalar with its surroundings: dc/dn = transfer (outside - c).

    transfer: 1 / length, for heat the heat transfer coefficient over the conductivity. outside: in the units of c.

    Examples:
        >>> sides = [(sj.ExchangeSide(transfer=2.0, outside=20.0), sj.ScalarSide(sj.Neumann()))]
        >>> plate = sj.Transport(sj.Domain(sj.Grid((32,))), sides)
    """

    transfer: Value
    outside: Value = 0.0

    def velocity_boundary(self, component, axis):
        raise TypeError("This side says what a scalar does, not what a velocity does: use a wall or an inflow.")

    def scalar_boundary(self):
        return Robin(self.transfer, self.outside)
