"""The tile of a kernel, or no kernel at all, chosen by measurement when a program is first compiled for a device."""

import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn

from simjax.jaxpr.replay import computed, replayed
from simjax.stencil.kernels import timing_cache
from simjax.stencil.kernels.cost import fingerprint
from simjax.stencil.kernels.operands import Passes
from simjax.stencil.kernels.tiles import Sizes, by
from simjax.stencil.kernels.timing_cache import Device, Key, Seconds
from simjax.stencil.kernels.tracing import CALLS

LOG = logging.getLogger("simjax")
XLA = "xla"
REPETITIONS = 9
SHORTEST = 2e-3
"""Seconds of one repetition at least, as far as 50 calls reach: clocks and launches take microseconds."""
PATIENCE = 60.0
"""Seconds after which no further candidate is compiled."""


@dataclass(frozen=True, eq=False)
class Work:
    """Computation on arrays: by `run(tile, *arrays)`, a kernel, or by `plain(*arrays)`, as jax would.

    Attributes:
        tiles: the candidates, the cost model's best one first, each with what it has to say.
        shapes: of the arrays, those of the members of an ensemble together.
        updates: whether the results are added to fields next, as tendencies are. XLA does so in the loop that computes
            them; after a kernel it takes another pass over memory, which may cost more than the kernel saves.
    """

    program: Passes
    interior: Sizes
    tiles: Mapping[Sizes, str]
    shapes: Sequence[jax.ShapeDtypeStruct]
    run: Callable
    plain: Callable
    updates: bool = False

    def key(self, device: Device) -> Key:
        """Key of a measurement: all properties on which times depend."""
        return {
            "device": device.device_kind,
            "jax": jax.__version__,
            "interior": [*self.interior],
            "operands": [f"{s.dtype}[{','.join(map(str, s.shape))}]" for s in self.shapes],
            "program": fingerprint(self.program),
            "candidates": [by(tile) for tile in self.tiles],
            "updates": self.updates,
        }

    def functions(self) -> dict[str, Callable]:
        """The candidates, XLA first, with what follows them."""
        kernels = {by(tile): lambda *arrays, tile=tile: self.run(tile, *arrays) for tile in self.tiles}
        found = {XLA: self.plain, **kernels}
        return {name: self._updating(function) for name, function in found.items()} if self.updates else found

    def _updating(self, function: Callable) -> Callable:
        """`function` with its results added to arrays of their shape among its arguments, where there are any."""

        def added(arrays: Sequence[Array], k: int, result: Array) -> Array:
            for x in arrays:
                if x.shape[-len(self.interior) :] == self.interior and x.size % result.size == 0:
                    parts = x.reshape(-1, *result.shape)
                    return result + parts[k % len(parts)].astype(result.dtype)
            return result

        return lambda *arrays: [added(arrays, k, result) for k, result in enumerate(function(*arrays))]


Timer = Callable[[Mapping[str, Callable], Sequence[jax.ShapeDtypeStruct], Device], Seconds]


class Tuner:
    """Times of candidates, taken once and kept: here, and in a folder if there is one."""

    def __init__(self, folder: Path | None, timer: Timer | None = None):
        """timer: takes the times of what was never measured; without one, only what was is used."""
        self._folder, self._timer, self._known = folder, timer, {}

    def tile(self, work: Work, device: Device, *, by_xla: bool) -> Sizes | None:
        """The tile to compute with, or None for no kernel, if XLA may compute it."""
        key = work.key(device)
        new = str(key) not in self._known
        seconds = self.seconds(work, key, device)
        tile = chosen(seconds, list(work.tiles), by_xla=by_xla)
        if new:
            account = work.tiles[tile] if tile else "left to XLA"
            place = f"{by(work.interior)} cells on {key['device']}"
            LOG.info("kernel %s of %s: %s; %s", key["program"][:8], place, account, told(seconds))
        return tile

    def seconds(self, work: Work, key: Key, device: Device) -> Seconds:
        """Times of the candidates; none where nothing was measured."""
        timer = self._timer
        return self.times(key, lambda: timer(work.functions(), work.shapes, device) if timer else {})

    def times(self, key: Key, measure: Callable[[], Seconds]) -> Seconds:
        """Times measured under `key`, or measured now, if this tuner measures."""
        name = str(key)
        if name not in self._known:
            folders = [folder for folder in (self._folder, timing_cache.SHIPPED) if folder]
            found = next((kept for folder in folders if (kept := timing_cache.read(key, folder))), {})
            if not found and self._timer:
                found = measure()
                if found and self._folder:
                    timing_cache.write(key, found, self._folder)
            self._known[name] = found
        return self._known[name]


