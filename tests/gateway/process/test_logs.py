"""Logs: lines for people or programs, request ids, the access log, and what no log contains."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

import coregw
import serving
from coregw.errors import InvalidInput, StoreDamaged
from coregw.gateway.access import warn_of_open_writes
from coregw.gateway.logs import loggable_path
from coregw.gateway.settings import Settings
from coregw.store import Table
from coregw.store.memory import MemoryStore
from tables import rows

SECRET = "a-secret-that-no-log-contains"


def log_of(process: serving.Process) -> str:
    """Stop a gateway and return everything that it logged."""
    assert process.end() == 0
    assert process.popen.stderr is not None
    return process.popen.stderr.read()


def test_json_lines_are_objects_with_time_level_logger_and_message(tmp_path: Path) -> None:
    with serving.process(tmp_path, log_format="json") as process:
        lines = [json.loads(line) for line in log_of(process).splitlines()]
    assert lines
    for line in lines:
        assert {"time", "level", "logger", "process", "message"} <= set(line)
        assert line["process"] == process.popen.pid
    assert f"listening on {process.url}, data in {tmp_path}" in [line["message"] for line in lines]


def test_writes_that_others_may_make_are_a_warning_and_misspelt_variables_another(tmp_path: Path) -> None:
    environ = {"COREGW_REDA_ONLY": "true", "COREGW_GATEWAY": "http://127.0.0.1:9"}  # a client's variable is known
    with serving.process(tmp_path, environ, host="0.0.0.0") as process:  # noqa: S104
        lines = log_of(process).splitlines()
    [warning] = [line for line in lines if "may write" in line]
    expected = " WARNING coregw.gateway: everybody who reaches 0.0.0.0 may write: set GATEWAY_WRITE_TOKEN"
    assert expected in warning
    [warning] = [line for line in lines if "nothing reads" in line]
    assert warning.endswith("WARNING coregw.settings: nothing reads COREGW_REDA_ONLY; did you mean COREGW_READ_ONLY?")


def test_writes_that_nobody_else_may_make_are_no_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for settings in (Settings(host="127.0.0.1"), Settings(host="localhost"), Settings(host="::", read_only=True)):
        warn_of_open_writes(settings)
    monkeypatch.setenv("GATEWAY_WRITE_TOKEN", "writers")
    warn_of_open_writes(Settings(host="::"))
    assert caplog.records == []


def test_the_access_log_has_a_line_for_each_request(tmp_path: Path) -> None:
    with serving.process(tmp_path, log_format="json", access_log=True) as process:
        url = f"{process.url}/v1/cas"
        answer = httpx2.post(f"{url}?codec=raw", content=b"hello", headers={"X-Request-Id": "client-1"})
        assert answer.headers["x-request-id"] == "client-1"
        made = httpx2.get(f"{url}/{answer.json()['cid']}").headers["x-request-id"]
        with serving.control(tmp_path) as control:
            control.get("/readyz", headers={"X-Request-Id": "probe"})
        lines = [json.loads(line) for line in log_of(process).splitlines()]
    logged = {line["request_id"]: line for line in lines if line["logger"] == "coregw.access"}
    assert set(logged) == {"client-1", made, "probe"}
    put, get = logged["client-1"], logged[made]
    assert (put["method"], put["path"], put["status"], put["client"]) == ("POST", "/v1/cas", 201, "127.0.0.1")
    assert (get["method"], get["path"]) == ("GET", f"/v1/cas/{answer.json()['cid']}")
    assert (get["status"], get["bytes"]) == (200, 5)
    assert get["seconds"] > 0


def test_without_the_access_log_requests_are_not_logged_but_the_version_is(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process:
        answer = httpx2.get(f"{process.url}/healthz", headers={"X-Request-Id": "client-1"})
        assert "x-request-id" not in answer.headers
        log = log_of(process)
    assert "healthz" not in log
    assert log.splitlines()[0].endswith(f" INFO coregw: coregw {coregw.__version__}")


def test_a_request_id_that_is_not_sane_is_replaced() -> None:
    with serving.thread(MemoryStore(), access_log=True) as url:
        for given in ("", "a b", 'a"b', "x" * 129, "\x01", "é"):
            answer = httpx2.get(f"{url}/healthz", headers={"X-Request-Id": given.encode("latin-1")})  # type: ignore[dict-item]
            assert answer.headers.get("x-request-id") != given


def test_a_500_names_the_request_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryStore):
        async def healthy(self) -> bool:
            raise ZeroDivisionError

    with caplog.at_level(logging.ERROR), serving.thread(Broken()) as url:
        answer = httpx2.get(f"{url}/healthz", headers={"X-Request-Id": "client-1"})
        made = httpx2.get(f"{url}/healthz").headers["x-request-id"]
    assert (answer.status_code, answer.headers["x-request-id"]) == (500, "client-1")
    assert len(made) == 16
    assert [record.getMessage() for record in caplog.records] == ["GET '/healthz' failed"] * 2


def test_a_line_logged_during_a_request_has_its_id(tmp_path: Path) -> None:
    """A chunk of the payload is overwritten on disk, so the request fails when it is read."""
    with serving.process(tmp_path) as process:
        cid = httpx2.post(f"{process.url}/v1/cas", content=bytes(3 << 20)).json()["cid"]
        with serving.control(tmp_path) as control:
            assert control.post("/admin/v1/maintenance/flush").status_code == 200
    for file in (tmp_path / "rocksdb").glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[: len(data) // 2] = b"\xff" * (len(data) // 2)
        if len(data) > 4000:
            file.write_bytes(data)
    with serving.process(tmp_path) as process:
        with suppress(httpx2.RemoteProtocolError, httpx2.ReadError):  # the head was sent already
            httpx2.get(f"{process.url}/v1/cas/{cid}", headers={"X-Request-Id": "client-1"})
        lines = log_of(process).splitlines()
    assert any(line.endswith("[client-1]") and " ERROR " in line for line in lines), lines
    assert any(f"GET '/v1/cas/{cid}' failed: the store in {tmp_path} is damaged" in line for line in lines), lines
    assert not any("Traceback" in line for line in lines)  # the cause is known, and clients ask again and again


def test_damage_is_a_500_and_a_line_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    class Damaged(MemoryStore):
        async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
            raise StoreDamaged("the store is damaged: block checksum mismatch")

    root = str(coregw.Map({}).root)
    with caplog.at_level(logging.ERROR), serving.thread(Damaged()) as url:
        body = {"profile": "core.resolve/v0alpha1", "root": root, "segments": ["a"]}
        assert httpx2.post(f"{url}/v1/resolve", json=body).status_code == 500
    (record,) = caplog.records
    assert record.getMessage() == "POST '/v1/resolve' failed: the store is damaged: block checksum mismatch"
    assert record.exc_info is None


def test_no_secret_and_no_payload_byte_is_logged(tmp_path: Path, cid_of: Callable[..., str]) -> None:
    settings: dict[str, Any] = {"access_log": True, "log_level": "debug", "log_format": "json"}
    environ = {"GATEWAY_ADMIN_TOKEN": SECRET}
    payload = SECRET.encode()
    identity = coregw.payload_cid(payload, hash="identity")
    hexadecimal = "f" + bytes(coregw.Cid(identity)).hex()
    bearer = {"authorization": f"Bearer {SECRET}"}
    with serving.process(tmp_path, environ, **settings) as process:
        httpx2.post(f"{process.url}/v1/cas", content=payload)
        httpx2.post(f"{process.url}/v1/cas?codec={SECRET}", content=payload)
        httpx2.post(f"{process.url}/v1/resolve", content=payload, headers={"content-type": "application/json"})
        httpx2.post(f"{process.url}/v1/roots", json={"arcs": {SECRET: cid_of(payload)}})
        httpx2.post(f"{process.url}/v1/roots", json={"arcs": {"x": SECRET}})
        httpx2.post(f"{process.url}/v1/car", content=payload)
        for cid in (identity, hexadecimal, identity + "a", "f0155" + hexadecimal[5:] * 9):
            for path in (f"/v1/cas/{cid}", f"/ipfs/{cid}?format=raw", f"/ipfs/{cid}/{cid}", f"/{cid}"):
                httpx2.get(process.url + path)
        httpx2.get(f"{process.url}/admin/v1/scopes/s/roots", headers=bearer)
        httpx2.get(f"{process.url}/admin/v1/scopes/s/roots", headers={"authorization": f"Basic {SECRET}"})
        with serving.connect(process.url) as broken:
            broken.sendall(f"GET /x HTTP/1.1\r\n{SECRET}\r\n\r\n".encode())
            serving.everything(broken)
        log = log_of(process)
    assert log.count('"coregw.access"') >= 20
    for secret in (SECRET, payload.hex(), identity[8:40]):
        assert secret not in log


@rows(
    ("path", "shown"),
    [
        ("/v1/cas/x", "/v1/cas/x"),
        ("/v1/cas/bafkqabttmvrxezlu", "/v1/cas/(identity CID)"),
        ("/v1/cas/bafkqabttmvrxezlua", "/v1/cas/(18 characters)"),
        ("/v1/cas/has", "/v1/cas/has"),
        ("/ipfs/bafkqabttmvrxezlu/" + "y" * 121, "/ipfs/(identity CID)/(121 characters)"),
        (f"/v1/roots/{coregw.Map({}).root}/mutations", f"/v1/roots/{coregw.Map({}).root}/mutations"),
        ("/a\nERROR forged\x1b[1m'é", "/a\\nERROR forged\\x1b[1m'\\xe9"),
        ("/x" * 40, "/x" * 15 + "/(49 characters)"),
        ("/" + "/".join(["a-long-segment-of-a-path"] * 40), "/" + "/".join(["a-long-segment-of-a-path"] * 15)[:299]),
    ],
)
def test_paths_are_logged_without_contents_and_control_characters(path: str, shown: str) -> None:
    assert loggable_path(path) == shown


@pytest.mark.slow
def test_a_log_that_nobody_reads_stops_nothing_and_what_is_dropped_is_counted(tmp_path: Path) -> None:
    """Lines of 600 bytes: a pipe holds 64 KiB of them, and the process a mebibyte."""
    with serving.process(tmp_path, access_log=True) as process:
        with httpx2.Client(base_url=process.url, timeout=20, headers={"X-Request-Id": "x" * 128}) as client:
            for _ in range(2400):
                assert client.get("/" + "a-long-segment-of-a-path/" * 12).status_code == 404
        with serving.control(tmp_path) as control:
            metrics = control.get("/metrics").text
        [line] = [each for each in metrics.splitlines() if each.startswith("coregw_log_lines_dropped_total ")]
        dropped = float(line.split()[1])
        assert dropped > 0
        assert process.popen.stderr is not None
        said = []
        while sum(said) < dropped:  # it is read again
            line = process.popen.stderr.readline()
            if "coregw.log: " in line:
                said.append(int(line.partition("coregw.log: ")[2].split()[0]))
        assert process.end() == 0


def test_a_log_that_nobody_reads_does_not_keep_a_gateway_from_stopping(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    try:
        popen = subprocess.Popen(
            [sys.executable, "-m", "coregw", "serve", "--data", tmp_path / "data", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=writing,
        )
        try:
            assert popen.stdout is not None
            assert popen.stdout.readline().startswith(b"coregw: listening on ")
            popen.terminate()
            assert popen.wait(20) == 0
        finally:
            popen.kill()
            popen.communicate()
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(("log_format", "shown"), [("text", r"in /\udcff"), ("json", r"in /\xff")])
def test_a_name_that_is_not_utf_8_is_escaped_in_the_log(log_format: str, shown: str) -> None:
    code = "import logging, os, sys; from coregw.gateway import logs; from coregw.gateway.settings import Settings"
    code += (
        "; logs.log_to_stderr(Settings(log_format=sys.argv[1])); logging.info('in %s', os.fsdecode(bytes([47, 255])))"
    )
    said = subprocess.run([sys.executable, "-c", code, log_format], capture_output=True, text=True, check=True).stderr
    last = said.splitlines()[-1]
    message = json.loads(last)["message"] if log_format == "json" else last
    assert message.endswith(shown)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(InvalidInput, match="log_format is 'xml', expected one of"):
        Settings.load({}, log_format="xml")
