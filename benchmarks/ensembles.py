"""Time an ensemble in one program against a Python loop over a compiled member, and run one that is killed twice."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import simjax as sj
from benchmarks.measure import environment, rounded, summary, time_alternately
from simjax.driver.loop.grouping import groups_of, of_group
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.stepping.simulate import Schedule

STEP = 2e-3
RANGE = "+ensemble.vary.physics.viscosity={log_uniform:[1e-4,1e-2]}"


def sweep(cells: int, members: int, *overrides: str):
    """A viscosity sweep of two rolling-up shear layers, with steps of one length."""
    return sj.load(
        "fluid",
        [
            f"grid.shape=[{cells},{cells}]",
            f"time.dt={STEP}",
            "time.courant=null",
            f"ensemble.size={members}",
            RANGE,
            "output.animation=false",
            *overrides,
        ],
    ).config


def ensemble_program(config, steps: int):
    """A call that advances all members, in groups one after another where the configuration says so."""
    length = config.ensemble.group or config.ensemble.size
    groups = [of_group(config, group) for group in groups_of(config, length)]
    first = compiled_run(groups[0])
    program, parts = first.advance(Schedule(1.0, dt=STEP), steps), []
    for own in groups:
        programs = first.of_members(own)
        parts.append([programs, *programs.start()])

    def call() -> None:
        for part in parts:
            programs, state, clock = part
            part[1:] = program(programs.values, programs.files, state, clock, np.int32(2**30))
            jax.block_until_ready(part[1:])

    return call


def loop_over_members(config, members: int, steps: int):
    """A call that advances one member after another with the compiled program of a single run."""
    alone = compiled_run(sj.load("fluid", [*single(config)]).config)
    program, varied = alone.advance(Schedule(1.0, dt=STEP), steps), compiled_run(config).host_values()
    values = [{name: jax.numpy.asarray(u[member]) for name, u in varied.items()} for member in range(members)]
    states = [alone.start() for _ in range(members)]

    def call() -> None:
        for member in range(members):
            states[member] = program(values[member], alone.files, *states[member], np.int32(2**30))
        jax.block_until_ready(states)

    return call


def single(config) -> list[str]:
    """Overrides of a run of one member."""
    cells = config.grid.shape[0]
    return [f"grid.shape=[{cells},{cells}]", f"time.dt={STEP}", "time.courant=null"]


def compare(cells: int, members: int, steps: int, repeats: int, batches: list[int]) -> dict[str, Any]:
    """Steps of all members: together, in batches of several sizes, in groups, and in a Python loop."""
    ways = {"all_at_once": []}
    ways |= {f"batches_of_{batch}": [f"ensemble.batch={batch}"] for batch in batches}
    ways["groups_of_a_quarter"] = [f"ensemble.group={members // 4}", f"ensemble.batch={batches[0]}"]
    if jax.device_count() > 1:
        cut = f"mesh.ensemble={jax.device_count()}"
        ways |= {f"on_{jax.device_count()}_devices_batches_of_{b}": [cut, f"ensemble.batch={b}"] for b in batches}
    calls = {
        name: ensemble_program(sweep(cells, members, f"ensemble.batch={members}", *own), steps)
        for name, own in ways.items()
    }
    calls["python_loop"] = loop_over_members(sweep(cells, members), members, steps)
    processor: dict[str, list[float]] = {name: [] for name in calls}
    seconds = time_alternately({name: _noting(call, processor[name]) for name, call in calls.items()}, repeats)
    rows = {name: summary(own, steps, members * cells**2) for name, own in seconds.items()}
    for name, row in rows.items():
        row["cpu_ms_per_step_least"] = rounded(1e3 * min(processor[name][1:]) / steps)
    loop = dict(rows["python_loop"])
    for row in rows.values():
        row["speed_over_python_loop"] = rounded(loop["ms_per_step_least"] / row["ms_per_step_least"])
        row["speed_over_python_loop_in_cpu_time"] = rounded(
            loop["cpu_ms_per_step_least"] / row["cpu_ms_per_step_least"]
        )
    return rows


def _noting(call, found: list[float]):
    """The call, which also notes what it takes of the processor, which other load hardly changes."""

    def noted() -> None:
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)

    return noted


def killed_sweep(cells: int, members: int, group: int, batch: int, kills: int) -> dict[str, Any]:
    """A sweep in groups in processes of their own, killed on the way, against one that ran through."""
    with tempfile.TemporaryDirectory() as root:
        overrides = [
            "experiment=fluid",
            f"grid.shape=[{cells},{cells}]",
            f"time.dt={STEP}",
            "time.courant=null",
            f"ensemble.size={members}",
            RANGE,
            f"ensemble.group={group}",
            f"ensemble.batch={batch}",
            "time.end=0.1",
            "time.output_every=0.02",
            "checkpoint.every_frames=1",
            "output.animation=false",
            "output.report=false",
            "output.fields=[vorticity]",
            "ensemble.statistics=[mean,variance,min,max]",
            f"output.root={root}",
        ]
        begin = time.perf_counter()
        _run([*overrides, f"output.folder={root}/whole"])
        whole = time.perf_counter() - begin
        folder, moments = Path(root) / "killed", []
        command = [*overrides, f"output.folder={folder}"]
        for kill in range(1, kills + 1):
            process = _start(command)
            wanted = folder / "groups" / f"g{kill * (members // group) // (kills + 1):04d}" / "checkpoints"
            while process.poll() is None and not any(wanted.glob("[0-9]*")):
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            moments.append(len(json.loads((folder / "groups.json").read_text())["finished"]))
            command = [f"resume={folder}"]
        _run(command)
        one, other = (sj.open_run(Path(root) / name).load() for name in ("whole", "killed"))
        full = one.vorticity.astype("f8")
        expected = {
            "mean": full.mean("member"),
            "variance": full.var("member"),
            "min": full.min("member"),
            "max": full.max("member"),
        }
        log = (folder / "run.log").read_text()
        return {
            "members": members,
            "group": group,
            "seconds": rounded(whole),
            "compile_seconds_of_each_group": _compile_seconds(Path(root) / "whole"),
            "groups_finished_at_each_kill": moments,
            "groups_computed_again": sum(log.count(f"group g{k:04d}:") - 1 for k in range(members // group)),
            "same_bits_as_without_kills": bool(all(one[name].equals(other[name]) for name in one.data_vars)),
            "statistics_against_full_output": {
                name: rounded(float(abs(other[f"vorticity_{name}"] - u).max() / abs(u).max()))
                for name, u in expected.items()
            },
        }


def _compile_seconds(folder: Path) -> list[float]:
    """Seconds of compiling that each group's log tells."""
    logs = sorted(folder.glob("groups/*/run.log"))
    return [float(log.read_text().rsplit("(", 1)[1].split(" s compiling")[0]) for log in logs]


def _start(overrides: list[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "simjax.run", *overrides]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ))


def _run(overrides: list[str]) -> None:
    process = _start(overrides)
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(output)


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=64, help="along each of two axes")
    parser.add_argument("--members", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=10, help="in each call")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 16, 64])
    parser.add_argument("--only-speed", action="store_true")
    options = parser.parse_args()
    result: dict[str, Any] = {"environment": environment()}
    result["speed"] = compare(options.cells, options.members, options.steps, options.repeats, options.batches)
    if not options.only_speed:
        result["killed"] = killed_sweep(options.cells, options.members, options.members // 8, options.batches[0], 2)
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
