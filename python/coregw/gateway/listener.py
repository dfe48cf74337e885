"""The address, sockets, event loop and ASGI server of a serving process."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from coregw._core import Certificate, Listener
from coregw.concurrency import beside, result_from_thread
from coregw.errors import Unavailable
from coregw.gateway.settings import Settings

if TYPE_CHECKING:
    from litestar.types import ASGIApp

__all__ = ["announce", "listen", "listen_for_clients", "loop_factory", "run_in_thread", "serving", "url_of"]

UPSTREAM_IDLE_SECONDS: Final = 300
"""How long a private server keeps connections that are not in use. Its front leaves them in half of that."""

_IDLE_SECONDS: Final = 30

_CUT: Final = "ASGI callable returned without completing response."
"""What uvicorn logs of an answer that is cut on purpose, as the client's is that holds a place and reads nothing."""


def announce(url: str) -> None:
    """Write the line to stdout that tells a person, or the parent process, the gateway's address."""
    sys.stdout.write(f"coregw: listening on {url}\n")
    sys.stdout.flush()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop if it is installed; it is twice as fast on sockets."""
    try:
        import uvloop  # noqa: PLC0415 - not available on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop


def run_in_thread(serve: Callable[[], Coroutine[Any, Any, None]], stop: Callable[[], None]) -> None:
    """Run a service in an event loop in a thread of its own, to its end.

    The main thread is left to signals, which uvicorn would take otherwise, and raise again at its end.

    Args:
        serve: The service. What it raises is raised here.
        stop: Makes it end; called for SIGINT and SIGTERM, if this is the main thread. A SIGINT after that kills the
            process, for a person who does not want to wait; what was acknowledged is durable.
    """

    def work() -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve())

    def end(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        stop()

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="coregw-gateway") as thread:
            result_from_thread(thread.submit(work))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@asynccontextmanager
async def serving(
    listener: socket.socket, app: ASGIApp, *, connections: int | None = None, patience: int, is_private: bool = False
) -> AsyncIterator[None]:
    """Serve an application by uvicorn while the context is active. Not in the main thread, whose signals it would take.

    If the server fails, the task of the context is cancelled, and what the server has raised is raised.

    Args:
        listener: The socket.
        app: The ASGI application, without a lifespan.
        connections: How many connections and requests there may be at once; more get 503.
        patience: The time that requests in progress have at the end, in seconds.
        is_private: Whether only a front of this process can connect, which says who its clients are.
    """
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it logs a warning for each malformed request
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    asgi: Any = app
    config = uvicorn.Config(
        asgi,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=is_private,
        forwarded_allow_ips="*",
        server_header=False,
        date_header=not is_private,
        limit_concurrency=connections,
        timeout_keep_alive=UPSTREAM_IDLE_SECONDS if is_private else _IDLE_SECONDS,
        timeout_graceful_shutdown=patience,
    )
    config.load()  # it imports modules, which need descriptors: there may be none as soon as clients come
    server = uvicorn.Server(config)

    async def serve() -> None:
        try:
            await server.serve([listener])
        except Exception:
            if server.started:
                await server.shutdown([listener])  # uvloop would wait for its sockets at the end
            raise

    def stop() -> None:
        server.should_exit = True

    async with beside(asyncio.create_task(serve()), stop):
        yield


def _is_news(record: logging.LogRecord) -> bool:
    """Whether the application has not logged already what is worth logging of this."""
    return record.msg != _CUT


def listen_for_clients(settings: Settings, backlog: int) -> Listener:
    """Return a socket for a front that listens as `listen` does. Raises as `listen`.

    Args:
        settings: The host and the port.
        backlog: How many connections may wait to be accepted.
    """
    try:
        _, address = _address(settings)
        host = str(address[0])
        if len(address) == 4 and address[3]:  # the scope of an address of a link
            host = f"{host.partition('%')[0]}%{address[3]}"
        return Listener(host, address[1], backlog)
    except (OSError, UnicodeError) as error:
        raise _unavailable(settings, error) from None


def listen(settings: Settings, backlog: int) -> socket.socket:
    """Return a socket that listens on the host's first address; ``::`` is every address, of IPv4 as well.

    Args:
        settings: The host and the port.
        backlog: How many connections may wait to be accepted.

    Raises:
        Unavailable: If the address is in use or does not exist; the message says which and why.
    """
    try:
        family, address = _address(settings)
        return socket.create_server(address, family=family, backlog=backlog, dualstack_ipv6=_is_dual(family, address))
    except (OSError, UnicodeError) as error:
        raise _unavailable(settings, error) from None


def url_of(bound: socket.socket | Listener, scheme: str = "http") -> str:
    """Return the URL of a bound socket."""
    host, port = bound.address if isinstance(bound, Listener) else bound.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def open_certificate(settings: Settings) -> Certificate | None:
    """Read the certificate that the settings name; return None without TLS.

    Raises:
        InvalidInput: If a file cannot be read or holds no certificate or key, or if the two do not belong together.
    """
    files = settings.tls_files
    return None if files is None else Certificate(*files)


def scheme_of(settings: Settings) -> str:
    """Return the scheme of the address for clients."""
    return "http" if settings.tls_files is None else "https"


def _address(settings: Settings) -> tuple[int, Any]:
    found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return family, address


def _is_dual(family: int, address: tuple[Any, ...]) -> bool:
    """Whether a socket takes connections of IPv4 beside those of IPv6: the system's default depends on its settings."""
    return family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()


def _unavailable(settings: Settings, error: OSError | UnicodeError) -> Unavailable:
    reason = _reason(error) if isinstance(error, OSError) else "no such host"
    step = "; choose another port, or 0 for a free one" if getattr(error, "errno", None) == errno.EADDRINUSE else ""
    return Unavailable(f"cannot listen on {settings.host}:{settings.port}: {reason}{step}")


def _reason(error: OSError) -> str:
    """Return the reason alone: `socket.create_server` adds the address to its message."""
    is_from_resolver = isinstance(error, socket.gaierror)  # its numbers are not errno values
    return str(error.strerror) if is_from_resolver or error.errno is None else os.strerror(error.errno)
