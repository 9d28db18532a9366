"""Recipes of `conf/launch`: what they would start is read by running them with stand-ins for the launchers."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from paths import ROOT

import simjax as sj
import simjax.run
from simjax.config import compose

LAUNCH = ROOT / "conf" / "launch"
SCRIPTS = sorted(LAUNCH.glob("*.sh"))
JOBSET = LAUNCH / "kubernetes-jobset.yml"
GIVEN = {
    "SLURM_JOB_ID": "17",
    "TPU": "slice",
    "ZONE": "zone",
    "CLUSTER": "cluster",
    "PROJECT": "project",
    "IMAGE": "image",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "JOB_COMPLETION_INDEX": "1",
}
# Each does what its launcher does with the command that it is given: the words after the options, or one option.
WORDS = 'while [ "$#" -gt 0 ] && [ "$1" != python ] && [ "$1" != sh ]; do shift; done\nexec "$@"\n'
OPTION = 'for word in "$@"; do case "$word" in --command=*) exec sh -c "${word#--command=}";; esac; done\nexit 1\n'
TOLD = f"exec {sys.executable} -c \"import json, sys; open('told.json', 'w').write(json.dumps(sys.argv[1:]))\" \"$@\"\n"


def stand_in(folder, **programs):
    """Programs of these names, found before any others."""
    (folder / "bin").mkdir()
    for name, text in programs.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
    return {**os.environ, **GIVEN, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder)}


def started(recipe, folder):
    """The words after `python` that a recipe starts one of its processes with, as a shell takes them apart."""
    environment = stand_in(
        folder, srun=WORDS, mpirun=WORDS, gcloud=OPTION, xpk=OPTION, python=TOLD, python3=TOLD, scontrol="exit 1\n"
    )
    command = ["bash", str(recipe)]
    if recipe == JOBSET:
        (container,) = pod(jobset())["containers"]
        command = [*container["command"], *container["args"]]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    return json.loads((folder / "told.json").read_text())


def jobset():
    return yaml.safe_load(JOBSET.read_text())


def pod(resource):
    return job(resource)["template"]["spec"]


def job(resource):
    (replicated,) = resource["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


DEVICES = {"slurm": 2 * 4, "tpu-vm": 16, "xpk": 16, "openmpi": 8, "kubernetes-jobset": 2 * 8}


@pytest.mark.parametrize("recipe", [*SCRIPTS, JOBSET], ids=lambda path: path.stem)
def test_a_recipe_starts_a_run_that_simjax_takes(recipe, tmp_path):
    words = started(recipe, tmp_path)
    assert words[:2] == ["-m", "simjax.run"]
    config = compose(words[2:]).config()
    assert config.resume == "auto" and config.output.root.startswith(("/mnt/shared", str(tmp_path)))
    assert config.mesh.devices == DEVICES[recipe.stem]
    if recipe.stem in ("openmpi", "kubernetes-jobset"):
        assert config.distributed.process == int(
            GIVEN["OMPI_COMM_WORLD_RANK" if recipe != JOBSET else "JOB_COMPLETION_INDEX"]
        )
    else:
        assert config.distributed == "auto"
    assert {*DEVICES} == {path.stem for path in LAUNCH.iterdir()}


def test_the_settings_of_the_sweep_on_the_page_are_those_of_submitit(capfd):
    page = (ROOT / "docs" / "launching.md").read_text().replace("\\\n", " ")
    (line,) = [line for line in page.splitlines() if "submitit_slurm" in line]
    words = [word.split(",")[0] for word in shlex.split(line)[3:] if word != "-m"]  # one of its runs
    assert simjax.run.main([*words, "--cfg", "hydra", "-p", "hydra.launcher"]) == 0
    shown = yaml.safe_load(capfd.readouterr().out)
    assert shown["partition"] == "gpu" and shown["array_parallelism"] == 8
    compose([word for word in words if not word.startswith("hydra")]).config()


@pytest.mark.parametrize("recipe", [*SCRIPTS, JOBSET], ids=lambda path: path.stem)
def test_a_recipe_says_what_was_not_run(recipe):
    head = recipe.read_text().partition("\n\n")[0]
    assert "Checked: " in head and "ot run: " in head


def test_shellcheck_has_nothing_to_say():
    done = subprocess.run([Path(sys.executable).with_name("shellcheck"), *SCRIPTS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_jobset_agrees_with_the_api_and_with_itself(tmp_path):
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

    resource = jobset()
    # The types drop what they do not know: nothing may be missing on the way back.
    assert holds(json.loads(JobsetV1alpha2JobSet.from_dict(resource).to_json()), resource)
    misspelled = yaml.safe_load(JOBSET.read_text().replace("backoffLimit", "backofLimit"))
    assert not holds(json.loads(JobsetV1alpha2JobSet.from_dict(misspelled).to_json()), misspelled)

    config = compose(started(JOBSET, tmp_path)[2:]).config()
    (container,) = pod(resource)["containers"]
    name, (workers,) = resource["metadata"]["name"], resource["spec"]["replicatedJobs"]
    host, _, port = config.distributed.coordinator.partition(":")
    assert host == f"{name}-{workers['name']}-0-0.{name}" and int(port) == container["ports"][0]["containerPort"]
    own = job(resource)
    assert own["completions"] == own["parallelism"] == config.distributed.processes
    assert own["parallelism"] * container["resources"]["limits"]["nvidia.com/gpu"] == config.mesh.devices
    (rule,) = own["podFailurePolicy"]["rules"]
    # What a restart does not mend; not a stop (75), nor a process that was lost (5).
    assert rule["onExitCodes"]["values"] == [2, 3, 4, 6] and rule["onExitCodes"]["containerName"] == container["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {v["name"] for v in pod(resource)["volumes"]}


def holds(found, wanted):
    """Tell whether all of `wanted` is in `found`."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and holds(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(holds, found, wanted))
    return found == wanted


