"""Certificates of configured experiments, in Python and on the command line."""

import dataclasses
import os
import subprocess
import sys

import configurations
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paths import ROOT
from small_experiments import FINER

import simjax as sj
import simjax.certificate.__main__ as command_line
from simjax.certificate.certificate import Certificate, Check, Objective
from simjax.certificate.certify import STEPS, certify
from simjax.certificate.prepared_objective import prepared_objective
from simjax.certificate.run_objective import run_objective
from simjax.config import load_config
from simjax.core import neighbors
from simjax.errors import ConfigurationError, ResourceError
from simjax.models.registry import MODELS
from simjax.models.scalar.advection_diffusion import AdvectionDiffusion

NAMES = [name for name, model in configurations.models().items() if not MODELS[model].of_particles]


def coarse(name):
    """Overrides for the smallest grid whose blocks on eight devices are as wide as every scheme's neighbourhood."""
    config = load_config(name)
    if config.inverse is not None:  # these are small, and their sensors are placed on their grids
        return []
    shape = FINER.get(name) or {1: [64], 2: [16, 32], 3: [8, 16, 8]}[len(config.grid.shape)]
    thin = ["physics.layer_cells=2"] if hasattr(config.physics, "layer_cells") else []
    # What eight cells resolve.
    thin += ["physics.forcing_band=[1,2]"] if getattr(config.physics, "forcing_band", None) else []
    return [f"grid.shape={shape}", *thin]


def certified(name, **options):
    return certify(load_config(name, coarse(name)), **options)


def failed(certificate):
    return {check.name for check in certificate.checks if check.passed is not True}


# ---- experiments


def test_an_experiment_passes():
    certificate = certified("dye")
    assert certificate.passed, str(certificate)
    named = {check.name for check in certificate.checks}
    assert named >= {
        "Taylor remainder, 3 numbers, each",
        "one device against 8, x=2 x y=4",
        "every_step against none",
        "every_step against two_level",
        "every_step against Binomial(states=3)",
    }


# Of every family of equations one, but gases, whose scheme burgers has; one of them with every plan. The loss of an
# inverse problem is certified in test_several_experiments.
# `.ci/run` certifies a cavity and gray_scott as they are compiled for users.
OF_EACH_FAMILY = ("burgers", "double_slit", "layered_medium", "turbulence_2d")
WITH_ALL_PLANS = ("gray_scott",)


def each_experiment():
    """All but the one above; with the slow ones, or in `.ci/run`, one of each family of equations but gases."""
    chosen = [(name, pytest.mark.slow if name in OF_EACH_FAMILY else pytest.mark.long) for name in NAMES]
    return [pytest.param(name, marks=mark) for name, mark in chosen if name != "dye"]


@pytest.mark.parametrize("name", each_experiment())
def test_every_experiment_passes(name):
    objective = prepared_objective(load_config(name, coarse(name)), steps=STEPS)
    plans = objective.plans if name in WITH_ALL_PLANS else ("two_level",)
    certificate = certify(dataclasses.replace(objective, plans=plans))
    assert certificate.passed, str(certificate)
    # Only a spectrum along one axis cannot be cut over devices.
    assert any("one device against 8" in check.name for check in certificate.checks) or any(
        "spectrum along one axis" in note for note in certificate.notes
    )
    jax.clear_caches()


@pytest.mark.slow
def test_a_term_without_derivative_is_found(monkeypatch):
    tendency = AdvectionDiffusion.rhs

    def rhs(model, t, state, params):
        return tendency(model, t, state, jax.lax.stop_gradient(params))

    monkeypatch.setattr(AdvectionDiffusion, "rhs", rhs)
    certificate = certified("dye", devices=1)
    assert not certificate.passed and "zero gradient, 4 unknown(s)" in failed(certificate)


@pytest.mark.slow
def test_an_exchange_without_derivative_is_found(monkeypatch):
    permute = neighbors._permute
    monkeypatch.setattr(neighbors, "_permute", lambda *slabs: [jax.lax.stop_gradient(u) for u in permute(*slabs)])
    assert failed(certified("dye")) == {"one device against 8, x=2 x y=4"}


# ---- what is differentiated


@pytest.mark.slow
def test_the_objective_of_an_experiment():
    config = load_config(
        "fluid", ["grid.shape=[16,16]", "ensemble.size=2", "ensemble.vary={physics.drag: {values: [0, 1]}}"]
    )
    objective = run_objective(config, steps=4, devices=1)
    assert objective.meshes == () and objective.untested == {}
    assert objective.notes[0].startswith("4 steps of ")
    assert objective.notes[0].endswith(" on a grid of 16 x 16 in float64 in place of float32 without the ensemble")
    assert {"viscosity", "drag", "thickness", "kick", "initial.velocity"} == set(objective.start)
    assert [u.shape for u in objective.start["initial.velocity"]] == [(16, 16)] * 2
    value = objective.on({}, "every_step")(objective.start)
    assert value.shape == () and float(value) == float(objective.on({}, "every_step")(objective.start))


@pytest.mark.slow
def test_a_shape_moves_by_a_cell():
    config = load_config("cylinder", ["grid.shape=[64,32]"])
    objective = run_objective(config, steps=2, devices=1)
    (start,), x = objective.start["coefficients.solid"], (np.arange(64) + 0.5) / 32

    def ends(name):
        """Where the line through the middle of the cylinder meets its surface, a cell farther on the way."""
        (way,) = objective.across[name]["coefficients.solid"]
        return [crossings(x, (start + share * way)[:, 15]) for share in (0.0, 1.0)]

    assert set(objective.across) == {"along x", "along y", "outward"}
    # Linear between cells of 1/32, of a surface with the radius 0.1: (h/2)^2 / (2 r) = 1e-3 at most.
    for name, moves in {"along x": [1, 1], "outward": [-1, 1]}.items():
        before, after = ends(name)
        np.testing.assert_allclose(after - before, np.asarray(moves) / 32, atol=1.5e-3)


