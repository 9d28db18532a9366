"""Burgers' equation for a scalar, inviscid or viscous."""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least
from simjax.core.boundary import FieldLayout, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.face_planes import at_faces
from simjax.errors import ConfigurationError
from simjax.models.declaration import model
from simjax.models.scalar.conserved_scalar import DIGITS, INTEGRATORS, SemiImplicitScalar, State, conserved_mean
from simjax.models.sides import SCALAR_SIDES, check_sides
from simjax.models.stretching import require_transport
from simjax.notebook import all_in_a_line
from simjax.ops import scalar_fluxes
from simjax.schema.kinds import Choice, Real, key
from simjax.schema.model_schema import FieldSchema

CONCENTRATION = FieldSchema("concentration", units="m s-1")
SCHEMES = ("upwind", "minmod", "van_leer", "mc", "weno5")


class Params(eqx.Module):
    """viscosity nu: scalar, length^2 / time."""

    viscosity: Array

    __repr__ = all_in_a_line

    def __check_init__(self):
        require_at_least("Burgers.Params", {"viscosity": self.viscosity})


@model(
    "burgers",
    fields=(CONCENTRATION,),
    sides=SCALAR_SIDES,
    integrators=INTEGRATORS,
    stretched=True,
    forced=(),
    balanced=lambda ndim, counts: ("concentration",),
    passing=lambda ndim, counts: ("concentration",),
    conserved=conserved_mean,
)
class Burgers(SemiImplicitScalar):
    """Burgers' equation: dc/dt = -sum over axes of d(c^2 / 2)/dx_i + nu lap(c).

    c (length / time) is carried by itself, by the same amount along every axis. Godunov's flux between the states
    that one of `SCHEMES` finds on both sides of a face; central diffusion of second order. Takes stretched grids.
    LeVeque (2002), Finite Volume Methods for Hyperbolic Problems, ch. 11.

    Examples:
        >>> model = sj.Burgers(sj.Domain(sj.Grid((32,))), [(sj.PeriodicSide(), sj.PeriodicSide())], scheme="weno5")
        >>> state, params = model.State(jnp.ones(32)), model.Params(jnp.asarray(0.01))
    """

    @dataclass(frozen=True)
    class Keys:
        viscosity: float = key(Real(low=0.0), 0.0, units="m2 s-1", about="viscosity nu")
        scheme: str = key(Choice(SCHEMES), "van_leer", about="advective flux")
        digits: int = DIGITS

    domain: Domain
    layout: FieldLayout
    scheme: str = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        scheme: str = "van_leer",
        *,
        tolerance: float = 1e-8,
    ):
        if scheme not in SCHEMES:
            raise ConfigurationError(
                f"physics.scheme={scheme!r}: Burgers' equation needs one that knows upwind from downwind; "
                f"write {', '.join(SCHEMES)}."
            )
        check_sides(domain, sides, SCALAR_SIDES, "Burgers")
        require_at_least("Burgers", {"tolerance": tolerance}, strictly=True)
        self.domain = domain
        boundaries = [tuple(side.scalar_boundary() for side in pair) for pair in sides]
        self.layout = center_layout(boundaries, CONCENTRATION.units)
        require_transport(scheme, domain, self.layout)
        self.scheme = scheme
        self.tolerance = tolerance

    @classmethod
    def configured(cls, setup):
        keys = setup.keys
        model = cls(setup.domain, setup.sides, keys.scheme, tolerance=10.0**-keys.digits)
        return model, Params(setup.values["viscosity"])

    def explicit_rhs(self, t, state, params):
        scheme = self.advection

        def tendency(c, spacing):
            return scalar_fluxes.conservative_tendency(c, _godunov, scheme, spacing)

        return State(self.domain.apply_spaced(tendency, state.concentration, self.layout, scheme.width, t))

    def explicit_fluxes(self, t, state, params, plane):
        scheme, ndim = self.advection, self.domain.grid.ndim

        def flux(c, spacing):
            return scalar_fluxes.flux_on_faces(c, _godunov, scheme, plane.axis, ndim)

        found = at_faces(self.domain, flux, (state.concentration,), (self.layout,), scheme.width, plane, t)
        return self.through(found, plane)

    def face_diffusivity(self, params):
        block = self.domain.block_shape
        shapes = (tuple(n + (k == axis) for k, n in enumerate(block)) for axis in range(len(block)))
        return tuple(jnp.broadcast_to(params.viscosity, shape) for shape in shapes)

    def explicit_stable_dt(self, state, params):
        return 1 / self._rate(state)

    def stable_dt(self, state, params):
        spacing = self.least_spacing(state.concentration.dtype)
        return 1 / (self._rate(state) + 2 * params.viscosity * sum(1 / s**2 for s in spacing))

    def _rate(self, state) -> Array:
        speed = jnp.abs(state.concentration)
        return jnp.maximum(speed, float(jnp.finfo(speed.dtype).tiny) ** 0.5) * sum(
            1 / s for s in self.least_spacing(speed.dtype)
        )


Burgers.Params, Burgers.State = Params, State


def _godunov(left: Array, right: Array, axis: int) -> Array:
    return scalar_fluxes.godunov_burgers(left, right)
