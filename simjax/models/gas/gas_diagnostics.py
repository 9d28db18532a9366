"""Readings of a gas: diagnostics, the variables that it writes, and where it is kept positive."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from simjax.core.model import Measure, Output
from simjax.grid import AXES, CENTER, Grid
from simjax.models.axisymmetric_grid import dimensions, directions, ring_volumes
from simjax.models.fluid_outputs import RANK_OF_TEMPERATURE, pressure_output, velocity_outputs
from simjax.models.gas.bodies import gas_bodies
from simjax.models.gas.entropic_pressure import padded_gas
from simjax.models.measures import times_volume
from simjax.ops import gas, riemann
from simjax.ops.difference import shift
from simjax.ops.riemann import Conserved, Primitive
from simjax.ops.spacing import Spacing, along, around_centers, relative, scaled


def at_floor(w: Primitive, params: Any) -> Array:
    """Truth values: cells whose density or pressure is at its floor in `params`, but for rounding."""
    near = 1 + 1e-3
    result = jnp.zeros(w.density.shape, bool)
    for value, floor in ((w.density, params.density_floor), (w.pressure, params.pressure_floor)):
        result = result if floor is None else result | (value <= near * floor)
    return result


def limited_by_axis(model: Any, t, state, params) -> Iterator[Array]:
    """For each axis truth values on the faces of this block along it, both ends included.

    They hold where `ops.positivity` changes what passes, in this state of a gas.
    """
    domain, width = model.domain, model.width
    fields, layouts, walled = model.read(state, params, t)
    heat, velocity, pressure, scalars, pulls, _, entropic = domain.pad(fields, layouts, width, t)
    padded = padded_gas(heat, velocity, pressure, scalars, entropic, model.scheme)
    pulls = dict(zip(walled, pulls, strict=True))
    spacing = domain.spacing(model.plain, width, state.density.dtype)
    for axis in range(domain.grid.ndim):
        rises = model.rises(padded, axis, pulls.get(axis), params, spacing)
        yield gas.limited_faces(padded, axis, domain.grid.ndim, params.gamma, model.scheme, rises)


def limited_faces(model: Any, t, state, params) -> Array:
    """The number of faces of the grid where `ops.positivity` changes what passes, in this state of a gas."""
    domain, dtype = model.domain, state.density.dtype
    total = jnp.zeros((), dtype)
    for axis, limited in enumerate(limited_by_axis(model, t, state, params)):
        # The upper face of a block is the lower one of the next, but where the grid ends.
        cells = limited.shape[axis] - 1
        along = jnp.arange(cells + 1, dtype=jnp.int32).reshape(
            tuple(-1 if k == axis else 1 for k in range(limited.ndim))
        )
        counted = along < cells
        if not model.layouts.pressure.is_periodic(axis):
            counted = counted | (domain.first_index(axis) + along == domain.grid.shape[axis])
        total = total + jnp.sum(limited & counted, dtype=dtype)
    return domain.total(total)


def measures_of(grid: Grid, scalars: int) -> dict[str, Measure]:
    """Units and meanings of the diagnostics of a gas with so many scalars."""
    ndim = dimensions(grid)
    momentum = {1: "kg m-1 s-1", 2: "kg s-1", 3: "kg m s-1"}[ndim]
    return {
        "mass": Measure(times_volume("kg", ndim), "total mass"),
        **{
            f"momentum_{axis}": Measure(momentum, f"total {name}momentum")
            for axis, name in zip(AXES, directions(grid), strict=False)
        },
        "energy": Measure(times_volume("J", ndim), "total energy"),
        **{f"scalar_{k}": Measure(times_volume("kg", ndim), f"total of scalar {k}") for k in range(scalars)},
        "max_mach": Measure("1", "largest Mach number"),
        "minimum_density": Measure("kg m-3", "minimum density"),
        "minimum_pressure": Measure("Pa", "minimum pressure"),
        "limited_faces": Measure("1", "faces with a limited flux"),
        "cells_at_floor": Measure("1", "cells at a floor"),
    }


class GasReadings:
    """Diagnostics and variables of a gas; beside `models.gas.compressible`."""

    taken_through: ClassVar[str] = "the floors of density and pressure"

    def fields_from(self: Any, names, state, params):
        """Initial fields that floors may raise."""
        if params.density_floor is None and params.pressure_floor is None:
            return {}
        w = riemann.primitive(conserved_of(state), params.gamma)
        return {"density": (w.density,), "velocity": w.velocity, "pressure": (w.pressure,), "scalars": w.scalars}

    def diagnostics(self: Any, t, state, params):
        """Totals of mass, momentum and energy (integrals); the largest |u| / c; least density and pressure; on request
        the number of faces where the limiter that keeps these positive acts. Around bodies they are of the cells whose
        centres lie in the gas, with the force on them and what they give to the gas."""
        domain = self.domain
        w = riemann.primitive(conserved_of(state), params.gamma)
        mach = riemann.mach_number(w, params.gamma)
        mean = domain.grid.mean_spacing
        volume = math.prod(mean)
        share = ring_volumes(self.relative_volumes(w.density.dtype), domain, self.plain, w.density.dtype)

        def total(u: Array) -> Array:
            return domain.sum(scaled(gas_bodies.counted(self, u, t), share)) * volume

        result = {"mass": total(state.density)}
        for axis, m in zip(AXES, state.momentum, strict=False):
            result[f"momentum_{axis}"] = total(m)
        result["energy"] = total(state.energy)
        for number, s in enumerate(state.scalars):
            result[f"scalar_{number}"] = total(s)
        result["max_mach"] = domain.max(self.within(mach, 0.0, t))
        result["minimum_density"] = domain.min(self.within(state.density, jnp.inf, t))
        result["minimum_pressure"] = domain.min(self.within(w.pressure, jnp.inf, t))
        if self.bodies is not None:
            result |= gas_bodies.diagnosed(self, t, state, params)
        if self.count_limited:
            result["limited_faces"] = limited_faces(self, t, state, params)
        if params.density_floor is not None or params.pressure_floor is not None:
            result["cells_at_floor"] = domain.sum(self.within(at_floor(w, params).astype(w.density.dtype), 0.0, t))
        return result

    def relative_volumes(self: Any, dtype) -> Spacing:
        """Volumes of cells over that of a cell of mean widths."""
        return math.prod(map(relative, self._widths(dtype), self.domain.grid.mean_spacing))

    def measures(self: Any):
        found = measures_of(self.domain.grid, self.scalars)
        return found if self.bodies is None else found | gas_bodies.measures(self.domain.grid.ndim)

    def along_bodies(self: Any, t, state, params, points):
        """Pressure, temperature, friction and heat along bodies; see `models.gas.bodies.gas_bodies`."""
        return gas_bodies.along_bodies(self, t, state, params, points)

    def readings_along_bodies(self):
        return gas_bodies.READINGS

    def outputs(self: Any):
        center, ndim = (CENTER,) * self.domain.grid.ndim, self.domain.grid.ndim
        return (
            Output("density", center, "kg m-3", "density"),
            *velocity_outputs(self.domain.grid, [center] * ndim),
            pressure_output(center, "Pa", "pressure"),
            *(Output(f"scalars_{number}", center, "1", f"scalar {number}") for number in range(self.scalars)),
            Output("temperature", center, "K", "temperature", rank=RANK_OF_TEMPERATURE),
            Output("mach", center, "1", "Mach number"),
            Output("schlieren", center, "kg m-4", "magnitude of the density gradient"),
        )

    def observe(self: Any, t, state, params) -> dict[str, Array]:
        w = riemann.primitive(conserved_of(state), params.gamma)
        result = {"density": w.density, "pressure": w.pressure}
        result |= {f"velocity_{axis}": u for axis, u in zip(AXES, w.velocity, strict=False)}
        result |= {f"scalars_{number}": s for number, s in enumerate(w.scalars)}
        result["temperature"] = w.pressure / (w.density * jnp.asarray(self.gas_constant, w.density.dtype))
        result["mach"] = riemann.mach_number(w, params.gamma)
        result["schlieren"] = self._schlieren(state)
        return result

    def _schlieren(self: Any, state) -> Array:
        """|grad rho|, central."""
        ndim = self.domain.grid.ndim

        def steepness(rho, spacing):
            slopes = [
                (0.5 / around_centers(along(h, axis, ndim, 1), axis))
                * (shift(rho, ndim, axis, 1) - shift(rho, ndim, axis, -1))
                for axis, h in enumerate(spacing)
            ]
            return riemann.smooth_root(riemann.squared_norm(tuple(slopes)))

        return self.domain.apply_spaced(steepness, state.density, self.plain, 1)


def conserved_of(state: Any) -> Conserved:
    """The state as `ops.riemann` has it."""
    return Conserved(state.density, state.momentum, state.energy, state.scalars)
