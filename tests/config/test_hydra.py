"""simjax as a Hydra application: what Hydra's users know of the command line, its launchers, sweepers and plugins."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import simjax
import simjax.application
import simjax.run
from simjax.application import Result
from simjax.config import expand_sweep, load_config
from simjax.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]
# One step on a few cells.
TINY = [
    "experiment=viscous_burgers",
    "grid.shape=[16]",
    "time.end=0.001",
    "time.output_every=0.001",
    "time.dt=0.001",
    "output=none",
]


def run(capfd, *arguments):
    """Exit code and what was printed."""
    code = simjax.run.main(arguments)
    shown = capfd.readouterr()
    return code, shown.out, shown.err


def rows(folder):
    """The table of a multirun, in the order of its runs."""
    lines = (folder / "runs.jsonl").read_text().splitlines()
    return sorted(map(json.loads, lines), key=lambda row: row["job"])


@pytest.fixture
def configs(monkeypatch, tmp_path):
    """The configurations that would have been run, in a folder of their own; the objective is the viscosity."""
    seen = []

    def instead(config, launched=None):
        seen.append(config)
        return Result(0, "somewhere", None if config.objective is None else config.physics.viscosity)

    monkeypatch.setattr(simjax.application, "run", instead)
    monkeypatch.chdir(tmp_path)
    return seen


def test_only_the_public_interface_of_hydra_is_used():
    files = [*(ROOT / "simjax").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert [file for file in files if re.search(r"^\s*(from|import) hydra\._internal", file.read_text(), re.M)] == []


def test_the_package_and_the_console_command_are_the_command_line(monkeypatch, capsys):
    import tomllib

    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["simjax"]
    assert script == "simjax.run:main"
    monkeypatch.setattr(sys, "argv", ["simjax", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("simjax", run_name="__main__")
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("simjax ")


# ---- what Hydra tells


def test_info_tells_the_search_path_and_needs_no_jax(tmp_path):
    code = "import sys, simjax.run; simjax.run.main(sys.argv[1:]); "
    code += "print([name for name in ('jax', 'h5py', 'xarray', 'optuna', 'submitit') if name in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code, "experiment=fluid", "--config-dir", str(tmp_path), "--info"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.returncode == 0 and shown.stdout.splitlines()[-1] == "[]"
    for told in ("JoblibLauncher", "OptunaSweeper", f"simjax://{tmp_path}", "experiment/fluid", "Roll-up of two"):
        assert told in shown.stdout
    assert list(tmp_path.iterdir()) == []


def test_parts_of_the_configuration(capfd):
    code, out, _ = run(capfd, "experiment=fluid", "time.end=7", "--cfg", "all", "-p", "time")
    assert code == 0 and yaml.safe_load(out)["end"] == 7
    chosen = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=3"]
    code, out, _ = run(capfd, "experiment=fluid", *chosen, "--cfg", "hydra")
    assert code == 0 and yaml.safe_load(out)["hydra"]["launcher"]["n_jobs"] == 3
    code, out, _ = run(capfd, "experiment=fluid", "--cfg", "job", "--resolve")
    assert code == 0 and yaml.safe_load(out)["experiment_name"] == "fluid"


def test_completion_by_the_tab_key(capfd, monkeypatch):
    code, out, _ = run(capfd, "-sc", "install=bash")
    assert code == 0 and "hydra_bash_completion" in out
    monkeypatch.setenv("COMP_LINE", "simjax experiment=swift")
    monkeypatch.setenv("COMP_POINT", "23")
    assert run(capfd, "-sc", "query=bash")[1].split() == ["experiment=swift_hohenberg"]


# ---- configurations


def test_a_file_of_ones_own_to_begin_with(capfd, configs, tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [config, experiment: fluid, _self_]\nseed: 5\n")
    assert run(capfd, "--config-dir", str(tmp_path), "--config-name", "mine", "time.end=1.5")[0] == 0
    assert (configs[0].seed, configs[0].time.end, configs[0].grid.shape) == (5, 1.5, (256, 256))


def test_a_file_with_settings_of_hydra_is_no_plugin(capfd, configs, tmp_path):
    (tmp_path / "hydra" / "launcher").mkdir(parents=True)
    (tmp_path / "hydra" / "launcher" / "mine.yaml").write_text("# @package hydra.launcher\n_target_: os.system\n")
    code, _, err = run(capfd, "-m", "experiment=fluid", "hydra/launcher=mine", "-cd", str(tmp_path))
    assert (code, configs) == (2, []) and "installed plugins" in err


@pytest.mark.parametrize("several", [[], ["-m"]])
@pytest.mark.slow
def test_a_mapping_in_the_place_of_a_list_and_back(capfd, configs, several):
    """Hydra by itself merges neither into the other, nor deletes a null."""
    file = "initial.velocity={file:experiments/eddies.nc,variable:[u,v]}"
    assert run(capfd, *several, "experiment=cavity", file, "~forcing")[0] == 0
    assert run(capfd, *several, "experiment=from_file", "initial.velocity=[0,1]")[0] == 0
    assert configs[0].initial == load_config("from_file").initial and configs[0].forcing == {}
    assert configs[1].initial["velocity"][1].constant == 1.0


def test_a_mapping_in_the_place_of_a_list_in_some_of_the_runs(capfd, configs):
    code, _, err = run(capfd, "-m", "experiment=cavity,from_file", "initial.velocity=[0,1]")
    assert (code, configs) == (2, []) and "run these by themselves" in err


def test_the_folder_of_a_run_by_its_name_in_hydra(capfd, configs):
    assert run(capfd, "experiment=fluid", "hydra.run.dir=outputs/mine")[0] == 0
    assert configs[0].output.folder == "outputs/mine" and not Path("outputs").exists()


def test_composing_within_a_hydra_application(tmp_path):
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    (tmp_path / "app.yaml").write_text("answer: 42\n")
    with initialize_config_dir(str(tmp_path), version_base="1.2"):
        around = GlobalHydra.instance().hydra
        assert load_config("fluid", ["seed=3"]).seed == 3
        assert GlobalHydra.instance().hydra is around and compose("app").answer == 42


# ---- multiruns


@pytest.mark.parametrize(
    ("choices", "seeds"), [("1,2", [1, 2]), ("range(1,4)", [1, 2, 3]), ("choice(4,5)", [4, 5]), ("3", [3])]
)
@pytest.mark.slow
def test_choices_and_ranges(capfd, configs, choices, seeds):
    assert run(capfd, "-m", "experiment=fluid", f"seed={choices}")[0] == 0
    assert [config.seed for config in configs] == seeds


@pytest.mark.slow
def test_globs(capfd, configs):
    assert run(capfd, "experiment=glob(inverse_*)", "-m")[0] == 0
    shipped = sorted(file.stem for file in (ROOT / "conf" / "experiment").glob("inverse_*.yaml"))
    assert [config.experiment_name for config in configs] == shipped
    with pytest.raises(ConfigurationError, match="no values to run with"):
        expand_sweep(["experiment=glob(nothing_*)"])


@pytest.mark.slow
def test_where_the_runs_of_a_multirun_go(capfd, configs, tmp_path):
    code, out, _ = run(capfd, "-m", "experiment=fluid", "seed=1,2", "hydra.sweep.dir=some where")
    assert code == 0 and out.splitlines()[-1] == "some where"
    assert [config.output.root for config in configs] == ["some where"] * 2
    table = rows(tmp_path / "some where")
    assert [(row["job"], row["exit_code"], row["overrides"][1]) for row in table] == [
        (0, 0, "seed=1"),
        (1, 0, "seed=2"),
    ]
    assert sorted(file.name for file in (tmp_path / "some where").iterdir()) == ["multirun.yaml", "runs.jsonl"]


@pytest.mark.slow
def test_without_a_folder_the_runs_stay_where_single_ones_go(capfd, configs, tmp_path):
    assert run(capfd, "-m", "experiment=fluid", "seed=1,2")[0] == 0
    (folder,) = (tmp_path / "outputs" / "multirun").iterdir()
    assert len(rows(folder)) == 2 and {config.output.root for config in configs} == {"outputs"}


@pytest.mark.slow
def test_launchers_run_at_once_and_tell_their_exit_codes(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.sweep.dir=both"]
    code = run(capfd, "-m", *TINY, "limits.wall_clock=null,1e-9", "objective=variance_u", *launcher)[0]
    finished, stopped = rows(tmp_path / "both")
    assert (code, finished["exit_code"], stopped["exit_code"]) == (2, 0, 2)  # no time for a single step
    last = simjax.open_run(finished["folder"])["variance_u"].isel(time=-1)
    assert finished["objective"] == float(last) and stopped["objective"] is None
    assert Path(finished["folder"]).parent == tmp_path / "both" / "viscous_burgers"


@pytest.mark.slow
def test_submitit_runs_in_processes_of_its_own(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # else it closes the handlers of the tests' own log
    chosen = ["hydra/launcher=submitit_local", "hydra.sweep.dir=all"]
    assert run(capfd, "-m", *TINY, "seed=3", *chosen)[0] == 0
    (row,) = rows(tmp_path / "all")
    assert row["exit_code"] == 0 and (Path(row["folder"]) / "provenance.json").is_file()


# Optuna's database, which is not used here, calls SQLAlchemy by a former name.
optuna_warns = pytest.mark.filterwarnings("ignore:The ``declarative_base:DeprecationWarning")


@optuna_warns
@pytest.mark.slow
def test_a_search_for_the_least_of_a_diagnostic(capfd, configs, tmp_path):
    chosen = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=1", "hydra.sweep.dir=search"]
    space = "physics.viscosity=interval(0.1,0.2)"
    assert run(capfd, "-m", "experiment=fluid", space, "objective=energy", *chosen)[0] == 0
    tried = [row["objective"] for row in rows(tmp_path / "search")]
    assert tried == [config.physics.viscosity for config in configs] and len({*tried}) == 4
    assert all(0.1 <= value <= 0.2 for value in tried)
    best = yaml.safe_load((tmp_path / "search" / "optimization_results.yaml").read_text())
    assert best["best_value"] == min(tried) and best["best_params"] == {"physics.viscosity": min(tried)}


@optuna_warns
@pytest.mark.slow
def test_a_search_written_in_an_experiment(capfd, configs, tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "hunt.yaml").write_text(
        "# @package _global_\n# A search\ndefaults: [fluid, override /hydra/sweeper: optuna, _self_]\n"
        "objective: energy\nhydra: {sweeper: {n_trials: 2, n_jobs: 1, params: {seed: 'range(1,9)'}}}\n"
    )
    assert run(capfd, "-m", "experiment=hunt", "-cd", str(tmp_path))[0] == 0
    # Both ends of a range are among what Optuna tries.
    assert len(configs) == 2 and all(1 <= config.seed <= 9 for config in configs)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["hydra/sweeper=optuna"], "expected objective=NAME"),
        (["hydra/sweeper=optuna", "objective=energy", "grid.shpe=[8,8]"], "did you mean 'grid.shape'?"),
        ([], "an interval is searched by a sweeper"),
        (["hydra/launcher=jobli"], "Could not find 'hydra/launcher/jobli'"),
    ],
)
def test_mistakes_of_a_search_are_told_before_it_begins(capfd, configs, tmp_path, arguments, told):
    code, _, err = run(capfd, "-m", "experiment=fluid", "physics.viscosity=interval(0.1,0.2)", *arguments)
    assert (code, configs) == (2, []) and told in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_objective_is_a_diagnostic(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capfd, *TINY, "objective=varance_u")
    assert code == 2 and "did you mean objective=variance_u?" in err and list(tmp_path.iterdir()) == []


# ---- plugins


def test_callbacks_of_a_plugin(capfd, configs):
    from hydra.core.config_store import ConfigStore
    from hydra.experimental.callback import Callback

    class Listening(Callback):
        heard = []

        def on_job_start(self, config, **_):
            self.heard.append(config.seed)

    monkey = sys.modules[__name__]
    monkey.Listening = Listening
    node = {"listening": {"_target_": f"{__name__}.Listening"}}
    ConfigStore.instance().store(group="hydra/callbacks", name="listening", node=node, provider="a plugin")
    assert run(capfd, "experiment=fluid", "seed=8", "hydra/callbacks=listening")[0] == 0
    assert Listening.heard == [8] and len(configs) == 1


# ---- without Hydra


@pytest.mark.slow
def test_a_second_command_loads_neither_hydra_nor_other_families(tmp_path):
    code = "import sys; from simjax.run import main; main(sys.argv[1:]); print(*sys.modules)"
    given = ["experiment=sod", "grid.shape=[16]", "time.end=0.001", "output=none", f"output.root={tmp_path}"]
    environment = {
        "PATH": "",
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "XDG_CACHE_HOME": str(tmp_path / "caches"),
    }
    loaded = []
    for _ in range(2):
        told = subprocess.run(
            [sys.executable, "-c", code, *given],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        loaded.append(told.stdout.splitlines()[-1].split())
    first, second = loaded
    assert "hydra" in first and "hydra" not in second
    unneeded = ("simjax.particles.pairs", "simjax.instruments.surfaces", "simjax.models.flow.features", "matplotlib")
    assert [name for name in unneeded if name in second] == []
