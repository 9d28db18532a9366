"""Public names of `import simjax as sj`: every model with its parameters and state, checked as on the command line."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configurations import models, shipped
from paths import ROOT

import simjax as sj
from simjax.config import load_config
from simjax.core.domain import Domain
from simjax.driver.start.build import build_model, find_files, initial_fields_and_state
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.registry import MODELS
from simjax.schema.numbers import number_values

PARTICLES = {
    "molecular_dynamics": "MolecularDynamics",
    "gravity": "Gravity",
    "electrostatic_pic": "ElectrostaticPlasma",
    "electromagnetic_pic": "ElectromagneticPlasma",
    "sph": "WeaklyCompressibleSPH",
}
# Models without an experiment of their own, by one that has all they need.
OTHERS = {
    "acoustic": ["initial={pressure: x}", "time.dt=0.1"],
    "maxwell_te": ["grid.shape=[8,8]", "initial={}", "time.dt=0.1"],
    "maxwell": ["grid.shape=[8,8,8]", "initial={}", "time.dt=0.1"],
}


SHIPPED = {model: name for name, model in models().items() if not MODELS[model].of_particles}
OURS = [name for name, schema in MODELS.items() if schema.physics.__module__.startswith("simjax.")]


@pytest.mark.parametrize("name", [*SHIPPED, *(name for name in OURS if name not in {*SHIPPED, *PARTICLES})])
def test_every_registered_model_is_public_with_its_parameters_and_state(name):
    config = shipped(SHIPPED[name]) if name in SHIPPED else load_config(None, [f"model={name}", *OTHERS.get(name, [])])
    grid, dtype, described = config.grid_of_fields(), jnp.dtype(config.precision), []
    grid = Grid(grid.shape, grid.lower, grid.upper)

    def describe(files):
        values = {name: jnp.zeros((), dtype) for name in {**number_values(config.physics), **config.parameters}}
        model, params = build_model(config, Domain(grid), values, files)
        described.append(
            (model, params, initial_fields_and_state(config, model, params, values, 0, files["initial"], dtype)[1])
        )
        return 0

    whole = jax.ShapeDtypeStruct(grid.shape, dtype)
    jax.eval_shape(describe, jax.tree.map(lambda _: whole, find_files(config, grid)[0]))
    model, params, state = described[0]
    # Under a closure the model is inside.
    kind, params = (type(model.model), params.own) if hasattr(model, "rest") else (type(model), params)
    (name,) = (name for name in dir(sj) if not name.startswith("_") and getattr(sj, name) is kind)
    public = getattr(sj, name)
    assert isinstance(params, public.Params) and isinstance(state, public.State)


@pytest.mark.parametrize("name", PARTICLES)
def test_models_of_particles_are_public_with_their_parameters_and_state(name):
    public = getattr(sj, PARTICLES[name])
    assert public.Params.__name__ == "Params" and public.State.__module__.startswith("simjax.")


def test_editors_see_the_names_that_are_loaded_on_first_use():
    """Each name is there once, imported as itself, without which it is private to type checkers; nothing else shows."""
    folder = Path(sj.__file__).parent
    imports = [node for node in ast.walk(ast.parse((folder / "__init__.pyi").read_text())) if hasattr(node, "names")]
    names = [(alias.name, alias.asname) for node in imports for alias in node.names]
    assert names == [(name, name) for name in sj.__all__]
    assert {name for name in dir(sj) if not name.startswith("__")} == {*sj.__all__}
    assert (folder / "py.typed").is_file()


def test_the_version_is_that_of_the_package_and_of_citations():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert sj.__version__ == project["version"] == cited


def test_names_are_loaded_when_they_are_used():
    program = "import simjax, sys; dir(simjax); assert 'jax' not in sys.modules; simjax.key, simjax.ConfigurationError"
    subprocess.run([sys.executable, "-c", program + "; assert 'jax' not in sys.modules"], check=True)


def test_help_says_something():
    """Every public class and function has a docstring of its own, not that of a base or of a dataclass's signature."""

    def says(value):
        text = vars(value).get("__doc__") if isinstance(value, type) else inspect.getdoc(value)
        return text and not text.startswith(f"{value.__name__}(") and len(text.split()) >= 3

    names = [name for name in sj.__all__ if name != "INTEGRATORS"]
    assert [name for name in names if not says(getattr(sj, name))] == []


