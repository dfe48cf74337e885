"""The life cycle of a gateway: ports, signals, requests in flight, and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

import serving
from coregw._core import Listener
from coregw.errors import Unavailable
from coregw.gateway.listener import listen, listen_for_clients, run_in_thread, url_of
from coregw.gateway.server import GatewayServer
from coregw.gateway.settings import Settings
from coregw.store.memory import MemoryStore


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_gateway_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    with serving.process(tmp_path) as running:
        assert httpx2.get(f"{running.url}/healthz").status_code == 200
        assert running.end(number) == 0


@pytest.mark.parametrize("command", ["serve", "serve-plants"])
def test_a_hangup_without_a_terminal_changes_nothing(tmp_path: Path, command: str) -> None:
    with serving.process(tmp_path, command=command, start_new_session=True) as running:
        os.killpg(running.popen.pid, signal.SIGHUP)
        assert httpx2.get(f"{running.url}/healthz").status_code == 200
        assert running.end() == 0
        assert running.popen.stderr is not None
        assert "SIGHUP reloads nothing: restart the service" in running.popen.stderr.read()


@pytest.mark.parametrize("command", ["serve", "serve-plants"])
def test_a_service_ends_with_its_terminal(tmp_path: Path, command: str) -> None:
    line = [sys.executable, "-m", "coregw", command, "--data", str(tmp_path / "data"), "--port", "0"]
    terminal, its_end = os.openpty()
    own = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    own += "; os.execv(sys.argv[1], sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", own, *line], stdin=its_end, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(its_end)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"coregw: listening on http")
            os.close(terminal)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert command == "serve-plants" or b"stopped" in said


@pytest.mark.parametrize("name", ["GATEWAY_ADMIN_TOKEN", "GATEWAY_WRITE_TOKEN"])
def test_a_malformed_token_ends_the_start_and_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(serving.DidNotStart) as caught:
        serving.start(tmp_path, {name: "no header carries\ta tab"})
    assert caught.value.code == 1
    assert f"coregw: {name}" in caught.value.said


def test_data_and_port_of_a_running_gateway_are_in_use(tmp_path: Path) -> None:
    with serving.process(tmp_path / "data") as running:
        with pytest.raises(serving.DidNotStart, match=rf"cannot listen on 127\.0\.0\.1:{running.port}"):
            serving.start(tmp_path / "other", port=running.port)
        with pytest.raises(serving.DidNotStart, match=f"{tmp_path / 'data'} is in use"):
            serving.start(tmp_path / "data")


def test_request_in_flight_finishes_on_shutdown(tmp_path: Path) -> None:
    with serving.process(tmp_path) as running, serving.connect(running.url) as connection:
        connection.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhe")
        assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")  # the route is waiting for the body now
        running.popen.send_signal(signal.SIGTERM)
        _wait_until_refused(running.port)
        connection.sendall(b"llo")
        answer = serving.everything(connection)
        assert answer.startswith(b"HTTP/1.1 201 ")
        assert running.popen.wait(60) == 0


def test_a_second_interrupt_does_not_wait_for_requests(tmp_path: Path) -> None:
    with serving.process(tmp_path) as running, serving.connect(running.url) as connection:
        connection.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhe")
        assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
        running.popen.send_signal(signal.SIGINT)
        _wait_until_refused(running.port)
        assert running.end(signal.SIGINT) == -signal.SIGINT


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "tgkill"), reason="needs Linux")
def test_a_signal_that_another_thread_receives_ends_the_gateway(tmp_path: Path) -> None:
    with serving.process(tmp_path) as running:
        pid = running.popen.pid
        other = max(int(each.name) for each in Path(f"/proc/{pid}/task").iterdir() if each.name != str(pid))
        assert ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM) == 0
        assert running.popen.wait(60) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the private socket has a name elsewhere")
def test_a_gateway_leaves_nothing_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:  # `tmp_path` is too long for the name of a socket
        with serving.process(tmp_path, {"TMPDIR": temporary}) as running:
            assert httpx2.get(f"{running.url}/openapi.json").status_code == 200  # by the application
            running.end(signal.SIGKILL)
        assert [*Path(temporary).iterdir()] == []


@pytest.mark.parametrize("address", ["127.0.0.1:0", "none"])
def test_a_gateway_ends_with_the_error_of_the_server_behind_its_front(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    fails = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    on_tick = uvicorn.Server.on_tick

    async def tick(server: uvicorn.Server, counter: int) -> bool:
        if fails.is_set() and asyncio.get_running_loop() in loops:  # other tests have gateways in this process, too
            raise OSError("no more descriptors")
        return await on_tick(server, counter)

    monkeypatch.setattr(uvicorn.Server, "on_tick", tick)
    settings = Settings.load({}, port=0, management_address=address)
    server = GatewayServer(settings, MemoryStore(), lambda _: fails.set())

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve()

    with pytest.raises(OSError, match="no more descriptors"):
        run_in_thread(serve, server.stop)


def test_a_gateway_ends_with_the_error_of_its_front(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*given: Any, **options: Any) -> Listener:  # noqa: ANN401 - as `listen_for_clients`
        listener = listen_for_clients(*given, **options)
        listener.close()
        return listener

    monkeypatch.setattr("coregw.gateway.server.listen_for_clients", closed)
    server = GatewayServer(Settings.load({}, port=0), MemoryStore())
    with pytest.raises(ValueError, match="listener"):
        run_in_thread(server.serve, server.stop)


def _wait_until_refused(port: int) -> None:
    """Wait until the gateway accepts no more connections."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
        except ConnectionResetError:
            continue  # it was in the backlog when the socket was closed
        except ConnectionRefusedError:
            return


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_acknowledged_data_survives_a_restart(tmp_path: Path, cid_of: Callable[..., str], end: str) -> None:
    leaf = cid_of(b"leaf")
    arcs = {f"d{i % 10}/f{i}": leaf for i in range(1000)}
    deltas = [{"kind": "map", "changes": [{"path": "new", "after": {"target": leaf}}]}]
    with serving.process(tmp_path) as running:
        payload = httpx2.post(f"{running.url}/v1/cas", content=bytes(3 << 20), timeout=60).json()["cid"]
        root = httpx2.post(f"{running.url}/v1/roots", json={"arcs": arcs}).json()["root"]
        changed = httpx2.post(f"{running.url}/v1/roots/{root}/mutations", json={"deltas": deltas}).json()["new_root"]
        running.end(signal.Signals[end])
    with serving.process(tmp_path) as again:
        assert httpx2.get(f"{again.url}/v1/cas/{payload}").content == bytes(3 << 20)
        for base, segments in [(root, ["d1", "f1"]), (changed, ["d9", "f999"]), (changed, ["new"])]:
            request = {"profile": "core.resolve/v0alpha1", "root": base, "segments": segments}
            assert httpx2.post(f"{again.url}/v1/resolve", json=request).json()["target"] == leaf


