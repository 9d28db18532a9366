"""Hand-written CUDA (`stencils.cu`) as the limit of a step: compiled by nvcc or NVRTC, run through the driver's API.

Nothing of it is required: what is not on the machine is told in a sentence, in place of the rows' figures.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).with_name("stencils.cu")
BLOCK, LENGTH = (64, 4), 32
"""Threads of a block along the last axis and the one before it, and cells of the first axis that each walks along."""
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


class Missing(RuntimeError):
    """What compiling or running CUDA needs and is not here, in a sentence."""


# ------------------------------------------------------------------ compiling


def compiled_stencils(architecture: str) -> bytes:
    """The machine code of all kernels for an architecture such as `sm_90`; raises Missing."""
    nvcc = shutil.which("nvcc") or next(map(str, _in_packages("bin/nvcc")), None)
    if nvcc is not None:
        try:
            return _by_nvcc(nvcc, architecture)
        except Missing:
            if not [*_libraries()]:
                raise
    return _by_nvrtc(architecture)


def _by_nvcc(nvcc: str, architecture: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "stencils.cubin"
        command = [nvcc, "-O3", f"-arch={architecture}", "-cubin", "-o", str(result), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"nvcc failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
        return result.read_bytes()


def _by_nvrtc(architecture: str) -> bytes:
    path = next(_libraries(), None)
    if path is None:
        raise Missing("neither nvcc nor NVRTC (pip install nvidia-cuda-nvrtc) is here to compile CUDA")
    nvrtc, program = ctypes.CDLL(path), ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE.read_bytes(), b"stencils.cu", 0, None, None)
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    if nvrtc.nvrtcCompileProgram(program, 1, options):
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise Missing(f"NVRTC failed: {log.value.decode().strip().splitlines()[-1]}")
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    return code.raw


def _libraries() -> Iterator[str]:
    yield from map(str, _in_packages("lib/libnvrtc.so*"))
    found = ctypes.util.find_library("nvrtc")
    if found:
        yield found


def _in_packages(pattern: str) -> Iterator[Path]:
    """Files of NVIDIA's packages, which lie in folders of their own (`nvidia/cu13`, `nvidia/cuda_nvrtc`)."""
    package = importlib.util.find_spec("nvidia")
    for root in (package.submodule_search_locations or ()) if package else ():
        yield from sorted(Path(root).glob(f"*/{pattern}"))


# ------------------------------------------------------------------ running


class Card:
    """The first GPU, with the kernels of `stencils.cu`; raises Missing."""

    def __init__(self):
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise Missing("the driver of a GPU (libcuda.so.1) is not here") from None
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._do("cuInit", 0)
        self._do("cuDeviceGet", ctypes.byref(device), 0)
        # That of jax, which then shares the memory.
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._do("cuCtxSetCurrent", context)
        version = []
        for attribute in (MAJOR, MINOR):
            number = ctypes.c_int()
            self._do("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
            version.append(number.value)
        self._module = ctypes.c_void_p()
        self._do("cuModuleLoadData", ctypes.byref(self._module), compiled_stencils("sm_{}{}".format(*version)))

    def _do(self, name: str, *arguments) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status:
            raise Missing(f"{name} gave the error {status} of the driver")

    def array(self, values: np.ndarray) -> ctypes.c_uint64:
        """The place of a copy of an array on the card."""
        place = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(values.nbytes))
        source = ctypes.c_void_p(values.ctypes.data)
        self._do("cuMemcpyHtoD_v2", place, source, ctypes.c_size_t(values.nbytes))
        return place

    def values(self, place: ctypes.c_uint64, shape: Sequence[int]) -> np.ndarray:
        """An array of float32 on the card, copied back."""
        found = np.empty(shape, np.float32)
        self._do("cuMemcpyDtoH_v2", ctypes.c_void_p(found.ctypes.data), place, ctypes.c_size_t(found.nbytes))
        return found

    def free(self, *places: ctypes.c_uint64) -> None:
        for place in places:
            self._do("cuMemFree_v2", place)

    def kernel(self, name: str):
        """A function that launches a kernel over a grid of cells with arrays first, then sizes and coefficients."""
        function = ctypes.c_void_p()
        self._do("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())

        def launch(arrays: Sequence[ctypes.c_uint64], shape: Sequence[int], coefficients: Sequence[float]) -> None:
            numbers = [*map(ctypes.c_int, shape), *map(ctypes.c_float, coefficients), ctypes.c_int(LENGTH)]
            values = [*arrays, *numbers]
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            blocks, threads = launched(shape)
            self._do("cuLaunchKernel", function, *blocks, *threads, 0, None, pointers, None)

        return launch

    def wait(self) -> None:
        """Wait until all that was launched has ended."""
        self._do("cuCtxSynchronize")


def launched(shape: Sequence[int]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Blocks, and threads of each, that cover a grid in the plane or in the box."""
    walks = -(-shape[0] // LENGTH)
    if len(shape) == 2:
        wide = BLOCK[0] * BLOCK[1]
        return (-(-shape[1] // wide), walks, 1), (wide, 1, 1)
    return (-(-shape[2] // BLOCK[0]), -(-shape[1] // BLOCK[1]), walks), (*BLOCK, 1)
