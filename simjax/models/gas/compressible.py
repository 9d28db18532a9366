"""Compressible flow of a perfect gas on cell centres, in one, two and three dimensions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least, require_kind
from simjax.core.boundary import FieldLayout, Side
from simjax.core.domain import Domain
from simjax.core.model import ExplicitModel
from simjax.grid import AXES
from simjax.models.axisymmetric_grid import across_of, tapers_of
from simjax.models.declaration import model
from simjax.models.flow.bodies import solid_setup
from simjax.models.flow.bodies.solids import Solid
from simjax.models.gas import axisymmetric_gas, gas_gravity, gas_troubles
from simjax.models.gas.bodies import gas_bodies
from simjax.models.gas.boundaries import (
    DENSITY,
    GAS_SIDES,
    PRESSURE,
    SCALARS,
    VELOCITY,
    GasLayouts,
    density_layout,
    features_of,
    gas_layouts,
    gravity_layout,
    plain_layout,
)
from simjax.models.gas.entropic_pressure import entropic_pressure, padded_gas
from simjax.models.gas.gas_balances import GasBalances, balanced_names
from simjax.models.gas.gas_checks import check, conserved_quantities
from simjax.models.gas.gas_diagnostics import GasReadings, conserved_of
from simjax.models.sides import check_sides
from simjax.models.stretching import require_widths
from simjax.notebook import all_in_a_line
from simjax.ops import gas, riemann, scalar_fluxes
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.difference import shift
from simjax.ops.reconstruction import difference_of_faces, pad_only, per_spacing
from simjax.ops.riemann import Conserved, Primitive
from simjax.ops.spacing import Spacing, along, between_centers, smallest, without_ends
from simjax.ops.viscous import viscous_flux
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import Choice, Flag, ListOf, Real, key


class State(eqx.Module):
    """Per unit volume, `(*grid.shape)` each, cell centres: density rho, momentum rho u (one array per axis),
    total energy E, scalars rho s (any number of them)."""

    density: Array
    momentum: tuple[Array, ...]
    energy: Array
    scalars: tuple[Array, ...] = ()
    __repr__ = all_in_a_line


class Params(eqx.Module):
    """Scalars but for gravity g, `(ndim,)`, length / time^2; what is None is not there.

    gamma: ratio of specific heats. viscosity mu: dynamic. conductivity k: of heat. density_floor, pressure_floor:
    least values that the state is raised to after every stage.
    """

    gamma: Array
    viscosity: Array | None = None
    conductivity: Array | None = None
    gravity: Array | None = None
    density_floor: Array | None = None
    pressure_floor: Array | None = None
    __repr__ = all_in_a_line

    def __check_init__(self):
        require_at_least("Compressible.Params", {"gamma": self.gamma}, 1.0, strictly=True)
        names = ("viscosity", "conductivity", "density_floor", "pressure_floor")
        require_at_least("Compressible.Params", {name: getattr(self, name) for name in names})


@model(
    "compressible",
    fields=(DENSITY, VELOCITY, PRESSURE, SCALARS),
    sides=GAS_SIDES,
    coefficients=gas_bodies.COEFFICIENTS,
    along_bodies=gas_bodies.ALONG,
    diagnosed=lambda ndim: ("temperature", "mach", "schlieren"),
    # Means of forward Euler steps keep density and pressure positive; rk4 is none: docs/gas.md.
    integrators=("ssprk3", "ssprk2", "williamson3", "kutta3", "rk4", "heun", "midpoint", "euler"),
    stretched=True,
    axisymmetric=True,
    forced=(),
    exclusions=axisymmetric_gas.EXCLUSIONS,
    check=check,
    conserved=conserved_quantities,
    balanced=lambda ndim, counts: balanced_names(ndim, counts.get("scalars", 0)),
    passing=lambda ndim, counts: balanced_names(ndim, counts.get("scalars", 0)),
)
class Compressible(GasReadings, GasBalances, ExplicitModel):
    """Compressible Navier-Stokes of a perfect gas, with gravity and passive scalars s:

        d rho / dt   + div(rho u)               = 0
        d(rho u)/dt  + div(rho u u) + grad(p)   = div(tau) + rho g
        dE/dt        + div((E + p) u)           = div(tau . u + k grad(T)) + rho u . g
        d(rho s)/dt  + div(rho s u)             = 0

    E = p / (gamma - 1) + rho |u|^2 / 2, T = p / (rho R), tau = mu (grad u + grad u^T - 2/3 div(u) 1). Shock-capturing
    finite differences with fluxes in conservation form, positive for density and pressure up to Courant number 1/2
    (`ops.gas`, `ops.positivity`); viscous terms of second order. Gravity is balanced against pressure between
    neighbouring cells, so that an atmosphere at rest stays at rest, and the work of gravity is that of the mass
    fluxes, so that E - rho g . x is conserved. `igr` in place of limiters: linear values at faces and an entropic
    pressure that keeps shocks smooth (`ops.igr`). Sides: periodic, slip, no-slip (moving, adiabatic or at a given
    temperature), inflow of a given state, outflow, and characteristic ones that reflect no sound. Takes stretched
    grids, and axisymmetric ones (an ideal fluid, second order). Toro (2009), Riemann Solvers and Numerical Methods for
    Fluid Dynamics; Jiang, Shu and Zhang (2013), SIAM J. Sci. Comput. 35, A1137.

    `gravity_axes` are those along which gravity acts at all; `gas_constant` is R. With `count_limited` diagnostics
    count the faces whose flux is limited for positivity, by a program as long as the tendency.

    Examples:
        >>> tube = sj.configure(
        ...     sj.Compressible, grid={"shape": [64]}, boundaries={"x": "outflow"},
        ...     initial={"density": "where(x<0.5, 1, 0.125)", "velocity": ["0"], "pressure": "where(x<0.5, 1, 0.1)"},
        ...     time={"end": 0.2, "output_every": 0.1, "courant": 0.4},
        ... )
    """

    @dataclass(frozen=True)
    class Keys:
        gamma: float = key(Real(above=1.0), 1.4, about="ratio of specific heats")
        gas_constant: float = key(Real(above=0.0), 1.0, units="J kg-1 K-1", about="R in p = rho R T")
        viscosity: float = key(Real(low=0.0), 0.0, units="Pa s", about="dynamic viscosity mu")
        conductivity: float = key(Real(low=0.0), 0.0, units="W m-1 K-1", about="heat conductivity k")
        prandtl: float | None = key(
            Real(above=0.0, optional=True), None, about="Prandtl number, which sets the conductivity from the viscosity"
        )
        gravity: tuple[float, ...] | None = key(
            ListOf(Real(), 1, 3, optional=True, noun="numbers, one per axis", per_axis=True),
            None,
            units="m s-2",
            about="acceleration of gravity",
        )
        reconstruction: str = key(Choice((*gas.SCHEMES,)), "weno5", about="values at faces")
        variables: str = key(Choice(get_args(gas.Variables)), "characteristic", about="what is interpolated")
        flux: str = key(Choice((*riemann.FLUXES,)), "hllc_all_speed", about="numerical flux")
        density_floor: float | None = key(
            Real(above=0.0, optional=True),
            None,
            units="kg m-3",
            about="least density, to which the state is raised; null: none",
        )
        pressure_floor: float | None = key(
            Real(above=0.0, optional=True),
            None,
            units="Pa",
            about="least pressure, to which the state is raised; null: none",
        )
        count_limited: bool = key(Flag(), False, about="whether diagnostics count the faces with a limited flux")
        torque_about: tuple[float, ...] | None = solid_setup.torque_about()

    troubles = gas_troubles.TROUBLES

    domain: Domain
    layouts: GasLayouts
    density_layout: FieldLayout
    plain: FieldLayout
    scheme: gas.GasScheme = eqx.field(static=True)
    gravity_axes: tuple[int, ...] = eqx.field(static=True)
    scalars: int = eqx.field(static=True)
    count_limited: bool = eqx.field(static=True)
    gas_constant: float | Array
    bodies: gas_bodies.GasBodies | None

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        scheme: gas.GasScheme | None = None,
        *,
        gravity_axes: Sequence[int] = (),
        scalars: int = 0,
        gas_constant: float | Array = 1.0,
        count_limited: bool = False,
        solid: Solid | None = None,
        solid_temperature: float | Array | Callable | None = None,
    ):
        check_sides(domain, sides, GAS_SIDES, "Compressible", axisymmetric=True)
        self.scheme = gas.GasScheme() if scheme is None else scheme
        require_kind("Compressible.scheme", self.scheme, gas.GasScheme, "a GasScheme; write GasScheme('weno5')")
        across, reconstruction = across_of(domain, sides, GAS_SIDES), self.scheme.reconstruction
        has = features_of(sides, gravity_axes) | {
            "gravity_along_r": RADIAL in gravity_axes,
            "bodies": solid is not None,
            "stretching": bool(domain.grid.stretched),
            "gravity": bool(gravity_axes),
            "limited_faces": count_limited,
            "several_steps": domain.steps_per_exchange > 0,
        }
        raise_first(axisymmetric_gas.refusals(across, reconstruction, **has))
        self.domain = domain
        self.gravity_axes = tuple(gravity_axes)
        self.scalars = scalars
        self.gas_constant = gas_constant
        self.count_limited = count_limited
        self.layouts = gas_layouts(sides, scalars, gas_constant)
        self.density_layout = density_layout(sides)
        self.plain = plain_layout(sides)
        weights = scalar_fluxes.FLUX_WEIGHTS[self.scheme.reach]
        require_widths(f"physics.reconstruction={reconstruction}", domain, self.plain, weights, "mc")
        self.bodies = None
        if solid is not None:
            self.bodies = gas_bodies.GasBodies.around(domain, self.plain, solid, solid_temperature, self.width)

    @classmethod
    def configured(cls, setup):
        keys, values, axes = setup.keys, setup.values, AXES[: setup.domain.grid.ndim]
        viscosity, gamma, gas_constant = values["viscosity"], values["gamma"], values["gas_constant"]
        conductivity = values["conductivity"]
        if "prandtl" in values:
            conductivity = viscosity * gamma * gas_constant / ((gamma - 1) * values["prandtl"])
        conducts = keys.conductivity or keys.prandtl or setup.varies("conductivity")
        gravity = keys.gravity or (0.0,) * len(axes)
        scheme = gas.GasScheme(keys.reconstruction, keys.variables, keys.flux)
        solid, warm = gas_bodies.bodies_of(setup, plain_layout(setup.sides), width_of(scheme))
        model = cls(
            setup.domain,
            setup.sides,
            scheme,
            gravity_axes=tuple(axis for axis, pull in enumerate(gravity) if pull != 0),
            scalars=setup.config.counts.get("scalars", 0),
            gas_constant=gas_constant,
            count_limited=keys.count_limited,
            solid=solid,
            solid_temperature=warm,
        )
        params = Params(
            gamma,
            viscosity if keys.viscosity or setup.varies("viscosity") else None,
            conductivity if conducts else None,
            jnp.stack([values[f"gravity_{axis}"] for axis in axes]) if any(gravity) else None,
            values.get("density_floor"),
            values.get("pressure_floor"),
        )
        return model, params

    @property
    def loops_over_stages(self) -> bool:
        """Its tendency is thousands of operations, which three stages would hold three times."""
        return self.domain.allows_loops

    @property
    def width(self) -> int:
        """Ghost cells that the tendency needs."""
        return width_of(self.scheme)

    # ------------------------------------------------------------------ tendency

    def rhs(self, t, state, params):
        if self.bodies is not None and self.bodies.ghosts is None:
            return self.at(t, state.density.dtype).rhs(t, state, params)
        fields, layouts, walled = self.read(state, params, t)
        rings = tapers_of(self.domain, self.plain, state.density)
        around = (*layouts, (self.plain,) * len(rings))

        def tendency(heat, velocity, pressure, scalars, pulls, conducted, entropic, rings, spacing):
            padded = padded_gas(heat, velocity, pressure, scalars, entropic, self.scheme)
            conducted = (*conducted, heat)[0]
            return self._tendency(padded, conducted, dict(zip(walled, pulls, strict=True)), rings, params, spacing)

        slope = self.domain.apply_spaced(tendency, (*fields, rings), around, self.width, t)
        if self.bodies is not None:
            slope = gas_bodies.joined(self, slope, state, fields, params, t)
        return State(slope.density, slope.momentum, slope.energy, slope.scalars)

    def read(self, state, params, t) -> tuple[tuple, tuple, tuple[int, ...]]:
        """The fields that the tendency reads, their layouts, and the axes along which gravity pulls at walls.

        Fields: p / rho, velocity, pressure, scalars, gravity along those axes, p / rho once more as it is conducted
        where walls have a temperature: a wall of another density than the gas beside it would let mass pass, and the
        entropic pressure of a scheme that has one. In bodies they are such that the surface is a wall.
        """
        w = riemann.primitive(conserved_of(state), params.gamma)
        walled = tuple(axis for axis in self.gravity_axes if not self._is_periodic(axis))
        pulls = tuple(jnp.broadcast_to(self._gravity(params, axis), state.density.shape) for axis in walled)
        heat, layouts = w.pressure / w.density, self.layouts.of_gas(params.gamma, self.domain.grid)
        warm = None
        if self._transport(params) != (None, None):
            warm = layouts.conducted
            if warm is None and self.bodies is not None and self.bodies.temperature is not None:
                warm = layouts.heat
        fields = (heat, w.velocity, w.pressure, w.scalars, pulls, () if warm is None else (heat,))
        pulling = (gravity_layout(self.layouts.pressure),) * len(walled)
        kinds = (layouts.heat, layouts.velocity, layouts.pressure, layouts.scalars)
        every = (*kinds, pulling, () if warm is None else (warm,))
        if self.bodies is not None:
            fields = self.bodies.surroundings(self.domain, self.plain, fields, every, t, params, self.gas_constant)
        entropic = ()
        if self.scheme.regularised:
            entropic = (entropic_pressure(self.domain, w, self.layouts.velocity, self.plain, t),)
        return (*fields, entropic), (*every, (self.plain,) * len(entropic)), walled

    def within(self, tree, beyond: float, t):
        """Fields of the gas with a number in the place of bodies at a time."""
        if self.bodies is None:
            return tree
        fluid = self.bodies.fluid(self.domain, jax.tree.leaves(tree)[0].dtype, t)
        return jax.tree.map(lambda u: jnp.where(fluid, u, beyond), tree)

    def at(self, t, dtype):
        """This gas with the ghost cells of its bodies at a time."""
        return self if self.bodies is None else self.with_parts(self.bodies.cells(self.domain, self.plain, t, dtype))

    def constant_parts(self, params):
        """The ghost cells of bodies at rest."""
        if self.bodies is None or self.bodies.solid.moving:
            return None
        return self.bodies.cells(self.domain, self.plain, 0.0, jnp.result_type(params.gamma))

    def with_parts(self, parts):
        return eqx.tree_at(lambda gas: gas.bodies.ghosts, self, parts, is_leaf=lambda leaf: leaf is None)

    def _gravity(self, params: Params, axis: int) -> Array:
        assert params.gravity is not None, "gravity_axes need Params.gravity"
        return params.gravity[axis]

    def _is_periodic(self, axis: int) -> bool:
        return self.layouts.pressure.is_periodic(axis)

    def _tendency(
        self,
        padded: Primitive,
        heat: Array,
        pulls: dict[int, Array],
        rings: tuple[Array, ...],
        params: Params,
        spacing: Sequence[Spacing],
    ) -> Conserved:
        """The tendency on the interior of a padded block; `heat` is that which is conducted, `rings` the tapers if any.

        Axes are added before anything is divided by the mean spacing of the first: in a sum of products compilers leave
        one product unrounded, and a flow that is symmetric about the diagonal would not stay so to the last bit.
        """
        total = None
        for axis in range(self.domain.grid.ndim):
            across = rings if axis == axisymmetric_gas.RADIAL else ()
            slope = self._axis_tendency(padded, heat, axis, pulls.get(axis), across, params, spacing)
            total = slope if total is None else jax.tree.map(jnp.add, total, slope)
        assert total is not None
        return jax.tree.map(lambda slope: slope * (1 / self.domain.grid.mean_spacing[0]), total)

    def _axis_tendency(
        self,
        padded: Primitive,
        heat: Array,
        axis: int,
        pull: Array | None,
        rings: tuple[Array, ...],
        params: Params,
        spacing: Sequence[Spacing],
    ):
        """The tendency by one axis, times the mean spacing along the first axis."""
        ndim, ideal = len(spacing), self._transport(params) == (None, None)
        if ideal and not rings and axis not in self.gravity_axes:
            differences = gas.convective_differences(padded, axis, ndim, params.gamma, self.scheme)
            stretch = self._stretch(axis, spacing)
            return jax.tree.map(lambda difference: per_spacing(difference, -stretch), differences)
        flux, mass, rises, stretch = self._axis_flux(padded, heat, axis, pull, params, spacing)
        if rings:
            taper, pressure = (shift(u, ndim, width=self.width) for u in (*rings, padded.pressure))
            return axisymmetric_gas.tendency(flux, taper, pressure, ndim, stretch)
        slope = jax.tree.map(lambda f: difference_of_faces(f, axis, ndim, -stretch), flux)
        return slope if rises is None else self._fallen(slope, mass, rises, stretch, axis, params, spacing)

    def _axis_flux(
        self, padded: Primitive, heat: Array, axis: int, pull: Array | None, params: Params, spacing: Sequence[Spacing]
    ):
        """Fluxes on the faces along an axis, that of mass, hydrostatic rises of pressure there (or None), and widths.

        Widths are those of the n cells over the mean one along the first axis.
        """
        rises = self.rises(padded, axis, pull, params, spacing)
        flux = gas.convective_flux(padded, axis, len(spacing), params.gamma, self.scheme, rises)
        mass = flux.density
        viscosity, per_heat = self._transport(params)
        if viscosity is not None and per_heat is not None:
            drag = viscous_flux(padded.velocity, heat, axis, spacing, self.width, viscosity, per_heat)
            momentum = tuple(map(jnp.add, flux.momentum, drag.momentum))
            flux = flux._replace(momentum=momentum, energy=flux.energy + drag.energy)
        return flux, mass, rises, self._stretch(axis, spacing)

    def rises(
        self, padded: Primitive, axis: int, pull: Array | None, params: Params, spacing: Sequence[Spacing]
    ) -> list[Array] | None:
        """Hydrostatic differences of pressure between the cells around each face; None where gravity does not act."""
        if axis not in self.gravity_axes:
            return None
        width, ndim = self.width, len(spacing)
        distances = between_centers(along(spacing[axis], axis, ndim, width), axis)
        pull = self._gravity(params, axis) if pull is None else pad_only(pull, axis, ndim, width)
        density = pad_only(padded.density, axis, ndim, width)
        return gas.hydrostatic_rises(density, pull, axis, ndim, distances, width)

    def _stretch(self, axis: int, spacing: Sequence[Spacing]) -> Spacing:
        """Widths of the n cells along an axis over the mean one along the first axis."""
        reach, ndim = self.scheme.reach, len(spacing)
        around = along(spacing[axis], axis, ndim, self.width)
        widths = scalar_fluxes.widths(without_ends(around, axis, self.width - reach), axis, ndim, reach)
        return widths / self.domain.grid.mean_spacing[0]

    def _fallen(
        self, slope: Conserved, mass: Array, rises: Sequence[Array], stretch: Spacing, axis: int, params, spacing
    ):
        """`slope` with what gravity adds along an axis."""
        pull, unit = self._gravity(params, axis), self.domain.grid.mean_spacing[0]
        return gas_gravity.fallen(slope, mass, rises, stretch, axis, pull, spacing, self.width, unit)

    def _transport(self, params: Params) -> tuple[Array | None, Array | None]:
        """Viscosity, and conductivity for p / rho in place of T; both None in an ideal fluid."""
        if params.viscosity is None and params.conductivity is None:
            return None, None
        if self.domain.grid.axisymmetric:
            raise_first(axisymmetric_gas.EXCLUSIONS.refusals(axisymmetric_gas.TRANSPORT))
        zero = jnp.zeros_like(params.gamma)
        viscosity, conductivity = (zero if x is None else x for x in (params.viscosity, params.conductivity))
        return viscosity, conductivity / jnp.asarray(self.gas_constant, zero.dtype)

    def beside_tendency(self, params):
        return "" if params.density_floor is None and params.pressure_floor is None else "a density or pressure floor"

    def unphysical(self, state, params):
        pressure = riemann.primitive(conserved_of(state), params.gamma).pressure
        # Not a number, too, where density vanishes.
        return {"density <= 0": ~(state.density > 0), "pressure <= 0": ~(pressure > 0)}

    def constrain(self, t, dt, state, params):
        """Density and pressure raised to their floors, if there are any."""
        if params.density_floor is None and params.pressure_floor is None:
            return state
        w = riemann.primitive(conserved_of(state), params.gamma)
        floors = (state.density, params.density_floor), (w.pressure, params.pressure_floor)
        density, pressure = (u if least is None else jnp.maximum(u, least) for u, least in floors)
        q = riemann.conserved(w._replace(density=density, pressure=pressure), params.gamma)
        raised = (density > state.density) | (pressure > w.pressure)
        return jax.tree.map(lambda new, old: jnp.where(raised, new, old), State(*q), state)

    def stable_dt(self, state, params):
        """One over the sum over axes of (|u| + c) / h, and of the rates of viscosity and conduction.

        A sum, not the largest: in a cube, Courant number 0.3 of it is 0.1 per axis where all axes are alike. h is the
        least width of a cell and its neighbours, whose gas may be faster: so density and pressure stay positive.
        """
        h = self._least_widths(state.density.dtype)
        w = riemann.primitive(conserved_of(state), params.gamma)
        rate = self.crossing_rate(w, params.gamma)
        viscosity, per_heat = self._transport(params)
        if viscosity is not None and per_heat is not None:
            diffusion = jnp.maximum(4 / 3 * viscosity, (params.gamma - 1) * per_heat)
            rate = rate + 2 * diffusion / state.density * sum(1 / s**2 for s in h)
        if self.domain.grid.axisymmetric:
            rate = rate + axisymmetric_gas.widening(self.domain, self.plain, w, params.gamma)
        # Where bodies that move are is not known here. What they hold follows the gas beside them.
        moves = self.bodies is not None and self.bodies.solid.moving
        return 1 / jnp.max(rate if moves else self.within(rate, 0.0, 0.0))

    def crossing_rate(self, w: Primitive, gamma: Array) -> Array:
        """The sum over axes of (|u| + c) / h."""
        c, h = riemann.sound_speed(w, gamma), self._least_widths(w.density.dtype)
        return sum(((jnp.abs(u) + c) * (1 / s) for u, s in zip(w.velocity, h, strict=True)), jnp.zeros((), c.dtype))

    def _widths(self, dtype, ghosts: int = 0) -> tuple[Spacing, ...]:
        """Widths of cells along every axis as the scheme has them."""
        spacing, reach = self.domain.spacing(self.plain, self.scheme.reach + ghosts, dtype), self.scheme.reach
        return tuple(scalar_fluxes.widths(h, axis, len(spacing), reach) for axis, h in enumerate(spacing))

    def _least_widths(self, dtype) -> tuple[Spacing, ...]:
        return tuple(smallest(h, axis) for axis, h in enumerate(self._widths(dtype, 1)))

    def component_layouts(self):
        pressure, velocity = (self.layouts.pressure,), self.layouts.velocity
        fields = {"density": (self.density_layout,), "velocity": velocity, "pressure": pressure}
        return fields | ({"scalars": self.layouts.scalars} if self.scalars else {})

    def state_from(self, fields, params):
        (density,), (pressure,) = fields["density"], fields["pressure"]
        w = Primitive(density, tuple(fields["velocity"]), pressure, tuple(fields.get("scalars", ())))
        return State(*riemann.conserved(w, params.gamma))


Compressible.Params, Compressible.State = Params, State


def width_of(scheme: gas.GasScheme) -> int:
    """Ghost cells that the tendency needs."""
    return max(scheme.interpolation.width, 1)
