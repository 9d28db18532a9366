"""The processes that carry out one run together, on one host or many: they decide together, and name one that is lost.

JAX joins them (`jax.distributed`) and moves arrays between their devices. What the host decides, such as when to stop,
goes through the key-value store of the same service. A process of its own is a group of one, for which all of this is
free.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from simjax.errors import (
    CheckpointError,
    ConfigurationError,
    InputOutputError,
    NumericalError,
    ResourceError,
    SimjaxError,
)

T = TypeVar("T")

ROOT = "simjax"
BEAT_SECONDS = 1.0
SILENT_SECONDS = 20.0
"""A process of which nothing was heard for so long is lost: killed, stopped, or cut off from the network."""
PATIENCE_SECONDS = 600.0
"""Time for which processes wait for one that lives and does not answer."""
GRACE_SECONDS = 10.0
"""Time that this process has to end in good order after another one was lost: it may wait in a collective for ever."""
FAREWELL_SECONDS = 10.0
"""Time for which process 0, without which JAX ends the others at once, waits until all of them know which is lost."""
PARTING_SECONDS = 60.0
"""Time for which a process that fails waits for the others, which may compute, or wait for it in a collective."""
START_SECONDS = 300
TOLD = "(told to the other processes of the run)"
OF_ANOTHER = "(told by another process of the run)"
KINDS = (CheckpointError, ConfigurationError, InputOutputError, NumericalError, ResourceError)
ADVICE = "go on from the last checkpoint by resume=auto."


class Processes:
    """The processes of a run; this class: one process alone. index: number of this one; count: how many there are."""

    index = 0
    count = 1

    @property
    def first(self) -> bool:
        """True of process 0, which writes what belongs to all, and speaks."""
        return self.index == 0

    def gather(self, value: T) -> list[T]:
        """The values of all processes in their order, as JSON holds them; all of them call this at the same place.

        Raises:
            ResourceError: a process was lost, or does not answer.
        """
        return [value]

    def decide(self, make: Callable[[], T]) -> T:
        """The value that process 0 makes, on all of them; its error is the error of all."""
        made = None
        with self.together():
            made = make() if self.first else None
        return self.gather(made)[0]  # pyright: ignore[reportReturnType]

    def first_reason(self, own: str | None) -> str | None:
        """The reason to stop of the first process that has one, with its number where there are several."""
        told = self.gather(own)
        who = next((number for number, reason in enumerate(told) if reason), None)
        if who is None:
            return None
        return f"{told[who]} at process {who}" if self.count > 1 else told[who]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Context manager at whose end an error raised in one process is raised in every process."""
        yield

    @contextlib.contextmanager
    def ending_together(self) -> Iterator[None]:
        """Context manager around a run: processes leave together, and an error in one ends all."""
        yield


