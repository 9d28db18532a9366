"""The process around a run: precision, devices, memory, signals, provenance."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import FrameType

import simjax
from simjax.driver.loop.terminal import leave_closed_terminals
from simjax.driver.programs.compile_cache import settings_to_keep_programs
from simjax.errors import ResourceError, without_credentials
from simjax.processes import Processes, join, processes
from simjax.schema.config import Config
from simjax.schema.devices import AUTO, AutoMesh, DistributedConfig

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP") if hasattr(signal, name))
# Virtual CPU devices share few threads: collectives that do not depend on each other must run in one order, or the
# devices wait for each other for ever (seen in gradients through implicit solves, jax 0.10). No effect once jax runs.
ONE_ORDER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
# jax 0.12 makes a loop that touches few bytes one kernel on one thread: from 512 x 512 cells on that is slower, up to
# 256 x 256 faster (`benchmarks/cpu.py`).
THREADED = f"--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold={2**24}"
# libtpu, where it is installed to compile for TPUs that are not there, asks at its start which of them it is on, and
# tells at length that nobody answers. With these it finds no chip without a word.
SILENT_TPU = {"TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": "v5litepod-1"}
GOOGLE = "0x1ae0"
UNSOUND = {
    "0.10.2": "computes wrong numbers on CPUs (products of small matrices in loops over many rows, jax#39103)",
    "0.11.0": "crashes on CPUs (jax#39257)",
}
"""Versions of jax that simjax does not ask for, and what they do."""
COMMIT = "# branch.oid "
"""Beginning of the line with the commit in what Git tells of a checkout."""
PACKAGES = ("simjax", "jax", "jaxlib", "numpy", "equinox", "h5py", "orbax-checkpoint", "hydra-core")


def keep_programs() -> None:
    """Have jax take compiled programs from the user's cache and keep new ones there, if it is not told otherwise."""
    import jax

    for name, value in settings_to_keep_programs().items():
        jax.config.update(name, value)


def set_up_jax(config: Config) -> Config:
    """Set the precision before the first array, keep compiled programs, join the processes of the run, and on a CPU
    present as many virtual devices as the mesh asks for; return the configuration without what this process is told.

    Raises:
        ResourceError: the mesh needs more devices than there are, or other processes do not come.
    """
    import jax

    if config.precision == "float64":
        jax.config.update("jax_enable_x64", True)
    keep_programs()
    if config.profile:  # a kept program carries the names that its operations had when it was compiled
        jax.config.update("jax_compilation_cache_include_metadata_in_key", True)
    needed = config.mesh.devices
    group = join_processes(config)
    if needed > 1 and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        # Where jax has started already, in a program that uses simjax as a library, its devices stand.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", -(-needed // group.count))
    present = _device_count()
    if needed > present:
        kind = jax.devices()[0].device_kind
        more = f", or set JAX_NUM_CPU_DEVICES={needed} before Python starts" if kind == "cpu" else ""
        raise ResourceError(
            f"mesh.x * mesh.y * mesh.z * mesh.ensemble = {needed} devices are asked for, {present} are present "
            f"({kind}); choose sizes whose product is at most {present}, or mesh=auto{more}."
        )
    if group.count > 1 and needed != present and not isinstance(config.mesh, AutoMesh):
        raise ResourceError(
            f"mesh.x * mesh.y * mesh.z * mesh.ensemble = {needed}: expected {present}, all devices of the "
            f"{group.count} processes, so that each has a part; write sizes whose product is {present}, or mesh=auto."
        )
    return dataclasses.replace(config, distributed=None)


def _device_count() -> int:
    """The number of devices; ResourceError where jax finds none of the kind that it is told to use."""
    import jax

    try:
        return jax.device_count()
    except (RuntimeError, AssertionError) as error:  # an assertion: a package for a card is there, and no card
        told = os.environ.get("JAX_PLATFORMS", "")
        first = (str(error).strip().splitlines() or ["its driver finds no card"])[0].rstrip(".")
        raise ResourceError(
            f"JAX_PLATFORMS={told}: expected a device of that kind on this machine, and jax finds none ({first}); "
            "write JAX_PLATFORMS=cpu, or unset it, so that jax takes what is there."
        ) from None


def version_notes() -> list[str]:
    """A sentence where this version of jax is not to be trusted on the devices that there are."""
    import jax

    fault = UNSOUND.get(jax.__version__)
    if fault is None or jax.default_backend() != "cpu":
        return []
    return [f"warning: jax {jax.__version__} {fault}: pip install 'jax!={jax.__version__}' and run again."]


