"""Checkpoints of a run, each written whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import jax

from simjax.errors import CheckpointError, InputOutputError
from simjax.io.files import fingerprint, require_free_space, synchronise, what_to_do, write_text
from simjax.processes import PATIENCE_SECONDS, processes

if TYPE_CHECKING:
    import orbax.checkpoint as ocp

MANIFEST_NAME = "simjax_manifest.json"
COMMIT_NAME = "simjax_commit"
SAVING_FOLDER = ".saving"
FOR_EVER = 5_000_000_000
"""Seconds for orbax's own limits, which it measures by a clock that may be set: a day ahead, a save would fail."""
SCHEMA = 2  # of the manifest; 2 describes the run, and clocks keep their rounding error


@dataclass(frozen=True)
class Restored:
    """A checkpoint read back: `tree` on the template's shardings, and a word on each newer one skipped."""

    step: int
    tree: Any
    meta: dict
    skipped: list[str]


class Checkpoints:
    """The last `keep` states of a run, in `folder/<step>/`, written by orbax.

    Of each `keep_every` of simulated time the first one stays as well.

    A checkpoint is saved under `.saving/`, where orbax writes the arrays in the background; then come a
    manifest with the length and SHA-256 of every file and the shape and dtype of every leaf, a commit marker
    with the manifest's own checksum, and last the move to its place, in one step. Older ones are removed only
    after that. So a folder named by a step was once whole, and `latest` finds out whether it still is.

    The leaves of `tree` must not be donated while a save is under way; `meta` is anything JSON holds. The
    caller sees to it that a non-finite state is never saved. Of several processes each writes its own shards; they
    save, wait and restore together, and process 0 does what is done with whole checkpoints.
    """

    def __init__(self, folder: Path, keep: int = 2, keep_every: float | None = None):
        if keep < 1:
            raise CheckpointError(f"checkpoint.keep={keep}: expected at least 1.")
        self.folder = Path(folder).absolute()
        self.keep, self.keep_every = keep, keep_every
        self.longest = 0.0  # seconds from a save to its place
        self.trusted: int | None = None  # the newest checkpoint up to this step stays
        self._group = processes()
        self._damaged: set[Path] = set()
        self._saving: Future | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simjax-checkpoint")
        self._manager: ocp.CheckpointManager | None = None
        self._unraisable: Callable | None = None

    def save(self, step: int, tree, meta: dict, *, after: Future | None = None) -> None:
        """Starts to save; returns once the state may be computed on, raising what an earlier save met.

        The checkpoint takes its place once `after` is done, which writes what belongs to it.
        """
        begun = time.monotonic()
        self.wait()
        leaves = _named_leaves(tree)
        manifest = {
            "schema": SCHEMA,
            "step": int(step),
            "meta": meta,
            "leaves": {n: _signature(leaf) for n, leaf in leaves.items()},
        }
        json.dumps(manifest)  # a meta that JSON does not hold fails here, not in the background
        try:
            if self._manager is None:
                if self._group.first:
                    shutil.rmtree(self.folder / SAVING_FOLDER, ignore_errors=True)
                    self.folder.mkdir(parents=True, exist_ok=True)
                self._group.gather(None)
                self._manager = _manager(self.folder / SAVING_FOLDER)
                self._keep_threads_quiet()
            require_free_space(self.folder, sum(leaf.nbytes for leaf in leaves.values()), resumed=True)
            import orbax.checkpoint as ocp

            self._manager.save(int(step), args=ocp.args.StandardSave(leaves), force=True)
        except Exception as error:
            raise self._abandoned(step, error) from error
        self._saving = self._thread.submit(self._commit, int(step), manifest, after, begun)

    def wait(self) -> None:
        """Returns when the last save is in its place; raises InputOutputError where it failed."""
        if self._save_ended() and self._manager is not None:
            self._manager.reload()

    def _save_ended(self) -> bool:
        """Tell whether a save was under way, which has come to its end in all processes."""
        saving, self._saving = self._saving, None
        if saving is not None:
            with self._group.together():
                saving.result()
        return saving is not None

    def abandon(self) -> None:
        """Ends after an error, without the other processes, which may be gone."""
        if self._group.count == 1:
            self.close()
        else:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Waits for the last save and gives back the threads."""
        try:
            self._save_ended()  # what orbax would load again may be gone: process 0 removes it
        finally:
            self._thread.shutdown()
            if self._manager is not None:
                self._manager.close()
                self._manager = None
            self._let_threads_speak()
            if self._group.first:
                shutil.rmtree(self.folder / SAVING_FOLDER, ignore_errors=True)

    def latest(self, template) -> Restored | None:
        """The newest whole checkpoint, on the shardings of `template`: a pytree of jax.ShapeDtypeStruct.

        Where shapes depend on the checkpoint, `template` is a function of its meta that returns one.
        None where nothing was ever saved; CheckpointError where none of what was saved can be used.
        """
        self.wait()
        skipped: list[str] = []
        for name in self._group.decide(lambda: [path.name for path in reversed(list_checkpoints(self.folder))]):
            path = self.folder / name
            problem = self._group.decide(functools.partial(verify_checkpoint, path))
            if problem is None:
                manifest = json.loads((path / MANIFEST_NAME).read_text())
                wanted = template(manifest["meta"]) if callable(template) else template
                problem = _mismatch(manifest["leaves"], wanted)
            if problem is None:
                tree = None
                try:
                    tree = self._restore(path, wanted)
                except Exception as error:  # whatever orbax makes of a folder it cannot read
                    problem = f"orbax cannot read it ({type(error).__name__}: {error})"
                problem = next(filter(None, self._group.gather(problem)), None)
                if problem is None:
                    return Restored(manifest["step"], tree, manifest["meta"], skipped)
            skipped.append(f"checkpoint {path.name} is skipped: {problem}")
            self._damaged.add(path)
        if skipped:
            raise CheckpointError(
                f"{self.folder} holds no usable checkpoint: {'; '.join(skipped)}. Bring one back from a copy "
                "or run again from the start in another folder."
            )
        return None

    def _keep_threads_quiet(self) -> None:
        """Keeps back what tensorstore's threads print after a failed save: that their event loop has closed."""
        if self._unraisable is not None:
            return
        before = self._unraisable = sys.unraisablehook

        def hook(raised) -> None:
            if not (isinstance(raised.exc_value, RuntimeError) and "Event loop is closed" in str(raised.exc_value)):
                before(raised)

        sys.unraisablehook = self._hook = hook

    def _let_threads_speak(self) -> None:
        if self._unraisable is not None and sys.unraisablehook is self._hook:
            sys.unraisablehook = self._unraisable
        self._unraisable = None

    def _restore(self, path: Path, template):
        import orbax.checkpoint as ocp

        manager = _manager(self.folder)
        try:
            args = ocp.args.StandardRestore(_named_leaves(template))
            restored = manager.restore(int(path.name), args=args)
        finally:
            manager.close()
        leaves = [restored[name] for name in _named_leaves(template)]
        return jax.tree.unflatten(jax.tree.structure(template), leaves)

    def _commit(self, step: int, manifest: dict, after: Future | None, begun: float) -> None:
        source, target = self.folder / SAVING_FOLDER / str(step), self.folder / str(step)
        try:
            assert self._manager is not None
            self._manager.wait_until_finished()
            if not self._group.first:
                return
            files = sorted(p for p in source.rglob("*") if p.is_file())
            manifest["files"] = {p.relative_to(source).as_posix(): _fingerprint(p) for p in files}
            text = json.dumps(manifest, indent=1)
            write_text(source / MANIFEST_NAME, text)
            write_text(source / COMMIT_NAME, hashlib.sha256(text.encode()).hexdigest())
            if after is not None:
                after.result()
            # This step again, or a later one, belongs to a run that was resumed from before it: out of the
            # way by a rename, which leaves no time between the old one and the new.
            for path in list_checkpoints(self.folder):
                if int(path.name) >= step:
                    os.replace(path, self.folder / SAVING_FOLDER / f"abandoned-{path.name}")
            os.replace(source, target)
            synchronise(self.folder)
            for path in (self.folder / SAVING_FOLDER).glob("abandoned-*"):
                shutil.rmtree(path)
            self._prune()
            self.longest = max(self.longest, time.monotonic() - begun)
        except Exception as error:
            raise self._abandoned(step, error) from error

    def _prune(self) -> None:
        """Removes all but the newest `keep` and those that last, and those that were found damaged."""
        paths = list_checkpoints(self.folder)
        self._damaged.intersection_update(paths[:-1])
        whole = [path for path in paths if path not in self._damaged]
        trusted = [path for path in whole if self.trusted is not None and int(path.name) <= self.trusted][-1:]
        for path in {*whole[: -self.keep], *self._damaged} - _lasting(whole, self.keep_every) - {*trusted}:
            shutil.rmtree(path)

    def _abandoned(self, step: int, error: Exception) -> InputOutputError:
        if self._manager is not None:
            with contextlib.suppress(Exception):  # it raises its save's error again
                self._manager.close()
            self._manager = None
        if self._group.first:
            shutil.rmtree(self.folder / SAVING_FOLDER, ignore_errors=True)
        advice = what_to_do(error) if isinstance(error, OSError) else "free space or mend the permissions of the folder"
        return InputOutputError(
            f"{self.folder}: the checkpoint of step {step} could not be written ({error}); earlier ones are "
            f"kept: {advice}, then resume."
        )


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the oldest first, whole or not."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if p.name.isdecimal() and p.is_dir()), key=lambda p: int(p.name))


