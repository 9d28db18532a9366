"""A user's own model, named by module and class in a configuration: found, run, resumed, refused in sentences."""

import dataclasses
import os
import re
import shlex
import subprocess
import sys

import equinox as eqx
import jax
import numpy as np
import pytest
from paths import ROOT

import simjax as sj
from simjax import run
from simjax.config import load_config
from simjax.core.domain import Domain
from simjax.driver.start.build import describe_model
from simjax.errors import ConfigurationError
from simjax.models.registry import MODELS
from simjax.report.scalars import scalars

PAGE = (ROOT / "docs" / "own-models.md").read_text()
FISHER, BUOYANT, MEASURED, WATCHED, GROWING, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(
    r"^python -m simjax.*my_pde.*$", PAGE + (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
)
OTHERS = """

class Growth(sj.CenteredModel):
    fields = ("u",)
    parameters = {"k": 1.0}

    def rhs(self, t, state, params):
        return {"u": params["k"] * state["u"]}

    def stable_dt(self, state, params):
        return 1 / params["k"]


number = 1
"""
SETTINGS = [
    "grid.shape=[8,8]",
    "time.end=1",
    "time.output_every=0.5",
    "time.dt=0.05",
    "initial={u: '0.1 + 0.1*x'}",
    "precision=float64",
    "physics.diffusivity=0",
    "physics.growth=2",
    "output.report=false",
    "output.animation=false",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a user's file."""
    (tmp_path / "my_pde.py").write_text(FISHER + OTHERS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("my_pde", None)
    for name in [name for name in MODELS if "." in name]:
        MODELS._schemas.pop(name)


@pytest.mark.slow
def test_the_command_line_runs_a_model_from_a_file(folder, capfd):
    several = ["mesh.x=2", "mesh.y=2", "ensemble.vary.physics.growth={values: [1.0, 2.0]}", "ensemble.size=2"]
    assert run.main(["model=my_pde.FisherKPP", *SETTINGS, *several, "output.root=.", "output.folder=here"]) == 0
    result = sj.open_run(folder / "here")
    u, rate = result.u, result["growth"]
    start = u.isel(time=0)
    exact = start / (start + (1 - start) * np.exp(-rate))  # the logistic equation in each cell
    # Kutta's third order at dt = 0.05 and r = 2: (0.1)^4 / 24 per step, twenty steps, bounded solutions.
    np.testing.assert_allclose(u.isel(time=-1), exact.transpose(*u.isel(time=-1).dims), rtol=1e-4)
    assert u.attrs["units"] == "m-2" and rate.attrs["units"] == "s-1"
    # Goes on from its folder, and knows its model there.
    assert run.main([f"resume={folder / 'here'}", "time.end=1.5"]) == 0
    assert float(sj.open_run(folder / "here").time[-1]) == 1.5


# Each line starts Python and compiles: runs on two devices in an ensemble, certificates.
@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_of_the_documentation_run(line, folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    environment.pop("XLA_FLAGS", None)
    command = [sys.executable, *shlex.split(line)[1:]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    if "certificate" in line:
        assert "one device against 2" in done.stdout and "PASSED" in done.stdout
    elif "--help" not in line:
        run_folder = next((folder / "outputs").glob("*/*"))
        members = int(re.search(r"ensemble.size=(\d)", line)[1])
        assert sj.open_run(run_folder).sizes["member"] == members


@pytest.mark.slow
def test_its_numbers_are_written_shown_and_reported(folder, capfd):
    """A scalar and a vector of a user's own, with units and a long name, on two devices."""
    (folder / "my_pde.py").write_text("import jax.numpy as jnp\n" + FISHER + MEASURED)
    shown = [s for s in SETTINGS if "report" not in s and "growth" not in s]
    assert (
        run.main(["model=my_pde.Measured", *shown, "physics.growth=0", "mesh.x=2", "output.root=.", "output.folder=m"])
        == 0
    )
    assert "population 0.15" in capfd.readouterr().out
    result = sj.open_run(folder / "m")
    assert result["population"].attrs == {"units": "1", "long_name": "population"}
    assert result["centre_x"].attrs == {"units": "m", "long_name": "centre of mass, x"}
    # At eight midpoints the mean of u = 0.1 + 0.1 x is 0.15, that of u x is 0.05 + 0.1 (1/3 - h^2/12).
    np.testing.assert_allclose(result["population"], 0.15, rtol=1e-12)
    np.testing.assert_allclose(result["centre_x"], (0.05 + 0.1 * (1 / 3 - 1 / 64 / 12)) / 0.15, rtol=1e-12)
    np.testing.assert_allclose(result["centre_y"], 0.5, rtol=1e-12)
    assert "Centre of mass, x [m]" in (folder / "m" / "report.html").read_text()


@pytest.mark.slow
def test_its_troubles_are_counted_and_placed(folder, capfd):
    """Of eight cells across, one is below zero by more than its threshold and one by less."""
    (folder / "my_pde.py").write_text("import jax.numpy as jnp\n" + FISHER + WATCHED)
    settings = [s for s in SETTINGS if "growth" not in s and "initial" not in s]
    asked = ["output.troubles=[negative]", "initial={u: 'where(x<0.125, -0.5, where(x<0.25, -1e-7, 1))'}"]
    given = ["model=my_pde.Watched", *settings, *asked, "physics.growth=0", "output.root=.", "output.folder=w"]
    assert run.main(given) == 0
    with sj.open_run(folder / "w") as result:
        assert (float(result.negative_cells[0]), float(result.negative_worst[0])) == (8, 0.5)
        assert (float(result.negative_x[0]), float(result.negative_y[0])) == (0.0625, 0.0625)
    assert "8 cells with a negative population (largest negative population 0.5 m-2 at" in capfd.readouterr().out


def test_its_fields_are_written_and_drawn_as_it_says(folder):
    (folder / "my_pde.py").write_text(FISHER + GROWING)
    settings = [s for s in SETTINGS if "growth" not in s]
    assert run.main(["model=my_pde.Growing", *settings, "physics.growth=2", "output.root=.", "output.folder=g"]) == 0
    with sj.open_run(folder / "g") as result:
        u, rate = result["u"], result["rate"]
        assert (rate.attrs["palette"], rate.attrs["rank"]) == ("diverging", 0)
        assert [one.name for one in scalars(result)] == ["rate", "u"]
        assert float(abs(rate).max()) > 0.1  # it grows
        # Rounding of three operations in double precision.
        np.testing.assert_allclose(rate, 2 * u * (1 - u), rtol=1e-12)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (
            "{'u': state['u']}",
            r"Growth\.diagnostics: u has the shape \(8, 8\); expected a scalar, or a vector of shape",
        ),
        ("state['u']", r"Growth\.diagnostics: expected a dict of numbers by name"),
        ("{'k': params['q']}", r"Growth\.diagnostics, line \d+ of .*my_pde\.py: there is no key 'q'"),
    ],
)
def test_wrong_numbers_are_sentences(folder, capsys, numbers, words):
    own = f"    def diagnostics(self, t, state, params):\n        return {numbers}\n"
    (folder / "my_pde.py").write_text(FISHER + OTHERS.replace("\nnumber", own + "\nnumber"))
    settings = [s for s in SETTINGS if not s.startswith("physics")]
    assert run.main(["model=my_pde.Growth", *settings, "output.root=out"]) == 2
    assert re.search(words, capsys.readouterr().err)


def test_its_keys_are_checked_and_listed(folder, capsys):
    assert run.main(["model=my_pde.FisherKPP", "physics.grwth=1"]) == 2
    assert "physics.grwth: unknown key; did you mean 'physics.growth'?" in capsys.readouterr().err
    assert run.main(["model=my_pde.FisherKPP", "physics.growth=-1"]) == 2
    assert "physics.growth = -1: expected a finite number >= 0" in capsys.readouterr().err
    assert run.main(["--help", "model=my_pde.FisherKPP"]) == 0
    listed = capsys.readouterr().out
    assert "Fisher-KPP: du/dt = D lap(u) + r u (1 - u)" in listed and "growth [s-1]: growth rate r" in listed


def test_a_mistake_in_its_equation_is_a_sentence_before_anything_is_written(folder, capsys):
    (folder / "my_pde.py").write_text(FISHER.replace('params["growth"]', 'params["grwth"]'))
    assert run.main(["model=my_pde.FisherKPP", *SETTINGS, "output.root=out"]) == 2
    assert re.search(r"FisherKPP\.\w+, line \d+ of .*my_pde\.py: there is no key 'grwth'", capsys.readouterr().err)
    assert not (folder / "out").exists()


def test_a_model_without_a_declaration_has_its_parameters_as_keys(folder):
    config = load_config(None, ["model=my_pde.Growth", "physics.k=3"])
    assert config.physics.k == 3 and [field.name for field in config.schema.fields] == ["u"]


def test_a_file_beside_the_experiment_is_found(folder, tmp_path_factory):
    own = tmp_path_factory.mktemp("conf") / "experiment"
    own.mkdir()
    (own / "beside_pde.py").write_text(FISHER + OTHERS)
    text = "# @package _global_\n# Mine\nmodel: beside_pde.FisherKPP\ngrid: {shape: [8]}\ntime: {end: 1, dt: 0.1}\n"
    (own / "mine.yaml").write_text(text)
    try:
        assert load_config("mine", config_dir=own.parent).schema.name == "beside_pde.FisherKPP"
    finally:
        sys.modules.pop("beside_pde", None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_pde.Fisher", r"my_pde\.py has no class Fisher; did you mean my_pde\.FisherKPP\?"),
        ("my_pd.FisherKPP", r"no module my_pd; expected my_pd\.py in one of .*, or an installed package"),
        ("my_pde.number", r"expected a class of models, 1 is none"),
        ("a." + 400 * "b", r"expected MODULE\.CLASS"),
        ("my pde.FisherKPP", r"expected MODULE\.CLASS, such as my_pde\.FisherKPP"),
        ("broken.A", r"line 2 of .*broken\.py: ZeroDivisionError: division by zero\."),
        ("unclosed.A", r"line 1 of .*unclosed\.py: '\(' was never closed\."),
        ("lacking.A", r"line 1 of .*lacking\.py: ModuleNotFoundError: No module named 'not_there'\."),
        ("json.JSONDecoder", r"expected a class of models"),
    ],
)
def test_mistakes_are_sentences(folder, name, words):
    (folder / "broken.py").write_text("x = 1\ny = x / 0\n")
    (folder / "unclosed.py").write_text("x = (\n")
    (folder / "lacking.py").write_text("import not_there\n")
    with pytest.raises(ConfigurationError, match=words):
        load_config(None, [f"model={name}"])
    assert "broken" not in sys.modules


@pytest.mark.slow
def test_a_model_derived_from_one_of_simjax_has_its_fields_and_sides(tmp_path):
    """Fluid of one weight in a closed box stays at rest; a light half of it rises at first with half of b c."""
    names = {"sj": sj, "jax": jax, "eqx": eqx, "dataclasses": dataclasses}
    exec(BUOYANT, names)
    model = names["Buoyant"]
    settings = {
        "grid": {"shape": [16, 16]},
        "time": {"end": 0.01, "output_every": 0.01, "dt": 0.001},
        "physics": {"viscosity": 0, "buoyancy": 2.0},
        "boundaries": {"x": "periodic", "y": "slip"},
        "precision": "float64",
        "output": {"root": str(tmp_path), "report": False, "animation": False},
    }
    uniform = sj.configure(model, initial={"concentration": "1"}, **settings).run()
    assert float(abs(uniform.ds.velocity_y).max()) < 1e-14  # rounding of the projection
    wave = sj.configure(model, initial={"concentration": "1 + cos(2*pi*x)"}, **settings).run()
    # The pressure takes what does not vary along x; of the rest, 2 cos(2 pi x), everything where y is free of walls.
    up = wave.ds.velocity_y.isel(time=-1)
    assert float(up.isel(x=0).max()) > 0 > float(up.isel(x=8).min())
    assert wave.ds["buoyancy"].attrs["units"] == "m s-2"


def test_a_class_that_does_not_say_how_it_is_made_is_refused():
    class Bare(sj.ExplicitModel):
        """A model without `configured`."""

        Keys = sj.Burgers.Keys

    sj.model("bare", fields=(sj.FieldSchema("u"),))(Bare)
    settings = {"grid": {"shape": [8]}, "time": {"end": 1.0, "output_every": 1.0, "dt": 0.1}, "initial": {"u": "1"}}
    with pytest.raises(ConfigurationError, match=r"Bare\.configured is missing: expected a class method"):
        sj.configure(Bare, **settings).run()


def test_a_model_derived_from_one_of_several_names_keeps_its_default():
    """In the plane Maxwell's equations without a name of simjax are those of Ez."""

    class Own(sj.Maxwell):
        """Waves of a user's own."""

    sj.model("own_waves", least_axes=2, fields=sj.Maxwell.declarations["maxwell_tm"].fields)(Own)
    config = sj.configure(
        Own, grid={"shape": [8, 8]}, time={"end": 0.1, "output_every": 0.1, "dt": 0.01}, initial={"electric": "1"}
    ).config
    model, _ = describe_model(config, Domain(sj.Grid((8, 8))))
    assert model.polarisation == "tm"
