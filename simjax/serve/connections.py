"""Connections of a server: none is held by a client that does not send, or does not read, for longer than it may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.h11_impl import H11Protocol

from simjax.serve.limits import Limits

CONNECTIONS_PER_REQUEST = 8
"""Connections for each request that may be answered at once: clients keep theirs open between requests."""


class Waiting:
    """Connections on which no more than part of a request has come, those that have waited longest first."""

    def __init__(self, limits: Limits):
        self.limits, self.most = limits, CONNECTIONS_PER_REQUEST * limits.requests
        self._unanswered: dict[TimedProtocol, None] = {}

    def add(self, connection: TimedProtocol) -> None:
        self._unanswered[connection] = None

    def drop(self, connection: TimedProtocol) -> None:
        self._unanswered.pop(connection, None)

    def make_room(self, connections: int) -> None:
        """End the connection that has been sending for longest, where there are too many."""
        if connections > self.most and self._unanswered:
            next(iter(self._unanswered)).give_up()


class TimedProtocol(H11Protocol):
    """HTTP on one connection, which ends where a request has not come, or its answer is not taken, in time.

    The head of a request has `seconds` from the connection, or from its first byte on one that is kept. The body and
    the answer have `seconds` of their own in the application, and taking the answer as many again.
    """

    waiting: Waiting
    _deadline: asyncio.TimerHandle | None = None
    _answering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.waiting.make_room(len(self.connections))
        self._wait(answering=False)

    def data_received(self, data: bytes) -> None:
        """Receive the next bytes of a request."""
        super().data_received(data)
        answering = self._is_answering()
        if answering != self._answering or self._deadline is None:
            self._wait(answering)
        if answering and not self.cycle.more_body:
            self.waiting.drop(self)

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn ends a connection on which none begins."""
        self._forget()
        super().on_response_complete()
        if self._is_answering():  # the next one has come already
            self._wait(answering=True)
        elif self.transport.get_write_buffer_size():
            self._answering, seconds = False, self.waiting.limits.seconds
            self._deadline = self.loop.call_later(seconds, self._give_up_unless_taken)

    def _give_up_unless_taken(self) -> None:
        self._deadline = None
        if self.transport.get_write_buffer_size():
            self.give_up()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    def give_up(self) -> None:
        """End the connection at once."""
        self._forget()
        self.transport.abort()

    def _wait(self, answering: bool) -> None:
        self._forget()
        seconds = self.waiting.limits.seconds
        self._answering = answering
        self._deadline = self.loop.call_later(2 * seconds + 1.0 if answering else seconds, self.give_up)
        self.waiting.add(self)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.waiting.drop(self)


def timed(limits: Limits) -> Callable[..., asyncio.Protocol]:
    """The protocol of a server with these limits, as uvicorn takes it."""
    return type("TimedProtocol", (TimedProtocol,), {"waiting": Waiting(limits)})
