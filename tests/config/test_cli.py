"""The command line: what it prints, its exit codes, what it leaves behind, and that help costs nothing."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from paths import ROOT

import simjax.driver.simulation
import simjax.run
from simjax.config import list_experiments
from simjax.errors import NumericalError

NAMES = [experiment.name for experiment in list_experiments()]


def command(*arguments, cwd, path=ROOT, code=None):
    environment = {**os.environ, "PYTHONPATH": str(path), "XLA_FLAGS": ""}
    call = ["-m", "simjax.run"] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *call, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def simulations(monkeypatch, tmp_path):
    """The configurations that would have been simulated; a seed of 13 fails."""
    monkeypatch.chdir(tmp_path)
    seen = []

    class Simulation:
        def __init__(self, config):
            self.config = config

        def run(self, *, resume, progress, launched, on_stop):
            assert progress and on_stop == "return" and resume == self.config.resume
            seen.append(self.config)
            if self.config.seed == 13:
                raise NumericalError("the velocity is not finite.")
            if self.config.seed == 75:
                return SimpleNamespace(exit_code=75, folder="75")
            return SimpleNamespace(exit_code=0, folder="0")

    monkeypatch.setattr(simjax.driver.simulation, "Simulation", Simulation)
    return seen


def run(capsys, *arguments):
    code = simjax.run.main(arguments)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


# ---- help and lists


def test_help_imports_little_and_nothing_heavy(tmp_path):
    """Importing is what help takes its time for: 190 modules, a quarter of them Python's own; jax has thousands."""
    heavy = (
        "jax",
        "numpy",
        "scipy",
        "h5py",
        "xarray",
        "matplotlib",
        "orbax",
        "equinox",
        "hydra",
        "omegaconf",
    )
    code = "import sys, simjax.run; simjax.run.main(['--help']); "
    code += f"print(len(sys.modules), [module for module in {heavy} if module in sys.modules])"
    count, found = command(cwd=tmp_path, code=code).stdout.splitlines()[-1].split(maxsplit=1)
    assert found == "[]" and int(count) < 250
    shown = command("--help", cwd=tmp_path)
    assert shown.returncode == 0 and shown.stderr == ""
    for experiment in list_experiments():
        assert f"  {experiment.name} " in shown.stdout and experiment.description in shown.stdout
    assert list(tmp_path.iterdir()) == []


def test_no_experiment_is_the_list_and_exit_code_2(capsys):
    for arguments in ([], ["time.end=3"], ["-m"]):
        code, out, err = run(capsys, *arguments)
        assert code == 2 and err == "" and all(f"  {name} " in out for name in NAMES)


def test_own_experiments_are_listed(capsys, tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\n# Something of mine\n")
    code, out, _ = run(capsys, "--help", "--config-dir", str(tmp_path))
    assert code == 0 and "  mine " in out and "Something of mine" in out


def test_version(capsys):
    assert run(capsys, "--version")[0] == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_no_error(unbuffered):
    """Python writes at once, or, as it does by default, at the end."""
    shell = f"'{sys.executable}' -m simjax.run --help | true; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["bash", "-c", shell], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# ---- spellings


@pytest.mark.parametrize(
    "arguments",
    [
        ["+experiment=cavity", "time.end=3.5"],
        ["experiment=cavity", "time.end=3.5"],
        ["time.end=3.5", "experiment=cavity"],
        ["time.end=3.5", "++experiment=cavity"],
    ],
)
def test_spellings(capsys, simulations, arguments):
    assert run(capsys, *arguments)[0] == 0
    (config,) = simulations
    assert (config.experiment_name, config.time.end) == ("cavity", 3.5)


@pytest.mark.parametrize("option", [["--config-dir", "{}"], ["--config-dir={}"], ["-cd", "{}"]])
@pytest.mark.parametrize("first", [True, False])
def test_config_dir(capsys, simulations, tmp_path, option, first):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\n# Mine\nphysics: {viscosity: 0.5}\n")
    option = [part.format(tmp_path) for part in option]
    chosen = ["experiment=mine", "seed=2"]
    assert run(capsys, *(option + chosen if first else chosen + option))[0] == 0
    assert (simulations[0].physics.viscosity, simulations[0].seed) == (0.5, 2)


def test_cfg_job_prints_what_was_composed(capsys, simulations):
    code, out, _ = run(capsys, "experiment=cavity", "--cfg", "job", "time.end=2.5")
    assert code == 0 and simulations == []
    composed = yaml.safe_load(out)
    assert (composed["experiment_name"], composed["time"]["end"], "hydra" in composed) == (
        "cavity",
        2.5,
        False,
    )


@pytest.mark.slow
def test_multirun(capsys, simulations):
    code, out, _ = run(capsys, "-m", "experiment=cavity,fluid", "seed=1,2")
    assert code == 0
    assert [(c.experiment_name, c.seed) for c in simulations] == [
        ("cavity", 1),
        ("cavity", 2),
        ("fluid", 1),
        ("fluid", 2),
    ]
    assert "[4/4]" in out


# ---- exit codes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fluid"], "did you mean experiment=fluid?"),
        (["experiment=flud"], "did you mean experiment=fluid?"),
        (["experiment=cavity", "grid.shpe=3"], "did you mean 'grid.shape'?"),
        (["experiment=cavity", "hydra.run.dir=../../.."], "below output.root"),
        (["experiment=cavity", "seed=1,2"], "several values need -m"),
        (["experiment=cavity", "--cfg", "none"], "invalid choice"),
        (["experiment=cavity", "--frobnicate"], "--frobnicate"),
        (["experiment=cavity", "--config-dir", "/no/such"], "expected a folder"),
        (["resume=/no/such"], "expected the folder of a run"),
        (["-m", "experiment=cavity", "seed=1,-1"], "seed = -1"),
        (["-m", "experiment=cavity", "seed=1,2", "output.folder=a"], "is one folder for 2 runs"),
        (["-m", "experiment=cavity", "seed=1,2", "resume=auto"], "one run"),
    ],
)
def test_mistakes_are_one_sentence_and_nothing_runs(capsys, simulations, arguments, said):
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == "" and simulations == []
    assert err.startswith("simjax: ") and said in err and err.count("\n") == 1


