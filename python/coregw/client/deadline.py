"""The deadline of a blocking exchange, enforced at every read and write of its connection.

httpx2's timeouts start again with every read and write, so a gateway that sends a byte now and then could hold a client
for ever. httpcore2 has a seam for this, the network backend; httpx2 has no option for it, so `enforce_deadlines` sets
private attributes of httpx2's client and transports, and pyproject.toml pins both to their minor version.
The asyncio client needs none of this: its exchanges are cancelled.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import httpcore2
import httpx2

__all__ = ["enforce_deadlines", "until"]

_WRITE_BYTES: Final = 16 << 10  # so that the deadline is looked at often while a large body is sent

_deadline: ContextVar[Callable[[], float]] = ContextVar("_deadline", default=lambda: math.inf)


@contextmanager
def until(deadline: Callable[[], float]) -> Iterator[None]:
    """Bound the exchanges in this context: `deadline` returns the `time.monotonic` at which reads and writes fail."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def enforce_deadlines(http: httpx2.Client) -> None:
    """Make all connections of a client, those through proxies included, keep to the deadline of `until`."""
    for transport in (http._transport, *http._mounts.values()):  # noqa: SLF001 - see the module's docstring
        if isinstance(transport, httpx2.HTTPTransport):
            transport._pool._network_backend = _Backend()  # noqa: SLF001


def _remaining(timeout: float | None, expired: type[httpcore2.TimeoutException]) -> float | None:
    """Return `timeout`, shortened to the time until the deadline. Raises `expired` after it."""
    remaining = _deadline.get()() - time.monotonic()
    if remaining <= 0:
        raise expired
    if timeout is None:
        return remaining if remaining < math.inf else None
    return min(timeout, remaining)


class _Backend(httpcore2.SyncBackend):
    """httpcore2's default backend, with bounded streams."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        left = _remaining(timeout, httpcore2.ConnectTimeout)
        return _Stream(super().connect_tcp(host, port, left, local_address, socket_options))


class _Stream(httpcore2.NetworkStream):
    """A connection whose every read and write ends by the deadline."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _remaining(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._stream.write(buffer[start : start + _WRITE_BYTES], _remaining(timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        left = _remaining(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)
