"""Encrypted gateways: whose certificates are trusted, certificates of clients, proxies, and forks."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import coregw
from client_calls import Call, both_clients
from coregw.client import AsyncClient, Client, ClientSettings, ConnectionOptions
from coregw.errors import InvalidInput, Unavailable
from proxies import running_proxy

DATA = b"the payload"
CID = coregw.payload_cid(DATA)
PATIENT = ClientSettings()
"""With time for retries, which certificates that are not trusted do not get."""


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
    accepted = 0

    def get_request(self) -> tuple[object, object]:  # type: ignore[override]
        self.accepted += 1
        return super().get_request()

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients refuse certificates, and have refused ones


class Authority:
    """A certificate authority, a certificate for 127.0.0.1, and one of a client with an encrypted key."""

    PASSWORD = "hunter2"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = self._made("ca", "-subj", "/CN=authority")
        signed = ["-CA", self.certificate, "-CAkey", f"{self.certificate}.key"]
        self.server = self._made("server", "-subj", "/CN=s", "-addext", "subjectAltName=IP:127.0.0.1", *signed)
        self.client = self._made("client", "-subj", "/CN=client", *signed)
        encrypt = ["-aes256", "-passout", f"pass:{self.PASSWORD}", "-out", f"{self.client}.secret"]
        subprocess.run(["openssl", "ec", "-in", f"{self.client}.key", *encrypt], check=True, capture_output=True)

    def _made(self, name: str, *options: object) -> Path:
        file = self.folder / f"{name}.pem"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{file}.key"]
        subprocess.run(["openssl", "req", "-x509", "-days", "2", *key, *options, "-out", file], check=True)  # type: ignore[list-item]
        return file


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def serving(authority: Authority, *, asks_clients: bool = False) -> Iterator[tuple[str, _Server]]:
    server = _Server(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server, f"{authority.server}.key")
    if asks_clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}", server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def encrypted(authority: Authority) -> Iterator[str]:
    with serving(authority) as (url, _):
        yield url


@both_clients
def test_an_authority_of_the_environment_is_trusted_on_loopback(
    call: Call, encrypted: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unavailable, match="certificate") as raised:
        call(encrypted, PATIENT, "get_payload", CID)
    assert raised.value.is_lasting
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    assert call(encrypted, PATIENT, "get_payload", CID) == DATA
    with pytest.raises(Unavailable, match="localhost"):  # the certificate is for the address alone
        call(encrypted.replace("127.0.0.1", "localhost"), PATIENT, "get_payload", CID)


@both_clients
def test_an_authority_that_is_given_is_the_only_one(
    call: Call, encrypted: str, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trusting = ConnectionOptions(ca_cert=authority.certificate)
    assert call(encrypted, PATIENT, "get_payload", CID, connection=trusting) == DATA
    folder = tmp_path / "hashed"
    folder.mkdir()
    shutil.copy(authority.certificate, folder)
    subprocess.run(["openssl", "rehash", folder], check=True)
    assert call(encrypted, PATIENT, "get_payload", CID, connection=ConnectionOptions(ca_cert=folder)) == DATA
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    with pytest.raises(Unavailable, match="certificate"):
        call(encrypted, PATIENT, "get_payload", CID, connection=ConnectionOptions(ca_cert=authority.client))
    broken = tmp_path / "broken"
    broken.write_text("no certificate")
    with pytest.raises(InvalidInput, match="broken"):
        call(encrypted, PATIENT, "get_payload", CID, connection=ConnectionOptions(ca_cert=broken))


@both_clients
def test_a_client_shows_its_certificate(call: Call, authority: Authority) -> None:
    trusted = {"ca_cert": authority.certificate}
    with serving(authority, asks_clients=True) as (url, _):
        with pytest.raises(Unavailable, match="certificate required") as raised:
            call(url, PATIENT, "get_payload", CID, connection=ConnectionOptions(**trusted))
        assert raised.value.is_lasting
        for key, password in (("key", None), ("secret", Authority.PASSWORD)):
            options = ConnectionOptions(
                **trusted,
                client_cert=authority.client,
                client_key=Path(f"{authority.client}.{key}"),
                client_key_password=password,
            )
            assert call(url, PATIENT, "get_payload", CID, connection=options) == DATA
            assert Authority.PASSWORD not in repr(options)
        wrong = ConnectionOptions(
            **trusted,
            client_cert=authority.client,
            client_key=Path(f"{authority.client}.secret"),
            client_key_password="another",
        )
        with pytest.raises(InvalidInput) as refused:
            call(url, PATIENT, "get_payload", CID, connection=wrong)
        assert "another" not in str(refused.value)


@both_clients
def test_a_proxy_is_asked_for_a_tunnel_and_does_not_see_credentials(
    call: Call, encrypted: str, authority: Authority
) -> None:
    with running_proxy("user:hunter2") as proxy:
        url = f"http://user:hunter2@{proxy.address}"
        options = {"ca_cert": authority.certificate, "bearer_token": "t0k3n", "headers": {"X-Key": "k3y"}}
        through = ConnectionOptions(proxy=url, **options)  # type: ignore[arg-type]
        assert call(encrypted, PATIENT, "get_payload", CID, connection=through) == DATA
        (head,) = proxy.heads
        assert head.startswith(b"CONNECT 127.0.0.1:")
        assert b"t0k3n" not in head
        assert b"k3y" not in head
        refused = ConnectionOptions(proxy=url.replace("hunter2", "x"), **options)  # type: ignore[arg-type]
        with pytest.raises(Unavailable, match="407"):
            call(encrypted, ClientSettings(attempts=1), "get_payload", CID, connection=refused)


def in_child(work: object) -> int:
    """The exit code of a child process that runs `work`."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_does_not_end_its_parents_tls_connections(authority: Authority) -> None:
    options = ConnectionOptions(ca_cert=authority.certificate)
    with serving(authority) as (url, server):
        client = [Client(url, ClientSettings(attempts=1), options)]
        assert client[0].get_payload(CID) == DATA

        def use_and_forget() -> bool:
            is_right = client[0].get_payload(CID) == DATA
            client[0].close()
            client.clear()
            gc.collect()
            return is_right

        def forget() -> bool:
            client.clear()
            gc.collect()
            return True

        for work in (use_and_forget, forget):
            assert in_child(work) == 0
            assert client[0].get_payload(CID) == DATA
        assert server.accepted == 2  # the parent's, and the child's own
        client[0].close()


def test_a_forked_child_leaves_an_asynchronous_client_alone(authority: Authority) -> None:
    options = ConnectionOptions(ca_cert=authority.certificate)

    async def fork(url: str) -> None:
        async with AsyncClient(url, ClientSettings(attempts=1), options) as client:
            assert await client.get_payload(CID) == DATA

            def use() -> bool:
                steps = client.get_payload(CID).__await__()
                try:
                    next(steps)
                except RuntimeError as error:
                    closing = client.aclose().__await__()
                    return "forked" in str(error) and next(closing, None) is None
                return False

            assert in_child(use) == 0
            assert await client.get_payload(CID) == DATA

    with serving(authority) as (url, server):
        asyncio.run(fork(url))
        assert server.accepted == 1