# Two tasks on this machine with the variables that JAX reads, four virtual devices each, at a size for seconds.
SRUN = """while [ "$1" != python ]; do shift; done
for task in 0 1; do
    SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS=2 SLURM_STEP_NODELIST=localhost SLURM_STEP_NUM_NODES=1 \\
        "$@" grid.shape=[32,32] $SMALL &
    echo $! >> tasks
    tasks="$tasks $!"
done
code=0
for task in $tasks; do wait "$task" || code=$?; done
exit $code
"""
SMALL = "time.end=1 time.output_every=0.02 output.animation=false output.report=false"


@pytest.mark.slow
def test_the_slurm_script_stops_at_usr1_is_requeued_and_goes_on(tmp_path):
    python = f'exec {sys.executable} "$@"\n'
    environment = stand_in(tmp_path, srun=SRUN, python=python, scontrol='echo "$@" >> requeued\n') | {
        "SMALL": SMALL,
        "SCRATCH": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "4",
        "XLA_FLAGS": "",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_ENABLE_COMPILATION_CACHE": "true",
    }
    runs = tmp_path / "simjax" / GIVEN["SLURM_JOB_ID"] / "fluid"

    def submit():
        return subprocess.Popen(
            ["bash", LAUNCH / "slurm.sh"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    script = submit()
    while script.poll() is None and not list(runs.glob("*/metrics.jsonl")):
        time.sleep(0.02)
    assert script.poll() is None, script.communicate()[0]
    for task in (tmp_path / "tasks").read_text().split():
        os.kill(int(task), signal.SIGUSR1)
    output = script.communicate(timeout=300)[0]
    assert script.returncode == 75, output
    assert (tmp_path / "requeued").read_text() == "requeue 17\n"
    again = submit()
    output = again.communicate(timeout=300)[0]
    assert again.returncode == 0, output
    (run,) = runs.iterdir()
    spent = sj.goodput(run).seconds
    assert spent["lost"] == 0 and spent["down"] > 0 and spent["waiting"] > 0
    with sj.open_run(run) as dataset:
        assert dataset.sizes["time"] == 51 and float(dataset["time"][-1]) == pytest.approx(1)
