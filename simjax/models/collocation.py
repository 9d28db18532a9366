"""Velocities from the faces of cells to their centres, and back: what connects simjax with codes that collocate."""

from collections.abc import Sequence

from jax import Array

from simjax.arguments import require_kind, shown
from simjax.core.boundary import FieldLayout, center_layout
from simjax.core.model import GridModel
from simjax.errors import ConfigurationError
from simjax.grid import CENTER, FACE
from simjax.ops import staggered


def velocity_at_centers(model: GridModel, velocity: Sequence[Array], t=0.0) -> tuple[Array, ...]:
    """The velocity at cell centres, `(*grid.shape)` per component, from that of the model's state.

    The mean of the two faces of a cell, second order; the upper face of the last cell is on the wall. Of a model on one
    device these are whole arrays, inside `distribute` this device's blocks.

    Raises ConfigurationError for a model without a velocity on faces, and for another number of components.

    Examples:
        >>> flow = sj.Incompressible(sj.Domain(sj.Grid((16, 16))), [(sj.PeriodicSide(), sj.PeriodicSide())] * 2)
        >>> u, v = sj.velocity_at_centers(flow, (jnp.ones((16, 16)), jnp.zeros((16, 16))))
        >>> u.shape
        (16, 16)
    """
    layouts = _layouts(model, velocity)
    center = (CENTER,) * len(layouts)

    def mean(*padded):
        return tuple(staggered.mean_at(u, kind.offset, center) for u, kind in zip(padded, layouts, strict=True))

    return model.domain.apply(mean, tuple(velocity), layouts, width=1, t=t)


def velocity_on_faces(model: GridModel, velocity: Sequence[Array], t=0.0) -> tuple[Array, ...]:
    """The velocity on the lower faces of cells, as the model's state has it, from that at cell centres.

    The mean of the two cells of a face, second order; on walls it is what the wall prescribes. It is free of divergence
    to second order only: `model.constrain(t, 0.0, state, params)` projects it.

    Raises ConfigurationError as `velocity_at_centers`.

    Examples:
        >>> flow = sj.Incompressible(sj.Domain(sj.Grid((16, 16))), [(sj.PeriodicSide(), sj.PeriodicSide())] * 2)
        >>> u, v = sj.velocity_on_faces(flow, (jnp.ones((16, 16)), jnp.zeros((16, 16))))
        >>> float(u[0, 0])
        1.0
    """
    layouts = _layouts(model, velocity)
    center = (CENTER,) * len(layouts)
    centered = tuple(center_layout(layout.boundaries, layout.units) for layout in layouts)

    def mean(*padded):
        return tuple(staggered.mean_at(u, center, kind.offset) for u, kind in zip(padded, layouts, strict=True))

    faces = model.domain.apply(mean, tuple(velocity), centered, width=1, t=t)
    return model.domain.impose(faces, layouts, t)


def _layouts(model: GridModel, velocity: Sequence[Array]) -> tuple[FieldLayout, ...]:
    """Layouts of the velocity's components, each on the faces normal to its axis."""
    require_kind("model", model, GridModel, "a model of fields, such as Incompressible")
    layouts, ndim = model.component_layouts().get("velocity", ()), model.domain.grid.ndim
    staggered = [tuple(FACE if axis == i else CENTER for axis in range(ndim)) for i in range(ndim)]
    if [layout.offset for layout in layouts] != staggered:
        raise ConfigurationError(
            f"{type(model).__name__} has no velocity on the faces of its cells; expected a staggered model such as "
            "Incompressible."
        )
    cells = model.domain.block_shape
    parts = velocity if isinstance(velocity, (tuple, list)) else [None]
    if len(parts) != ndim or any(getattr(part, "shape", None) != cells for part in parts):
        got = [shown(part) for part in parts] if parts is velocity else shown(velocity)
        raise ConfigurationError(f"velocity={got}: expected {ndim} components of shape {cells}, one per axis.")
    return layouts