def test_a_failing_simulation(capsys, simulations):
    code, _, err = run(capsys, "experiment=cavity", "seed=13")
    assert (code, err) == (3, "simjax: the velocity is not finite.\n")


@pytest.mark.slow
def test_a_failing_job_does_not_stop_the_others(capsys, simulations):
    code, _, err = run(capsys, "-m", "experiment=cavity", "seed=1,13,2")
    assert code == 3 and [config.seed for config in simulations] == [1, 13, 2] and "not finite" in err


@pytest.mark.slow
def test_a_stopped_job_stops_the_others(capsys, simulations):
    assert run(capsys, "-m", "experiment=cavity", "seed=1,75,2")[0] == 75
    assert [config.seed for config in simulations] == [1, 75]


def test_an_interrupt_before_the_run(capsys, monkeypatch):
    def interrupt(config):
        raise KeyboardInterrupt

    monkeypatch.setattr(simjax.driver.simulation, "Simulation", interrupt)
    code, _, err = run(capsys, "experiment=cavity")
    assert code == 130 and err.count("\n") == 1


def test_a_bug_shows_its_traceback(monkeypatch):
    def bug(config):
        raise ZeroDivisionError

    monkeypatch.setattr(simjax.driver.simulation, "Simulation", bug)
    with pytest.raises(ZeroDivisionError):
        simjax.run.main(["experiment=cavity"])


# ---- the real thing


@pytest.mark.slow
def test_a_run_from_a_folder_with_spaces(tmp_path):
    folder = tmp_path / "työ ja muut"
    folder.mkdir()
    done = command(
        "time.end=0.02",
        "+experiment=from_file",
        "grid.shape=[16,12]",
        "time.end=43200",
        "output=none",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["outputs"]
    (written,) = (folder / "outputs" / "from_file").iterdir()
    assert {"config.yaml", "overrides.yaml", "hydra.yaml"} == {path.name for path in (written / ".hydra").iterdir()}
    assert yaml.safe_load((written / ".hydra" / "config.yaml").read_text())["time"]["end"] == 43200.0
    refused = command(f"resume={written}", "physics.viscosity=1", cwd=folder)
    assert refused.returncode == 2 and "physics.viscosity was 40.0 and is 1.0 now" in refused.stderr


@pytest.mark.slow
def test_conf_inside_the_package_is_found_as_in_a_wheel(tmp_path):
    installed = tmp_path / "site"
    shutil.copytree(ROOT / "simjax", installed / "simjax", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "conf", installed / "simjax" / "conf")
    shutil.copytree(ROOT / "experiments", installed / "simjax" / "experiments")
    shown = command("--cfg", "job", "experiment=from_file", cwd=tmp_path, path=installed)
    assert shown.returncode == 0 and yaml.safe_load(shown.stdout)["experiment_name"] == "from_file"
    code = "import simjax.config as c; print(c.load_config('from_file').initial['velocity'].file)"
    assert str(installed) in command(cwd=tmp_path, path=installed, code=code).stdout
