"""Features of flows: which exclude each other, refused by models and configurations in the same words."""

import dataclasses

import jax.numpy as jnp
import pytest

from simjax.config.validate import validate
from simjax.core.boundary import Inflow, NoSlipWall, Outflow, PeriodicSide, SlipWall
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.flow.bodies.solid_scalars import SolidSurface
from simjax.models.flow.bodies.solids import Solid
from simjax.models.flow.boussinesq import Boussinesq
from simjax.models.flow.choices import with_params
from simjax.models.flow.features import EXCLUSIONS, FEATURES, refusals
from simjax.models.flow.incompressible import ImplicitlyViscous, Incompressible, Params
from simjax.models.flow.passive_scalar import PassiveScalar
from simjax.models.flow.sides.openings import OpenSide
from simjax.models.flow.sides.wall_model import WallModel
from simjax.schema.config_errors import raise_first

BALL = {"ball": {"center": [0.5, 0.5], "radius": 0.2}}
STRETCH = {"tanh": {"strength": 1.0}}
PAIRS = {(pair.feature, pair.beside) for pair in EXCLUSIONS.pairs}


def disc(t, x, y):
    return jnp.hypot(x - 0.5, y - 0.5) - 0.2


def physics(**keys):
    return {"physics": keys}


def balance(name):
    return {"outputs": [{"balance": name}]}


WRITTEN = {
    "rings": {"grid": {"axisymmetric": True}, "boundaries": {"x": {"lower": "slip"}}},
    "stretching": {"grid": {"stretch": {"y": STRETCH}}},
    "sought_stretching": {
        "grid": {"stretch": {"y": {"tanh": {"strength": "k"}}}},
        "parameters": {"k": 1.0},
        "inverse": {
            "unknowns": {"parameters.k": {"guess": 1.2}},
            "observations": [{"output": "diagnostics", "of": "kinetic_energy", "deviation": 0.1}],
        },
    },
    "bodies": {"coefficients": {"solid": BALL}},
    "stretched_bodies": {"coefficients": {"solid": BALL}, "grid": {"stretch": {"y": STRETCH}}},
    "ring_bodies": {
        "coefficients": {"solid": BALL},
        "grid": {"axisymmetric": True},
        "boundaries": {"x": {"lower": "slip"}},
    },
    "solid_velocity": {"coefficients": {"solid": BALL, "solid_velocity": ["0", "0"]}},
    "torque_about": {"coefficients": {"solid": BALL}, **physics(torque_about=[0.5, 0.5])},
    "free_body": {"coefficients": {"solid": BALL}, **physics(body={"density": 2.0})},
    "eddy_viscosity": {"coefficients": {"eddy_viscosity": "0.1"}},
    "turbulence": physics(turbulence="wale"),
    "dynamic": physics(turbulence="dynamic_smagorinsky"),
    "no_homogeneous_axis": {"boundaries": {"x": {"lower": "slip"}, "y": {"lower": "slip"}}},
    "rotation": physics(rotation=[1.0]),
    "bulk_velocity": physics(bulk_velocity=[None, None]),
    "implicit": {"time": {"integrator": "ars222"}},
    "other_steps": {"time": {"integrator": "ssprk3"}},
    "advection": physics(advection="upwind5"),
    "fourth_order": physics(advection="central4"),
    "iterative": physics(pressure_solver="multigrid"),
    "tridiagonal": physics(pressure_solver="tridiagonal"),
    "spectral": physics(pressure_solver="spectral"),
    "walls": {"boundaries": {"y": {"lower": "no_slip"}}},
    "opening": {"boundaries": {"y": {"upper": "outflow"}}},
    "opening_across_r": {"boundaries": {"x": {"upper": "outflow"}}},
    "one_pressure": {"boundaries": {"y": {"upper": "open"}}},
    "passage": {"boundaries": {"y": {"lower": {"kind": "inflow", "velocity": [0, 1]}, "upper": "outflow"}}},
    "wall_model": {"boundaries": {"y": {"lower": "wall_model"}}},
    "carried": {"model": "passive_scalar"},
    "flux": {"model": "passive_scalar", **physics(scheme="van_leer")},
    "wide_flux": {"model": "passive_scalar", **physics(scheme="weno5")},
    "scalars": {
        "model": "boussinesq",
        "initial": {"scalars": ["1"]},
        **physics(scalar_diffusivity=[0.1], scalar_expansion=[0.1]),
    },
    "gravity_along_r": {"model": "boussinesq", **physics(gravity=[1.0, 0.0])},
    "balance": balance("momentum_y"),
    "balance_along_r": balance("momentum_x"),
    "balance_of_energy": balance("kinetic_energy"),
    "balance_of_scalar": {"model": "passive_scalar", **balance("concentration")},
}
"""What a configuration has of each feature."""

