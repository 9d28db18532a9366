"""Refusals of models on grids, by constructors and configurations; those of flows are in `flow/test_features`."""

import jax.numpy as jnp
import pytest

import simjax as sj
from simjax.core.boundary import NoSlipWall, Outflow, PeriodicSide, SlipWall
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.registry import MODELS
from simjax.models.scalar.advection_diffusion import AdvectionDiffusion
from simjax.models.scalar.transport import Params, Transport
from simjax.models.waves.maxwell import Maxwell
from simjax.models.waves.pml import AbsorbingSide
from simjax.ops.gas import GasScheme

RINGS = {"shape": [8, 8], "axisymmetric": True}
DOMAIN = Domain(Grid((8, 8), axisymmetric=True))
CLOSED, OPEN, PERIODIC = (SlipWall(), SlipWall()), (Outflow(), Outflow()), (PeriodicSide(), PeriodicSide())
LEAVING = [CLOSED, (SlipWall(), sj.CharacteristicOutflow(pressure=1.0))]
MUSCL = GasScheme(reconstruction="mc")
PLANE = Domain(Grid((16, 16)))
STRETCHED = Domain(Grid((16, 16), stretch=(lines("formula", "s + 0.1*s*(1 - s)", 16, 0.0, 1.0), None)))
DISC = sj.Solid(lambda t, x, y: jnp.hypot(x - 0.5, y - 0.5) - 0.2)


def gas(**physics):
    return {
        "model": "compressible",
        "physics": {"reconstruction": "mc", **physics},
        "boundaries": {"x": "slip", "y": "slip"},
        "initial": {"density": "1", "velocity": ["0", "0"], "pressure": "1"},
    }


def around(grid=None, **physics):
    """A gas around a disc."""
    bodies = {"coefficients": {"solid": "sqrt((x - 0.5)**2 + (y - 0.5)**2) - 0.2"}}
    return gas(**physics) | bodies | {"grid": grid or {"shape": [16, 16]}}


def leaving(grid, **physics):
    """A gas that leaves along y without reflection."""
    upper = {"kind": "characteristic_outflow", "pressure": "1"}
    return gas(**physics) | {"boundaries": {"x": "slip", "y": {"lower": "slip", "upper": upper}}, "grid": grid}


def scalar(model="transport", time=None, **physics):
    initial, boundaries = {"concentration": "1"}, {"x": "slip", "y": "slip"}
    found = {"model": model, "physics": physics, "boundaries": boundaries, "initial": initial, "time": time or {}}
    return found | ({"coefficients": {"velocity": ["0", "0"], "diffusivity": "1"}} if model == "transport" else {})


def light(sides="conductor", **physics):
    initial = {"electric": ["0", "0"], "magnetic": "0"}
    boundaries = {"x": sides, "y": "conductor"}
    return {"model": "maxwell_te", "physics": physics, "boundaries": boundaries, "initial": initial}


def sound(sides="rigid", **physics):
    initial = {"pressure": "0", "velocity": ["0", "0"]}
    return {"model": "acoustic", "physics": physics, "boundaries": {"x": sides, "y": "rigid"}, "initial": initial}


def of_implicit_diffusion():
    Transport(DOMAIN, [CLOSED, CLOSED]).prepare(Params((jnp.zeros((8, 8)),) * 2, jnp.ones((8, 8))))


def of_viscous_gas():
    model = sj.Compressible(DOMAIN, [CLOSED, CLOSED], MUSCL)
    params = model.Params(jnp.asarray(1.4), jnp.asarray(0.1))
    one = jnp.ones((8, 8))
    model.rhs(0.0, model.State(one, (0 * one, 0 * one), one), params)


def of_light_along_r():
    signals = (jnp.sin,)
    params = Maxwell.Params(jnp.asarray(1.0), jnp.asarray(1.0), None, jnp.zeros((1, 2)), signals)
    Maxwell(DOMAIN, [CLOSED, CLOSED], polarisation="te", along="x").prepare(params)