def _lasting(paths: Sequence[Path], every: float | None) -> set[Path]:
    """The first checkpoint at or after each multiple of `every` of the run's time."""
    found: dict[int, Path] = {}
    for path in paths if every is not None else ():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # damaged since, or without a time
            reached = json.loads((path / MANIFEST_NAME).read_text())["meta"]["time"]
            found.setdefault(math.floor(reached / every + 1e-9), path)  # the sum of many steps may fall short of it
    return {path for multiple, path in found.items() if multiple > 0}


def verify_checkpoint(path: Path) -> str | None:
    """Find what is wrong with the files of a checkpoint, by its manifest; None where nothing is."""
    try:
        text = (path / MANIFEST_NAME).read_bytes()
        mark = (path / COMMIT_NAME).read_text()
    except (OSError, UnicodeDecodeError) as error:
        return f"it has no manifest or commit marker ({error})"
    if hashlib.sha256(text).hexdigest() != mark:
        return "its manifest does not match its commit marker"
    problem = _manifest_problem(text)
    if problem:
        return problem
    manifest = json.loads(text)
    for name, expected in manifest["files"].items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != expected["bytes"]:
            return f"{name} has {file.stat().st_size} bytes where {expected['bytes']} were written"
        if fingerprint(file)[1] != expected["sha256"]:
            return f"{name} has changed since it was written (its checksum differs)"
    return None


