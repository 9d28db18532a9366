"""Groups of real processes that carry out a program together over the loopback, as hosts do over a network."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from prepared import PreparedProcess

DEVICES = 2  # of each process
# Machine code as it is written: what processes say to one another is asked here, and each one compiles anew.
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def environment(devices=DEVICES):
    """That of a user with so many devices, but for optimised machine code unless OPTIMISED=1."""
    own = {key: value for key, value in os.environ.items() if key not in ("XLA_FLAGS", "PYTEST_ADDOPTS")}
    quick = {} if os.environ.get("OPTIMISED") == "1" else {"XLA_FLAGS": QUICK}
    own["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), own.get("PYTHONPATH")]))
    return own | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)} | quick


def start(command, count, port, paths=()):
    """`count` processes of a command, which takes the last argument `distributed=...` of each.

    paths: where Python looks for modules first, those that it imports as it begins included.
    """
    own = environment()
    own["PYTHONPATH"] = os.pathsep.join([*map(str, paths), own["PYTHONPATH"]])
    return [
        (start_from_nothing if paths else PreparedProcess)(
            [*command, f"distributed={{coordinator: 'localhost:{port}', processes: {count}, process: {number}}}"], own
        )
        for number in range(count)
    ]


def start_from_nothing(command, own):
    """A process that imports simjax itself, in an environment."""
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def start_run(overrides, count=2, module="simjax.run", paths=()):
    """`count` processes of one run by the command line."""
    return start([sys.executable, "-m", module, *overrides], count, free_port(), paths)


def kill_after_a_checkpoint(process, folder):
    """Kill the process of a run with SIGKILL a moment after its first checkpoint."""
    while process.poll() is None and not any((folder / "checkpoints").glob("[0-9]*")):
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def end(processes):
    """Kill what still runs of these processes and leave nothing open."""
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def outputs(processes, expected=0, timeout=240):
    """What each process printed, once all have ended with the expected code."""
    try:
        told = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        end(processes)
    codes = [process.returncode for process in processes]
    wanted = expected if isinstance(expected, list) else [expected] * len(processes)
    assert codes == wanted, "\n".join(f"--- process {number}:\n{text[-3000:]}" for number, text in enumerate(told))
    return told


PROGRAM = """
import json, sys
import simjax as sj
for folder, overrides in json.loads(sys.argv[1]):
    sj.load(None, [*overrides, *sys.argv[2:], f"output.folder={folder}"]).run()
"""


def start_runs(runs, count=2):
    """Processes that carry out several runs one after the other: folder -> overrides."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(list(runs.items()))]
    return start(command, count, free_port()) if count > 1 else [PreparedProcess(command, environment(8))]