SOURCES = [{"position": [0.0, 0.5], "signal": "sin(t)"}]
IMPLICIT = {"integrator": "imex_euler"}
REFUSED = {
    ("transport", "wide_flux", "rings"): (
        scalar(scheme="weno5"),
        lambda: Transport(DOMAIN, [CLOSED, CLOSED], "weno5"),
    ),
    ("transport", "implicit", "rings"): (scalar(time=IMPLICIT), of_implicit_diffusion),
    ("transport", "velocity_across", "rings"): (scalar("advection_diffusion", diffusivity=1, velocity=[1, 0]), None),
    ("transport", "sides across r"): (
        {**scalar(), "boundaries": {"x": "periodic", "y": "slip"}},
        lambda: Transport(DOMAIN, [PERIODIC, CLOSED]),
    ),
    ("transport", "lower side"): (
        {**scalar("advection_diffusion", diffusivity=1, velocity=[0, 0]), "boundaries": {"x": "outflow", "y": "slip"}},
        lambda: AdvectionDiffusion(DOMAIN, [OPEN, CLOSED]),
    ),
    ("compressible", "high_order", "rings"): (
        gas(reconstruction="weno5"),
        lambda: sj.Compressible(DOMAIN, [CLOSED, CLOSED], GasScheme(reconstruction="weno5")),
    ),
    ("compressible", "regularised", "rings"): (
        gas(reconstruction="igr"),
        lambda: sj.Compressible(DOMAIN, [CLOSED, CLOSED], GasScheme(reconstruction="igr")),
    ),
    ("compressible", "regularised", "stretching"): (
        gas(reconstruction="igr") | {"grid": {"shape": [16, 16], "stretch": {"x": {"formula": "s + 0.1*s*(1 - s)"}}}},
        lambda: sj.Compressible(STRETCHED, [CLOSED] * 2, GasScheme(reconstruction="igr")),
    ),
    ("compressible", "regularised", "bodies"): (
        around(reconstruction="igr"),
        lambda: sj.Compressible(PLANE, [CLOSED] * 2, GasScheme(reconstruction="igr"), solid=DISC),
    ),
    ("compressible", "gravity_along_r", "rings"): (
        gas(gravity=[1, 0]),
        lambda: sj.Compressible(DOMAIN, [CLOSED, CLOSED], MUSCL, gravity_axes=(0,)),
    ),
    ("compressible", "transport", "rings"): (gas(viscosity=0.1), of_viscous_gas),
    ("compressible", "prandtl", "conductivity"): (gas(prandtl=0.7, conductivity=0.1), None),
    ("compressible", "characteristic", "rings"): (
        leaving(RINGS),
        lambda: sj.Compressible(DOMAIN, LEAVING, MUSCL),
    ),
    ("compressible", "characteristic", "gravity_across"): (
        leaving({"shape": [16, 16]}, gravity=[0, -1]),
        lambda: sj.Compressible(PLANE, LEAVING, MUSCL, gravity_axes=(1,)),
    ),
    ("compressible", "bodies", "rings"): (
        around(RINGS),
        lambda: sj.Compressible(DOMAIN, [CLOSED] * 2, MUSCL, solid=DISC),
    ),
    ("compressible", "gravity", "bodies"): (
        around(gravity=[0, -1]),
        lambda: sj.Compressible(PLANE, [CLOSED] * 2, MUSCL, gravity_axes=(1,), solid=DISC),
    ),
    ("compressible", "limited_faces", "bodies"): (
        around(count_limited=True),
        lambda: sj.Compressible(PLANE, [CLOSED] * 2, MUSCL, count_limited=True, solid=DISC),
    ),
    ("compressible", "several_steps", "bodies"): (
        around() | {"steps_per_exchange": 2},
        lambda: sj.Compressible(Domain(PLANE.grid, steps_per_exchange=2), [CLOSED] * 2, MUSCL, solid=DISC),
    ),
    ("compressible", "lower side"): (
        {**gas(), "boundaries": {"x": "no_slip", "y": "slip"}},
        lambda: sj.Compressible(DOMAIN, [(NoSlipWall(), NoSlipWall()), CLOSED], MUSCL),
    ),
    ("acoustic", "fourth_order", "rings"): (sound(order=4), lambda: sj.Acoustic(DOMAIN, [CLOSED, CLOSED], order=4)),
    ("acoustic", "sources_along_r", "rings"): (light(along="x", sources=SOURCES), of_light_along_r),
    ("acoustic", "sides across r"): (
        sound({"lower": "rigid", "upper": "absorbing"}, layer_cells=4),
        lambda: sj.Acoustic(DOMAIN, [(SlipWall(), AbsorbingSide()), CLOSED], layer_cells=4),
    ),
    ("maxwell_te", "along"): (light(along="z"), lambda: Maxwell(DOMAIN, [CLOSED] * 2, polarisation="te", along="z")),
    ("acoustic", "one end"): (
        sound({"lower": "periodic", "upper": "rigid"}),
        lambda: sj.Acoustic(DOMAIN, [(PeriodicSide(), SlipWall()), CLOSED]),
    ),
    ("kuramoto_sivashinsky", "form"): (
        {"model": "kuramoto_sivashinsky", "grid": {"shape": [8, 8]}, "initial": {"u": "0"}, "time": {"dt": 0.1}},
        lambda: sj.KuramotoSivashinsky(Domain(Grid((8, 8)))),
    ),
    ("vorticity", "axes"): (
        {"model": "vorticity", "grid": {"shape": [8, 8, 8]}, "initial": {"vorticity": "0"}},
        lambda: sj.Vorticity(Domain(Grid((8, 8, 8)))),
    ),
    ("spectral_velocity", "axes"): (
        {"model": "spectral_velocity", "grid": {"shape": [8, 8]}, "initial": {"velocity": ["0", "0"]}},
        lambda: sj.SpectralVelocity(Domain(Grid((8, 8)))),
    ),
    ("incompressible", "axes"): (
        {"model": "incompressible", "grid": {"shape": [8]}, "initial": {"velocity": ["0"]}},
        lambda: sj.Incompressible(Domain(Grid((8,))), [PERIODIC]),
    ),
    ("acoustic", "layers"): (
        sound({"lower": "rigid", "upper": "absorbing"}, layer_cells=8),
        lambda: sj.Acoustic(DOMAIN, [(SlipWall(), AbsorbingSide()), CLOSED], layer_cells=8),
    ),
}
"""A table and a pair of it, or a name -> a configuration that is refused, and a model; None: Python has no such key."""


@pytest.mark.parametrize("refused", REFUSED, ids=" ".join)
def test_models_and_configurations_refuse_with_one_sentence(refused):
    sections, constructed = REFUSED[refused]
    time = {"end": 1.0, "output_every": 1.0, **sections.get("time", {})}
    with pytest.raises(ConfigurationError) as told:
        sj.configure(**{"grid": RINGS, **sections, "time": time})
    if len(refused) == 3:
        table = MODELS[refused[0]].exclusions
        (pair,) = [pair for pair in table.pairs if (pair.feature, pair.beside) == refused[1:]]
        expected = f": expected {table.features[pair.beside].without}, {pair.why}, and got "
        assert expected in str(told.value) and table.features[pair.feature].instead in str(told.value)
    if constructed is not None:
        with pytest.raises(ConfigurationError) as said:
            constructed()
        assert str(said.value).removesuffix(".") in str(told.value)


def test_every_pair_of_these_tables_has_a_case():
    tables = {name: MODELS[name].exclusions for name in ("transport", "compressible", "acoustic")}
    pairs = {(name, pair.feature, pair.beside) for name, table in tables.items() for pair in table.pairs}
    assert pairs == {case for case in REFUSED if len(case) == 3}