def _manifest_problem(text: bytes) -> str | None:
    """Describe how a manifest differs from those that this version writes."""
    try:
        manifest = json.loads(text)
    except ValueError as error:
        return f"its manifest is not JSON ({error})"
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != SCHEMA:
        return f"its manifest follows schema {schema}, and this version of simjax reads {SCHEMA}"
    for key, kind in (("step", int), ("meta", dict), ("leaves", dict), ("files", dict)):
        if not isinstance(manifest.get(key), kind):
            return f"its manifest has no {key!r} of type {kind.__name__}, as schema {SCHEMA} has"
    for name, about in manifest["files"].items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            return f"its manifest names {name!r}, outside of its folder"
        if not isinstance(about, dict) or not {"bytes", "sha256"} <= about.keys():
            return f"its manifest says {str(about)[:60]} of {name}, and not its bytes and sha256"
    return None


def require_meta(meta: Mapping[str, Any], wanted: Mapping[str, type]) -> None:
    """Raises CheckpointError where what a checkpoint says of itself lacks a key, or has another type there."""
    for key, kind in wanted.items():
        found, kinds = meta.get(key), {float: (int, float), tuple: (list, tuple)}.get(kind, (kind,))
        number = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
        if not isinstance(found, kinds) or (kind in (int, float) and not number):
            raise CheckpointError(
                f"the checkpoint says {key}={str(found)[:60]}, and this version of simjax writes a value of type "
                f"{kind.__name__}; go on with the version that wrote it, or run again from the start."
            )


def _manager(folder: Path) -> ocp.CheckpointManager:
    import orbax.checkpoint as ocp

    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_told_elsewhere)  # once, however often
    # Steps are removed by this module, after the commit; orbax would remove them before it.
    options = ocp.CheckpointManagerOptions(
        save_root_metadata=False,
        async_options=ocp.AsyncOptions(timeout_secs=FOR_EVER, barrier_sync_fn=_meet),
    )
    return ocp.CheckpointManager(folder, options=options)


def _meet(*, key: str, timeout_ms: int) -> None:
    """Wait for the other processes at a barrier of orbax, as long as for any other word of theirs."""
    from orbax.checkpoint import multihost

    patience = min(timeout_ms, int(1000 * PATIENCE_SECONDS))
    multihost.get_barrier_sync_fn()(key=key, timeout_ms=patience)


def _told_elsewhere(record: logging.LogRecord) -> bool:
    """Keeps back the tracebacks that orbax's threads log: what they raise is raised by `wait` too, in a sentence."""
    trace = record.exc_info[2] if record.exc_info else None
    while trace is not None:
        if "orbax" in trace.tb_frame.f_code.co_filename:
            return False
        trace = trace.tb_next
    return True


def _named_leaves(tree) -> dict[str, Any]:
    """Leaves by position and path, so that a checkpoint does not depend on the classes of the tree."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        f"{index:03d}.{jax.tree_util.keystr(path, simple=True, separator='.').replace('/', '_')}": leaf
        for index, (path, leaf) in enumerate(paths)
    }


def _signature(leaf) -> dict:
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}


def _mismatch(saved: dict, template) -> str | None:
    """Describe how the leaves of a checkpoint differ from the template's; orbax would cast them without a word."""
    wanted = {name: _signature(leaf) for name, leaf in _named_leaves(template).items()}
    for name in (*saved, *wanted):
        if saved.get(name) != wanted.get(name):
            return f"{name} is {saved.get(name)} where this run has {wanted.get(name)}"
    return None


def _fingerprint(path: Path) -> dict:
    synchronise(path)
    size, digest = fingerprint(path)
    return {"bytes": size, "sha256": digest}
