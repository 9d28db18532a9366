"""Executables of a run that a later process takes without tracing: what they are kept under, and how they are called.

jax finds a compiled program by what was traced, and tracing takes longer than loading. Here a program is found by what
it is traced from: the configuration, the files that it names, simjax's sources, all installed packages, the devices and
the settings of jax. Beside the name of jax's own entry, which holds the machine code, an entry has the places of
arguments and results, and what simjax logged while it traced.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import pickle
import time as wall
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import jax

from simjax.driver.programs.compile_cache import KeptPrograms, kept_programs, note_loaded
from simjax.driver.programs.program_identity import identity_of, is_foreign
from simjax.processes import processes
from simjax.schema.config import Config

LOG = logging.getLogger("simjax")
Found = TypeVar("Found")
_TAKES = False


@contextlib.contextmanager
def executables_of_earlier_processes() -> Iterator[None]:
    """Within it runs take executables of earlier processes, and keep theirs.

    Commands do so. A program that uses simjax as a library may have changed what no key tells, such as a function of
    simjax itself.
    """
    global _TAKES
    before, _TAKES = _TAKES, True
    try:
        yield
    finally:
        _TAKES = before


def kept_executables(config: Config) -> KeptExecutables | None:
    """The executables of a configuration; None where none are kept or taken.

    That is so outside of commands, without a folder of simjax's own for compiled programs, in a run of several
    processes, where jax looks at every operation or its operations are profiled, and where the configuration or what it
    names cannot be told from another one.
    """
    programs, settings = kept_programs(), jax.config
    looks: Any = [getattr(settings, f"jax_{name}", False) for name in ("debug_nans", "debug_infs", "disable_jit")]
    if not _TAKES or programs is None or any(looks) or config.profile or processes().count > 1:
        return None
    code = config, config.schema, [one.kind_class for one in config.outputs]
    identity = None if is_foreign(code) else identity_of(config)
    return None if identity is None else KeptExecutables(identity, programs)


class KeptExecutables:
    """Executables of one run and facts about it: `program` takes or keeps the one, `fact` the other."""

    def __init__(self, identity: str, programs: KeptPrograms):
        self._identity, self._programs = identity, programs

    def _key(self, *name: Hashable) -> str:
        return f"run-{hashlib.sha256(repr((self._identity, *name)).encode()).hexdigest()}"

    def program(self, function: Any, *name: Hashable) -> KeptProgram:
        """A jitted function, which is not traced where its executable is kept; name: of it, within the run."""
        return KeptProgram(function, self, name)

    def fact(self, make: Callable[[], Found], *name: Hashable) -> Found:
        """The result of `make`, of Python's and simjax's types, or that of an earlier process."""
        entry = self._programs.get(self._key(*name))
        if entry is not None:
            # An entry of this user that cannot be read, whatever the reason, is as good as none.
            with contextlib.suppress(Exception):
                return pickle.loads(entry)
        made = make()
        with contextlib.suppress(Exception):  # not everything can be written
            self._programs.put(self._key(*name), pickle.dumps(made))
        return made

    def load(self, name: tuple[Hashable, ...], arguments: tuple[Any, ...]) -> Executable | None:
        """The executable of a name for arguments like these; None where it is not kept, or what is kept is no such."""
        entry, begin = self._programs.get(self._key(*name, signature(arguments))), wall.monotonic()
        if entry is None:
            return None
        try:
            found = _read(entry, arguments, self._programs)
        except Exception:  # whatever is wrong with it, it is compiled again
            return None
        note_loaded(wall.monotonic() - begin)
        for level, text in found.told:
            LOG.log(level, "%s", text)
        return found

    def compile(
        self, name: tuple[Hashable, ...], function: Any, arguments: tuple[Any, ...], told: list[tuple[int, str]]
    ) -> Executable:
        """The compiled function, which is kept if it can be; told: what was logged while it was traced before."""
        with _heard(told):
            lowered = function.lower(*arguments)
        with self._programs.watched() as entry:
            compiled = lowered.compile()
        shapes = jax.tree.map(lambda out: jax.ShapeDtypeStruct(out.shape, out.dtype), lowered.out_info)
        found = Executable(compiled, shapes, tuple(told))
        if entry.key is not None:
            with contextlib.suppress(Exception):  # such as a program that calls the host
                self._programs.put(self._key(*name, signature(arguments)), _written(found, arguments, entry.key))
        return found


@dataclass(frozen=True)
class Executable:
    """A compiled function. shapes: of its results. told: level and text of what was logged while it was traced."""

    compiled: Any
    shapes: Any
    told: tuple[tuple[int, str], ...]

    def compile(self) -> Any:
        """The compiled function, as of a lowered one."""
        return self.compiled


class KeptProgram:
    """A jitted function, called by its executable: that of an earlier process, or compiled at the first call.

    Arguments of other shapes or places than those of the first call are taken by the jitted function itself.
    """

    def __init__(self, function: Any, kept: KeptExecutables, name: tuple[Hashable, ...]):
        self._function, self._kept, self._name = function, kept, name
        self._executable: Executable | None = None
        self._looked = False
        self._told: list[tuple[int, str]] = []  # while it was traced

    def __call__(self, *arguments: Any) -> Any:
        executable = self.lower(*arguments)
        try:
            return executable.compiled(*arguments)
        except (TypeError, ValueError):  # before anything is computed or donated
            return self._function(*arguments)

    def lower(self, *arguments: Any) -> Executable:
        """The executable for arguments like these, compiled now if it is not kept."""
        if self._executable is None and self._found(arguments) is None:
            self._executable = self._kept.compile(self._name, self._function, arguments, self._told)
        assert self._executable is not None
        return self._executable

    def eval_shape(self, *arguments: Any) -> Any:
        found = self._found(arguments)
        if found is not None:
            return found.shapes
        with _heard(self._told):
            return self._function.eval_shape(*arguments)

    def trace(self, *arguments: Any) -> Any:
        with _heard(self._told):
            return self._function.trace(*arguments)

    def _found(self, arguments: tuple[Any, ...]) -> Executable | None:
        if not self._looked:
            self._looked = True
            self._executable = self._kept.load(self._name, arguments)
        return self._executable


def signature(arguments: Any) -> str:
    """Shapes and types of arguments, and the tree that they are in."""
    leaves, tree = jax.tree.flatten(arguments)
    return repr(([(tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves], str(tree)))


@contextlib.contextmanager
def _heard(told: list[tuple[int, str]]) -> Iterator[None]:
    """Add what simjax logs to `told`; it goes on to where it is shown."""
    handler = logging.Handler()
    handler.emit = lambda record: told.append((record.levelno, record.getMessage()))
    LOG.addHandler(handler)
    try:
        yield
    finally:
        LOG.removeHandler(handler)


# ---------------------------------------------------------------------- an entry


def _written(executable: Executable, arguments: tuple[Any, ...], code: str) -> bytes:
    """The entry of an executable whose machine code is jax's entry `code`.

    What is loaded cannot be written by XLA for CPUs once more: its functions would be missing.
    """
    from jax.experimental import serialize_executable as jax_files

    class Writer(jax_files._JaxPjrtPickler):
        def persistent_id(self, obj):
            found = super().persistent_id(obj)
            return ("exec", code) if found is not None and found[0] == "exec" else found

    compiled = executable.compiled
    # Trees are told by what is in them: jax's own are not equal to themselves once they are read.
    leaves, tree = jax.tree.flatten(executable.shapes)
    results = jax.tree.unflatten(tree, range(len(leaves)))
    args, unloaded = jax.tree.leaves(compiled.args_info), compiled._executable._unloaded_executable
    if compiled._params.const_args or unloaded.host_callbacks or unloaded.keepalive:
        raise TypeError("a program that holds arrays or calls the host is not kept")
    devices = [device.id for device in unloaded.device_list]
    with io.BytesIO() as file:
        Writer(file).dump((unloaded, args, compiled._no_kwargs))
        return pickle.dumps((signature(arguments), file.getvalue(), devices, results, leaves, executable.told))


def _read(entry: bytes, arguments: tuple[Any, ...], programs: KeptPrograms) -> Executable:
    """The executable of an entry; any exception where it is none for these arguments."""
    from jax._src import compilation_cache
    from jax.experimental import serialize_executable as jax_files

    class Reader(jax_files._JaxPjrtUnpickler):
        def persistent_load(self, pid):
            if pid[0] != "exec":
                return super().persistent_load(pid)
            kept = programs.get(pid[1])
            if kept is None:
                raise LookupError(pid[1])
            code, _ = compilation_cache.extract_executable_and_time(compilation_cache.decompress_executable(kept))
            return super().persistent_load(("exec", code))

    of, parts, numbers, results, leaves, told = pickle.loads(entry)
    if of != signature(arguments):
        raise ValueError(of)
    out_tree, in_tree = jax.tree.structure(results), jax.tree.structure((arguments, {}))
    known = {device.id: device for device in jax.devices()}
    devices = [known[number] for number in numbers]  # XLA ends the process where they are not as many as before
    unloaded, args, no_kwargs = Reader(io.BytesIO(parts), devices[0].client, devices).load()
    compiled = jax.stages.Compiled(unloaded.load(), [], in_tree.unflatten(args), out_tree, no_kwargs=no_kwargs)
    return Executable(compiled, out_tree.unflatten(leaves), told)
