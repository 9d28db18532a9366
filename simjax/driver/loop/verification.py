"""Pieces of a run that are computed twice: where the bits differ, the machine has computed something wrong."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding

from simjax.driver.programs.compiled_run import CompiledRun
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.io.checkpoint import list_checkpoints
from simjax.parallel import whole
from simjax.stepping.simulate import Schedule

MOST_REPEATS = 3
"""Times that a run goes back to one checkpoint before it gives up."""
MOST_NAMED = 3


class BitsDiffer(Exception):
    """A piece of a run has two results, and nobody knows which of them is right."""

    def __init__(self, sentence: str, step: int):
        super().__init__(sentence)
        self.step = step


class Verification:
    """The calls of a run that are computed twice: the first one, and each `every`-th after it.

    The second time the same program runs on a copy of what went in, on the same devices in another order where a
    process has several: each block of the state on another one. So the layout, and all numbers, are the same.

    verified: the step up to which the last such call went well; what was saved until then is gone back to.
    """

    def __init__(self, every: int | None, programs: CompiledRun, instruments: CompiledInstruments, halt: Any):
        self._every, self._programs, self._instruments, self._halt = every, programs, instruments, halt
        self._calls = 0
        self._turned: tuple[Mapping[str, Any], CompiledRun, CompiledInstruments] | None = None
        self.verified = 0

    def __bool__(self) -> bool:
        return self._every is not None

    def kept(self, *given: Any) -> Any:
        """A copy of what a call is given, which may be donated; None where it is not computed twice."""
        if self._every is None:
            return None
        self._calls += 1
        return jax.tree.map(jnp.copy, given) if (self._calls - 1) % self._every == 0 else None

    def compare(self, schedule: Schedule, steps: int, until: Any, kept: Any, results: Any) -> None:
        """Repeat a call of `steps` steps from its `kept` arguments, and compare the new results with its `results`.

        Raises:
            BitsDiffer: some bits are not the same; on all processes.
        """
        programs, instruments = self._others()
        devices = _places(self._programs.mesh, programs.mesh)
        state, clock, sums = _moved(kept, devices, programs.mesh)
        program = instruments.advance(schedule, steps)
        given = programs.values, programs.files, state, clock, until
        again = program(*given, sums) if instruments.in_the_loop else program(*given)
        again = _moved(again, {there: here for here, there in devices.items()}, self._programs.mesh)
        counts = jax.tree.map(whole, _different(results, again))
        begun, ended = (int(np.max(whole(clock.step))) for clock in (kept[1], results[1]))
        wrong = {_name(path): int(n) for path, n in jax.tree_util.tree_leaves_with_path(counts) if n}
        if wrong:
            told = [f"{n} number{'s' if n > 1 else ''} of {name}" for name, n in list(wrong.items())[:MOST_NAMED]]
            more = [f"{len(wrong) - MOST_NAMED} more arrays"] if len(wrong) > MOST_NAMED else []
            raise BitsDiffer(f"steps {begun} to {ended}, computed twice, differ in {', '.join([*told, *more])}", begun)
        self.verified = ended

    def _others(self) -> tuple[CompiledRun, CompiledInstruments]:
        """The programs that compute the second time."""
        programs = self._programs
        mesh = None if programs.mesh is None else turned(programs.mesh)
        if mesh is None or mesh == programs.mesh:
            return programs, self._instruments
        room = {**programs.room(), "steps_per_exchange": programs.steps_per_exchange}
        if self._turned is None or self._turned[0] != room:
            other, devices = copy.copy(programs), _places(programs.mesh, mesh)
            other.mesh, other._advance, other.instrument_programs = mesh, {}, {}
            other.values, other.files = _moved((programs.values, programs.files), devices, mesh)
            self._turned = room, other, CompiledInstruments(other, self._halt)
        return self._turned[1], self._turned[2]


def turned(mesh: Mesh) -> Mesh:
    """The mesh in which each process has its own devices in another order: none keeps its block if it has several."""
    own: dict[int, list[Any]] = {}
    for device in mesh.devices.flat:
        own.setdefault(device.process_index, []).append(device)
    after = {a: b for devices in own.values() for a, b in zip(devices, [*devices[1:], devices[0]], strict=True)}
    devices = np.asarray([after[device] for device in mesh.devices.flat], dtype=object).reshape(mesh.devices.shape)
    return Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types)


def remove_after(folder: Path, step: int) -> None:
    """Remove the checkpoints of later steps, which may hold wrong values."""
    for path in list_checkpoints(folder):
        if int(path.name) > step:
            shutil.rmtree(path)


def _places(here: Mesh | None, there: Mesh | None) -> dict[Any, Any]:
    """The device in the place of each, from mesh to mesh."""
    return {} if here is None or there is None else dict(zip(here.devices.flat, there.devices.flat, strict=True))


def _moved(tree: Any, devices: Mapping[Any, Any], mesh: Mesh | None) -> Any:
    """Arrays whose blocks are on other devices of their processes, as `devices` says."""

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, Array) or not isinstance(leaf.sharding, NamedSharding) or mesh is None:
            return leaf
        blocks = [jax.device_put(block.data, devices[block.device]) for block in leaf.addressable_shards]
        to = NamedSharding(mesh, leaf.sharding.spec)
        return jax.make_array_from_single_device_arrays(leaf.shape, to, blocks)

    return jax.tree.map(move, tree)


@jax.jit
def _different(first: Any, second: Any) -> Any:
    """Count the numbers of each array that have different bits."""

    def count(a, b):
        return sum(jnp.sum(u != v, dtype=jnp.int32) for u, v in zip(_bits(a), _bits(b), strict=True))

    return jax.tree.map(count, first, second)


def _bits(u: Array) -> tuple[Array, ...]:
    if jnp.issubdtype(u.dtype, jnp.complexfloating):
        return *_bits(u.real), *_bits(u.imag)
    if not jnp.issubdtype(u.dtype, jnp.floating):
        return (u,)
    return (lax.bitcast_convert_type(u, jnp.dtype(f"uint{8 * u.dtype.itemsize}")),)


def _name(path: Any) -> str:
    """The place of an array among the results of a call, without that of the state, which is the first of them."""
    text = jax.tree_util.keystr(path, simple=True, separator=".")
    return text.removeprefix("0.") or "the state"
