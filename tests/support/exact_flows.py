"""Incompressible flows whose solutions are known, and what measures them."""

import jax
import jax.numpy as jnp
import numpy as np
from case import QUICK

from simjax.core.boundary import NoSlipWall, SlipWall
from simjax.integrators.table import INTEGRATORS
from simjax.models.flow.incompressible import Params, State
from simjax.stepping.simulate import simulate

STILL = (NoSlipWall(), NoSlipWall())
SLIP = (SlipWall(), SlipWall())
TAU = 2 * np.pi


def parameters(viscosity=0.0, drag=0.0):
    return Params(jnp.asarray(viscosity), jnp.asarray(drag))


def sampled(model, functions, t=0.0):
    """The state whose components are `functions(t, *x)` on their own faces."""
    shape = model.domain.grid.shape
    velocity = [
        jnp.broadcast_to(fn(t, *model.domain.coordinates(kind.offset)), shape)
        for fn, kind in zip(functions, model.layouts, strict=True)
    ]
    return State(tuple(velocity))


def advance(model, params, state, schedule, *, frames=1, integrator="rk4", observe=None, options=QUICK):
    run = jax.jit(
        lambda p, s: simulate(
            model, INTEGRATORS[integrator], p, s, schedule, frames=frames, observe=observe, checkpoint="none"
        ),
        compiler_options=options,
    )
    trajectory = run(params, state)
    assert int(trajectory.clock.status) == 0
    return trajectory


def random_flow(model, seed=0):
    """White noise made to obey the model's walls and continuity."""
    rng = np.random.default_rng(seed)
    noise = State(tuple(jnp.asarray(rng.normal(size=model.domain.grid.shape)) for _ in model.layouts))
    return jax.jit(model.constrain)(0.0, 0.0, noise, parameters())


def largest(*arrays):
    return max(float(np.abs(a).max()) for a in arrays)


def difference(one, other):
    return largest(*(np.asarray(a) - np.asarray(b) for a, b in zip(one.velocity, other.velocity, strict=True)))


def advected_vortices(viscosity, drift):
    """Taylor-Green vortices carried along by a uniform flow: without the drift, advection only balances pressure."""

    def u(t, x, y):
        decay = jnp.exp(-2 * viscosity * t)
        return drift[0] + jnp.sin(x - drift[0] * t) * jnp.cos(y - drift[1] * t) * decay

    def v(t, x, y):
        decay = jnp.exp(-2 * viscosity * t)
        return drift[1] - jnp.cos(x - drift[0] * t) * jnp.sin(y - drift[1] * t) * decay

    return u, v


class Manufactured:
    """Flow in a box under a lid whose speed depends on time and place, kept going by a body force.

    Stream function psi = S(x) q(y) g(t), S = sin^2(pi x), q = y^2 (y - 1): at rest on three sides, u = S g on the
    fourth. The force also holds the gradient of p = cos(2 x) sin(y), which pressure must cancel.
    """

    viscosity = 0.05

    @staticmethod
    def g(t):
        return 1 + 0.5 * jnp.sin(3 * t)

    @staticmethod
    def s(x):
        """S and its first three derivatives."""
        angle = TAU * x
        return (
            jnp.sin(angle / 2) ** 2,
            np.pi * jnp.sin(angle),
            2 * np.pi**2 * jnp.cos(angle),
            -4 * np.pi**3 * jnp.sin(angle),
        )

    @staticmethod
    def q(y):
        return y**2 * (y - 1), 3 * y**2 - 2 * y, 6 * y - 2, 6.0

    @classmethod
    def u(cls, t, x, y):
        return cls.s(x)[0] * cls.q(y)[1] * cls.g(t)

    @classmethod
    def v(cls, t, x, y):
        return -cls.s(x)[1] * cls.q(y)[0] * cls.g(t)

    @classmethod
    def force_x(cls, t, position, params):
        (s, s1, s2, _), (q, q1, q2, q3), g = cls.s(position[0]), cls.q(position[1]), cls.g(t)
        u, v = s * q1 * g, -s1 * q * g
        growth = s * q1 * 1.5 * jnp.cos(3 * t)
        pressure = -2 * jnp.sin(2 * position[0]) * jnp.sin(position[1])
        return growth + u * s1 * q1 * g + v * s * q2 * g + pressure - params.viscosity * (s2 * q1 + s * q3) * g

    @classmethod
    def force_y(cls, t, position, params):
        (_, s1, s2, s3), (q, q1, q2, _), g = cls.s(position[0]), cls.q(position[1]), cls.g(t)
        u, v = cls.s(position[0])[0] * q1 * g, -s1 * q * g
        growth = -s1 * q * 1.5 * jnp.cos(3 * t)
        pressure = jnp.cos(2 * position[0]) * jnp.cos(position[1])
        return growth - u * s2 * q * g - v * s1 * q1 * g + pressure + params.viscosity * (s3 * q + s1 * q2) * g
