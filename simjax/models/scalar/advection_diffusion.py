"""Advection and diffusion of a scalar by a uniform velocity."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least, require_one_of
from simjax.core.boundary import FieldLayout, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.face_planes import at_faces
from simjax.grid import AXES
from simjax.models.axisymmetric_grid import across_of, tapers_of
from simjax.models.declaration import model
from simjax.models.scalar import axisymmetric_scalar
from simjax.models.scalar.conserved_scalar import ConservedScalar, State, conserved_mean
from simjax.models.sides import SCALAR_SIDES, check_sides
from simjax.notebook import all_in_a_line
from simjax.ops import difference, scalar_fluxes
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.difference import shift
from simjax.ops.spacing import along
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import Choice, ListOf, Real, key
from simjax.schema.model_schema import FieldSchema

SCHEMES = ("central", "upwind")


class Params(eqx.Module):
    """diffusivity kappa: scalar, length^2 / time. velocity a: `(ndim,)`, length / time."""

    diffusivity: Array
    velocity: Array

    __repr__ = all_in_a_line

    def __check_init__(self):
        require_at_least("AdvectionDiffusion.Params", {"diffusivity": self.diffusivity})


def _check(config: Any) -> Iterator[tuple[str, str]]:
    sought = () if config.inverse is None else {unknown.path for unknown in config.inverse.unknowns}
    across = config.physics.velocity[RADIAL] != 0 or "physics.velocity_x" in sought
    yield from axisymmetric_scalar.check_configuration(config, across)


@model(
    "advection_diffusion",
    fields=(FieldSchema("concentration"),),
    sides=SCALAR_SIDES,
    stretched=True,
    axisymmetric=True,
    exclusions=axisymmetric_scalar.EXCLUSIONS,
    check=_check,
    forced=(),
    balanced=lambda ndim, counts: ("concentration",),
    passing=lambda ndim, counts: ("concentration",),
    conserved=conserved_mean,
)
class AdvectionDiffusion(ConservedScalar):
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
        scheme: str = key(Choice(SCHEMES), "central", about="advective flux")

    domain: Domain
    layout: FieldLayout
    scheme: str = eqx.field(static=True)

    def __init__(self, domain: Domain, sides: Sequence[tuple[Side, Side]], scheme: str = "central"):
        check_sides(domain, sides, SCALAR_SIDES, "AdvectionDiffusion", axisymmetric=True)
        require_one_of("AdvectionDiffusion.scheme", scheme, SCHEMES)
        raise_first(axisymmetric_scalar.refusals(across_of(domain, sides, SCALAR_SIDES), scheme))
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
        ndim, scheme = self.domain.grid.ndim, self.advection

        def tendency(c, *others):
            *rings, spacing = others
            own = [along(h, axis, ndim, scheme.width) for axis, h in enumerate(spacing)]
            inner = [shift(taper, ndim, width=scheme.width) for taper in rings]
            spread = scalar_fluxes.diffusion_tendency(c, (params.diffusivity,) * ndim, own, 0, *inner)
            return scalar_fluxes.conservative_tendency(c, _carried_by(params), scheme, spacing, *rings) + spread

        fields = (state.concentration, *tapers_of(self.domain, self.layout, state.concentration))
        return State(self.domain.apply_spaced(tendency, fields, (self.layout,) * len(fields), scheme.width, t))

    def explicit_fluxes(self, t, state, params, plane):
        ndim, scheme, axis = self.domain.grid.ndim, self.advection, plane.axis

        def flux(c, spacing):
            spread = scalar_fluxes.conducted(c, params.diffusivity, along(spacing[axis], axis, ndim, 1), axis, ndim)
            return scalar_fluxes.flux_on_faces(c, _carried_by(params), scheme, axis, ndim) - spread

        found = at_faces(self.domain, flux, (state.concentration,), (self.layout,), scheme.width, plane, t)
        return self.through(found, plane)

    def conductivities(self, params):
        return {"concentration": params.diffusivity}

    def stable_dt(self, state, params):
        h = self.least_spacing(jnp.result_type(params.diffusivity))
        rate = sum(jnp.abs(params.velocity[axis]) / h[axis] for axis in range(len(h)))
        return 1 / (rate + 2 * params.diffusivity * sum(1 / s**2 for s in h))

    def unphysical(self, state, params):
        if not self.domain.grid.axisymmetric:
            return {}
        return {"velocity along r": jnp.broadcast_to(params.velocity[RADIAL] != 0, self.domain.block_shape)}


AdvectionDiffusion.Params, AdvectionDiffusion.State = Params, State


def _carried_by(params: Params):
    return lambda left, right, axis: scalar_fluxes.carried(left, right, params.velocity[axis])
