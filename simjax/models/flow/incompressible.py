"""Incompressible flow on the staggered grid, two- and three-dimensional."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least, require_one_of
from simjax.core.boundary import FieldLayout, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.given_values import called
from simjax.core.model import ExplicitModel
from simjax.grid import AXES, UPPER
from simjax.jaxpr.jaxpr_parts import part
from simjax.models.declaration import model
from simjax.models.faces import as_last_line
from simjax.models.flow.axisymmetric_flow import volumes_around
from simjax.models.flow.bodies import free_body, solid_pressure, solid_setup, solid_stage, solids, surface_readings
from simjax.models.flow.bodies.free_body_setup import BodyKeys
from simjax.models.flow.bodies.solid_reaction import Reaction, still
from simjax.models.flow.choices import FLOW_SIDES, check_flow, choices_of, forces_by_axis, with_params
from simjax.models.flow.features import EXCLUSIONS, USUAL, Choices, refusals
from simjax.models.flow.flow_troubles import TROUBLES
from simjax.models.flow.sides import balance
from simjax.models.flow.sides.openings import (
    Opening,
    openings_of,
    velocity_through,
    with_first_line,
    with_outlet_specs,
    with_outlets,
)
from simjax.models.flow.sides.wall_model import Wall, modelled_walls, slowed
from simjax.models.flow.step.budgets import FlowBudgets, budget_names, falling_energy, flow_variables
from simjax.models.flow.step.implicit_viscosity import StokesStages
from simjax.models.flow.step.momentum import (
    EDDY_VISCOSITY,
    TURBULENCE,
    Drive,
    Momentum,
    momentum_params,
    with_field_specs,
)
from simjax.models.flow.step.momentum_fluxes import flux_names
from simjax.models.flow.step.projection import WRAPPED, Projection
from simjax.models.flow.step.step_limit import step_limit
from simjax.models.fluid_outputs import flow_measures, pressure_output, velocity_outputs, vorticity_output
from simjax.models.sides import check_sides, require_domain, velocity_layouts
from simjax.notebook import all_in_a_line
from simjax.ops import staggered
from simjax.ops.momentum_advection import SCHEMES
from simjax.ops.spacing import scaled
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import Choice, ListOf, Nested, Real, key
from simjax.schema.model_schema import IMEX, RUNGE_KUTTA, FieldSchema
from simjax.solvers.poisson import METHODS
from simjax.stencil.formulation import loops_over_long_stages

VELOCITY = FieldSchema("velocity", vector=True, units="m s-1")

Force = Callable[..., Array]
"""`force(t, coordinates, params)` -> acceleration, broadcastable against the component's block."""


class State(eqx.Module):
    """velocity: one `(*grid.shape)` array per axis, component i on the faces normal to axis i.

    outlets: where a flow has open upper sides, for each axis the velocity on its upper side, one cell thick along the
    axis and whole along the others, or None where that is no unknown. reaction: of bodies. body: a free one.
    """

    velocity: tuple[Array, ...]
    outlets: tuple[Array | None, ...] = eqx.field(default=(), kw_only=True)
    reaction: Reaction | None = eqx.field(default=None, kw_only=True)
    body: free_body.Body | None = eqx.field(default=None, kw_only=True)
    __repr__ = all_in_a_line


class Params(eqx.Module):
    """viscosity nu: kinematic, length^2 / time. drag alpha: linear friction, 1 / time.

    turbulence_constant: of the turbulence model; None: the usual one. eddy_viscosity nu_t: `(*grid.shape)`, at cell
    centres, added to nu and to that of a turbulence model; None: none. rotation W: the angular velocity of the frame,
    1 / time, `(1,)` in a plane and `(3,)` in space; None: it is at rest. bulk_velocity: for each axis the mean
    velocity that a uniform force keeps, or None; axes that have one are periodic. body: of one that the fluid moves.
    """

    viscosity: Array
    drag: Array
    turbulence_constant: Array | None = eqx.field(default=None, kw_only=True)
    eddy_viscosity: Array | None = eqx.field(default=None, kw_only=True)
    rotation: Array | None = eqx.field(default=None, kw_only=True)
    bulk_velocity: tuple[Array | None, ...] | None = eqx.field(default=None, kw_only=True)
    body: free_body.BodyParams | None = eqx.field(default=None, kw_only=True)
    __repr__ = all_in_a_line

    def __check_init__(self):
        names = ("viscosity", "drag", "turbulence_constant", "eddy_viscosity")
        require_at_least("Incompressible.Params", {name: getattr(self, name) for name in names})