def chosen(seconds: Seconds, tiles: Sequence[Sizes], *, by_xla: bool) -> Sizes | None:
    """The tile to compute with, or None for no kernel.

    The cost model's best tile is left for the fastest one, and XLA for that, where it is faster by more than noise. So
    XLA computes what was not measured.

    Args:
        by_xla: whether XLA may compute it.
    """
    named = {by(tile): tile for tile in tiles}
    measured = [name for name in named if name in seconds]
    if not measured:
        return None if by_xla else tiles[0]
    fastest = min(measured, key=lambda name: statistics.median(seconds[name]))
    best = fastest if faster(seconds[fastest], seconds[measured[0]]) else measured[0]
    if by_xla and XLA in seconds and not faster(seconds[best], seconds[XLA]):
        return None
    return named[best]


def faster(one: Sequence[float], other: Sequence[float]) -> bool:
    """Tell whether three quarters of one's times lie below three quarters of the other's, so by more than noise."""
    return len(one) > 1 < len(other) and statistics.quantiles(one)[2] < statistics.quantiles(other)[0]


def told(seconds: Seconds) -> str:
    """Medians, by candidate."""
    times = (f"{name} {1e3 * statistics.median(times):.3g} ms" for name, times in seconds.items())
    return ", ".join(times) or "not measured"


def timed(
    functions: Mapping[str, Callable], shapes: Sequence[jax.ShapeDtypeStruct], device: Device
) -> dict[str, list[float]]:
    """Seconds of each function of arrays of such shapes, in turns, so that other load hits all of them alike.

    In a thread of its own, where nothing of what is being compiled is seen: neither a trace nor a mesh. What does not
    compile or finds no memory is left out.
    """
    wide = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    def measure() -> dict[str, list[float]]:
        with jax.default_device(device), jax.enable_x64(wide):
            return _timed(functions, shapes)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(measure).result()


def _timed(functions: Mapping[str, Callable], shapes: Sequence[jax.ShapeDtypeStruct]) -> dict[str, list[float]]:
    def filled(key: Array) -> list[Array]:
        # Positive, as densities are: where numbers are not finite, branches may be others.
        return [jax.random.uniform(key, s.shape, jnp.float32, 0.5, 1.5).astype(s.dtype) for s in shapes]

    begin, calls, seconds = time.perf_counter(), {}, {}
    try:
        arrays = jax.jit(filled)(jax.random.key(0))
    except jax.errors.JaxRuntimeError as error:
        LOG.info("nothing is measured: %s", first_line(error))
        return {}
    for name, function in functions.items():
        if time.perf_counter() - begin > PATIENCE:
            break
        try:
            calls[name] = jax.jit(function).lower(*shapes).compile()
            _seconds(calls[name], arrays, 1)
            # Once more: the first call also loads the program.
            count = min(50, math.ceil(SHORTEST / _seconds(calls[name], arrays, 1)))
            seconds[name] = (count, [])
        except Exception as error:  # compilers refuse tiles in many ways
            calls.pop(name, None)
            LOG.info("candidate %s is left out: %s", name, first_line(error))
    for _ in range(REPETITIONS):
        for name, (count, times) in seconds.items():
            times.append(_seconds(calls[name], arrays, count) / count)
    return {name: times for name, (_, times) in seconds.items()}


def _seconds(call: Callable, arrays: Sequence[Array], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        found = call(*arrays)
    jax.block_until_ready(found)
    return time.perf_counter() - begin


def first_line(error: Exception) -> str:
    """Message of an error, in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def on_one_device(closed: ClosedJaxpr) -> Callable:
    """A stencil as a function of arrays that knows of no mesh.

    Casts to values that vary over a mesh are left out, within calls too, and so are shardings.
    """

    return replayed(closed, _without_mesh)


def _without_mesh(equation: JaxprEqn, inputs: list) -> list:
    name, params = equation.primitive.name, equation.params
    if name in ("pcast", "pvary"):
        return inputs
    if name in CALLS:
        return on_one_device(params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"])(*inputs)
    if "sharding" in params:
        equation = equation.replace(params={**params, "sharding": None})
    return computed(equation, inputs)


def wanted() -> bool:
    """Tell whether kernels may be timed, which SIMJAX_TUNE=0 forbids."""
    return os.environ.get("SIMJAX_TUNE") != "0"


TUNERS: dict[tuple[Path | None, bool], Tuner] = {}


def tuner() -> Tuner:
    """The tuner of the present cache folder, which may change between calls with the environment.

    It measures unless there are several processes, which must choose alike, or SIMJAX_TUNE=0.
    """
    place = timing_cache.folder(), jax.process_count() == 1 and wanted()
    folder, measures = place
    return TUNERS.setdefault(place, Tuner(folder, timed if measures else None))
