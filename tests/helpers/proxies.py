"""A small HTTP proxy: CONNECT tunnels, and requests with an absolute URL."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

__all__ = ["Proxy", "running_proxy"]


@dataclass
class Proxy:
    """A proxy in a thread.

    Attributes:
        address: ``HOST:PORT``.
        user: ``user:password`` that it requires, if any.
        heads: The heads of the requests that it got.
    """

    address: str
    user: str | None
    heads: list[bytes] = field(default_factory=list)

    def serve(self, client: socket.socket) -> None:
        """Serve one connection."""
        with client, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1 << 16)
            self.heads.append(head)
            line, _, rest = head.partition(b"\r\n")
            method, target, version = line.decode().split()
            wanted = b"" if self.user is None else b"Basic " + base64.b64encode(self.user.encode())
            if b"\r\nproxy-authorization: " + wanted.lower() not in head.lower() and self.user is not None:
                client.sendall(b"HTTP/1.1 407 X\r\nContent-Length: 0\r\n\r\n")
                return
            place = target if method == "CONNECT" else target.split("/")[2]
            host, _, port = place.rpartition(":")
            with socket.create_connection((host, int(port))) as server:
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                else:
                    path = "/" + target.split("/", 3)[3]
                    server.sendall(f"{method} {path} {version}\r\n".encode() + rest)
                back = threading.Thread(target=_copy, args=(server, client))
                back.start()
                _copy(client, server)
                back.join()


def _copy(source: socket.socket, destination: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(1 << 16):
            destination.sendall(chunk)
    with suppress(OSError):
        destination.shutdown(socket.SHUT_WR)


@contextmanager
def running_proxy(user: str | None = None) -> Iterator[Proxy]:
    """Run a proxy that serves one connection at a time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Proxy(f"127.0.0.1:{listener.getsockname()[1]}", user)
        is_stopped = threading.Event()

        def run() -> None:
            while True:
                client, _ = listener.accept()
                if is_stopped.is_set():
                    client.close()
                    return
                proxy.serve(client)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield proxy
        finally:
            is_stopped.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join()