CONSTRUCTED = {
    "rings": {"grid": {"axisymmetric": True}, "sides": {"x": {0: SlipWall()}}},
    "stretching": {"grid": {"stretch": True}},
    "sought_stretching": {"grid": {"stretch": True}, "lines": True},
    "bodies": {"solid": {}},
    "stretched_bodies": {"solid": {}, "grid": {"stretch": True}},
    "ring_bodies": {"solid": {}, "grid": {"axisymmetric": True}, "sides": {"x": {0: SlipWall()}}},
    "solid_velocity": {"solid": {"velocity": (None, None)}},
    "torque_about": {"solid": {"about": jnp.ones(2)}},
    "free_body": {"solid": {"free": ("x", "y", "turn")}},
    "eddy_viscosity": {"params": {"eddy_viscosity": jnp.ones((8, 8))}},
    "turbulence": {"flow": {"turbulence": "wale"}},
    "dynamic": {"flow": {"turbulence": "dynamic_smagorinsky"}},
    "no_homogeneous_axis": {"sides": {"x": {0: SlipWall()}, "y": {0: SlipWall()}}},
    "rotation": {"params": {"rotation": jnp.ones(1)}},
    "bulk_velocity": {"params": {"bulk_velocity": (None, None)}},
    "implicit": {"class": ImplicitlyViscous},
    "advection": {"flow": {"advection": "upwind5"}},
    "fourth_order": {"flow": {"advection": "central4"}},
    "iterative": {"flow": {"pressure_solver": "multigrid"}},
    "tridiagonal": {"flow": {"pressure_solver": "tridiagonal"}},
    "spectral": {"flow": {"pressure_solver": "spectral"}},
    "walls": {"sides": {"y": {0: NoSlipWall()}}},
    "opening": {"sides": {"y": {1: Outflow()}}},
    "opening_across_r": {"sides": {"x": {1: Outflow()}}},
    "one_pressure": {"sides": {"y": {1: OpenSide()}}},
    "passage": {"sides": {"y": {0: Inflow((0.0, 1.0)), 1: Outflow()}}},
    "wall_model": {"sides": {"y": {0: WallModel()}}},
    "carried": {"class": PassiveScalar},
    "flux": {"class": PassiveScalar, "flow": {"scheme": "van_leer"}},
    "wide_flux": {"class": PassiveScalar, "flow": {"scheme": "weno5"}},
    "scalars": {"class": Boussinesq, "flow": {"scalars": 1}},
    "balance": {"balances": {"momentum_y": 1}},
    "balance_along_r": {"balances": {"momentum_x": 1}},
    "balance_of_energy": {"balances": {"kinetic_energy": 1}},
    "balance_of_scalar": {"class": PassiveScalar, "balances": {"concentration": 1}},
}
"""What a model of Python is made with. It knows neither its integrator nor the numbers of its gravity."""

HAVE = {
    "sought_stretching": {"stretching"},
    "stretched_bodies": {"bodies", "stretching"},
    "ring_bodies": {"bodies", "rings"},
    "solid_velocity": {"bodies"},
    "torque_about": {"bodies"},
    "free_body": {"bodies"},
    "dynamic": {"turbulence"},
    "fourth_order": {"advection"},
    "tridiagonal": {"iterative"},
    "opening": {"walls", "passage"},
    "opening_across_r": {"walls", "passage", "opening"},
    "one_pressure": {"walls", "passage", "opening"},
    "passage": {"walls", "opening"},
    "wall_model": {"walls"},
    "flux": {"carried"},
    "wide_flux": {"carried", "flux"},
    "scalars": {"carried", "flux"},
    "gravity_along_r": {"carried", "flux"},
    "balance_along_r": {"balance"},
    "balance_of_energy": {"balance"},
    "balance_of_scalar": {"carried", "flux"},
    "carried": {"flux"},
}
"""Features that those of the samples have as well."""

