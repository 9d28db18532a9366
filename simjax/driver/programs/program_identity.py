"""The identity of a configured run from process to process: all that its programs are traced from."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CellType, FunctionType, MethodType
from typing import Any

import jax

import simjax
from simjax.schema.config import Config
from simjax.schema.locate import is_url

HOST_SECTIONS = ("experiment_name", "title", "description", "overrides", "notes", "resume", "checkpoint", "profile")
"""Sections that the host alone reads."""
HOST_OUTPUT = ("root", "folder", "overwrite", "copy_to", "animation", "report", "pictures", "rounding_bits")
"""Keys of `output` that the host alone reads."""
ENVIRONMENT = ("JAX_", "XLA_", "TF_", "LIBTPU_", "CUDA_", "NVIDIA_", "ROCR_", "HIP_", "SIMJAX_", "OMP_")
"""Beginnings of names of variables by which jax, XLA and drivers choose."""
LARGEST_FILE = 64 << 20
"""Bytes of a file that are read to tell it from another one."""
PACKAGE = Path(simjax.__file__).resolve().parent
# Code of these does not change while the versions of installed packages and simjax's sources stay.
KNOWN = {*sys.stdlib_module_names, "simjax", "jax", "jaxlib", "numpy", "equinox", "jaxtyping", "diffrax", "ml_dtypes"}


def identity_of(config: Config) -> str | None:
    """A digest of the configuration and of all around it that decides what is compiled; None where nothing can tell.

    A folder or a place in a store, which the configuration may read, cannot be told from what it was before.
    """
    written = config.write()
    written = {name: value for name, value in written.items() if name not in HOST_SECTIONS}
    output = written.get("output")
    if isinstance(output, Mapping):
        written["output"] = {name: value for name, value in output.items() if name not in HOST_OUTPUT}
    files: dict[str, str] = {}
    for text in _texts(written):
        if is_url(text):
            return None
        digest = _file_digest(text)
        if digest is None:
            return None
        files |= {text: digest} if digest else {}
    parts = [written, files, sources_digest(), packages_digest(), devices(), settings()]
    return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, (str, Path)):
        yield str(value)


def _file_digest(text: str) -> str | None:
    """The digest of the file that a text names, "" where it names none; None of a folder or a large file."""
    try:
        path = Path(text).expanduser()
        if not text or not path.exists():
            return ""
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return None
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError, RuntimeError):
        return ""


@functools.cache
def sources_digest() -> str:
    """The digest of simjax's own modules."""
    return digest_of_files(PACKAGE, ".py")


def digest_of_files(folder: Path, ending: str) -> str:
    """The digest of names and contents of all files below a folder that end so."""
    found, root = hashlib.sha256(), str(folder)
    files = [os.path.join(at, name) for at, _, names in os.walk(root) for name in names if name.endswith(ending)]
    for file in sorted(files):
        with open(file, "rb", buffering=0) as opened:
            found.update(f"{file[len(root) :]}\0".encode() + opened.read() + b"\0")
    return found.hexdigest()


@functools.cache
def packages_digest() -> str:
    """The digest of names and versions of all installed packages."""
    names = set()
    for folder in sys.path:
        try:
            names |= {name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))}
        except OSError:
            continue
    return hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()


def devices() -> list[Any]:
    """Versions of Python and jax, and the devices of this process."""
    found, client = jax.devices(), jax.devices()[0].client
    kinds = [(device.id, device.platform, device.device_kind, device.process_index) for device in found]
    version = str(getattr(client, "platform_version", ""))
    about = [sys.version, platform.machine(), os.cpu_count(), jax.__version__, version]
    return [kinds, *about]


def settings() -> list[Any]:
    """Settings of jax, and variables of the environment that jax, XLA and drivers read."""
    told: Any = jax.config
    # Where compiled programs are kept decides nothing.
    values = {name: repr(value) for name, value in told.values.items() if "compilation_cache" not in name}
    environment = {name: value for name, value in os.environ.items() if name.startswith(ENVIRONMENT)}
    return [sorted(values.items()), sorted(environment.items())]


def is_foreign(thing: Any) -> bool:
    """Tell whether code that is neither simjax's nor of what it is built on is reached from a thing."""
    seen: set[int] = set()
    left = [thing]
    while left:
        one = left.pop()
        if id(one) in seen or one is None or isinstance(one, (str, bytes, int, float, complex, Path)):
            continue
        seen.add(id(one))
        kind = one if isinstance(one, (type, FunctionType)) else type(one)
        if (kind.__module__ or "").partition(".")[0] not in KNOWN:
            return True
        left += _within(one)
    return False


def _within(one: Any) -> list[Any]:
    """Parts of an object of Python, as far as they can hold code."""
    if isinstance(one, type):
        return [base for base in one.__mro__ if base is not one]
    if isinstance(one, FunctionType):
        return [*(one.__closure__ or ()), *(one.__defaults__ or ())]
    if isinstance(one, CellType):
        try:
            return [one.cell_contents]
        except ValueError:  # not filled yet
            return []
    if isinstance(one, MethodType):
        return [one.__self__, one.__func__]
    if isinstance(one, functools.partial):
        return [one.func, *one.args, *one.keywords.values()]
    if isinstance(one, Mapping):
        return [*one.keys(), *one.values()]
    if isinstance(one, (list, tuple, set, frozenset)):
        return list(one)
    if type(one).__module__.partition(".")[0] not in ("simjax", "equinox"):
        return []
    if dataclasses.is_dataclass(one):
        return [getattr(one, field.name, None) for field in dataclasses.fields(one)]
    return list(getattr(one, "__dict__", {}).values())
