"""Small problems of every model that takes a closure, with one: cases of the other files, and models they leave out."""

import dataclasses

import cases
import cases_flow
import cases_transport
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from case import Case

from simjax.core.boundary import Inflow, NoSlipWall
from simjax.grid import Grid
from simjax.models.closure import Closed, Closure, with_closure
from simjax.models.flow import incompressible, passive_scalar
from simjax.models.registry import MODELS as SCHEMAS
from simjax.ops.difference import shift
from simjax.stepping.simulate import Schedule


class Exchange(eqx.Module):
    """A closure in which each field gets terms from the next one, here and one cell further, by place and time."""

    strength: jax.Array
    width: int = eqx.field(static=True, default=1)

    def __call__(self, *fields, x=None, t=0.0):
        ndim = fields[0].ndim
        x = fields[-1] if x is None else x
        here = [shift(u, ndim, width=self.width) for u in fields]
        ahead = [sum(shift(u, ndim, axis, self.width, self.width) for axis in range(ndim)) / ndim for u in fields]
        wave = jnp.cos(shift(x, ndim, -1 % ndim, -self.width, self.width) + t)
        others = zip(here, here[1:] + here[:1], ahead, strict=True)
        return tuple(self.strength * (wave * other + 0.3 * far - 0.2 * own) for own, other, far in others)


def closed(case: Case, width: int = 1, coordinates: tuple[str, ...] = ("x", "t")) -> Case:
    """The case with a closure of all fields, that reads `width` cells around each."""
    weights, rest = eqx.partition(
        Closure(Exchange(jnp.asarray(0.2), width), width=width, coordinates=coordinates), eqx.is_inexact_array
    )
    return dataclasses.replace(
        case,
        name=case.name if width else f"{case.name}-pointwise",
        build=lambda domain: with_closure(case.build(domain), None, eqx.combine(weights, rest))[0],
        params=lambda: Closed(case.params(), weights),
        initial=lambda model, params: case.initial(model.model, params.own),
        weighed=lambda model, t, state, params: case.weighed(model.model, t, state, params.own),
    )


def _through(t, *x):
    """A velocity through a side that depends on time and place, as much at both ends of an axis."""
    return (0.4 + 0.2 * jnp.sin(3 * t)) * (1 + 0.3 * jnp.cos(0.9 * x[1]))


_plane = Grid((16, 24), (0.0, -1.0), (2 * np.pi, 3.0))
_open = [(Inflow((_through, 0.1)), Inflow((_through, 0.2))), (NoSlipWall(), NoSlipWall((0.3, 0.0)))]
_NEW = (
    Case(
        "flow-2d-inflow",
        _plane,
        lambda domain: incompressible.Incompressible(domain, _open),
        lambda: incompressible.Params(jnp.asarray(0.05), jnp.asarray(0.1)),
        cases_flow.swirl,
        "euler",
        Schedule(0.05, dt=0.03),
        checkpoint="none",
        frames=1,
    ),
    Case(
        "passive-scalar-2d-inflow",
        _plane,
        lambda domain: passive_scalar.PassiveScalar(domain, _open),
        lambda: passive_scalar.Params(jnp.asarray(0.05), jnp.asarray(0.1), jnp.asarray(0.03)),
        cases_transport.mixed,
        "euler",
        Schedule(0.05, dt=0.03),
        checkpoint="none",
        frames=1,
    ),
)
KNOWN = {case.name: case for case in (*cases.CASES, *_NEW)}

MODELS = {
    "advection_diffusion": ("advection-1d", "advection-2d-walls", "advection-3d-walls"),
    "incompressible": ("flow-2d-periodic", "flow-2d-walls", "flow-2d-inflow", "flow-3d-walls"),
    "passive_scalar": ("passive-scalar-2d-walls", "passive-scalar-2d-inflow"),
    "boussinesq": ("boussinesq-2d-walls",),
    "compressible": ("gas-1d-weno", "gas-2d-walls"),
    "vorticity": ("spectral-vorticity-2d",),
    "spectral_velocity": ("spectral-velocity-3d",),
    "korteweg_de_vries": ("semilinear-kdv-1d",),
    "gray_scott": ("semilinear-gray-scott-2d",),
    "schroedinger": ("semilinear-schroedinger-2d",),
    "transport": ("transport-1d-walls", "transport-2d-implicit", "transport-3d-implicit"),
    "burgers": ("burgers-1d-weno5",),
    **{name: (case.name,) for name, case in cases.DECLARED.items() if SCHEMAS[name].modules},
}
"""Names of the cases of every model that takes a closure."""

POINTWISE = ("advection-2d-walls", "flow-2d-walls", "gas-1d-weno")
CASES = (
    *(closed(KNOWN[name]) for names in MODELS.values() for name in names),
    *(closed(KNOWN[name], width=0) for name in POINTWISE),
)