def join_processes(config: Config) -> Processes:
    """The processes of the run, joined as `distributed` says; of this one alone where it says nothing.

    Flags of XLA come first, which reads them when processes join.
    """
    keep_loops_threaded()
    silence_absent_tpus()
    if config.mesh.devices > 1 or isinstance(config.mesh, AutoMesh):
        _add_flag(ONE_ORDER)
    told = config.distributed
    if told is None:
        return processes()
    if told == AUTO or not isinstance(told, DistributedConfig):
        return join(None, None, None)
    return join(told.coordinator, told.processes, told.process)


def keep_loops_threaded() -> None:
    """Let loops over large fields take all threads of a CPU; no effect once jax runs."""
    import jax

    if jax.__version_info__ >= (0, 12):
        _add_flag(THREADED)


def silence_absent_tpus(devices: Path = Path("/sys/bus/pci/devices")) -> None:
    """Keep libtpu from telling that there is no TPU; no effect once jax runs, nor where a device may be one."""
    vendors = [vendor.read_text().strip() for vendor in devices.glob("*/vendor")]
    if GOOGLE not in vendors and not any(name in os.environ for name in (*SILENT_TPU, "JAX_FORCE_TPU_INIT")):
        os.environ.update(SILENT_TPU)


def _add_flag(flag: str) -> None:
    """Set a flag of XLA, unless the user has."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flag.partition("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}"


def available_memory() -> int | None:
    """Bytes free for arrays on one device, or None where nobody says."""
    import jax

    device = jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    return free // jax.local_device_count()


class StopSignals:
    """A context in which the first SIGTERM, SIGINT, SIGUSR1 or SIGHUP asks for a stop and a second one acts at once.

    A SIGHUP that is ignored from the start, as below `nohup`, stays ignored.

    lethal: a second one ends the process, as on a command line; otherwise it does what it did before the context.
    """

    def __init__(self, *, lethal: bool) -> None:
        self.lethal = lethal
        self.received: str | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        for number in SIGNALS:
            if number == getattr(signal, "SIGHUP", None) and signal.getsignal(number) is signal.SIG_IGN:
                continue
            try:
                self._previous[number] = signal.signal(number, self._note)
            except ValueError:  # not the main thread: the program around us keeps its own signals
                break
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        if self.received == "SIGHUP":
            leave_closed_terminals()
        previous = signal.SIG_DFL if self.lethal else self._previous[number]
        signal.signal(number, previous)  # pyright: ignore[reportArgumentType]

    def __exit__(self, *exception) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)  # pyright: ignore[reportArgumentType]


def process_start() -> float:
    """The start of the interpreter by `time.monotonic`.

    What the system tells is the start of the process, in which a shell may have waited or installed something before it
    became Python. The interpreter has computed until simjax was imported, which a shell that waits has not.
    """
    import time

    began = simjax._IMPORTED_AT - simjax._COMPUTED_BEFORE
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[19])  # the 22nd of proc(5), of which two come before the bracket
        made = time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
        return max(made, began)
    except (OSError, ValueError, IndexError, AttributeError):
        return began


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a run computes and writes."""
    return dict(_versions())


@functools.cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


@functools.cache
def git_state() -> Mapping[str, str | int]:
    """Commit and cleanliness of the checkout that simjax runs from; empty strings outside one."""
    root = Path(simjax.__file__).resolve().parents[1]
    none = {"simjax_git_commit": "", "simjax_git_dirty": 0}
    if not (root / ".git").exists():
        return none
    try:
        asked = ["git", "-C", str(root), "status", "--porcelain=v2", "--branch"]
        lines = subprocess.run(asked, capture_output=True, text=True, timeout=5).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return none
    commit = [line.removeprefix(COMMIT) for line in lines if line.startswith(COMMIT)]
    dirty = any(not line.startswith("#") for line in lines)
    return {"simjax_git_commit": "".join(commit), "simjax_git_dirty": int(dirty)}


def device_name() -> str:
    """Number and kind of the devices, as a report names them."""
    import jax

    kind = jax.devices()[0].device_kind
    name = f"{platform.machine()} CPU with {os.cpu_count()} cores" if kind == "cpu" else kind
    return f"{jax.device_count()} x {name}" if jax.device_count() > 1 else name


def command_line() -> str:
    """Command by which this process was started, without what a URL in it tells of users, such as that of a sweeper."""
    return without_credentials(" ".join([Path(sys.executable).name, "-m simjax.run", *sys.argv[1:]]))
