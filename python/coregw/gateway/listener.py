"""What every process of a gateway needs: its address, its sockets, its log, its event loop.

Leaves out what happens on the sockets (`coregw.gateway.server`), so that a process that only starts others loads no
server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from coregw.errors import Unavailable
from coregw.gateway.settings import Settings

__all__ = ["announce", "listen", "log_to_stderr", "loop_factory", "reserve", "url_of"]


def announce(url: str) -> None:
    """Writes the one line that tells a person, or the program that started this one, where the gateway listens."""
    sys.stdout.write(f"coregw: listening on {url}\n")
    sys.stdout.flush()


def log_to_stderr(settings: Settings) -> None:
    """Writes log lines to stderr, unless the program has said already what becomes of them."""
    which = "%(process)d " if settings.workers > 1 else ""
    form = f"%(asctime)s {which}%(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=settings.log_level.upper(), format=form)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop where there is one; it is twice as fast on sockets."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop


def listen(settings: Settings, *, shared: bool = False) -> socket.socket:
    """A listening socket for the first address of the host that can be had.

    Args:
        settings: The host, the port, and how many connections may wait.
        shared: Whether other processes may listen on the same port that say so as well (see `reserve`).

    Raises:
        Unavailable: The address is taken, or there is none; the message says which and why.
    """
    try:
        family, address = _address(settings)
        return socket.create_server(address, family=family, backlog=settings.backlog, reuse_port=shared)
    except (OSError, UnicodeError) as error:
        raise _refused(settings, error) from None


def reserve(settings: Settings) -> socket.socket:
    """A socket that holds a port for processes that share it, and takes no connections itself.

    Raises:
        Unavailable: As `listen`; also where others who share the port listen on it, so that no two gateways mix.
    """
    with listen(settings) as alone:
        address = alone.getsockname()
        family = alone.family
    held = socket.socket(family)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(address)
    except OSError as error:
        held.close()
        raise _refused(settings, error) from None
    return held


def url_of(bound: socket.socket) -> str:
    """The address of a socket as clients write it."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _address(settings: Settings) -> tuple[int, Any]:
    found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return family, address


def _refused(settings: Settings, error: OSError | UnicodeError) -> Unavailable:
    reason = _reason(error) if isinstance(error, OSError) else "no such host"
    return Unavailable(f"cannot listen on {settings.host}:{settings.port}: {reason}")


def _reason(error: OSError) -> str:
    """Why, and no more: `socket.create_server` adds the address, which the message has already."""
    is_name = isinstance(error, socket.gaierror)  # its numbers are no errno
    return str(error.strerror) if is_name or error.errno is None else os.strerror(error.errno)
