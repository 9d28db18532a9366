"""Programs compiled for a GPU that is not there, each in a process of its own: the compiler comes with an extra."""

import os
import subprocess
import sys

from paths import ROOT, SUPPORT

SKIPPED = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
"""Lines of a program that start no kernel."""


def printed(program: str, *arguments: str) -> list[str]:
    """The lines that a program in Python prints, which may import this module; one that fails fails the test."""
    environment = {
        **{key: value for key, value in os.environ.items() if key != "XLA_FLAGS"},
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)]),
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "-1",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    }
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout.splitlines()


def kernels(computation) -> list:
    """The lines of a computation of `simjax.inspect.hlo` that start a kernel, or a loop of some."""
    return [
        line
        for line in computation.instructions
        if line.op not in SKIPPED and 'custom_call_target="AllocateBuffer"' not in line.attributes
    ]


def moved(computation) -> int:
    """Bytes that these lines read and write."""
    return sum(
        shape.bytes for line in kernels(computation) for shape in (*line.shapes, *computation.operand_shapes(line))
    )