APART = [
    {"iterative", "spectral"},
    {"tridiagonal", "spectral"},
    {"implicit", "other_steps"},
    {"one_pressure", "passage"},
    {"opening", "one_pressure"},
    {"wall_model", "passage"},
    *({"implicit", name} for name in FEATURES if name == "carried" or "carried" in HAVE.get(name, ())),
    # A model that carries a temperature has no balance of a concentration.
    *({"balance_of_scalar", name} for name in ("scalars", "gravity_along_r")),
    # Steps and balances belong to runs, and an inverse problem is none.
    *({"sought_stretching", name} for name in FEATURES if name.startswith("balance")),
]
"""Pairs of samples of which one takes the place of the other, or whose model has no such keys."""


def merged(first, second):
    both = {**first, **second}
    for key in first.keys() & second.keys():
        if isinstance(first[key], dict) and isinstance(second[key], dict):
            both[key] = merged(first[key], second[key])
        elif isinstance(first[key], list) and key == "outputs":
            both[key] = [*first[key], *second[key]]
    return both


def in_order(names):
    """A model that carries more takes the place of one that carries less."""
    return sorted(names, key=[*FEATURES].index)


def closure(names):
    found = {*names}
    while more := {one for name in found for one in HAVE.get(name, ())} - found:
        found |= more
    for name, of in (("stretched_bodies", {"bodies", "stretching"}), ("ring_bodies", {"bodies", "rings"})):
        found |= {name} if found >= of else set()
    return found


def excluded(names):
    found = closure(names)
    return {pair for pair in PAIRS if {*pair} <= found}


def configured(names):
    """A configuration with these features, checked."""
    sections = {
        "model": "incompressible",
        "grid": {"shape": [8, 8]},
        "physics": {"viscosity": 0.1},
        "initial": {"velocity": ["0", "0"]},
        "time": {"end": 1.0, "output_every": 1.0},
    }
    for name in in_order(names):
        sections = merged(sections, WRITTEN[name])
    for pair in sections.get("boundaries", {}).values():
        pair.update({end: pair.get(end, "slip") for end in ("lower", "upper")})
    carried = {"passive_scalar": "concentration", "boussinesq": "temperature"}.get(sections["model"])
    if carried:
        sections = merged({"initial": {carried: "0"}}, sections)
    if carried == "temperature":
        sections = merged({"physics": {"gravity": [0.0, 1.0]}}, sections)
    if carried and "solid_velocity" in names:  # where bodies move, a scalar has a value
        sections = merged({"coefficients": {f"solid_{carried}": "1"}}, sections)
    return validate(sections)


def constructed(names):
    """Check a model with these features, and what its parameters and balances ask of it."""
    parts = {"class": Incompressible, "grid": {}, "flow": {}, "sides": {}, "params": {}, "balances": {}}
    for name in in_order(names):
        parts = merged(parts, CONSTRUCTED[name])
    faces = lines("formula", "tanh(s)", 8, 0.0, 1.0) if parts["grid"].pop("stretch", False) else None
    grid = Grid((8, 8), stretch=(None, faces), **parts["grid"])
    given = (None, (jnp.asarray(faces.faces), jnp.asarray(faces.centers))) if parts.get("lines") else (None, None)
    domain = Domain(grid, lines=given)
    free, periodic = {0: SlipWall(), 1: SlipWall()}, {0: PeriodicSide(), 1: PeriodicSide()}
    ends = [{**free, **parts["sides"][axis]} if axis in parts["sides"] else periodic for axis in "xy"]
    flow = dict(parts["flow"])
    if "solid" in parts:
        solid = Solid(disc, **parts["solid"])
        carries = parts["class"] in (PassiveScalar, Boussinesq)
        flow |= {"surface": SolidSurface(solid, 1.0)} if carries else {"solid": solid}
    model = parts["class"](domain, [(pair[0], pair[1]) for pair in ends], **flow)
    choices = dataclasses.replace(model.choices, balances=tuple(parts["balances"]))
    params = Params(jnp.asarray(0.1), jnp.asarray(0.0), **parts["params"])
    raise_first(refusals(with_params(choices, params)))


