"""The addresses of a server: /health, /metadata, /call and /vjp, as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from simjax.serve.batching import Batcher
from simjax.serve.limits import Limits
from simjax.serve.messages import ARGUMENTS, ERROR, JSON, NPZ, Refusal, decode, encode
from simjax.serve.service import Service

ADDRESSES = "GET /health, GET /metadata, POST /call or POST /vjp"


def application(service: Service, limits: Limits, started: Callable[[], None]) -> Starlette:
    """The ASGI application of a service whose programs are compiled; `started` is called when it begins to answer."""
    answering = _Answering(service, limits, started)
    routes = [
        Route("/health", answering.health),
        Route("/metadata", answering.metadata),
        Route("/call", answering.within_limits(gradients=False), methods=["POST"]),
        Route("/vjp", answering.within_limits(gradients=True), methods=["POST"]),
    ]
    handlers = {Refusal: _refused, HTTPException: _elsewhere, Exception: _failed}
    return Starlette(routes=routes, lifespan=answering.running, exception_handlers=handlers)


class _Answering:
    """The service, its batches and the number of requests that are present."""

    def __init__(self, service: Service, limits: Limits, started: Callable[[], None]):
        self.service, self.limits, self._started = service, limits, started
        self._present, self._answered = 0, 0
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
            if self._present >= self.limits.requests:
                raise Refusal(503, f"{self._present} requests are being answered, as many as may be; try again later.")
            self._present += 1
            try:
                async with asyncio.timeout(self.limits.seconds):
                    answer = await self._answer(request, gradients)
                self._answered += 1
                return answer
            except TimeoutError:
                raise Refusal(504, f"no answer within {self.limits.seconds:g} s; ask for less, or later.") from None
            except ClientDisconnect:
                return Response(status_code=400)  # which nobody reads
            finally:
                self._present -= 1

        return handle

    async def _answer(self, request: Request, gradients: bool) -> Response:
        sent, wanted = _kinds(request)
        content = await self._body(request)
        # Large bodies take a while to read and write, during which others are heard.
        question = await asyncio.to_thread(
            lambda: self.service.question(decode(content, sent, ARGUMENTS), request.query_params, gradients=gradients)
        )
        found = await self._batchers[gradients].ask(question)
        told = await asyncio.to_thread(lambda: encode(self.service.answer(question, found), wanted))
        return Response(told, media_type=wanted)

    async def _body(self, request: Request) -> bytes:
        most, told = self.service.most_bytes, request.headers.get("content-length", "0")
        refusal = Refusal(413, f"the body is too large: expected at most {most} bytes, as all arguments need.")
        if int(told) > most:
            raise refusal
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > most:
                raise refusal
        return bytes(content)


def _kinds(request: Request) -> tuple[str, str]:
    """The kind of the body that was sent, and of that which is wanted: the same, unless `Accept` names the other."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip()
    if sent not in (JSON, NPZ):
        raise Refusal(415, f"Content-Type: expected {JSON} or {NPZ}, got {sent or 'none'}.")
    wanted = request.headers.get("accept", "")
    return sent, next((kind for kind in (JSON, NPZ) if kind in wanted), sent)


def _told(status: int, sentence: str) -> Response:
    return JSONResponse({ERROR: sentence}, status)


async def _refused(_: Request, error: Any) -> Response:
    return _told(error.status, str(error))


async def _elsewhere(request: Request, error: Any) -> Response:
    return _told(error.status_code, f"{request.method} {request.url.path}: expected {ADDRESSES}.")


async def _failed(_: Request, error: Exception) -> Response:
    return _told(500, f"the server failed at this request, {type(error).__name__}; its own output tells more.")
