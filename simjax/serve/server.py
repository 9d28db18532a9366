"""Servers of a service: on the main thread until a signal, or beside a program on a thread of its own."""

from __future__ import annotations

import contextlib
import math
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator

from simjax.errors import ResourceError
from simjax.serve.limits import DEFAULT, Limits
from simjax.serve.service import Service

try:
    import uvicorn

    from simjax.serve.connections import timed
    from simjax.serve.web_application import application
except ImportError:
    raise ResourceError(
        "requests are served by starlette and uvicorn, which are not installed; write pip install 'simjax[serve]'."
    ) from None


def bound(host: str, port: int) -> socket.socket:
    """A socket at an address, which does not listen yet; port 0 is any that is free.

    Raises:
        ResourceError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except (OSError, OverflowError) as error:
        found.close()
        raise ResourceError(f"{host}:{port} cannot be served ({error}); write another --host or --port.") from None
    return found


def address(at: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = at.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(service: Service, at: socket.socket, limits: Limits = DEFAULT, names: Collection[str] = ()) -> None:
    """Answer requests until SIGTERM or SIGINT, after which those that are being answered are finished.

    names: of this machine, by which it is asked beside its addresses.
    """
    service.compile()
    at.listen()
    told = f"simjax serves {service.what} of {service.config.model} at {address(at)}"
    server = _server(service, limits, lambda: print(told, flush=True), names)

    def stop(*_) -> None:
        server.should_exit = True

    # The server takes both signals while it runs, and raises them again at its end; so none is lost before and after.
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run(sockets=[at])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def serving(service: Service, limits: Limits = DEFAULT) -> Iterator[str]:
    """Within it a server on a thread of this process answers at the URL that it gives."""
    service.compile()
    at, started = bound("127.0.0.1", 0), threading.Event()
    at.listen()
    server = _server(service, limits, started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, name="simjax-server")
    thread.start()
    try:
        started.wait()
        yield address(at)
    finally:
        server.should_exit = True
        thread.join()


def _server(
    service: Service, limits: Limits, started: Callable[[], None], names: Collection[str] = ()
) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            application(service, limits, started, names),
            http=timed(limits),  # pyright: ignore[reportArgumentType]
            log_level="warning",
            access_log=False,
            ws="none",
            lifespan="on",
            server_header=False,
            timeout_graceful_shutdown=math.ceil(limits.seconds) + 1,
        )
    )
