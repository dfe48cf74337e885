"""Fronts of a gateway that die after so many bytes, as a gateway that is killed."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["Front", "front"]


class Front:
    """Forwards connections to a gateway, and closes all of them at once when it has forwarded `limit` bytes.

    Attributes:
        url: Its address.
        forwarded: The number of bytes, in both directions.
        is_dead: Whether it was killed.
    """

    def __init__(self, gateway: str, limit: int) -> None:
        host, _, port = gateway.removeprefix("http://").rpartition(":")
        self._gateway = host, int(port)
        self._limit = limit
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._wake, self._woken = socket.socketpair()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.forwarded = 0
        self.is_dead = False

    def start(self) -> None:
        self._thread.start()

    def kill(self) -> None:
        self._wake.close()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, self._listener, self._woken:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while self.forwarded <= self._limit:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        self._close()
                        return
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._pairs:
                        self._forward(selector, key.fileobj)
            self._close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        client, _ = self._listener.accept()
        gateway = socket.create_connection(self._gateway)
        for one, other in ((client, gateway), (gateway, client)):
            self._pairs[one] = other
            selector.register(one, selectors.EVENT_READ)

    def _forward(self, selector: selectors.BaseSelector, source: socket.socket) -> None:
        destination = self._pairs[source]
        chunk = b""
        with suppress(OSError):
            chunk = source.recv(1 << 16)
        self.forwarded += len(chunk)
        if self.forwarded > self._limit:
            return
        with suppress(OSError):
            destination.sendall(chunk)
        if not chunk:
            for end in (source, destination):
                selector.unregister(end)
                del self._pairs[end]
                end.close()

    def _close(self) -> None:
        self.is_dead = True
        for each in self._pairs:
            each.close()


@contextmanager
def front(gateway: str, limit: int = 1 << 60) -> Iterator[Front]:
    running = Front(gateway, limit)
    running.start()
    try:
        yield running
    finally:
        running.kill()