def test_an_adapter_needs_one_import():
    """A channel written with public names alone, advanced to its parabola."""
    grid = sj.Grid((4, 16), (0.0, 0.0), (1.0, 1.0))
    walls = [(sj.PeriodicSide(), sj.PeriodicSide()), (sj.NoSlipWall(), sj.NoSlipWall())]
    push = (lambda t, x, params: jnp.ones(()), None)
    model = sj.Incompressible(sj.Domain(grid), walls, push)
    params = model.Params(jnp.asarray(1.0), jnp.asarray(0.0))
    state = model.State((jnp.zeros(grid.shape), jnp.zeros(grid.shape)))
    schedule = sj.Schedule(interval=1.0, dt=1e-3)
    end = sj.simulate(model, sj.INTEGRATORS["rk4"], params, state, schedule, frames=1).state
    y = grid.coordinates(1, 0.5)
    # The scheme is exact for a parabola; what is left of the start decays as exp(-pi^2 t), and the wall is half a cell
    # from the first value: h^2 / 8.
    np.testing.assert_allclose(sj.velocity_at_centers(model, end.velocity)[0][0], y * (1 - y) / 2, atol=2e-4 + 1 / 2048)


# ---- velocities at centres and on faces

SIDES = {
    "periodic": [(sj.PeriodicSide(), sj.PeriodicSide())] * 2,
    "walls": [(sj.NoSlipWall(), sj.SlipWall())] * 2,
    "channel": [(sj.PeriodicSide(), sj.PeriodicSide()), (sj.NoSlipWall(), sj.NoSlipWall((1.0, 0.0)))],
}
FLOWS = {
    "periodic": (lambda x, y: jnp.sin(2 * jnp.pi * x + y * 0), lambda x, y: jnp.cos(2 * jnp.pi * (x + y))),
    "walls": (
        lambda x, y: jnp.sin(jnp.pi * x) * jnp.sin(jnp.pi * y / 2),
        lambda x, y: jnp.sin(jnp.pi * y) * jnp.sin(jnp.pi * x / 2),
    ),
    "channel": (
        lambda x, y: y + jnp.sin(jnp.pi * y) * jnp.sin(2 * jnp.pi * x),
        lambda x, y: jnp.sin(jnp.pi * y) * jnp.cos(2 * jnp.pi * x),
    ),
}


@pytest.mark.parametrize("name", ["walls", pytest.param("periodic", marks=pytest.mark.slow)])
def test_collocation_is_of_second_order_both_ways(name):
    errors = []
    for n in (16, 32):
        grid = sj.Grid((n, n), (0.0, 0.0), (1.0, 1.0))
        model = sj.Incompressible(sj.Domain(grid), SIDES[name])

        def at(*offsets, flow=FLOWS[name], model=model):
            places = [model.domain.coordinates(o, jnp.dtype("f8")) for o in offsets]
            return tuple(jnp.broadcast_to(u(*x), model.domain.grid.shape) for u, x in zip(flow, places, strict=True))

        faces, centers = at((0.0, 0.5), (0.5, 0.0)), at((0.5, 0.5), (0.5, 0.5))
        to_centers, to_faces = sj.velocity_at_centers(model, faces), sj.velocity_on_faces(model, centers)
        errors.append(
            [
                max(float(jnp.abs(a - b).max()) for a, b in zip(found, exact, strict=True))
                for found, exact in ((to_centers, centers), (to_faces, faces))
            ]
        )
    # Half the spacing, a quarter of the error; the largest error is at places that move with the grid.
    ratio = np.divide(*errors)
    assert np.all(ratio > 3.5), ratio


