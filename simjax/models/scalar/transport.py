"""Advection and diffusion of a scalar with variable velocity, diffusivity and sources."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.arguments import require_at_least, require_one_of
from simjax.core.boundary import (
    Boundary,
    Dirichlet,
    Extrapolated,
    FieldLayout,
    NoSlipWall,
    Periodic,
    Side,
    SlipWall,
    center_layout,
    face_layout,
)
from simjax.core.domain import Domain
from simjax.core.face_planes import at_faces
from simjax.core.given_values import called
from simjax.errors import ConfigurationError
from simjax.models.axisymmetric_grid import across_of, tapers_of, widest
from simjax.models.conserved import MADE, inside
from simjax.models.declaration import model
from simjax.models.formulas import FormulaValue
from simjax.models.scalar import axisymmetric_scalar
from simjax.models.scalar.conserved_scalar import DIGITS, INTEGRATORS, SemiImplicitScalar, Source, State, conserved_mean
from simjax.models.sides import SCALAR_SIDES, check_sides
from simjax.models.stretching import require_transport
from simjax.notebook import all_in_a_line
from simjax.ops import scalar_fluxes
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.schema.config_errors import raise_first, unended
from simjax.schema.formula import Formula
from simjax.schema.kinds import Choice, Text, key
from simjax.schema.model_schema import FieldSchema

TimeFactor = Callable[[Array], Array]


class Continued(Boundary):
    """For a diffusivity at a wall: the ghost whose harmonic mean with the first cell is their line's value there.

    The value of the first cell itself where the second one differs by more than half of it: another layer.
    """

    def ghost(self, edge, *, axis, side, offset, width, spacing, t, positions):
        array_axis = edge.ndim + axis - len(spacing)
        first = jax.lax.slice_in_dim(edge, 0, 1, axis=array_axis)
        last = min(1, edge.shape[array_axis] - 1)
        rise = first - jax.lax.slice_in_dim(edge, last, last + 1, axis=array_axis)
        wall = first + jnp.where(jnp.abs(rise) < 0.5 * first, 0.5 * rise, 0.0)
        beyond = 2 * first - wall
        ghost = wall * first / jnp.where(beyond > 0, beyond, 1.0)
        return jnp.concatenate([ghost] * width, axis=array_axis)


class Params(eqx.Module):
    """velocity u: per axis, `(*grid.shape)`, on the faces normal to it, length / time; at an upper wall zero, at
    an upper open side extrapolated. diffusivity kappa: cell centres, length^2 / time; None: none. source s: cell
    centres, 1 / time; None: none.
    """

    velocity: tuple[Array, ...]
    diffusivity: Array | None = None
    source: Array | None = None

    __repr__ = all_in_a_line

    def __check_init__(self):
        require_at_least("Transport.Params", {"diffusivity": self.diffusivity})


def _check(config: Any) -> Iterator[tuple[str, str]]:
    """The factor is a formula of t that stays within one, since the time step is that of the velocity alone.

    And on an axisymmetric grid what a scalar takes there.
    """
    yield from axisymmetric_scalar.check_configuration(config)
    text, key = config.physics.velocity_factor, "physics.velocity_factor"
    if text is None:
        return
    try:
        formula = Formula(text)
        formula.check_names(("t", *config.parameters))
    except ConfigurationError as error:
        yield key, unended(f"{key}: {error}")
        return
    times = np.linspace(0.0, config.time.end, 1001)
    size = np.abs(np.broadcast_to(formula({**config.parameters, "t": times}), times.shape))
    worst = int(np.argmax(np.where(np.isfinite(size), size, np.inf)))
    if not size[worst] <= 1 + 1e-12:
        found = f"{size[worst]:.4g} in size at t={times[worst]:.4g}"
        limit = "expected at most 1, as steps are limited by coefficients.velocity; enlarge that instead"
        yield key, f"{key} = {text!r}: {found}, {limit}"


@model(
    "transport",
    fields=(FieldSchema("concentration"),),
    sides=SCALAR_SIDES,
    coefficients=(
        FieldSchema("velocity", vector=True, units="m s-1", staggered=True, default=None),
        FieldSchema("diffusivity", units="m2 s-1"),
        FieldSchema("source", units="s-1", optional=True),
    ),
    integrators=INTEGRATORS,
    stretched=True,
    axisymmetric=True,
    exclusions=axisymmetric_scalar.EXCLUSIONS,
    check=_check,
    balanced=lambda ndim, counts: ("concentration",),
    passing=lambda ndim, counts: ("concentration",),
    conserved=conserved_mean,
)
class Transport(SemiImplicitScalar):
    """Transport of a scalar c: dc/dt = -div(g u c) + div(kappa grad c) + s.

    u velocity, g(t) its dimensionless factor in time, kappa diffusivity, s sources: a field, and a function of
    time and place. Fluxes through faces: what leaves a cell enters the next, and a constant stays constant where
    div u = 0 on the faces (to second order; with central4 and weno5 where it vanishes to their order). Advection
    by one of `ops.scalar_fluxes.SCHEMES`; diffusion of second order, with the harmonic mean of kappa on faces.
    Boundaries: periodic, given value, given slope, inflow, outflow, walls (no flow, no flux). Takes stretched grids,
    and axisymmetric ones (explicit diffusion, schemes up to second order).
    LeVeque (2002), Finite Volume Methods for Hyperbolic Problems, ch. 4, 6 and 9.

    Examples:
        >>> run = sj.configure(
        ...     sj.Transport, grid={"shape": [32]}, coefficients={"velocity": ["1 + 0.5*sin(2*pi*x)"]},
        ...     initial={"concentration": "exp(-50*(x - 0.5)**2)"}, time={"end": 0.2, "output_every": 0.1},
        ... )
    """

    @dataclass(frozen=True)
    class Keys:
        scheme: str = key(Choice(tuple(scalar_fluxes.SCHEMES)), "van_leer", about="advective flux")
        velocity_factor: str | None = key(
            Text(optional=True, described="a formula of t and parameters", longest=200),
            None,
            about="factor g of the velocity in time, at most one in size",
        )
        digits: int = DIGITS

    domain: Domain
    layout: FieldLayout
    velocity_layouts: tuple[FieldLayout, ...]
    source: Source | None
    factor: TimeFactor | None
    scheme: str = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        scheme: str = "van_leer",
        *,
        source: Source | None = None,
        factor: TimeFactor | None = None,
        tolerance: float = 1e-8,
    ):
        check_sides(domain, sides, SCALAR_SIDES, "Transport", axisymmetric=True)
        require_one_of("Transport.scheme", scheme, scalar_fluxes.SCHEMES)
        raise_first(axisymmetric_scalar.refusals(across_of(domain, sides, SCALAR_SIDES), scheme))
        require_at_least("Transport", {"tolerance": tolerance}, strictly=True)
        self.domain = domain
        self.layout = center_layout([tuple(side.scalar_boundary() for side in pair) for pair in sides])
        require_transport(scheme, domain, self.layout)
        self.velocity_layouts = tuple(
            face_layout(component, [[_velocity_boundary(side) for side in pair] for pair in sides])
            for component in range(domain.grid.ndim)
        )
        self.source = source
        self.factor = factor
        self.scheme = scheme
        self.tolerance = tolerance

    @classmethod
    def configured(cls, setup):
        config, keys, coefficients = setup.config, setup.keys, setup.coefficients
        factor = keys.velocity_factor
        model = cls(
            setup.domain,
            setup.sides,
            keys.scheme,
            source=setup.source("concentration"),
            factor=None if factor is None else FormulaValue(Formula(factor), dict(setup.values)),
            tolerance=10.0**-keys.digits,
        )
        diffusivity = coefficients["diffusivity"][0]
        given = config.coefficients["diffusivity"]
        if isinstance(given, tuple) and given[0].constant == 0:
            diffusivity = None
        source = coefficients["source"][0] if "source" in config.coefficients else None
        return model, Params(coefficients["velocity"], diffusivity, source)

    def explicit_rhs(self, t, state, params):
        scheme = self.advection

        def tendency(c, velocity, rings, spacing):
            return scalar_fluxes.advection_tendency(c, velocity, scheme, spacing, *rings)

        rings = tapers_of(self.domain, self.layout, state.concentration)
        fields = (state.concentration, self._velocity(t, params), rings)
        layouts = (self.layout, self.velocity_layouts, (self.layout,) * len(rings))
        slope = self.domain.apply_spaced(tendency, fields, layouts, scheme.width, t)
        for source in self._sources(t, params, slope.dtype):
            slope = slope + source
        return State(slope)

    def _sources(self, t, params, dtype) -> Iterator[Array]:
        """Rates at which the scalar is made."""
        if params.source is not None:
            yield params.source
        if self.source is not None:
            places = self.domain.coordinates(self.layout.offset, dtype)
            yield called(self.source, "source(t, coordinates, params)", (t, places, params), self.domain.block_shape)

    def made(self, t, state, params):
        c = state.concentration
        rates = [inside(self.domain, rate, c, self.widths(c.dtype)) for rate in self._sources(t, params, c.dtype)]
        return {MADE: {"concentration": sum(rates)}} if rates else {}

    def explicit_fluxes(self, t, state, params, plane):
        scheme, ndim = self.advection, self.domain.grid.ndim

        def flux(c, *others):
            *velocity, _ = others
            return scalar_fluxes.flux_on_faces(c, scalar_fluxes.carried_by(velocity, scheme), scheme, plane.axis, ndim)

        fields = (state.concentration, *self._velocity(t, params))
        layouts = (self.layout, *self.velocity_layouts)
        return self.through(at_faces(self.domain, flux, fields, layouts, scheme.width, plane, t), plane)

    def _velocity(self, t, params) -> tuple[Array, ...]:
        velocity = self.domain.impose(params.velocity, self.velocity_layouts)
        return velocity if self.factor is None else tuple(self.factor(t) * u for u in velocity)

    def implicit_rhs(self, t, state, params):
        if params.diffusivity is None:
            return jax.tree.map(jnp.zeros_like, state)
        return super().implicit_rhs(t, state, params)

    def implicit_fluxes(self, t, state, params, plane):
        return {} if params.diffusivity is None else super().implicit_fluxes(t, state, params, plane)

    def face_diffusivity(self, params):
        ndim = self.domain.grid.ndim
        edges = [
            pair if self.layout.is_periodic(axis) else (Continued(), Continued())
            for axis, pair in enumerate(self.layout.boundaries)
        ]
        padded = self.domain.pad(params.diffusivity, center_layout(edges), 1)
        spacing = self.domain.spacing(self.layout, 1, padded.dtype)
        return tuple(scalar_fluxes.face_diffusivity(padded, axis, ndim, h) for axis, h in enumerate(spacing))

    def prepare(self, params):
        return None if params.diffusivity is None else super().prepare(params)

    def implicit_solve(self, t, dt, right, params, prepared):
        return right if prepared is None else super().implicit_solve(t, dt, right, params, prepared)

    def explicit_stable_dt(self, state, params):
        """The stable step for any factor g between minus one and one."""
        return 1 / self._rate(params)

    def stable_dt(self, state, params):
        rate = self._rate(params)
        if params.diffusivity is not None:
            rate = rate + 2 * params.diffusivity * sum(1 / s**2 for s in self.least_spacing(rate.dtype))
        return 1 / rate

    def _rate(self, params) -> Array:
        h = self.least_spacing(params.velocity[0].dtype)
        rates = [jnp.abs(u) * (1 / s) for u, s in zip(params.velocity, h, strict=True)]
        if self.domain.grid.axisymmetric:
            rates[RADIAL] = rates[RADIAL] * widest(self.domain, self.layout, rates[RADIAL].dtype)
        rate = sum(rates[1:], rates[0])
        return jnp.maximum(rate, float(jnp.finfo(rate.dtype).tiny) ** 0.5)

    def partition_specs(self, state, params):
        fields = jax.tree.map(lambda u: self.domain.spec(u.ndim), (state, params))
        return fields


Transport.Params, Transport.State = Params, State


def _velocity_boundary(side: Side) -> Boundary:
    if isinstance(side.scalar_boundary(), Periodic):
        return Periodic()
    return Dirichlet(0.0) if isinstance(side, NoSlipWall | SlipWall) else Extrapolated()