@model(
    "incompressible",
    fields=(VELOCITY,),
    sides=FLOW_SIDES,
    coefficients=(solid_setup.SOLID, solid_setup.SOLID_VELOCITY, EDDY_VISCOSITY),
    diagnosed=flow_variables,
    least_axes=2,
    stretched=True,
    axisymmetric=True,
    balanced=lambda ndim, counts: budget_names(ndim),
    passing=lambda ndim, counts: flux_names(ndim),
    falling=falling_energy,
    exclusions=EXCLUSIONS,
    check=check_flow,
    functions=lambda config: () if config.physics.body is None else ("solid",),
    along_bodies=surface_readings.OF_FLOW,
    integrators=(*RUNGE_KUTTA, *IMEX),
)
class Incompressible(ExplicitModel, FlowBudgets):
    """Incompressible Navier-Stokes: du/dt = -div(u u) - grad(p) + nu lap(u) - alpha u + f, div(u) = 0.

    u velocity, p kinematic pressure (length^2 / time^2), nu viscosity, alpha linear drag, f body force per unit
    mass. With eddies nu lap(u) is div(2 (nu + nu_t) S), S the symmetric part of grad u, where nu_t is given or that of
    a `turbulence` model; a frame that turns with W adds -2 W x u, without work. Central second order on the MAC grid
    (Harlow and Welch 1965), conserving momentum, and kinetic energy but for viscosity and time stepping, or another
    scheme of `ops.momentum_advection`; the projection (Chorin 1968, Math. Comp. 22, 745) follows every Runge-Kutta
    stage and is exact for the discrete divergence. Boundaries per side: periodic, no-slip (also moving), slip, a wall
    with the friction of a turbulent layer (`wall_model.WallModel`), prescribed velocity, outflow, or open at a given
    pressure (`openings.Opening`). With neither of the last two, prescribed velocities must have no net flux: other ones
    are refused here where they can be computed, and end a run where they depend on time (`fault`). Takes stretched
    grids, and axisymmetric ones (without swirl or eddies).

    Examples:
        >>> model = sj.Incompressible(sj.Domain(sj.Grid((16, 16))), [(sj.PeriodicSide(), sj.PeriodicSide())] * 2)
        >>> params = model.Params(viscosity=jnp.asarray(0.01), drag=jnp.asarray(0.0))
        >>> state = model.State((jnp.ones((16, 16)), jnp.zeros((16, 16))))
        >>> end = sj.integrate(model, sj.INTEGRATORS["kutta3"], params, state, dt=0.01, steps=5)
    """

    @dataclass(frozen=True)
    class Keys:
        viscosity: float = key(Real(low=0.0), units="m2 s-1", about="kinematic viscosity nu")
        drag: float = key(Real(low=0.0), 0.0, units="s-1", about="linear drag alpha")
        pressure_solver: str = key(
            Choice(METHODS), "auto", about="how the pressure is solved for; auto: by predicted time"
        )
        advection: str = key(Choice(tuple(SCHEMES)), USUAL, about="how the flow carries its momentum")
        turbulence: str = key(Choice(TURBULENCE), "none", about="turbulence model that gives an eddy viscosity")
        turbulence_constant: float | None = key(
            Real(above=0.0, optional=True),
            None,
            about="its constant; null: 0.17, 0.07, 0.325 in their order",
        )
        rotation: tuple[float, ...] | None = key(
            ListOf(Real(), 1, 3, optional=True, noun="numbers"),
            None,
            units="s-1",
            about="angular velocity of the frame, one number in a plane, three in space",
        )
        bulk_velocity: tuple[float | None, ...] | None = key(
            ListOf(Real(optional=True), 1, 3, optional=True, noun="numbers or nulls"),
            None,
            units="m s-1",
            about="mean velocity along periodic axes that a uniform force keeps; null: no such force",
        )
        body: BodyKeys | None = key(Nested(BodyKeys, optional=True), None, about="rigid body that the fluid moves")
        torque_about: tuple[float, ...] | None = solid_setup.torque_about()

    viscosity_is_implicit: ClassVar[bool] = False
    troubles = TROUBLES
    taken_through = "the projection on velocities without divergence, with sides and bodies imposed"
    domain: Domain
    layouts: tuple[FieldLayout, ...]
    forces: tuple[Force | None, ...]
    openings: tuple[Opening, ...]
    projection: Projection
    momentum: Momentum
    drive: Drive
    choices: Choices = eqx.field(static=True)
    watched: bool = eqx.field(static=True)
    walls: tuple[Wall, ...] = eqx.field(static=True)
    """Walls with the friction of a turbulent layer."""
    solid: solids.Solid | None
    immersion: solids.Immersion | None
    """Coefficients of bodies that do not move, where they were formed before the steps."""
    bulk: free_body.Bulk | None
    """The same of a body that the fluid moves."""
    around: solid_pressure.SolidPressure | None
    """Method of the pressure solve around bodies."""

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        forces: Sequence[Force | None] | None = None,
        pressure_solver: str = "auto",
        solid: solids.Solid | None = None,
        turbulence: str = "none",
        advection: str = USUAL,
    ):
        require_domain("Incompressible", domain)
        ndim = domain.grid.ndim
        raise_first(Incompressible.declarations["incompressible"].axes_refusals("grid.shape", domain.grid.shape))
        require_one_of("Incompressible.pressure_solver", pressure_solver, METHODS)
        require_one_of("Incompressible.turbulence", turbulence, TURBULENCE)
        check_sides(domain, sides, FLOW_SIDES, "Incompressible", axisymmetric=True)
        require_one_of("Incompressible.advection", advection, SCHEMES)
        self.domain, self.openings, self.walls = domain, openings_of(sides), modelled_walls(sides)
        self.layouts = velocity_layouts(sides, VELOCITY.units)
        self.choices = choices_of(
            domain,
            sides,
            self.layouts,
            solid,
            pressure_solver=pressure_solver,
            turbulence=turbulence,
            advection=advection,
            implicit=self.viscosity_is_implicit,
        )
        raise_first(refusals(self.choices))
        self.momentum = Momentum(domain, self.layouts, turbulence, advection)
        order = self.momentum.scheme.order
        self.projection = Projection(domain, self.layouts, self.openings, pressure_solver, order)
        self.drive = Drive(domain, center_layout([WRAPPED] * ndim))
        self.forces = (None,) * ndim if forces is None else forces_by_axis("Incompressible", forces, ndim)
        self.watched = not self.openings and balance.require_balance(domain, self.layouts)
        self.solid, self.immersion, self.bulk, self.around = solid, None, None, None
        if solid is not None:
            self.around = solid_pressure.solid_pressure(domain, self.projection.layout, solid, pressure_solver)

    @classmethod
    def configured(cls, setup):
        forces = setup.forces("velocity") or None
        keys, solid = setup.keys, solid_setup.solid_of(setup)
        kind: Any = ImplicitlyViscous if setup.config.time.integrator in IMEX else cls
        flow = kind(setup.domain, setup.sides, forces, keys.pressure_solver, solid, keys.turbulence, keys.advection)
        return flow, Params(setup.values["viscosity"], setup.values["drag"], **momentum_params(setup))

    @property
    def loops_over_stages(self) -> bool:
        """True around bodies whose pressure is iterated for, most of a program, and of eddies in long stages."""
        if self.around is not None:
            return not self.around.direct
        return self.momentum.turbulence != "none" and loops_over_long_stages()

    def fault(self, t, params):
        """Check that prescribed velocities that depend on time carry no net volume into the box."""
        return balance.fault(self.domain, self.layouts, t, jnp.result_type(params.viscosity)) if self.watched else None

    def explain(self, t, params):
        """The volume that flows in and out through each side, where these do not balance."""
        dtype = jnp.result_type(params.viscosity)
        found = balance.fluxes(self.domain, self.layouts, t, dtype)
        through = dict(zip(balance.open_sides(self.layouts), map(float, found), strict=True))
        return balance.described(through, float(jnp.finfo(dtype).eps), self.domain.grid)

    def notes(self):
        return [] if self.around is None else [self.around.sentence(), *solid_stage.size_note(self)]

    def rhs(self, t, state, params):
        return self.accelerated(t, state, params)

    def accelerated(self, t, state, params, acceleration: Sequence[Array | None] | None = None) -> State:
        """The tendency with an acceleration, one field for each component on its faces, or None where there is none."""
        raise_first(refusals(with_params(self.choices, params)))
        slopes = self.momentum.tendency(t, state.velocity, self.layouts_for(t, state), params)
        layouts = self.layouts_at(t, state)
        slopes = slowed(self.domain, layouts, self.walls, t, state.velocity, params.viscosity, slopes)
        forcing = [self._force(i, t, params, u) - params.drag * u for i, u in enumerate(state.velocity)]
        if acceleration is not None:
            forcing = [f if a is None else f + a for f, a in zip(forcing, acceleration, strict=True)]
        slopes = [k + f for k, f in zip(slopes, forcing, strict=True)]
        free, slopes = slopes, list(slopes)  # free: of the pressure
        reaction, body, acting = None, None, None
        if state.reaction is not None:
            slowed_by, reaction, body = solid_stage.acting(self, t, state, params, forcing)
            acting, free = state.reaction.pressure, slowed_by(slopes)
            pushed = self.projection.gradient(acting)
            slopes = slowed_by([k - slope for k, slope in zip(slopes, pushed, strict=True)])
        outlets: list[Array | None] = [None] * len(state.outlets)
        for one in self.openings:
            through = velocity_through(self.domain, one, state.velocity, state.outlets)
            found = one.tendency(self.domain, self.layouts, t, state.velocity, through, free, acting)
            if one.side == UPPER:
                outlets[one.axis] = found
            else:
                slopes[one.axis] = with_first_line(self.domain, slopes[one.axis], one.axis, found)
        return State(tuple(slopes), outlets=tuple(outlets), reaction=reaction, body=body)

    def layouts_at(self, t, state: State, width: int = 1) -> tuple[FieldLayout, ...]:
        """Layouts of the velocity for stencils of `width` ghost cells, with what flows through its open upper sides."""
        return with_outlets(self.domain, self.layouts, state.outlets, t, width)

    def layouts_for(self, t, state: State) -> Callable[[int], tuple[FieldLayout, ...]]:
        """`layouts_at` as a function of the width."""
        return functools.partial(self.layouts_at, t, state)

    def _force(self, component: int, t, params, like: Array) -> Array:
        force = self.forces[component]
        if force is None:
            return jnp.zeros((), like.dtype)
        places = self.domain.coordinates(self.layouts[component].offset, like.dtype)
        return called(force, "force(t, coordinates, params)", (t, places, params), like.shape)

    @part("projection")
    def constrain(self, t, dt, state, params):
        """Walls imposed, then the velocity projected on the divergence-free ones: u - grad(lap^-1 div(u)).

        Where nothing else lets the flow change its volume, all outflows gain the same speed, so that what leaves is
        what comes in.
        """
        imposed = self.domain.impose(state.velocity, self.layouts, t)
        if params.bulk_velocity is not None:
            imposed = self.drive.driven(imposed, params.bulk_velocity)
        velocity, outlets = self.projection.let_out(t, imposed, state.outlets)
        state = State(velocity, outlets=outlets, reaction=state.reaction, body=state.body)
        if self.solid is not None:
            around, outlets, reaction, body = solid_stage.constrained(self, t, dt, state, params)
            return State(around, outlets=outlets, reaction=reaction, body=body)
        projection = self.projection
        phi = projection.potential(projection.divergence(velocity, t, self.layouts_at(t, state)))
        around = tuple(u - slope for u, slope in zip(velocity, projection.gradient(phi), strict=True))
        return State(around, outlets=projection.outlets_after(outlets, phi))

    def beside_tendency(self, params):
        return "the projection of the velocity, by which no flow has a divergence,"

    def constant_parts(self, params):
        """The coefficients of bodies that do not move, and what follows from the shape of one that the fluid moves."""
        if self.solid is None or self.solid.moving:
            return None
        if self.solid.fixed:
            return self.immersion_at(jnp.zeros((), jnp.result_type(params.viscosity))), None
        known = self.bulk is not None and self.immersion is None
        return None, self.bulk if known else solid_stage.bulk_of(self, params)

    def parts_at_start(self, params):
        """The coefficients of a body that the fluid moves, where it starts."""
        if self.solid is None or self.solid.free is None or self.immersion is not None:
            return None
        return solid_stage.parts_at_start(self, params)

    def with_parts(self, parts):
        both = lambda flow: (flow.immersion, flow.bulk)  # noqa: E731
        return eqx.tree_at(both, self, parts, is_leaf=lambda leaf: leaf is None)

    def immersion_at(self, t, solid: solids.Solid | None = None) -> solids.Immersion:
        """The coefficients of bodies at time `t`, a number of the velocity's type; of `solid` where that is given."""
        if self.immersion is not None:
            return self.immersion
        solid = self.solid if solid is None else solid
        assert solid is not None and self.around is not None
        around = self.around
        return solid.immersion(self.domain, self.projection.layout, t, t.dtype, around.approximate, around.box)

    def unphysical(self, state, params):
        return {} if state.body is None else solid_stage.unphysical(self, state, params)

    def pressure(self, t, state, params, acceleration: Sequence[Array | None] | None = None) -> Array:
        """Kinematic pressure at cell centres, of zero mean unless given at a side: lap(p) = div(tendency without p).

        Around bodies that of the last step: zero before the first one.
        """
        if state.reaction is not None:
            return solid_stage.pressure(self, t, state)
        walls, slopes = self.projection.still_walls(), self.accelerated(t, state, params, acceleration)
        velocity = self.domain.impose(slopes.velocity, walls, t)
        layouts = with_outlets(self.domain, walls, slopes.outlets, t)
        return self.projection.potential(self.projection.divergence(velocity, t, layouts))

    def stable_dt(self, state, params):
        return self.longest_step(state, params)

    def longest_step(self, state, params, spread: float | Array = 1.0):
        """`stable_dt` where an eddy viscosity counts `spread` times."""
        limit = step_limit(self, state, params, spread)
        return limit if state.body is None else jnp.minimum(limit, solid_stage.longest_step(self, params))

    def _planes(self) -> list[tuple[int, int]]:
        """Planes of the components of the vorticity, one in 2-D and three in 3-D; (z, r) around an axis."""
        if self.domain.grid.ndim == 3:
            return [(1, 2), (2, 0), (0, 1)]
        return [(1, 0)] if self.domain.grid.axisymmetric else [(0, 1)]

    def _vorticity(self, operator, state, t) -> tuple[Array, ...]:
        """Components of curl u by one of the operators of `ops.staggered`."""

        def components(*padded):
            *velocity, h = padded
            return tuple(operator(velocity, plane, h) for plane in self._planes())

        return self.domain.apply_spaced(components, state.velocity, self.layouts_at(t, state), width=1, t=t)

    def diagnostics(self, t, state, params, acceleration: Sequence[Array | None] | None = None):
        """kinetic_energy: mean of |u|^2 / 2. enstrophy: mean of |curl u|^2 / 2. max_divergence: of |div u|,
        but for cells that the surface of a body cuts.

        mean_eddy_viscosity: of nu_t, where there is one; mean_coefficient: of C^2 of a dynamic model. driving_x, ...:
        the force per mass that keeps the bulk velocity, which is the slope of pressure that it stands for. Means are
        over the volume.
        """
        domain = self.domain
        vorticity = self._vorticity(staggered.vorticity, state, t)

        def half_of_mean_square(components, faces, layout) -> Array:
            """`faces`: for each component the axes whose lower faces it is on."""
            squares = (
                scaled(u * u, *volumes_around(domain, layout, on, u.dtype))
                for u, on in zip(components, faces, strict=True)
            )
            return 0.5 * domain.sum(tuple(squares)) / domain.grid.cells

        normal, through = [(axis,) for axis in range(domain.grid.ndim)], center_layout([WRAPPED] * domain.grid.ndim)
        found = solid_stage.diagnosed(self, state, params)
        if self.momentum.has_eddies(params):
            found |= self.momentum.diagnosed(t, state.velocity, self.layouts_for(t, state), params)
        if params.bulk_velocity is not None:
            slopes = self.accelerated(t, state, params, acceleration).velocity
            for axis, wanted in enumerate(params.bulk_velocity):
                if wanted is not None:
                    found[f"driving_{AXES[axis]}"] = -self.drive.mean(slopes[axis], axis)
        return found | {
            "kinetic_energy": half_of_mean_square(state.velocity, normal, through),
            "enstrophy": half_of_mean_square(vorticity, self._planes(), self.projection.layout),
            "max_divergence": domain.max(jnp.abs(solid_stage.divergence(self, t, state, params))),
        }

    roundings = FlowBudgets.roundings

    def measures(self):
        return {**solid_stage.measures(self.domain.grid, self.solid), **flow_measures(self.domain.grid.ndim)}

    def component_layouts(self):
        return {"velocity": self.layouts}

    def state_from(self, fields, params):
        """A velocity, which goes through open upper sides as on the last faces below them."""
        velocity, above = fields["velocity"], {one.axis for one in self.openings if one.side == UPPER}
        lines = (self.domain.last_line(u, axis) if axis in above else None for axis, u in enumerate(velocity))
        reaction = None if self.solid is None else still(self.domain, velocity[0])
        free = self.solid is not None and self.solid.free is not None
        body = free_body.at_start(self.domain.grid.ndim, params.body) if free else None
        return State(velocity, outlets=tuple(lines) if above else (), reaction=reaction, body=body)

    def partition_specs(self, state, params):
        state_specs, params_specs = super().partition_specs(state, params)
        return with_outlet_specs(self.domain, state_specs), with_field_specs(self.domain, params_specs, params)

    def body_distance(self, params):
        return None if params.body is None else functools.partial(solid_stage.distance_by_numbers, self, params)

    def free_faces(self, t, state, params):
        return {
            f"velocity_{AXES[axis]}": as_last_line(self.domain, line, axis)
            for axis, line in enumerate(state.outlets)
            if line is not None
        }

    def outputs(self):
        grid, layouts = self.domain.grid, self.layouts
        velocity = velocity_outputs(grid, [layout.offset for layout in layouts], layouts[0].units)
        pressure = pressure_output(self.projection.layout.offset, "m2 s-2", "kinematic pressure")
        return (*velocity, vorticity_output(grid.ndim), pressure)

    def along_bodies(self, t, state, params, points):
        """position, normal, pressure and shear_stress along bodies; see `models.flow.bodies.surface_readings`."""
        surface = surface_readings.surface_of_flow(self, t, params, points)
        return surface_readings.known_along(surface, surface_readings.along_flow(surface, self, t, state, params))

    def observe(self, t, state, params) -> dict[str, jax.Array]:
        return self.observed(t, state, self.pressure(t, state, params))

    def observed(self, t, state, pressure: Array) -> dict[str, Array]:
        """The variables to write, of which the pressure is known."""
        result = {f"velocity_{AXES[i]}": u for i, u in enumerate(state.velocity)} | {"pressure": pressure}
        vorticity = self._vorticity(staggered.vorticity_at_center, state, t)
        if len(vorticity) == 1:
            return result | {"vorticity": vorticity[0]}
        return result | {"vorticity_magnitude": jnp.sqrt(sum(w * w for w in vorticity))}


class ImplicitlyViscous(Incompressible, StokesStages):
    """`Incompressible` with viscosity and pressure implicit, for schemes that are implicit and explicit."""

    viscosity_is_implicit = True


Incompressible.Params, Incompressible.State = Params, State
