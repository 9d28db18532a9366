"""Small problems of a scalar in a uniform velocity and of incompressible flow."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from case import PERIODIC, Case, smooth_field

from simjax.core.boundary import Dirichlet, Inflow, Neumann, NoSlipWall, Outflow, ScalarSide, SlipWall
from simjax.core.mappings import lines
from simjax.grid import Grid
from simjax.models.flow import incompressible
from simjax.models.flow.bodies import solids
from simjax.models.flow.bodies.free_body import body_params
from simjax.models.flow.incompressible import ImplicitlyViscous
from simjax.models.flow.sides.openings import OpenSide
from simjax.models.flow.sides.wall_model import WallModel
from simjax.models.robin import ExchangeSide
from simjax.models.scalar import advection_diffusion
from simjax.stepping.checkpointing.plan import Binomial
from simjax.stepping.simulate import Schedule


def heated(t, *x):
    """A wall value that varies with time and along the wall."""
    return 0.5 + jnp.cos(2 * t) * sum(0.2 * v - 0.1 * v * v for v in x[1:])


def lid(t, *x):
    """The speed of a wall that accelerates and is not the same everywhere."""
    return (1 + 0.5 * jnp.sin(3 * t)) * jnp.cos(0.4 * x[0])


def jet(t, *x):
    """A velocity through a side that depends on time and on the place."""
    return (1 + 0.2 * jnp.sin(2 * t)) * (1 + 0.3 * sum(jnp.cos(v) for v in x))


def stirring(t, x, params):
    """A body force along the first axis that depends on time, on a position and on the viscosity."""
    return jnp.sin(2 * x[1]) * jnp.cos(t) * (1 + params.viscosity)


def spot(model, params):
    """A smooth concentration."""
    return advection_diffusion.State(smooth_field(model.domain.grid, model.layout.offset, 0))


def swirl(model, params):
    """A smooth velocity that obeys walls and divergence."""
    velocity = tuple(smooth_field(model.domain.grid, kind.offset, i) for i, kind in enumerate(model.layouts))
    return jax.jit(model.constrain)(0.0, 0.0, model.state_from({"velocity": velocity}, params), params)


def swirl_around(model, params):
    """A smooth velocity around bodies, with the pressure and the force on them of a step."""
    state = swirl(model, params)
    state = eqx.tree_at(lambda s: (s.reaction.elapsed, s.reaction.step), state, (jnp.asarray(0.02), jnp.asarray(0.02)))
    return jax.jit(model.constrain)(0.0, 0.02, state, params)


def swirl_past(model, params):
    """`swirl_around` a free body that has moved and turned."""
    state = swirl(model, params)
    places = jnp.asarray(0.02), jnp.asarray([0.3, -0.1]), jnp.asarray([0.4])
    state = eqx.tree_at(lambda s: (s.reaction.elapsed, s.body.displacement, s.body.turned), state, places)
    return jax.jit(model.constrain)(0.0, 0.02, state, params)


def _advection_diffusion(sides, scheme):
    return lambda domain: advection_diffusion.AdvectionDiffusion(domain, sides, scheme)


def _incompressible(sides, forces=None, **others):
    return lambda domain: incompressible.Incompressible(domain, sides, forces, **others)


def _around(*centre, velocity=None):
    """Flow around a round body, which sways if it has a velocity."""

    def distance(t, *x):
        return jnp.sqrt(sum((v - c - 0.1 * jnp.sin(t)) ** 2 for v, c in zip(x, centre, strict=True))) - 0.8

    body = solids.Solid(distance, velocity, moving=velocity is not None)
    sides = [PERIODIC] * (len(centre) - 1) + [(_still, _slip)]
    forces = (stirring, *(None,) * (len(centre) - 1))
    return lambda domain: incompressible.Incompressible(domain, sides, forces, solid=body)


def _around_an_axis(domain):
    """Flow past a body of revolution in a pipe, which is not round and does not end midway between faces."""

    def distance(t, r, z):
        return jnp.sqrt(r**2 + 0.7 * (z - 1.2) ** 2 + 0.2 * (z - 1.2) * r) - 0.6

    sides = [(_slip, _still), (Inflow((0.0, jet)), Outflow())]
    return incompressible.Incompressible(domain, sides, (None, stirring), solid=solids.Solid(distance))


def _falling(domain):
    """Flow around a body that is not round, which the fluid moves and turns."""

    def distance(t, x, y):
        return jnp.sqrt((x - 3.0) ** 2 + 0.6 * (y - 1.1) ** 2 + 0.3 * (x - 3.0) * (y - 1.1)) - 0.8

    body = solids.Solid(distance, free=("x", "y", "turn"))
    return incompressible.Incompressible(domain, [PERIODIC, (_still, _slip)], (stirring, None), solid=body)


def _light():
    body = body_params(
        2,
        jnp.asarray(0.5),
        gravity=jnp.asarray([0.4, -1.0]),
        stiffness=jnp.asarray([0.2, 0.1]),
        damping=jnp.asarray([0.1, 0.3]),
        initial_velocity=jnp.asarray([0.3, 0.2]),
        initial_spin=jnp.asarray([0.5]),
    )
    return incompressible.Params(jnp.asarray(0.05), jnp.asarray(0.1), body=body)


def _numbered(model, t, state, params):
    """The state with the numbers of a body one by one."""
    return dataclasses.replace(state, body=jax.tree.map(tuple, state.body))


def _swaying(t, *x):
    return 0.1 * jnp.cos(t) * jnp.ones_like(x[0])


def _transport(*velocity):
    return lambda: advection_diffusion.Params(jnp.asarray(0.03), jnp.asarray(velocity))


def _flow():
    return incompressible.Params(jnp.asarray(0.05), jnp.asarray(0.1))


def _turning():
    """In space: in a closed plane a turning frame changes the pressure alone. So fast that the layers beside walls are
    turbulent in some cells and viscous in others."""
    return incompressible.Params(jnp.asarray(1e-3), jnp.asarray(0.1), rotation=jnp.asarray([0.7, -0.4, 1.1]))


_line = Grid((24,), (0.0,), (2.0,))
_plane = Grid((16, 24), (0.0, -1.0), (2 * np.pi, 3.0))
_walls = Grid(_plane.shape, _plane.lower, _plane.upper, (None, lines("formula", "tanh(1.5*s)", 24, -1.0, 3.0)))
_even_rings = Grid((16, 24), upper=(2.0, 3.0), axisymmetric=True)
_rings = Grid(
    (16, 24), stretch=(lines("formula", "s - 0.3*s*s*(1 - s)", 16, 0.0, 2.0), None), upper=(2.0, 3.0), axisymmetric=True
)
# Eight blocks as thick as a stencil of three ghost cells needs.
_fine = Grid((32, 24), (0.0, -1.0), (2 * np.pi, 3.0))
_fine_walls = Grid(_fine.shape, _fine.lower, _fine.upper, _walls.stretch)
_box = Grid((8, 12, 6), (0.0, 0.0, -1.0), (2 * np.pi, 3.0, 1.0))
# 0.05 / 0.02 is no integer: two full steps and a shortened one per frame.
_fixed = Schedule(0.05, dt=0.02)
_courant = Schedule(0.1, courant=0.4, max_steps=4)
_heated = ScalarSide(Dirichlet(heated))
_fluxed = ScalarSide(Neumann(lambda t, *x: 0.3 * jnp.cos(x[0] + t)))
_cooled = ExchangeSide(1.5, lambda t, *x: 0.2 * jnp.cos(x[0] - t))
_still, _slip = NoSlipWall(), SlipWall()

CASES = (
    Case(
        "advection-1d",
        _line,
        _advection_diffusion([(Inflow(scalar=0.7), Outflow())], "upwind"),
        _transport(0.8),
        spot,
        "euler",
        Schedule(0.01, dt=0.004),
        checkpoint="none",
    ),
    Case(
        "advection-2d-periodic",
        _plane,
        _advection_diffusion([PERIODIC, PERIODIC], "central"),
        _transport(0.8, -0.5),
        spot,
        "ssprk2",
        _courant,
        checkpoint="two_level",
    ),
    Case(
        "advection-2d-walls",
        _plane,
        _advection_diffusion([(_heated, _fluxed), (_fluxed, _cooled)], "upwind"),
        _transport(0.8, -0.5),
        spot,
        "midpoint",
        _fixed,
        checkpoint=Binomial(2),
    ),
    Case(
        "advection-3d-walls",
        _box,
        _advection_diffusion([(_heated, _slip), PERIODIC, (_fluxed, _still)], "central"),
        _transport(0.8, -0.5, 0.3),
        spot,
        "euler",
        _fixed,
    ),
    Case(
        "flow-2d-periodic",
        _plane,
        _incompressible([PERIODIC, PERIODIC], (stirring, None)),
        _flow,
        swirl,
        "euler",
        _fixed,
        checkpoint="two_level",
        partitioned=(("x", 8),),
    ),
    Case(
        "flow-2d-walls",
        _plane,
        _incompressible([(_still, _slip), (_still, NoSlipWall((lid, 0.0)))], (stirring, None)),
        _flow,
        swirl,
        "euler",
        _courant,
        checkpoint=Binomial(3),
    ),
    Case(
        "flow-2d-outflow",
        _plane,
        _incompressible([(Inflow((jet, 0.2)), Outflow()), (Outflow(), NoSlipWall((lid, 0.0)))], (stirring, None)),
        _flow,
        swirl,
        "heun",
        _fixed,
    ),
    Case(
        "flow-2d-open",
        _plane,
        _incompressible([(_still, _slip), (Inflow((0.1, jet)), OpenSide(lid, 0.8))], (stirring, None)),
        _flow,
        swirl,
        "euler",
        _fixed,
        checkpoint="none",
    ),
    Case(
        "flow-2d-axisymmetric",
        _rings,
        _incompressible([(_slip, NoSlipWall((0.0, lid))), (Inflow((0.0, jet)), Outflow())], (stirring, None)),
        _flow,
        swirl,
        "euler",
        _fixed,
        checkpoint="none",
    ),
    Case(
        "flow-2d-stretched",
        _walls,
        _incompressible([PERIODIC, (_still, NoSlipWall((lid, 0.0)))], (stirring, None)),
        _flow,
        swirl,
        "euler",
        _fixed,
        frames=1,
        checkpoint="none",
    ),
    Case(
        "flow-2d-central4",
        _fine,
        _incompressible([PERIODIC, (_slip, _slip)], (stirring, None), advection="central4"),
        _flow,
        swirl,
        "euler",
        Schedule(0.05, courant=0.4, max_steps=4),
        frames=1,
        checkpoint="none",
    ),
    Case(
        "flow-2d-upwind",
        _fine_walls,
        _incompressible(
            [(Inflow((jet, 0.2)), Outflow()), (_still, NoSlipWall((lid, 0.0)))], (stirring, None), advection="upwind5"
        ),
        _flow,
        swirl,
        "euler",
        _fixed,
        frames=1,
        checkpoint="none",
    ),
    Case(
        "flow-2d-dynamic",
        _walls,
        _incompressible(
            [PERIODIC, (_still, NoSlipWall((lid, 0.0)))], (stirring, None), turbulence="dynamic_smagorinsky"
        ),
        _flow,
        swirl,
        "euler",
        _fixed,
        frames=1,
        checkpoint="none",
    ),
    Case(
        "flow-2d-implicit",
        _walls,
        lambda domain: ImplicitlyViscous(domain, [PERIODIC, (_still, NoSlipWall((lid, 0.0)))], (stirring, None)),
        _flow,
        swirl,
        "ars222",
        _fixed,
        frames=1,
        checkpoint="none",
    ),
    Case(
        "flow-3d-periodic",
        _box,
        _incompressible([PERIODIC] * 3),
        _flow,
        swirl,
        "euler",
        _fixed,
        checkpoint="none",
        partitioned=(("x", 4),),
    ),
    Case(
        "flow-3d-outflow",
        _box,
        _incompressible(
            [PERIODIC, (OpenSide(0.1, 1.0), OpenSide()), (Inflow((0.0, 0.1, jet)), Outflow())], (stirring, None, None)
        ),
        _flow,
        swirl,
        "euler",
        _fixed,
        checkpoint="none",
    ),
    Case(
        "flow-3d-walls",
        _box,
        _incompressible(
            [PERIODIC, (_still, NoSlipWall((lid, 0.0, 0.3))), (WallModel(), _still)], (stirring, None, None)
        ),
        _turning,
        swirl,
        "euler",
        _fixed,
        checkpoint="none",
    ),
    Case(
        "flow-2d-solid",
        _plane,
        _around(3.0, 1.1),
        _flow,
        swirl_around,
        "euler",
        _fixed,
        frames=1,
        checkpoint="none",
        partitioned=(),
    ),
    Case(
        "flow-2d-axisymmetric-solid",
        _even_rings,
        _around_an_axis,
        _flow,
        swirl_around,
        "euler",
        _fixed,
        frames=1,
        checkpoint="none",
        partitioned=(),
    ),
    Case(
        "flow-2d-free-body",
        _plane,
        _falling,
        _light,
        swirl_past,
        "midpoint",
        _fixed,
        frames=1,
        checkpoint="none",
        partitioned=(),
        weighed=_numbered,
    ),
    Case(
        "flow-2d-moving-solid",
        _plane,
        _around(3.0, 1.1, velocity=(_swaying, _swaying)),
        _flow,
        swirl_around,
        "euler",
        _fixed,
        frames=1,
        checkpoint="none",
        partitioned=(),
    ),
)
