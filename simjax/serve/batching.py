"""Requests that arrive together, computed in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any


class Batcher:
    """Requests of one kind in the order in which they arrive, and the loop that computes them.

    A call takes those that arrived within `window` seconds of the first, and all that arrived during the call before:
    at most `most`.

    Args:
        evaluate: from requests to an answer for each; called on a thread of `executor`.
    """

    def __init__(
        self, evaluate: Callable[[Sequence[Any]], Sequence[Any]], executor: Executor, *, most: int, window: float
    ):
        self._evaluate, self._executor = evaluate, executor
        self._most, self._window = most, window
        self._queue: asyncio.Queue[tuple[float, Any, asyncio.Future]] = asyncio.Queue()

    async def ask(self, request: Any) -> Any:
        """The answer to a request; a caller that is cancelled before its call begins costs nothing."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._queue.put_nowait((loop.time(), request, answer))
        return await answer

    async def run(self) -> None:
        """Answer requests until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            waiting = [await self._queue.get()]
            if self._most > 1:
                arrived, *_ = waiting[0]
                await asyncio.sleep(arrived + self._window - loop.time())
            while len(waiting) < self._most and not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            wanted = [(request, answer) for _, request, answer in waiting if not answer.done()]
            if wanted:
                await self._answer(wanted)

    async def _answer(self, wanted: Sequence[tuple[Any, asyncio.Future]]) -> None:
        loop = asyncio.get_running_loop()
        requests = [request for request, _ in wanted]
        try:
            found = await loop.run_in_executor(self._executor, self._evaluate, requests)
        except Exception as error:  # the error of all of them; the loop goes on
            for _, answer in wanted:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), one in zip(wanted, found, strict=True):
            if not answer.done():
                answer.set_result(one)
