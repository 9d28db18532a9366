"""Advection and diffusion of a scalar by a uniform velocity."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least, require_one_of
from simjax.core.boundary import FieldLayout, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.model import ExplicitModel, Output
from simjax.grid import AXES
from simjax.models.axisymmetric import dimensions, relative_volumes, tapers_of
from simjax.models.conserved import Balanced, at_side, inside, through_side
from simjax.models.declaration import model
from simjax.models.measures import of_field, total_measure
from simjax.models.scalar import axisymmetry
from simjax.models.sides import SCALAR_SIDES, check_sides
from simjax.ops import difference, transport
from simjax.ops.axisymmetric import RADIAL
from simjax.ops.difference import shift
from simjax.ops.spacing import along, scaled, smallest
from simjax.schema.kinds import Choice, ListOf, Real, key
from simjax.schema.model_schema import FieldSchema

Scheme = Literal["central", "upwind"]


class State(eqx.Module):
    """concentration: `(*grid.shape)`, cell centres."""

    concentration: Array


class Params(eqx.Module):
    """diffusivity kappa: scalar, length^2 / time. velocity a: `(ndim,)`, length / time."""

    diffusivity: Array
    velocity: Array

    def __check_init__(self):
        require_at_least("AdvectionDiffusion.Params", {"diffusivity": self.diffusivity})


ACROSS = "physics.velocity: expected [0, w] on an axisymmetric grid, as one velocity along r does not keep volumes"


def _check(config: Any) -> Iterator[tuple[str, str]]:
    if not config.grid.axisymmetric:
        return
    yield from axisymmetry.check_configuration(config)
    sought = () if config.inverse is None else {unknown.path for unknown in config.inverse.unknowns}
    if config.physics.velocity[RADIAL] != 0 or "physics.velocity_x" in sought:
        yield "physics.velocity", f"{ACROSS}; write [0, w], or model=transport with a velocity that varies"


@model(
    "advection_diffusion",
    fields=(FieldSchema("concentration"),),
    sides=SCALAR_SIDES,
    stretched=True,
    axisymmetric=True,
    check=_check,
    forced=(),
    balanced=lambda ndim, counts: ("concentration",),
    conserved=lambda config: (
        (("mean_concentration", "minimum_concentration", "maximum_concentration"),) if config.periodic else ()
    ),
)
class AdvectionDiffusion(ExplicitModel, Balanced):
    """Advection-diffusion of a scalar c: dc/dt = kappa lap(c) - a . grad(c).

    Second-order central diffusion; advection first-order upwind or second-order central. Boundaries: periodic,
    given value (Dirichlet), given slope (Neumann), walls, inflow and outflow. Takes stretched grids and axisymmetric
    ones, on which both are fluxes through faces; on the latter the velocity along r is zero. LeVeque (2007), Finite
    Difference Methods for Ordinary and Partial Differential Equations, ch. 9-10.

    Examples:
        >>> model = sj.AdvectionDiffusion(sj.Domain(sj.Grid((16, 16))), [(sj.PeriodicSide(), sj.PeriodicSide())] * 2)
        >>> params = model.Params(diffusivity=jnp.asarray(0.01), velocity=jnp.asarray([1.0, 0.5]))
        >>> state = model.State(jnp.ones((16, 16)))
    """

    @dataclass(frozen=True)
    class Keys:
        diffusivity: float = key(Real(low=0.0), units="m2 s-1", about="diffusivity kappa")
        velocity: tuple[float, ...] = key(
            ListOf(Real(), 1, 3, noun="numbers, one per axis", per_axis=True),
            units="m s-1",
            about="constant velocity a",
        )
        scheme: str = key(Choice(get_args(Scheme)), "central", about="advective flux")

    domain: Domain
    layout: FieldLayout
    scheme: Scheme = eqx.field(static=True)

    def __init__(self, domain: Domain, sides: Sequence[tuple[Side, Side]], scheme: Scheme = "central"):
        check_sides(domain, sides, SCALAR_SIDES, "AdvectionDiffusion", axisymmetric=True)
        require_one_of("AdvectionDiffusion.scheme", scheme, get_args(Scheme))
        axisymmetry.check(domain, sides, scheme)
        self.domain = domain
        self.layout = center_layout([tuple(side.scalar_boundary() for side in pair) for pair in sides])
        self.scheme = scheme

    @classmethod
    def configured(cls, setup):
        velocity = jnp.stack([setup.values[f"velocity_{axis}"] for axis in AXES[: setup.domain.grid.ndim]])
        params = Params(setup.values["diffusivity"], velocity)
        return cls(setup.domain, setup.sides, setup.keys.scheme), params

    def rhs(self, t, state, params):
        if self.domain.grid.stretched or self.domain.grid.axisymmetric:
            return self._by_fluxes(t, state, params)
        h = self.domain.grid.spacing
        advect = difference.advect_upwind if self.scheme == "upwind" else difference.advect_central

        def tendency(c):
            return params.diffusivity * difference.laplacian(c, h) - advect(c, params.velocity, h)

        return State(self.domain.apply(tendency, state.concentration, self.layout, width=1, t=t))

    def _by_fluxes(self, t, state, params):
        ndim, scheme = self.domain.grid.ndim, transport.SCHEMES[self.scheme]

        def tendency(c, *others):
            *rings, spacing = others
            own = [along(h, axis, ndim, scheme.width) for axis, h in enumerate(spacing)]
            inner = [shift(taper, ndim, width=scheme.width) for taper in rings]
            spread = transport.diffusion_tendency(c, (params.diffusivity,) * ndim, own, 0, *inner)
            return transport.conservative_tendency(c, _carried_by(params), scheme, spacing, *rings) + spread

        fields = (state.concentration, *tapers_of(self.domain, self.layout, state.concentration))
        return State(self.domain.apply_spaced(tendency, fields, (self.layout,) * len(fields), scheme.width, t))

    def passing(self, t, state, params, axis, side):
        ndim, scheme = self.domain.grid.ndim, transport.SCHEMES[self.scheme]

        def flux(c, spacing):
            spread = transport.conducted(c, params.diffusivity, along(spacing[axis], axis, ndim, 1), axis, ndim)
            return transport.flux_on_faces(c, _carried_by(params), scheme, axis, ndim) - spread

        found = at_side(self.domain, flux, (state.concentration,), (self.layout,), scheme.width, axis, side, t)
        widths = self.domain.spacing(self.layout, 0, found.dtype)
        return {"concentration": through_side(self.domain, found, widths, axis, side)}

    def balanced(self):
        return {"concentration": total_measure("concentration", self.layout.units, dimensions(self.domain.grid))}

    def amounts(self, state, params):
        c = state.concentration
        return {"concentration": inside(self.domain, c, c, self.domain.spacing(self.layout, 0, c.dtype))}

    def is_closed(self, axis):
        return self.layout.is_periodic(axis)

    def stable_dt(self, state, params):
        dtype = jnp.result_type(params.diffusivity)
        h = [smallest(s, axis) for axis, s in enumerate(self.domain.spacing(self.layout, 1, dtype))]
        rate = sum(jnp.abs(params.velocity[axis]) / h[axis] for axis in range(len(h)))
        return 1 / (rate + 2 * params.diffusivity * sum(1 / s**2 for s in h))

    def diagnostics(self, t, state, params):
        c, domain = state.concentration, self.domain
        volumes = relative_volumes(domain, self.layout, domain.spacing(self.layout, 0, c.dtype), c.dtype)
        mean = domain.mean(scaled(c, volumes))
        return {
            "mean_concentration": mean,
            "variance_concentration": domain.mean(scaled((c - mean) ** 2, volumes)),
            "minimum_concentration": domain.min(c),
            "maximum_concentration": domain.max(c),
        }

    def unphysical(self, state, params):
        if not self.domain.grid.axisymmetric:
            return {}
        return {"velocity along r": jnp.broadcast_to(params.velocity[RADIAL] != 0, self.domain.block_shape)}

    def measures(self):
        return of_field("concentration", self.layout.units)

    def component_layouts(self):
        return {"concentration": (self.layout,)}

    def state_from(self, fields, params):
        return State(fields["concentration"][0])

    def outputs(self):
        return (Output("concentration", self.layout.offset, self.layout.units, "concentration"),)

    def observe(self, t, state, params) -> dict[str, jax.Array]:
        return {"concentration": state.concentration}


AdvectionDiffusion.Params, AdvectionDiffusion.State = Params, State


def _carried_by(params: Params):
    def flux(left, right, axis):
        return transport.carried(left, right, params.velocity[axis])

    return flux