def test_collocation_on_blocks_is_that_of_the_whole():
    grid = sj.Grid((8, 8), (0.0, 0.0), (1.0, 1.0))
    whole = sj.Incompressible(sj.Domain(grid), SIDES["walls"])
    mesh = sj.make_mesh({"x": 2, "y": 2})
    cut = sj.Incompressible(sj.decompose(grid, mesh), SIDES["walls"])
    u = tuple(np.random.default_rng(1).normal(size=(2, 8, 8)))
    spec = (cut.domain.spec(),) * 2
    for function in (sj.velocity_at_centers, sj.velocity_on_faces):
        program = sj.distribute(lambda u, f=function: f(cut, u), mesh, in_specs=(spec,), out_specs=spec)
        for a, b in zip(program(u), function(whole, u), strict=True):
            np.testing.assert_array_equal(a, b)


def test_models_without_velocities_on_faces_are_refused():
    grid = sj.Grid((8, 8), (0.0, 0.0), (1.0, 1.0))
    dye = sj.AdvectionDiffusion(sj.Domain(grid), SIDES["periodic"])
    with pytest.raises(ConfigurationError, match="no velocity on the faces"):
        sj.velocity_at_centers(dye, (jnp.zeros((8, 8)),) * 2)
    flow = sj.Incompressible(sj.Domain(grid), SIDES["periodic"])
    with pytest.raises(ConfigurationError, match="2 components"):
        sj.velocity_on_faces(flow, (jnp.zeros((8, 8)),))


# ---- constructors

ON_GRID = {
    name: kind
    for name in dir(sj)
    if isinstance(kind := getattr(sj, name), type)
    and issubclass(kind, sj.Model)
    and hasattr(kind, "outputs")
    and name not in ("Model", "ExplicitModel", "CenteredModel", "SpectralModel", "Maxwell")
}


# Axes and options where they are not two and none.
MAKING = {
    "SpectralVelocity": (3, {}),
    "KuramotoSivashinsky": (2, {"integral": True}),
    "Maxwell": (2, {"polarisation": "tm"}),
}


@pytest.mark.parametrize("name", [*ON_GRID, "Maxwell"])
def test_sides_are_checked_when_a_model_is_made(name):
    ndim, options = MAKING.get(name, (2, {}))
    domain = sj.Domain(sj.Grid((8,) * ndim, (0.0,) * ndim, (1.0,) * ndim))

    def make(sides):
        return getattr(sj, name)(domain, sides, **options)

    periodic = (sj.PeriodicSide(), sj.PeriodicSide())
    make([periodic] * ndim)
    with pytest.raises(ConfigurationError, match=r"got \w+ and periodic; write .*PeriodicSide\(\) at both"):
        make([*[periodic] * (ndim - 1), (sj.SlipWall(), sj.PeriodicSide())])
    for number in (ndim - 1, ndim + 1):
        with pytest.raises(ConfigurationError, match=rf"expected {ndim} pair\(s\) of sides.*got {number}"):
            make([periodic] * number)
    with pytest.raises(ConfigurationError, match="expected a pair of sides"):
        make([*[periodic] * (ndim - 1), sj.SlipWall()])


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("Incompressible", sj.GasOutflow()),
        ("Incompressible", sj.ScalarSide(sj.Neumann())),
        ("PassiveScalar", sj.GasOutflow()),
        ("AdvectionDiffusion", sj.GasInflow(1.0, 1.0)),
        ("Burgers", sj.AbsorbingSide()),
        ("Transport", sj.FreeSurface()),
        ("Compressible", sj.ScalarSide(sj.Neumann())),
        ("Acoustic", sj.NoSlipWall()),
        ("Vorticity", sj.SlipWall()),
    ],
)
def test_sides_that_a_model_cannot_take_are_refused(name, side):
    domain = sj.Domain(sj.Grid((8, 8), (0.0, 0.0), (1.0, 1.0)))
    with pytest.raises(ConfigurationError, match="boundaries.y"):
        getattr(sj, name)(domain, [(sj.PeriodicSide(), sj.PeriodicSide()), (side, side)])


