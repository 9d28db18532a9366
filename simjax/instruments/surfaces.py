"""Integrals over planes across an axis and over the faces of a box: fluxes of vectors, and scalars."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.core.domain import Domain
from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.instruments.instrument import Instrument, Layout
from simjax.instruments.places import beside, require_cartesian
from simjax.instruments.sampling import corners, require_axes, shares
from simjax.schema.instrument_declarations import instrument
from simjax.schema.site import PlaceAlong, Point, Refusal, vectors_refusals
from simjax.schema.units import product_of_units, to_the_power


class Face(NamedTuple):
    """A part of the plane across `axis` at `position`, from `lower` to `upper` along the other axes (own entry unused).

    sign: of its normal along the axis.
    """

    axis: int
    position: float
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    sign: int = 1


def plane(grid: Grid, axis: int, position: float) -> tuple[Face, ...]:
    """All of a plane across the grid, its normal along the axis."""
    return (Face(axis, position, tuple(grid.lower), tuple(grid.upper)),)


def faces_of_box(lower: Sequence[float], upper: Sequence[float]) -> tuple[Face, ...]:
    """The faces of a box, their normals outward."""
    ends = tuple(map(float, lower)), tuple(map(float, upper))
    return tuple(Face(axis, ends[side][axis], *ends, (-1, 1)[side]) for axis in range(len(lower)) for side in (0, 1))


@instrument("surface_integral")
class SurfaceIntegral(Instrument):
    """The flux of a vector of `components` (one for each axis) through faces, or the integral of one scalar over them.

    A value stands for one spacing around it along the axes of a face, and counts with the part of that area that lies
    in it; along the normal values are interpolated linearly. Where a face lies on the faces of cells that hold the
    normal component, that is the sum of the discrete fluxes: through a closed box it is the integral of the discrete
    divergence. Second order.
    """

    variable: str = eqx.field(static=True)
    components: tuple[str, ...] = eqx.field(static=True)
    faces: tuple[Face, ...] = eqx.field(static=True)

    at_given_places = True

    def read(self, view):
        total: Array | float = 0.0
        for face in self.faces:
            name = self.components[face.axis if len(self.components) > 1 else 0]
            sign = face.sign if self._is_flux else 1
            total = total + sign * _integral(view.domain, view.variables[name], view.offsets[name], view.periodic, face)
        return view.domain.total(total)

    @property
    def _is_flux(self) -> bool:
        return len(self.components) > 1

    def check(self, grid):
        require_cartesian(f"SurfaceIntegral of '{self.variable}'", grid)
        if len(self.components) not in (1, grid.ndim):
            raise ConfigurationError(
                f"SurfaceIntegral of '{self.variable}' has {len(self.components)} components for a grid of "
                f"{grid.ndim} axes; write one for each of {', '.join(AXES[: grid.ndim])}, or a single scalar."
            )
        for face in self.faces:
            k = face.axis
            if not grid.lower[k] <= face.position <= grid.upper[k]:
                raise ConfigurationError(
                    f"SurfaceIntegral of '{self.variable}' has a face at {AXES[k]}={face.position:g} outside of the "
                    f"domain; write {grid.lower[k]:g} <= {AXES[k]} <= {grid.upper[k]:g}."
                )

    def layout(self, source, output, grid, units):
        return Layout(attributes={f"surface_{key}": value for key, value in source.given.items()})

    # ------------------------------------------------------------------ in configurations

    @classmethod
    def keys_for(cls, given, site):
        if given.keys() == {"lower", "upper"}:
            return {"lower": Point(site), "upper": Point(site)}
        if len(given) == 1 and given.keys() <= {*site.axes}:
            return {axis: PlaceAlong(axis, site) for axis in given}
        return "one axis and where it is cut, such as {x: 0.5}, or a box, {lower: [...], upper: [...]}"

    @classmethod
    def refusals(cls, of, given, site):
        yield from vectors_refusals(of, site)
        places = given
        if "lower" in given:
            places = dict(zip(site.axes, given["upper"], strict=True))
            if not all(a < b for a, b in zip(given["lower"], given["upper"], strict=True)):
                yield Refusal("upper", f"a point above lower={list(given['lower'])} on each axis", list(given["upper"]))
        if site.upper is None or not any(len(site.written.get(name, ())) > 1 for name in of):
            return
        for axis, upper in zip(site.axes, site.upper, strict=True):
            if places.get(axis) == upper and not site.is_periodic(axis):
                found = f"a flux at {axis}={upper:g} is in the upper wall, where no values are kept"
                hint = f"write {{flux: {{through: {axis}_upper}}}} for what passes the wall"
                yield Refusal("", f"a plane below the wall: {found}", hint=hint)

    @classmethod
    def readings(cls, source, written):
        return {f"{name}_{'flux' if len(written[name]) > 1 else 'integral'}": written[name] for name in source.of}

    @classmethod
    def made(cls, source, run):
        grid, schema, given = run.domain.grid, run.config.schema, source.given
        if "lower" in given:
            faces = faces_of_box(given["lower"], given["upper"])
        else:
            ((axis, position),) = given.items()
            faces = plane(grid, AXES.index(axis), position)
        area = to_the_power(schema.length_units, grid.ndim - 1)
        found: dict[str, tuple[Instrument, Output]] = {}
        for name, parts in cls.readings(source, schema.written(grid.ndim, run.config.counts)).items():
            first, (of, _, what) = run.outputs_named(parts)[0], name.rpartition("_")
            about, units = f"{what} of {of.replace('_', ' ')} over the surface", product_of_units(first.units, area)
            found[name] = cls(name, parts, faces), Output(name, first.offset, units, about)
        return found


def _integral(domain: Domain, field: Array, offset: Sequence[float], periodic: Sequence[bool], face: Face) -> Array:
    """This block's part of the integral over a face."""
    grid, axis = domain.grid, face.axis
    require_axes("periodic", periodic, grid.ndim)
    at = beside(domain, axis, np.asarray(face.position), offset[axis], periodic[axis], field.dtype)
    across = jnp.zeros((), field.dtype)
    for cell, weight, inside in corners(domain, axis, *at, periodic[axis]):
        line = lax.dynamic_index_in_dim(field, cell, axis, keepdims=False)
        # Selected before it is weighted, so that a NaN elsewhere in this block stays there.
        across = across + weight * jnp.where(inside, line, 0)
    for k in reversed([k for k in range(grid.ndim) if k != axis]):  # the last axis first: it is the last one left
        lower, upper = (np.asarray([end[k]]) for end in (face.lower, face.upper))
        widths = shares(domain, k, lower, upper, offset[k], periodic[k], field.dtype)[0] * (
            face.upper[k] - face.lower[k]
        )
        across = jnp.tensordot(across, widths, axes=1, precision=lax.Precision.HIGHEST)
    return across
