"""A YAML file of one's own on the command line: what it begins with, how its runs are called, what is refused."""

import pytest

import simjax as sj
from simjax.config import load_config
from simjax.errors import ConfigurationError
from simjax.run import _parse, main

KARMAN = """\
model: advection_diffusion
grid: {shape: [8]}
physics: {diffusivity: 0.1, velocity: [0.0]}
initial: {concentration: "cos(2*pi*x)"}
time: {end: 0.02, output_every: 0.01, dt: 0.001}
"""


def test_a_file_is_shown_with_its_name_and_with_overrides(tmp_path, capsys):
    (tmp_path / "karman.yaml").write_text(KARMAN)
    assert main([str(tmp_path / "karman.yaml"), "time.end=0.01", "--cfg", "job"]) == 0
    shown = capsys.readouterr().out
    assert "experiment_name: karman" in shown and "end: 0.01" in shown


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["absent.yaml"], "absent.yaml: expected a file NAME.yaml, and there is none"),
        (["karman.yaml", "--config-dir", "my"], "karman.yaml: expected a file, or --config-dir and --config-name"),
    ],
)
def test_what_is_no_file_is_refused(given, said):
    with pytest.raises(ConfigurationError, match=said):
        _parse(given)


def test_a_run_of_a_model_of_ones_own_has_its_name(tmp_path):
    code = 'import simjax as sj\n\n\nclass Decay(sj.Burgers):\n    "Burgers\' equation."\n'
    (tmp_path / "own_decay_of_a_file.py").write_text(code)
    lines = ["model=own_decay_of_a_file.Decay", "grid.shape=[8]", "initial.concentration=1", "time.dt=0.1"]
    lines += ["time.end=1", "time.output_every=1"]
    assert load_config(None, overrides=lines, config_dir=str(tmp_path)).experiment_name == "Decay"
    named = load_config(None, overrides=[*lines, "experiment_name=first"], config_dir=str(tmp_path))
    assert named.experiment_name == "first"


def test_a_class_that_misses_a_method_is_refused():
    class Own(sj.CenteredModel):
        """Decay."""

        fields, parameters = ("u",), {"rate": 1.0}

        def rhs(self, t, state, params):
            return {"u": -params["rate"] * state["u"]}

    with pytest.raises(ConfigurationError, match="expected a method stable_dt, which is missing"):
        sj.configure(Own, grid={"shape": [8]})