def test_a_wall_has_one_velocity_per_axis():
    domain = sj.Domain(sj.Grid((8, 8), (0.0, 0.0), (1.0, 1.0)))
    for name in ("Incompressible", "Compressible"):
        with pytest.raises(ConfigurationError, match=r"velocity of 1 value"):
            getattr(sj, name)(domain, [(sj.NoSlipWall((1.0,)), sj.NoSlipWall())] * 2)


@pytest.mark.parametrize(
    ("name", "numbers", "wrong"),
    [
        ("Incompressible", (0.1, 0.0), (-0.1, 0.0)),
        ("Incompressible", (0.0, 0.0), (0.1, -1.0)),
        ("PassiveScalar", (0.1, 0.0, 0.1), (0.1, 0.0, -0.1)),
        ("AdvectionDiffusion", (0.1, (1.0,)), (-0.1, (1.0,))),
        ("Burgers", (0.0,), (np.nan,)),
        ("Compressible", (1.4,), (1.0,)),
        ("Compressible", (1.4, 0.1), (1.4, -0.1)),
        ("Vorticity", (0.1, 0.0), (-0.1, 0.0)),
        ("Acoustic", (1.0, 1.0), (1.0, 0.0)),
        ("Acoustic", (1.0, 1.0), (-1.0, 1.0)),
        ("Maxwell", (1.0, 1.0), (0.0, 1.0)),
        ("Maxwell", (1.0, 1.0, 0.0), (1.0, 1.0, -0.1)),
        ("Transport", ((), 0.0), ((), -0.1)),
        ("MolecularDynamics", ((), np.ones(2)), ((), np.array([1.0, 0.0]))),
        ("WeaklyCompressibleSPH", (1.0, 10.0, 0.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
        ("WeaklyCompressibleSPH", (1.0, 10.0, 0.0, 0.0, 0.0, 0.0), (1.0, 10.0, 0.0, 0.0, 0.0, -0.1)),
        ("Gravity", (1.0, 0.0), (1.0, -0.1)),
        ("ElectrostaticPlasma", (-1.0, 1.0, 1.0), (-1.0, 0.0, 1.0)),
    ],
)
def test_numbers_are_checked_where_they_are_known(name, numbers, wrong):
    params = getattr(sj, name).Params
    params(*numbers)
    with pytest.raises(ConfigurationError, match="expected a finite number"):
        params(*wrong)
    # Inside a traced function nothing is known, and nothing is refused.
    jax.eval_shape(lambda *given: params(*given), *wrong)


@pytest.mark.parametrize(
    ("name", "key", "wrong"),
    [
        ("Transport", "scheme", "weno7"),
        ("PassiveScalar", "scheme", "weno7"),
        ("Acoustic", "order", 3),
        ("AdvectionDiffusion", "scheme", "weno5"),
        ("Maxwell", "order", 6),
    ],
)
def test_choices_are_checked_by_constructors(name, key, wrong):
    domain = sj.Domain(sj.Grid((16, 16), (0.0, 0.0), (1.0, 1.0)))
    with pytest.raises(ConfigurationError, match=rf"{name}.{key}={wrong!r}: expected one of "):
        getattr(sj, name)(domain, [(sj.PeriodicSide(), sj.PeriodicSide())] * 2, **{key: wrong})


@pytest.mark.parametrize("key", ["reconstruction", "flux"])  # the tests' type checker refuses other variables itself
def test_choices_of_a_scheme_for_gases_are_checked(key):
    with pytest.raises(ConfigurationError, match=rf"GasScheme.{key}='none': expected one of "):
        sj.GasScheme(**{key: "none"})
