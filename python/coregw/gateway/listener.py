"""The address, sockets and event loop of a serving process."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from coregw.errors import Unavailable
from coregw.gateway.settings import Settings

__all__ = ["announce", "listen", "loop_factory", "reserve", "url_of"]


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


def listen(settings: Settings, *, shared: bool = False) -> socket.socket:
    """Return a socket that listens on the host's first address; ``::`` is every address, of IPv4 as well.

    Args:
        settings: The host, the port, and the backlog.
        shared: Whether other processes may listen on the same port with this option (see `reserve`).

    Raises:
        Unavailable: If the address is in use or does not exist; the message says which and why.
    """
    try:
        family, address = _address(settings)
        return socket.create_server(
            address,
            family=family,
            backlog=settings.backlog,
            reuse_port=shared,
            dualstack_ipv6=_is_dual(family, address),
        )
    except (OSError, UnicodeError) as error:
        raise _unavailable(settings, error) from None


def reserve(settings: Settings) -> socket.socket:
    """Return a socket that reserves a port for processes that share it, without accepting connections itself.

    Raises:
        Unavailable: As `listen`; also if other processes that share the port listen on it, so that no two gateways mix.
    """
    with listen(settings) as alone:
        address = alone.getsockname()
        family = alone.family
        is_dual = _is_dual(family, address)
    reserved = socket.socket(family)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            reserved.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if is_dual else 1)
        reserved.bind(address)
    except OSError as error:
        reserved.close()
        raise _unavailable(settings, error) from None
    return reserved


def url_of(bound: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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