def crossings(x, distance):
    """Places where what is linear between values changes its sign."""
    k = np.flatnonzero(np.sign(distance[1:]) != np.sign(distance[:-1]))
    return x[k] - distance[k] * (x[k + 1] - x[k]) / (distance[k + 1] - distance[k])


def test_devices_that_are_not_there_are_told(monkeypatch):
    config = load_config("dye", coarse("dye"))
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    objective = run_objective(config, steps=2)
    assert objective.meshes == () and list(objective.untested) == ["one device against many"]
    # With the wish for one it is no omission.
    assert run_objective(config, steps=2, devices=1).untested == {}


@pytest.mark.parametrize(
    ("name", "overrides", "devices", "sizes"),
    [
        ("dye", ["grid.shape=[12,32]"], None, {"x": 2, "y": 4}),
        ("dye", ["grid.shape=[15,32]"], None, {"y": 8}),
        ("dye", ["grid.shape=[16,16]"], 4, {"x": 2, "y": 2}),
        ("dye", ["grid.shape=[16,16]", "mesh.x=4"], None, {"x": 4}),
        (
            "dye",
            ["grid.shape=[8,8,8]", "physics.velocity=[1,0,0]", "initial.concentration=x"],
            None,
            {"x": 2, "y": 2, "z": 2},
        ),
        ("dye", ["grid.shape=[15,15]"], None, None),
        ("viscous_burgers", ["grid.shape=[64]"], None, None),
    ],
)
@pytest.mark.slow
def test_meshes_fit_the_grid(name, overrides, devices, sizes):
    objective = run_objective(load_config(name, ["~exact", *overrides]), steps=2, devices=devices)
    assert objective.meshes == (() if sizes is None else (sizes,)) and objective.untested == {}
    if sizes is None:
        assert "on one device only, as nothing else can be run: " in objective.notes[-1]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"steps": 3}, ConfigurationError, "steps=3: expected an even number of at least 2"),
        ({"devices": 9}, ConfigurationError, "devices=9: expected 1 to 8"),
    ],
)
def test_options_are_refused_in_a_sentence(options, error, said):
    with pytest.raises(error, match=said):
        certify(load_config("dye"), **options)


def test_a_mesh_beyond_the_devices_is_refused():
    with pytest.raises(ResourceError, match="16 devices are asked for, 8 are present"):
        certify(load_config("dye", ["mesh.x=16"]))


# ---- what is certified


def test_anything_with_an_objective_is_certified():
    objective = Objective({"u": np.asarray(0.3)}, lambda sizes, plan: lambda x: jnp.sin(x["u"]))
    assert sj.certify(objective).passed

    class Problem:
        def objective(self):
            return objective

    assert str(sj.certify(Problem())) == str(certify(objective))
    with pytest.raises(ConfigurationError, match="certify\\(str\\): expected a Simulation"):
        sj.certify("fluid")


# ---- the command line


def run(capsys, *arguments):
    code = command_line.main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected experiment=NAME, one of airfoil, "),
        (["fluid"], "did you mean experiment=fluid?"),
        (["experiment=flud"], "did you mean experiment=fluid?"),
        (["experiment=dye", "grid.shpe=3"], "did you mean 'grid.shape'?"),
        (["experiment=dye", "--steps", "3"], "steps=3: expected an even number"),
        (["experiment=dye", "--steps", "few"], "--steps: invalid int value: 'few'"),
        (["experiment=dye", "--devices", "0"], "devices=0: expected 1 to 8"),
        (["experiment=dye", "--fast"], "--fast"),
    ],
)
def test_mistakes_are_one_sentence(capsys, arguments, said):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "") and err.startswith("simjax: ") and said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("passed", "code"),
    [(True, 0), (False, 3), (None, 3)],
)
def test_exit_codes(capsys, monkeypatch, passed, code):
    seen = {}

    def give(config, **options):
        seen.update(options, name=config.experiment_name)
        return Certificate((Check("a", "0", "<= 1", passed),))

    monkeypatch.setattr(command_line, "certify", give)
    assert run(capsys, "+experiment=cavity", "--steps", "4", "grid.shape=[8,8]")[0] == code
    assert seen == {"name": "cavity", "steps": 4, "devices": None}


def test_help_imports_little_and_nothing_heavy(tmp_path):
    """Importing is what help takes its time for: 180 modules, a quarter of them Python's own; jax has thousands."""
    code = "import sys, simjax.certificate.__main__ as c; c.main(['--help']); "
    code += "print('jax' in sys.modules, 'numpy' in sys.modules, len(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    *heavy, count = shown.stdout.splitlines()[-1].split()
    assert shown.stdout.startswith("usage: ") and heavy == ["False", "False"] and int(count) < 250


@pytest.mark.slow
def test_the_command_makes_its_devices_and_prints_a_table(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": ""}
    command = [
        sys.executable,
        "-m",
        "simjax.certificate",
        "experiment=kuramoto_sivashinsky",
        "grid.shape=[32]",
        "--steps",
        "2",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert lines[0].startswith("check ") and lines[-1] == "PASSED: all 9 checks, on one device only"
    assert list(tmp_path.iterdir()) == []