def test_a_second_gateway_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with serving.process(tmp_path):
        server = GatewayServer(Settings.load({}, data=tmp_path, port=0))
        with pytest.raises(Unavailable, match=str(tmp_path)):
            asyncio.run(server.serve())


def test_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        store = MemoryStore()
        said = rf"^cannot listen on 127\.0\.0\.1:{port}: Address already in use; choose another port, or 0 .*"
        with pytest.raises(Unavailable, match=said):
            asyncio.run(GatewayServer(Settings.load({}, port=port), store).serve())


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 300, "300.1.1.1"])
def test_unknown_host_is_named(host: str) -> None:
    with pytest.raises(Unavailable, match=host):
        asyncio.run(GatewayServer(Settings.load({}, host=host, port=0), MemoryStore()).serve())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
@pytest.mark.parametrize("listens", [listen, listen_for_clients])
def test_the_unspecified_ipv6_address_is_every_address(
    listens: Callable[[Settings, int], socket.socket | Listener],
) -> None:
    with contextlib.ExitStack() as stack:
        listening = listens(Settings(host="::", port=0), 16)
        stack.callback(listening.close)
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, int(url_of(listening).rpartition(":")[2])), timeout=10).close()
        alone = stack.enter_context(listen(Settings(host="::1", port=0), 16))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", alone.getsockname()[1]), timeout=10)


def test_ipv6_addresses_are_written_in_brackets() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with serving.thread(MemoryStore(), host="::1") as url:
        assert url.startswith("http://[::1]:")
        assert httpx2.get(f"{url}/healthz").status_code == 200


def test_a_server_stopped_before_it_starts_does_not_serve() -> None:
    server = GatewayServer(Settings.load({}, port=0), MemoryStore())
    server.stop()
    asyncio.run(server.serve())


def test_healthz_has_the_versions(client: httpx2.Client) -> None:
    answer = client.get("/healthz")
    told = json.loads(answer.content)
    assert (answer.status_code, told["status"], told["protocol"]) == (200, "ok", "0.0.6")
    assert set(told) == {"status", "version", "protocol"}