class ManyProcesses(Processes):
    """Processes joined by `jax.distributed`, that watch over one another from a thread of their own."""

    def __init__(self, client: Any, index: int, count: int, address: str | None):
        self.index, self.count = index, count
        self._client, self._address = client, address
        self._round = 0
        self._watch = _Watch(client, index, count)
        self._watch.start()
        self._name_the_cause_of_an_abort()
        atexit.register(self._close)

    def gather(self, value):
        return self._exchange({"value": value})

    @contextlib.contextmanager
    def together(self):
        try:
            yield
        except SimjaxError as error:
            if not _is_known(error):
                self._tell_all(error)
            raise
        self._exchange({})

    @contextlib.contextmanager
    def ending_together(self):
        try:
            yield
            self._exchange({})
        except BaseException as error:
            if not _is_known(error):
                self._part(error)
            raise

    def _part(self, error: BaseException) -> None:
        """Tell the others of this process's own error, which all may have; name the process that is lost, if that is
        why XLA failed."""
        if "jax" in type(error).__module__:
            self._watch.wait_for_loss(SILENT_SECONDS + 5 * BEAT_SECONDS)
        self._watch.require_all()
        try:
            self._tell_all(error, PARTING_SECONDS)
        except SimjaxError:
            self._watch.tell(str(error))

    def _tell_all(self, error: BaseException, patience: float = PATIENCE_SECONDS) -> None:
        """Share an error of this process with all processes; where all have the same one, the first of them shows
        it."""
        text = str(error)[:2000]
        told = self._exchange({"error": [type(error).__name__, text], "value": text}, patience)
        error.add_note(OF_ANOTHER if text in told[: self.index] else TOLD)

    def _exchange(self, message: dict[str, Any], patience: float = PATIENCE_SECONDS) -> list[Any]:
        """The values of all messages; an error in one of them is raised where the own message is none."""
        self._round += 1
        place = f"{ROOT}/round/{self._round}"
        if self.first:
            texts = [json.dumps(message), *(self._text(f"{place}/{i}", i, patience) for i in range(1, self.count))]
            # By now all have read what was said before.
            self._client.key_value_delete(f"{ROOT}/round/{self._round - 1}/")
            self._client.key_value_set(f"{place}/all", json.dumps(texts))
        else:
            self._client.key_value_set(f"{place}/{self.index}", json.dumps(message))
            texts = json.loads(self._text(f"{place}/all", 0, patience))
        told = [json.loads(text) for text in texts]
        failed = next((one["error"] for one in told if "error" in one), None)
        if failed is not None and "error" not in message:
            raise _of_another(*failed)
        return [one.get("value") for one in told]

    def _text(self, key: str, whom: int, patience: float) -> str:
        """The text under a key that process `whom` sets."""
        end = time.monotonic() + patience
        while True:
            self._watch.require_all()
            try:
                return self._client.blocking_key_value_get(key, 1000)
            except Exception as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise self._watch.cut_off(error) from None
            if time.monotonic() > end:
                raise ResourceError(
                    f"process {whom} of {self.count} lives, but the others have waited {patience:.0f} s for its part "
                    "in a decision; see what it does, for example whether its file system hangs."
                )

    @property
    def broken(self) -> bool:
        """True where a process was lost, so that JAX cannot shut down in good order."""
        return self._watch.lost is not None

    def wait_until_told(self) -> None:
        """Return once the other processes know which one is lost."""
        self._watch.wait_until_told()

    def _close(self) -> None:
        """Part from the others at the end of this process: JAX lets process 0 wait for them, which hold on to it."""
        import jax

        exit_without_shutdown(ResourceError.exit_code)
        self._watch.stop()
        ctypes.CDLL(None).signal(int(signal.SIGABRT), ctypes.c_void_p(int(signal.SIG_DFL)))
        jax.distributed.shutdown()

    def _name_the_cause_of_an_abort(self) -> None:
        """Have a sentence follow where JAX ends this process: it does so at once when process 0 is gone.

        A handler in Python would wait for the main thread, which may wait in a collective.
        """

        def tell(_: int) -> None:
            told = self._watch.lost or (
                f"process 0 of {self.count}, which holds the others together, was lost"
                if self._first_is_gone()
                else "XLA ended this process, for the reason above"
            )
            print(f"simjax: {told}; {ADVICE}", file=sys.stderr, flush=True)
            os._exit(ResourceError.exit_code)

        self._handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(tell)
        ctypes.CDLL(None).signal(int(signal.SIGABRT), self._handler)

    def _first_is_gone(self) -> bool:
        host, _, port = (self._address or "").rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=2).close()
        except (OSError, ValueError):
            return True
        return False


class _Watch(threading.Thread):
    """A thread in which this process says that it lives, and sees whether the others do."""

    def __init__(self, client: Any, index: int, count: int):
        super().__init__(name="simjax-watch", daemon=True)
        self._client, self._index, self._count = client, index, count
        self.lost: str | None = None
        self._noticed, self._stopped, self._told = threading.Event(), threading.Event(), threading.Event()
        self._heard: dict[int, tuple[str, float]] = dict.fromkeys(range(count), ("", time.monotonic()))
        self._answered = time.monotonic()  # when process 0 did last, which keeps what all say

    def run(self) -> None:
        threading.Thread(target=self._watch_the_first, name="simjax-watch-the-first", daemon=True).start()
        beat = 0
        while self.lost is None:
            beat += 1
            try:
                self._client.key_value_set(f"{ROOT}/alive/{self._index}", str(beat), allow_overwrite=True)
                told = self._client.key_value_dir_get(f"{ROOT}/failed/")
                lost = self._client.key_value_dir_get(f"{ROOT}/lost/")
                alive = self._client.key_value_dir_get(f"{ROOT}/alive/")
            except Exception as error:
                self.cut_off(error)
                break
            self._answered = time.monotonic()
            for _, sentence in lost:
                self._lose(sentence)
            self._look(dict(alive))
            for key, text in told:
                who = int(key.rpartition("/")[2])
                if who != self._index:
                    self._lose(f"process {who} of {self._count} ended: {text}")
            if self.lost is None and self._stopped.wait(BEAT_SECONDS):
                return
        self._tell_of_the_loss()
        self._end_a_process_that_waits()

    def _watch_the_first(self) -> None:
        """See that process 0 answers: while it stands still, a call of its store does not return."""
        while not self._stopped.wait(BEAT_SECONDS) and self.lost is None:
            silent = time.monotonic() - self._answered
            if silent > SILENT_SECONDS:
                self._lose(
                    f"process 0 of {self._count}, which holds the others together, was lost: it has not answered for "
                    f"{silent:.0f} s"
                )
                self._told.set()  # nobody can be told
                self._end_a_process_that_waits()

    def _tell_of_the_loss(self) -> None:
        """Tell the other processes which process is lost; process 0 waits until those that live say so themselves."""
        with contextlib.suppress(Exception):  # whoever keeps the store may be the one that is lost
            self._client.key_value_set(f"{ROOT}/lost/{self._index}", str(self.lost), allow_overwrite=True)
            end = time.monotonic() + FAREWELL_SECONDS
            while self._index == 0 and time.monotonic() < end:
                if len(self._client.key_value_dir_get(f"{ROOT}/lost/")) >= self._count - 1:
                    break
                time.sleep(0.1)
        self._told.set()

    def wait_until_told(self) -> None:
        """Return once the others know which process is lost, as far as they can be told."""
        self._told.wait(FAREWELL_SECONDS + BEAT_SECONDS)

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self.join()

    def _look(self, alive: dict[str, str]) -> None:
        now = time.monotonic()
        for key, beat in alive.items():
            who = int(key.rpartition("/")[2])
            if beat != self._heard[who][0]:
                self._heard[who] = beat, now
        for who, (_, last) in self._heard.items():
            if who != self._index and now - last > SILENT_SECONDS:
                self._lose(f"process {who} of {self._count} was lost: nothing was heard of it for {now - last:.0f} s")

    def _lose(self, sentence: str) -> None:
        if self.lost is None:
            self.lost = sentence
            self._noticed.set()

    def cut_off(self, error: Exception) -> ResourceError:
        """The error of a process that no longer reaches the store of the group, which process 0 keeps."""
        first = str(error).split("\n")[0]
        self._lose(f"process 0 of {self._count}, which holds the others together, cannot be reached ({first})")
        return ResourceError(f"{self.lost}; {ADVICE}")

    def require_all(self) -> None:
        """Raises ResourceError where a process was lost."""
        if self.lost is not None:
            raise ResourceError(f"{self.lost}; {ADVICE}")

    def wait_for_loss(self, seconds: float) -> None:
        """Return as soon as a process is known to be lost, or after some seconds."""
        self._noticed.wait(seconds)

    def tell(self, text: str) -> None:
        """Tell the other processes why this process ends."""
        with contextlib.suppress(Exception):  # whoever keeps the store may be gone as well
            self._client.key_value_set(f"{ROOT}/failed/{self._index}", text[:2000], allow_overwrite=True)

    def _end_a_process_that_waits(self) -> None:
        """End this process: a main thread that waits in a collective for a lost process cannot be woken."""
        time.sleep(GRACE_SECONDS)
        print(f"simjax: {self.lost}; {ADVICE}", file=sys.stderr, flush=True)
        os._exit(ResourceError.exit_code)