def sentence_of(call, names):
    with pytest.raises(ConfigurationError) as told:
        call(names)
    return str(told.value)


@pytest.mark.parametrize("pair", EXCLUSIONS.pairs, ids=lambda pair: f"{pair.feature}-{pair.beside}")
def test_what_excludes_each_other_is_refused_with_its_reason(pair):
    names = {pair.feature, pair.beside}
    told = sentence_of(configured, names)
    assert f": expected {FEATURES[pair.beside].without}, {pair.why}, and got " in told, told
    assert pair.instead or FEATURES[pair.feature].instead in told
    if names <= CONSTRUCTED.keys():
        assert sentence_of(constructed, names).removesuffix(".") in told


@pytest.mark.parametrize("first", FEATURES)
def test_all_other_pairs_go_together(first):
    for second in [*FEATURES][[*FEATURES].index(first) :]:
        names = {first, second}
        if names in APART or (first, second) in PAIRS or (second, first) in PAIRS:
            continue
        of_python = names <= CONSTRUCTED.keys()
        if excluded(names):  # by what the samples have besides
            told = sentence_of(configured, names)
            assert not of_python or sentence_of(constructed, names).removesuffix(".") in told, names
        else:
            configured(names)
            if of_python:
                constructed(names)


def test_every_feature_of_the_table_is_known():
    used = {name for pair in PAIRS for name in pair}
    assert used == {*FEATURES} == {*WRITTEN}
    assert all(FEATURES[pair.beside].without for pair in EXCLUSIONS.pairs)
    # A row that is lost would let a pair through. Who makes two features go together takes it out, and counts here.
    assert len(PAIRS) == len(EXCLUSIONS.pairs) == 47


OF_PARAMETERS = {
    "bulk_velocity without an axis": (
        {"bulk_velocity": [1.0]},
        {"bulk_velocity": (jnp.ones(()),)},
        "physics.bulk_velocity: expected one number or null for each of 2 axes, and got 1; write as many",
    ),
    "bulk_velocity along walls": (
        {"bulk_velocity": [None, 1.0]},
        {"bulk_velocity": (None, jnp.ones(()))},
        "physics.bulk_velocity along y: expected a periodic axis, and got boundaries.y.lower = slip; write null for y",
    ),
    "rotation in space": (
        {"rotation": [0.0, 0.0, 1.0]},
        {"rotation": jnp.ones(3)},
        "physics.rotation: expected one number in a plane, about its normal, or three in space, and got 3 on a grid",
    ),
    "a constant alone": (
        {"turbulence_constant": 0.1},
        {"turbulence_constant": jnp.asarray(0.1)},
        "physics.turbulence_constant: expected beside physics.turbulence, one of smagorinsky",
    ),
}


@pytest.mark.parametrize("refused", OF_PARAMETERS)
def test_parameters_are_refused_where_the_tendency_is_formed(refused):
    """Before anything is compiled, as the configuration refuses them."""
    written, given, sentence = OF_PARAMETERS[refused]
    sections = merged(
        {"boundaries": {"y": {"lower": "slip", "upper": "slip"}}, "physics": {"viscosity": 0.1}}, {"physics": written}
    )
    time, initial = {"end": 1.0, "output_every": 1.0}, {"velocity": ["0", "0"]}
    with pytest.raises(ConfigurationError) as told:
        validate({"model": "incompressible", "grid": {"shape": [8, 8]}, "time": time, "initial": initial, **sections})
    assert str(told.value).startswith(sentence)
    domain = Domain(Grid((8, 8)))
    model = Incompressible(domain, [(PeriodicSide(), PeriodicSide()), (SlipWall(), SlipWall())])
    params = Params(jnp.asarray(0.1), jnp.asarray(0.0), **given)
    state = model.state_from({"velocity": (jnp.zeros((8, 8)),) * 2}, params)
    with pytest.raises(ConfigurationError) as said:
        model.rhs(0.0, state, params)
    assert str(said.value) == str(told.value)
