"""`sj.configure` with values of Python: arrays and sides are those of the same configuration in YAML."""

import importlib
import os
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax import run
from simjax.core.boundary import Dirichlet, Neumann
from simjax.errors import ConfigurationError

GRID = sj.Grid((8, 8))
X = (np.arange(8)[:, None] + 0.5) / 8 + 0 * np.arange(8)
WAVE = 1 + np.cos(2 * np.pi * X)


class Dye(sj.PassiveScalar):
    """Dye in a flow."""


class Sound(sj.Acoustic):
    """Sound in a medium of a user's own."""


@pytest.fixture
def settings(tmp_path):
    return {
        "grid": {"shape": GRID.shape},
        "time": {"end": 0.02, "output_every": 0.01, "dt": 0.005},
        "precision": "float64",
        "output": {"root": str(tmp_path), "report": False, "animation": False},
    }


FLOW = {"physics": {"viscosity": np.float64(0.01)}, "boundaries": {"x": "periodic", "y": "slip"}}


@pytest.mark.slow
def test_an_array_is_the_start_that_its_formula_is(settings, tmp_path):
    """Also on two devices, in an ensemble and after a restart, which reads the array from beside the runs."""
    several = {
        "mesh": {"x": 2},
        "ensemble": {"size": 2, "vary": {"physics.diffusivity": {"values": np.array([0, 0.1])}}},
    }
    velocity = jnp.stack([jnp.ones(GRID.shape), jnp.zeros(GRID.shape)])
    given = {"concentration": WAVE, "velocity": velocity}
    first = {**settings, "time": {**settings["time"], "end": 0.01}}
    begun = sj.configure(Dye, initial=given, **first, **FLOW, **several).run()
    arrays = sj.configure(Dye, initial=given, **settings, **FLOW, **several).run(resume=begun.folder)
    written = {"concentration": "1 + cos(2*pi*x)", "velocity": ["1", "0"]}
    formulas = sj.configure(Dye, initial=written, **settings, **FLOW, **several).run()
    for name in ("concentration", "velocity_x"):
        # Rounding: cosines of numpy and of XLA.
        np.testing.assert_allclose(arrays.ds[name], formulas.ds[name], rtol=1e-12, atol=1e-14)
    assert len([*(tmp_path / "arrays").iterdir()]) == 2  # each content once


def test_axes_are_those_of_the_grid_and_coefficients_may_be_arrays(settings):
    sections = {**settings, "grid": {"shape": (8, 6)}}
    speed = 1 + np.arange(48.0).reshape(8, 6) / 100
    sound = sj.configure(Sound, initial={"pressure": "cos(2*pi*x)"}, coefficients={"speed": speed}, **sections)
    seen = sound.differentiable(fields=["coefficients.speed"]).fields["coefficients.speed"]
    np.testing.assert_array_equal(np.squeeze(np.asarray(seen)), speed)


@pytest.mark.parametrize(
    ("model", "sides", "written"),
    [
        (
            Dye,
            (sj.SlipWall(), sj.NoSlipWall((1.0, 0.0))),
            {"lower": "slip", "upper": {"kind": "no_slip", "velocity": [1.0, 0.0]}},
        ),
        (Dye, sj.NoSlipWall(), "no_slip"),
        (Dye, sj.PeriodicSide(), "periodic"),
        (
            sj.Burgers,
            {"lower": sj.ScalarSide(Dirichlet(2.0)), "upper": sj.ScalarSide(Neumann(jnp.asarray(3.0)))},
            {"lower": {"kind": "dirichlet", "value": 2.0}, "upper": {"kind": "neumann", "slope": 3.0}},
        ),
    ],
)
def test_sides_are_those_of_their_kinds(settings, model, sides, written):
    settings |= {"physics": {"viscosity": 0.01}, "initial": {"concentration": WAVE}}
    given = [sj.configure(model, boundaries={"y": side}, **settings).config.boundaries for side in (sides, written)]
    assert given[0] == given[1]


def test_mistakes_are_sentences_before_anything_is_written(settings, tmp_path):
    def refuse(words, model=Dye, **sections):
        with pytest.raises(ConfigurationError, match=words):
            sj.configure(model, **{**settings, **FLOW, "initial": {"concentration": WAVE}, **sections})

    refuse(
        r"initial\.concentration: expected an array of the shape \(8, 8\), as grid\.shape; got \(8, 7\)",
        initial={"concentration": WAVE[:, 1:]},
    )
    refuse(
        r"initial\.velocity: expected .* shape \(2, 8, 8\).*velocity_y; got arrays of the shapes \(8, 8\)",
        initial={"concentration": 1, "velocity": [WAVE]},
    )
    refuse("expected finite real numbers", initial={"concentration": WAVE * np.nan})
    refuse("unknown key; did you mean 'initial.concentration'", initial={"concentraton": WAVE})
    refuse("physics.diffusivity = -1", physics={"viscosity": 0, "diffusivity": -1})
    refuse(
        r"boundaries\.y: a NoSlipWall with functions .* write \{kind: no_slip, \.\.\.\} with formulas of velocity",
        boundaries={"y": sj.NoSlipWall((lambda t, *x: t, 0.0))},
    )
    refuse(
        r"boundaries\.y\.upper: a side of the class ScalarSide cannot .* one of periodic, outflow, no_slip, slip,",
        boundaries={"y": ("slip", sj.ScalarSide(Dirichlet(1.0)))},
    )
    refuse(r"boundaries\.y\.upper\.velocty: unknown key", boundaries={"y": ("slip", {"kind": "no_slip", "velocty": 1})})
    refuse("expected a class of models, 3 is none", model=3)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_run_of_python_goes_on_from_the_command_line(tmp_path, monkeypatch):
    """With its arrays, of a model of simjax and of one in a file of the user's."""
    (tmp_path / "my_dye.py").write_text("import simjax as sj\n\n\nclass Mine(sj.PassiveScalar):\n    '''Dye.'''\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for model in (sj.PassiveScalar, importlib.import_module("my_dye").Mine):
        begun = sj.configure(
            model,
            grid={"shape": GRID.shape},
            time={"end": 0.01, "output_every": 0.01, "dt": 0.005},
            initial={"concentration": WAVE},
            output={"folder": model.__name__, "report": False, "animation": False},
            **FLOW,
        ).run()
        assert run.main([f"resume={os.path.relpath(begun.folder)}", "time.end=0.02"]) == 0
        assert sj.open_run(begun.folder).sizes["time"] == 3
    sys.modules.pop("my_dye")