def _of_another(kind: str, text: str) -> SimjaxError:
    """The error reported by another process, which also shows it."""
    known = {error.__name__: error for error in KINDS}.get(kind)
    error = SimjaxError(f"{kind}: {text}") if known is None else known(text)
    error.add_note(OF_ANOTHER)
    return error


def is_of_another(error: BaseException) -> bool:
    """Tell whether an error was reported by another process, which also shows it."""
    return OF_ANOTHER in getattr(error, "__notes__", ())


def _is_known(error: BaseException) -> bool:
    return TOLD in getattr(error, "__notes__", ()) or is_of_another(error)


def exit_without_shutdown(code: int) -> None:
    """End this process at once where another one was lost, which JAX would wait for; else do nothing."""
    if _JOINED is not None and _JOINED.broken:
        _JOINED.wait_until_told()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


_ALONE = Processes()
_JOINED: ManyProcesses | None = None


def processes() -> Processes:
    """The group that this process belongs to, also where `jax.distributed.initialize` was called by hand."""
    global _JOINED
    import jax

    if not jax.distributed.is_initialized():
        return _ALONE
    if _JOINED is None:
        from jax._src.distributed import global_state  # JAX has no public name for its client

        if global_state.num_processes in (None, 1):
            return _ALONE
        _JOINED = ManyProcesses(
            global_state.client, global_state.process_id, global_state.num_processes, global_state.coordinator_address
        )
    return _JOINED


def join(coordinator: str | None, count: int | None, index: int | None) -> Processes:
    """Join the processes of a run, before JAX computes anything; with None what the cluster says.

    Args:
        coordinator: HOST:PORT at which process 0 can be reached.
        count, index: how many processes there are, and which this one is.

    Raises:
        ConfigurationError: no cluster is known here.
        ResourceError: the processes do not find one another in five minutes.
    """
    import jax

    if jax.distributed.is_initialized():
        return processes()
    detection = None if coordinator is None else "deactivate"
    try:
        jax.distributed.initialize(
            coordinator, count, index, initialization_timeout=START_SECONDS, cluster_detection_method=detection
        )
    except ValueError as error:
        raise ConfigurationError(
            f"distributed=auto: no cluster is known here (SLURM, TPU, Kubernetes and Open MPI are; {error}); write "
            "distributed={coordinator: HOST:PORT, processes: N, process: I} on each."
        ) from None
    except RuntimeError as error:
        where = "the processes that the cluster names" if coordinator is None else f"{count} processes at {coordinator}"
        raise ResourceError(
            f"distributed: expected {where}, and they did not all answer ({str(error).splitlines()[0]}); see that each "
            "was started, with a number of its own, and reaches that address."
        ) from None
    return processes()
