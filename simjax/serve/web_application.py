"""The addresses of a server: /health, /metadata, /call and /vjp, as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from simjax.serve.batching import Batcher
from simjax.serve.hosts import is_known
from simjax.serve.limits import Limits
from simjax.serve.messages import ARGUMENTS, ERROR, JSON, NPZ, Refusal, decode, encode
from simjax.serve.service import Service

ADDRESSES = "GET /health, GET /metadata, POST /call or POST /vjp"


# Refused before the body has come, which is then not waited for.
CLOSING = {413, 415, 421, 503, 504}


def application(
    service: Service, limits: Limits, started: Callable[[], None], names: Collection[str] = ()
) -> Starlette:
    """The ASGI application of a service whose programs are compiled; `started` is called when it begins to answer.

    names: of this machine, by which it is asked beside its addresses.
    """
    answering = _Answering(service, limits, started)
    routes = [
        Route("/health", answering.health),
        Route("/metadata", answering.metadata),
        Route("/call", answering.within_limits(gradients=False), methods=["POST"]),
        Route("/vjp", answering.within_limits(gradients=True), methods=["POST"]),
    ]
    handlers = {Refusal: _refused, HTTPException: _elsewhere, Exception: _failed}
    asked = Middleware(AskedByName, names=names)
    return Starlette(routes=routes, lifespan=answering.running, exception_handlers=handlers, middleware=[asked])


class AskedByName:
    """An ASGI application around another one, which refuses requests for hosts that this one is not."""

    def __init__(self, app: ASGIApp, names: Collection[str]):
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, or refuse it."""
        hosts = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        strange = next((host for host in hosts if not is_known(host, self.names)), None)
        if strange is None:
            await self.app(scope, receive, send)
            return
        sentence = f"Host: {strange[:80]}: expected an address, localhost, or a name that --names gives this server."
        await _told(421, sentence)(scope, receive, send)


class _Answering:
    """The service, its batches and the number of requests that are present."""

    def __init__(self, service: Service, limits: Limits, started: Callable[[], None]):
        self.service, self.limits, self._started = service, limits, started
        self._present, self._answered = 0, 0
        self._held = 0  # bytes of bodies that are not complete
        # One thread computes: calls of a device follow each other in any case.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="simjax-serve")
        self._batchers = [
            Batcher(service.evaluate, self._executor, most=service.batch, window=limits.window) for _ in range(2)
        ]

    @contextlib.asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        """Around the life of the server: batches are formed."""
        tasks = [asyncio.create_task(one.run()) for one in self._batchers]
        self._started()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._executor.shutdown()

    async def health(self, _: Request) -> Response:
        told = {"status": "ready", "requests": self._present, "answered": self._answered, "calls": self.service.calls}
        return JSONResponse(told)

    async def metadata(self, _: Request) -> Response:
        limits = {**asdict(self.limits), "bytes": self.service.most_bytes}
        return JSONResponse({**self.service.metadata(), "limits": limits})

    def within_limits(self, *, gradients: bool) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            self._require_room()
            try:
                async with asyncio.timeout(self.limits.seconds):
                    sent, wanted = _kinds(request)
                    content = await self._body(request)
                    self._require_room()  # those that send slowly take no place until all is there
                    answer = await self._answer(request, content, sent, wanted, gradients)
                self._answered += 1
                return answer
            except TimeoutError:
                raise Refusal(504, f"no answer within {self.limits.seconds:g} s; ask for less, or later.") from None
            except ClientDisconnect:
                return Response(status_code=400)  # which nobody reads

        return handle

    def _require_room(self) -> None:
        if self._present >= self.limits.requests:
            raise Refusal(503, f"{self._present} requests are being answered, as many as may be; try again later.")

    async def _answer(self, request: Request, content: bytes, sent: str, wanted: str, gradients: bool) -> Response:
        self._present += 1
        try:
            # Large bodies take a while to read and write, during which others are heard.
            question = await asyncio.to_thread(
                lambda: self.service.question(
                    decode(content, sent, ARGUMENTS), request.query_params, gradients=gradients
                )
            )
            found = await self._batchers[gradients].ask(question)
            told = await asyncio.to_thread(lambda: encode(self.service.answer(question, found), wanted))
            return Response(told, media_type=wanted)
        finally:
            self._present -= 1

    async def _body(self, request: Request) -> bytes:
        most, told = self.service.most_bytes, request.headers.get("content-length", "0")
        refusal = Refusal(413, f"the body is too large: expected at most {most} bytes, as all arguments need.")
        if int(told) > most:
            raise refusal
        content = bytearray()
        try:
            async for chunk in request.stream():
                content += chunk
                self._held += len(chunk)
                if len(content) > most:
                    raise refusal
                if self._held > most * self.limits.requests:
                    raise Refusal(503, "as many bodies are being read as may be; try again later.")
            return bytes(content)
        finally:
            self._held -= len(content)


def _kinds(request: Request) -> tuple[str, str]:
    """The kind of the body that was sent, and of that which is wanted: the same, unless `Accept` names the other.

    Names of kinds are the same in any case (RFC 9110, section 8.3.1).
    """
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent not in (JSON, NPZ):
        raise Refusal(415, f"Content-Type: expected {JSON} or {NPZ}, got {sent or 'none'}.")
    wanted = [one.partition(";")[0].strip() for one in request.headers.get("accept", "").lower().split(",")]
    return sent, next((kind for kind in wanted if kind in (JSON, NPZ)), sent)


def _told(status: int, sentence: str) -> Response:
    return JSONResponse({ERROR: sentence}, status, {"Connection": "close"} if status in CLOSING else None)


async def _refused(_: Request, error: Any) -> Response:
    return _told(error.status, str(error))


async def _elsewhere(request: Request, error: Any) -> Response:
    return _told(error.status_code, f"{request.method} {request.url.path}: expected {ADDRESSES}.")


async def _failed(_: Request, error: Exception) -> Response:
    return _told(500, f"the server failed at this request, {type(error).__name__}; its own output tells more.")
