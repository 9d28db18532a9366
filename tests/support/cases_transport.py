"""Small problems of the transport family."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from case import PERIODIC, Case, smooth_field

from simjax.core.boundary import Dirichlet, Inflow, Neumann, NoSlipWall, Outflow, ScalarSide, SlipWall
from simjax.core.mappings import lines
from simjax.grid import Grid
from simjax.models.flow import boussinesq, passive_scalar
from simjax.models.flow.bodies.solid_scalars import SolidSurface
from simjax.models.flow.bodies.solids import Solid
from simjax.models.flow.sides.openings import OpenSide
from simjax.models.robin import ExchangeSide
from simjax.models.scalar import advection_diffusion, burgers, transport
from simjax.stepping.simulate import Schedule


def _warmed(t, *x):
    """A wall value that varies with time and along the wall."""
    return 0.5 + jnp.cos(2 * t) * sum(0.2 * v - 0.1 * v * v for v in x[1:])


def _stirred(t):
    return jnp.cos(3 * t)


def _emitted(t, x, params):
    return jnp.sin(2 * t + x[0]) + jnp.cos(x[-1])


def _lid(t, *x):
    """The speed of a wall that accelerates and is not the same everywhere."""
    return (1 + 0.5 * jnp.sin(3 * t)) * jnp.cos(0.4 * x[0])


def _initial(model, params):
    return transport.State(smooth_field(model.domain.grid, model.layout.offset, 0))


def _fields(grid, diffusive=True, source=False):
    """Parameters with fields that differ in every cell; diffusivities within a factor of ten."""

    def params():
        centers = (0.5,) * grid.ndim
        offsets = [tuple(0.0 if k == axis else 0.5 for k in range(grid.ndim)) for axis in range(grid.ndim)]
        velocity = tuple(smooth_field(grid, offset, 3 + axis) for axis, offset in enumerate(offsets))
        diffusivity = 0.03 * jnp.exp(smooth_field(grid, centers, 7)) if diffusive else None
        return transport.Params(velocity, diffusivity, smooth_field(grid, centers, 9) if source else None)

    return params


def _pushed(t, x, params):
    """A body force that depends on time, on a position and on the diffusivity."""
    return jnp.sin(2 * x[1]) * jnp.cos(t) * (1 + params.diffusivity)


def mixed(model, params):
    """A smooth velocity that obeys walls and divergence, and a smooth concentration."""
    grid = model.domain.grid
    velocity = tuple(smooth_field(grid, kind.offset, i) for i, kind in enumerate(model.flow.layouts))
    start = passive_scalar.State(velocity, smooth_field(grid, model.layout.offset, 5))
    return jax.jit(model.constrain)(0.0, 0.0, start, params)


def warmed(model, params):
    """A smooth velocity that obeys walls and divergence, a smooth temperature, and further scalars if there are any."""
    grid = model.domain.grid
    velocity = tuple(smooth_field(grid, kind.offset, i) for i, kind in enumerate(model.flow.layouts))
    scalars = tuple(smooth_field(grid, kind.offset, 6 + i) for i, kind in enumerate(model.scalar_layouts))
    fields = {"velocity": velocity, "temperature": (smooth_field(grid, model.layout.offset, 5),), "scalars": scalars}
    return jax.jit(model.constrain)(0.0, 0.0, model.state_from(fields, params), params)


def around(model, params):
    """A smooth velocity and a smooth scalar around bodies, with the pressure and the force on them of a step."""
    grid = model.domain.grid
    velocity = tuple(smooth_field(grid, kind.offset, i) for i, kind in enumerate(model.flow.layouts))
    fields = {"velocity": velocity, model.carried: (smooth_field(grid, model.layout.offset, 5),)}
    state = eqx.tree_at(lambda s: s.reaction.elapsed, model.state_from(fields, params), jnp.asarray(0.02))
    return jax.jit(model.constrain)(0.0, 0.02, state, params)


def _disc(t, x, y):
    return jnp.sqrt((x - 3.0) ** 2 + (y - 1.1) ** 2) - 0.8


def _swaying(t, x, y):
    return _disc(t, x - 0.1 * jnp.sin(t), y - 0.1 * jnp.sin(t))


def _sway(t, *x):
    return 0.1 * jnp.cos(t) * jnp.ones_like(x[0])


_eddying = Grid(
    (16, 16),
    stretch=(
        lines("formula", "s + 0.08*sin(2*pi*s)", 16, 0.0, 2 * np.pi),
        lines("formula", "tanh(1.5*s)", 16, -1.0, 3.0),
    ),
)


def _eddies():
    """Parameters of a flow with eddies, whose mean velocity along x is kept."""
    numbers = map(jnp.asarray, (0.05, 0.1, 0.03))
    return passive_scalar.Params(
        *numbers,
        turbulence_constant=jnp.asarray(0.3),
        turbulent_prandtl=jnp.asarray(0.6),
        eddy_viscosity=0.02 + 0.01 * smooth_field(_eddying, (0.5, 0.5), 3) ** 2,
        bulk_velocity=(jnp.asarray(0.4), None),
    )


_line = Grid((48,), (0.0,), (2.0,))
_plane = Grid((24, 12), (0.0, -1.0), (2 * np.pi, 3.0))
_box = Grid((8, 12, 6), (0.0, 0.0, -1.0), (2 * np.pi, 3.0, 1.0))
_stretched = Grid(
    _plane.shape,
    stretch=(
        lines("formula", "s + 0.08*sin(2*pi*s)", 24, 0.0, 2 * np.pi),
        lines("formula", "tanh(1.5*s)", 12, -1.0, 3.0),
    ),
)
_rings = Grid(
    _plane.shape,
    stretch=(lines("formula", "s - 0.3*s*s*(1 - s)", 24, 0.0, 2.0), None),
    upper=(2.0, 3.0),
    axisymmetric=True,
)
_warm, _given = ScalarSide(Dirichlet(_warmed)), ScalarSide(Neumann(lambda t, *x: 0.3 * jnp.cos(x[0] + t)))
# Solves far below the bounds on state and gradient, which then see only the order of sums.
_TIGHT = 1e-14

CASES = (
    Case(
        "transport-1d-walls",
        _line,
        lambda domain: transport.Transport(domain, [(Inflow(scalar=0.7), Outflow())], "van_leer"),
        _fields(_line),
        _initial,
        "ssprk2",
        Schedule(0.01, dt=0.004),
        checkpoint="none",
    ),
    Case(
        "burgers-1d-weno5",
        _line,
        lambda domain: burgers.Burgers(domain, [PERIODIC], "weno5"),
        lambda: burgers.Params(jnp.asarray(0.03)),
        _initial,
        "ssprk3",
        Schedule(0.01, courant=0.4, max_steps=4),
    ),
    Case(
        "transport-2d-implicit",
        _plane,
        lambda domain: transport.Transport(
            domain,
            [(_warm, _given), (ExchangeSide(1.5, 0.2), _warm)],
            "mc",
            source=_emitted,
            factor=_stirred,
            tolerance=_TIGHT,
        ),
        _fields(_plane, source=True),
        _initial,
        "imex_euler",
        Schedule(0.05, dt=0.03),
        frames=1,
        checkpoint="none",
    ),
    Case(
        "transport-2d-stretched",
        _stretched,
        lambda domain: transport.Transport(domain, [PERIODIC, (_warm, _given)], "van_leer", source=_emitted),
        _fields(_stretched, source=True),
        _initial,
        "ssprk2",
        Schedule(0.01, courant=0.4, max_steps=4),
    ),
    Case(
        "transport-2d-stretched-implicit",
        _stretched,
        lambda domain: transport.Transport(
            domain, [(_given, ExchangeSide(1.5, 0.2)), (_warm, SlipWall())], "upwind", tolerance=_TIGHT
        ),
        _fields(_stretched),
        _initial,
        "imex_euler",
        Schedule(0.05, dt=0.03),
        frames=1,
        checkpoint="none",
    ),
    Case(
        "burgers-2d-stretched",
        _stretched,
        lambda domain: burgers.Burgers(domain, [PERIODIC, (_warm, _given)], "mc"),
        lambda: burgers.Params(jnp.asarray(0.03)),
        _initial,
        "ssprk2",
        Schedule(0.01, courant=0.4, max_steps=4),
    ),
    Case(
        "stretched-advection-2d",
        _stretched,
        lambda domain: advection_diffusion.AdvectionDiffusion(domain, [PERIODIC, (_warm, _given)], "central"),
        lambda: advection_diffusion.Params(jnp.asarray(0.05), jnp.asarray([0.7, -0.4])),
        lambda model, params: advection_diffusion.State(smooth_field(_stretched, (0.5, 0.5), 0)),
        "heun",
        Schedule(0.01, courant=0.4, max_steps=4),
        frames=1,
    ),
    Case(
        "transport-2d-axisymmetric",
        _rings,
        lambda domain: transport.Transport(domain, [(SlipWall(), _warm), (_given, ExchangeSide(1.5, 0.2))], "van_leer"),
        _fields(_rings, source=True),
        _initial,
        "ssprk2",
        Schedule(0.008, courant=0.4, max_steps=3),
        frames=1,
    ),
    Case(
        "axisymmetric-advection-2d",
        _rings,
        lambda domain: advection_diffusion.AdvectionDiffusion(domain, [(SlipWall(), _warm), PERIODIC], "upwind"),
        lambda: advection_diffusion.Params(jnp.asarray(0.05), jnp.asarray([0.0, -0.4])),
        lambda model, params: advection_diffusion.State(smooth_field(_rings, (0.5, 0.5), 0)),
        "heun",
        Schedule(0.02, courant=0.4, max_steps=3),
        frames=1,
    ),
    Case(
        "transport-3d-implicit",
        _box,
        lambda domain: transport.Transport(
            domain, [PERIODIC, (_given, SlipWall()), (_warm, Outflow())], "upwind", tolerance=_TIGHT
        ),
        _fields(_box),
        _initial,
        "imex_euler",
        Schedule(0.04, dt=0.02),
        frames=1,
        checkpoint="none",
    ),
    Case(
        "passive-scalar-2d-walls",
        Grid((24, 16), (0.0, -1.0), (2 * np.pi, 3.0)),
        lambda domain: passive_scalar.PassiveScalar(
            domain,
            [(NoSlipWall(), SlipWall()), (NoSlipWall((_lid, 0.0)), NoSlipWall())],
            "van_leer",
            forces=(_pushed, None),
            source=_emitted,
        ),
        lambda: passive_scalar.Params(jnp.asarray(0.05), jnp.asarray(0.1), jnp.asarray(0.03)),
        mixed,
        "euler",
        Schedule(0.05, dt=0.03),
        frames=1,
        checkpoint="none",
    ),
    Case(
        "passive-scalar-2d-eddies",
        _eddying,
        lambda domain: passive_scalar.PassiveScalar(
            domain, [PERIODIC, (NoSlipWall((_lid, 0.0)), SlipWall())], "van_leer", turbulence="smagorinsky"
        ),
        _eddies,
        mixed,
        "euler",
        Schedule(0.05, dt=0.03),
        frames=1,
        checkpoint="none",
    ),
    Case(
        "boussinesq-2d-walls",
        Grid((24, 16), (0.0, -1.0), (2 * np.pi, 3.0)),
        lambda domain: boussinesq.Boussinesq(
            domain,
            [(Inflow((_lid, 0.1), scalar=0.7), Outflow()), (NoSlipWall(scalar=Dirichlet(_lid)), OpenSide(0.2))],
            "van_leer",
            forces=(_pushed, None),
            source=_emitted,
        ),
        lambda: boussinesq.Params(*map(jnp.asarray, (0.05, 0.1, 0.03, 0.4, 0.2)), jnp.asarray([0.3, -1.0])),
        warmed,
        "heun",
        Schedule(0.05, dt=0.03),
        frames=1,
        checkpoint="none",
    ),
    Case(
        "boussinesq-2d-scalars",
        Grid((24, 16), (0.0, -1.0), (2 * np.pi, 3.0)),
        lambda domain: boussinesq.Boussinesq(
            domain,
            [
                (Inflow((_lid, 0.1), 0.7, (0.2, _warmed)), Outflow()),
                (NoSlipWall(scalar=Dirichlet(_lid), scalars=(_lid, 0.3)), OpenSide(0.2)),
            ],
            "van_leer",
            scalars=2,
            scalar_sources=(None, _emitted),
        ),
        lambda: boussinesq.Params(
            *map(jnp.asarray, (0.05, 0.1, 0.03, 0.4, 0.2)),
            jnp.asarray([0.3, -1.0]),
            scalar_diffusivity=jnp.asarray([0.01, 0.06]),
            scalar_expansion=jnp.asarray([-0.7, 0.3]),
        ),
        warmed,
        "euler",
        Schedule(0.05, courant=0.4, max_steps=4),
        frames=1,
        checkpoint="none",
    ),
    Case(
        "passive-scalar-2d-solid",
        _eddying,
        lambda domain: passive_scalar.PassiveScalar(
            domain,
            [PERIODIC, (NoSlipWall(), SlipWall())],
            "van_leer",
            forces=(_pushed, None),
            source=_emitted,
            surface=SolidSurface(Solid(_disc), flux=_lid),
        ),
        lambda: passive_scalar.Params(*map(jnp.asarray, (0.05, 0.1, 0.03))),
        around,
        "euler",
        Schedule(0.05, dt=0.03),
        frames=1,
        checkpoint="none",
    ),
    Case(
        "boussinesq-2d-moving-solid",
        Grid((24, 16), (0.0, -1.0), (2 * np.pi, 3.0)),
        lambda domain: boussinesq.Boussinesq(
            domain,
            [PERIODIC, (NoSlipWall(scalar=Dirichlet(_lid)), SlipWall())],
            "central",
            surface=SolidSurface(Solid(_swaying, (_sway, _sway), moving=True), value=_warmed),
        ),
        lambda: boussinesq.Params(*map(jnp.asarray, (0.05, 0.1, 0.03, 0.4, 0.2)), jnp.asarray([0.3, -1.0])),
        around,
        "euler",
        Schedule(0.05, dt=0.03),
        frames=1,
        checkpoint="none",
    ),
)
