"""TLS of ``coregw serve``: HTTP/1.1 and HTTP/2 by ALPN, certificates that are replaced under load, and bad files."""

from __future__ import annotations

import http.client
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

import serving
from coregw import payload_cid
from coregw.client import Client, ConnectionOptions
from coregw.errors import InvalidInput, Unauthorized
from coregw.gateway.access import WRITE_TOKEN_VARIABLE
from coregw.gateway.settings import Settings
from processes import until

DATA = b"by TLS"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


class Files:
    """A certificate of this machine that signs itself, and its key; `renew` replaces both."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.pem", folder / "tls.key"
        self.settings = {"tls_certificate": self.certificate, "tls_key": self.key}

    def renew(self, name: str) -> None:
        new = [self.certificate.with_suffix(".new"), self.key.with_suffix(".new-key")]
        command = ["openssl", "req", "-x509", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        command += ["-nodes", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*command, "-keyout", new[1], "-out", new[0]], check=True, capture_output=True)
        new[0].replace(self.certificate)
        new[1].replace(self.key)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.renew("first")
    return made


@contextmanager
def connected(url: str, *protocols: str) -> Iterator[ssl.SSLSocket]:
    """A connection whose peer is not authenticated."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols))
    host, _, port = url.removeprefix("https://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as plain, context.wrap_socket(plain) as stream:
        yield stream


def name_at(url: str) -> str:
    """The name in the certificate that a gateway shows."""
    with connected(url) as stream:
        shown = stream.getpeercert(binary_form=True)
    assert shown is not None
    return next(name for name in ("first", "second", "third") if name.encode() in shown)


def test_clients_choose_between_http_1_and_2(tmp_path: Path, files: Files) -> None:
    with serving.process(tmp_path / "data", **files.settings) as running:
        assert running.url.startswith("https://127.0.0.1:")
        with Client(running.url, connection=ConnectionOptions(ca_cert=files.certificate)) as client:
            assert client.get_payload(client.put_payload(DATA)) == DATA
        with connected(running.url, "h2", "http/1.1") as stream:
            assert stream.selected_alpn_protocol() == "h2"
            stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))  # with empty SETTINGS
            assert stream.recv(9)[3] == 4  # SETTINGS
        for protocols in (["http/1.1"], []):
            with connected(running.url, *protocols) as stream:
                assert stream.selected_alpn_protocol() == (protocols[0] if protocols else None)
                stream.sendall(f"GET /v1/cas/{payload_cid(DATA)} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                answer = http.client.HTTPResponse(stream)
                answer.begin()
                assert (answer.status, answer.read()) == (200, DATA)
        with serving.connect(running.url.replace("https:", "http:")) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert not serving.everything(plain).startswith(b"HTTP/1.1 200 ")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl asks by HTTP/2")
def test_hot_and_cold_routes_are_served_by_http_2(tmp_path: Path, files: Files) -> None:
    curl = [
        "curl",
        "--silent",
        "--show-error",
        "--http2",
        "--cacert",
        files.certificate,
        "-w",
        "%{http_version} %{http_code}",
    ]
    with serving.process(tmp_path / "data", **files.settings) as running:
        for method, path in (("POST", "/v1/cas"), ("GET", f"/v1/cas/{payload_cid(DATA)}"), ("GET", "/healthz")):
            body = ["--data-binary", DATA.decode()] if method == "POST" else []
            asked = [*curl, *body, "-o", tmp_path / "answer", running.url + path]
            shown = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
            assert shown in ("2 200", "2 201"), path


def test_a_client_learns_by_http_2_why_its_long_upload_is_refused(tmp_path: Path, files: Files) -> None:
    with (
        serving.process(tmp_path / "data", {WRITE_TOKEN_VARIABLE: "a-token"}, **files.settings) as running,
        Client(running.url, connection=ConnectionOptions(ca_cert=files.certificate)) as client,
    ):
        for _ in range(5):
            with pytest.raises(Unauthorized):
                client.put_payload(bytes(8 << 20))


def test_a_certificate_is_replaced_under_load_without_a_lost_request(tmp_path: Path, files: Files) -> None:
    log, ended, lost = tmp_path / "log", threading.Event(), []
    begun = threading.Barrier(7)

    def ask(url: str) -> None:
        """Send requests, each on a connection of its own and on one that stays open."""
        with connected(url) as kept:
            begun.wait(60)
            while not ended.is_set():
                try:
                    for stream, last in ((kept, b""), (None, b"Connection: close\r\n")):
                        request = b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + last + b"\r\n"
                        with connected(url) as new:
                            used = stream or new
                            used.sendall(request)
                            answer = http.client.HTTPResponse(used)
                            answer.begin()
                            assert answer.status == 200
                            answer.read()
                except (OSError, AssertionError, http.client.HTTPException) as error:
                    lost.append(repr(error))
                    return

    def ask_by_http2(url: str) -> None:
        """The same by HTTP/2."""
        with httpx2.Client(base_url=url, http1=False, http2=True, verify=False) as kept:
            begun.wait(60)
            while not ended.is_set():
                try:
                    with httpx2.Client(base_url=url, http1=False, http2=True, verify=False) as new:
                        for client in (kept, new):
                            answer = client.get("/healthz")
                            assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
                except (httpx2.HTTPError, AssertionError) as error:
                    lost.append(repr(error))
                    return

    running = serving.start(tmp_path / "data", log=log, start_new_session=True, **files.settings)
    asking = [threading.Thread(target=each, args=(running.url,)) for each in (*[ask] * 4, *[ask_by_http2] * 2)]
    for thread in asking:
        thread.start()
    try:
        begun.wait(60)
        for name in ("second", "third"):
            files.renew(name)
            running.popen.send_signal(signal.SIGHUP)
            until(lambda name=name: {name_at(running.url) for _ in range(8)} == {name})  # type: ignore[misc]
        files.key.write_text("no key")
        running.popen.send_signal(signal.SIGHUP)
        until(lambda: log.read_text().count(f"the certificate stays the old one: {files.key}") == 1)
        assert {name_at(running.url) for _ in range(8)} == {"third"}
    finally:
        ended.set()
        for thread in asking:
            thread.join()
        code = running.end()
        running.popen.communicate()
    assert lost == []
    assert code == 0
    assert log.read_text().count("new connections get the certificate in") == 2


def empty(files: Files) -> Path:
    files.certificate.write_text("")
    return files.certificate


def missing(files: Files) -> Path:
    files.key.unlink()
    return files.key


def of_another(files: Files) -> Path:
    key = files.key.read_text()
    files.renew("second")
    files.key.write_text(key)
    return files.certificate


@pytest.mark.parametrize("spoil", [empty, missing, of_another])
def test_files_that_cannot_be_used_end_the_start_and_are_named(
    tmp_path: Path, files: Files, spoil: Callable[[Files], Path]
) -> None:
    named = spoil(files)
    with pytest.raises(serving.DidNotStart) as caught:
        serving.start(tmp_path / "data", **files.settings)
    assert caught.value.code == 1
    assert f"\ncoregw: {named}: " in f"\n{caught.value.said}"
    assert "Traceback" not in caught.value.said


def test_a_certificate_needs_a_key_and_a_key_a_certificate() -> None:
    for given, lacks in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        with pytest.raises(InvalidInput, match=f"setting {lacks} is none"):
            Settings.load({}, **{given: "/file"})
