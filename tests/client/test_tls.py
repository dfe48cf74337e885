"""Encrypted gateways: whose certificates are trusted, also on loopback."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest

import coregw
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.errors import Unavailable

DATA = b"the payload"
CID = coregw.payload_cid(DATA)
ONCE = ClientSettings(attempts=1)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        self.wfile.write(DATA)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients refuse certificates


@pytest.fixture(scope="module")
def encrypted(certificate: Path) -> Iterator[str]:
    """The address of a gateway with that certificate."""
    server = _Server(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, f"{certificate}.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def blocking(url: str) -> bytes:
    with Client(url, ONCE) as client:
        assert client.get_payload(CID) == DATA
        return client.get_payload(CID)  # on the same connection


def asyncio(url: str) -> bytes:
    async def get() -> bytes:
        async with AsyncClient(url, ONCE) as client:
            return await client.get_payload(CID)

    return anyio.run(get)


@pytest.mark.parametrize("get", [blocking, asyncio])
def test_an_authority_of_the_environment_is_trusted_on_loopback(
    get: Callable[[str], bytes], encrypted: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unavailable, match="certificate"):
        get(encrypted)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert get(encrypted) == DATA
    with pytest.raises(Unavailable, match="localhost"):  # the certificate is for the address alone
        get(encrypted.replace("127.0.0.1", "localhost"))
