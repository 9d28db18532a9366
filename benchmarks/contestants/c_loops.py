"""The same steps in C (`c_loops.c`), compiled in the run, or a copy of what a step must read and write."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.contest import Program, serve

FLAGS = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]


def compiled_loops(folder: str) -> ctypes.CDLL:
    """`c_loops.c`, compiled here."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SystemExit("no C compiler found; install one, or set CC")
    library = Path(folder) / "loops.so"
    subprocess.run([compiler, *FLAGS, str(Path(__file__).with_name("c_loops.c")), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def numbers(values) -> ctypes.Array:
    return (ctypes.c_float * len(values))(*values)


def copying(library: ctypes.CDLL, field: np.ndarray, fields: int, steps: int, threads: int) -> Program:
    """`steps` times a copy of `fields` fields."""
    arrays = [np.stack([field] * fields), np.empty((fields, *field.shape), np.float32)]

    def advance() -> None:
        for _ in range(steps):
            library.copy(*map(pointer, arrays), ctypes.c_long(arrays[0].size), ctypes.c_int(threads))
            arrays.reverse()

    return Program(advance, lambda: {"start": arrays[0][0]})


def diffusing(library: ctypes.CDLL, field: np.ndarray, physics, threads: int) -> Program:
    step = getattr(library, f"diffuse{field.ndim}")
    per_cell = physics["dt"] * np.array(field.shape, float)
    spread = numbers(physics["diffusivity"] * per_cell * np.array(field.shape))
    drift = numbers(0.5 * per_cell * np.array(physics["velocity"]))
    arrays = [field.copy(), np.empty_like(field)]

    def advance() -> None:
        for _ in range(physics["steps"]):
            step(*map(pointer, arrays), *map(ctypes.c_int, field.shape), spread, drift, ctypes.c_int(threads))
            arrays.reverse()

    return Program(advance, lambda: {"field": arrays[0]})


def waving(library: ctypes.CDLL, field: np.ndarray, physics, threads: int) -> Program:
    step = getattr(library, f"wave{field.ndim}")
    per_cell = physics["dt"] * np.array(field.shape, float)
    arrays = [field.copy(), *(np.zeros_like(field) for _ in field.shape)]
    drift = numbers(per_cell)
    # The first kick is by half a step.
    kicks = [numbers(per_cell / 2)]

    def advance() -> None:
        for _ in range(physics["steps"]):
            kick = kicks.pop() if kicks else drift
            step(*map(pointer, arrays), *map(ctypes.c_int, field.shape), kick, drift, ctypes.c_int(threads))

    return Program(advance, lambda: {"field": arrays[0]})


def build(physics, start) -> Program:
    field, threads = np.ascontiguousarray(start["field"], np.float32), physics["threads"]
    with tempfile.TemporaryDirectory() as folder:
        library = compiled_loops(folder)
    if "copied_fields" in physics:
        return copying(library, field, physics["copied_fields"], physics["steps"], threads)
    return (diffusing if physics["equation"] == "diffusion" else waving)(library, field, physics, threads)


if __name__ == "__main__":
    serve(build)
