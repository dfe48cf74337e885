"""The management server: its control socket and its TCP address, who may use what there, and jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pytest

import serving
from coregw import Map, payload_cid
from coregw.engine import Engine
from coregw.errors import InvalidInput, Unavailable
from coregw.gateway.access import AccessToken
from coregw.gateway.control import control_file
from coregw.gateway.jobs import Jobs, Outcome
from coregw.gateway.limits.machine import Limits
from coregw.gateway.management import serve_management
from coregw.gateway.replies import Reply
from coregw.gateway.settings import Settings
from coregw.messages.management import Progress, ProgressCallback
from coregw.store.memory import MemoryStore
from tables import rows

if TYPE_CHECKING:
    from litestar.types import HTTPDisconnectEvent

AUTHORIZATION = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}
STATUS = "/admin/v1/maintenance/status"
RECORDS = "/admin/v1/scopes/s/roots"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Process]:
    data = tmp_path_factory.mktemp("management") / "data"
    with serving.process(data, serving.ADMIN, management_address="127.0.0.1:0", connections=4) as process:
        yield process


def data_of(process: serving.Process) -> Path:
    return Path(process.popen.args[-1])  # type: ignore[index,arg-type]


@pytest.fixture
def control(running: serving.Process) -> Iterator[httpx2.Client]:
    with serving.control(data_of(running)) as client:
        yield client


@pytest.fixture
def tcp(control: httpx2.Client) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=control.get(STATUS).json()["addresses"][0]) as client:
        yield client


def test_the_control_file_is_its_owners_alone_and_its_token_opens_everything(
    running: serving.Process, control: httpx2.Client
) -> None:
    mode = control_file(data_of(running)).stat().st_mode
    assert stat.S_ISREG(mode)
    assert stat.S_IMODE(mode) == 0o600
    assert control.get("/healthz").json()["status"] == "ok"
    assert control.get(STATUS).json()["pid"] == running.popen.pid
    assert control.get(RECORDS).json() == {"records": []}


def test_the_control_socket_answers_nothing_without_its_token(control: httpx2.Client) -> None:
    for path in ("/healthz", "/metrics", "/unknown", STATUS):
        for value in ("", "Bearer wrong", AUTHORIZATION["authorization"]):
            assert control.get(path, headers={"authorization": value}).json()["error"] == "unauthorized"


def test_administration_by_tcp_needs_the_token_and_health_does_not(tcp: httpx2.Client) -> None:
    assert tcp.get("/healthz").status_code == 200
    for path in (STATUS, RECORDS):
        assert (tcp.get(path).status_code, tcp.get(path, headers=AUTHORIZATION).status_code) == (401, 200)
    assert tcp.post("/admin/v1/maintenance/flush").status_code == 401
    refused = tcp.post("/admin/v1/maintenance/backup", json={"destination": "/srv/x"}, headers=AUTHORIZATION)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_request")


def test_the_address_for_clients_has_no_administration_if_there_is_another(running: serving.Process) -> None:
    for path in (STATUS, RECORDS):
        assert httpx2.get(running.url + path, headers=AUTHORIZATION).json()["error"] == "route_not_found"
    assert httpx2.get(f"{running.url}/healthz").status_code == 200


def test_the_management_address_has_no_routes_for_clients(control: httpx2.Client) -> None:
    assert control.post("/v1/cas", content=b"x").json()["error"] == "route_not_found"


def test_what_is_published_on_the_socket_is_shown_by_tcp(
    running: serving.Process, control: httpx2.Client, tcp: httpx2.Client
) -> None:
    root = httpx2.post(f"{running.url}/v1/roots", json={"arcs": {}}).json()["root"]
    assert control.post(RECORDS, json={"name": "n", "root": root}).status_code == 200
    assert tcp.get(f"{RECORDS}/n", headers=AUTHORIZATION).json()["root"] == root


def test_health_answers_when_the_main_address_takes_no_connection(
    running: serving.Process, control: httpx2.Client, tcp: httpx2.Client
) -> None:
    with ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(serving.connect(running.url))
        assert control.get("/healthz").status_code == 200
        assert tcp.get("/healthz").status_code == 200


@rows(
    ("path", "member", "value"),
    [
        ("pins", "expires_at", "9999-12-31T23:59:59-23:59"),
        ("pins", "expires_at", "0001-01-01T00:00:00+23:59"),
        ("pins", "name", "n" * 10_000),
        ("pins/remove", "name", "n" * 10_000),
        ("heal", "directory", "healing-" + "n" * 900),
        ("heal", "directory", "healing-\0"),
        ("heal", "directory", "healing-/../.."),
        ("backup", "destination", "relative"),
        ("backup", "destination", "/" + "n" * 900),
        ("backup", "destination", "/\0"),
    ],
)
def test_values_beyond_what_times_and_paths_allow_are_refused(
    control: httpx2.Client, path: str, member: str, value: str
) -> None:
    body = {member: value} | ({"root": Map({"a": payload_cid(b"")}).root} if path == "pins" else {})
    answer = control.post(f"/admin/v1/maintenance/{path}", json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


def test_flush_reports_progress_and_its_result(control: httpx2.Client) -> None:
    answer = control.post("/admin/v1/maintenance/flush")
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines == [{"progress": {"step": "flushing the memtables"}}, {"result": {"flushed": True}}]


def test_administration_stays_on_the_main_address_if_there_is_no_other(tmp_path: Path) -> None:
    with serving.process(tmp_path, serving.ADMIN) as process:
        assert httpx2.get(process.url + RECORDS, headers=AUTHORIZATION).status_code == 200
        assert httpx2.get(process.url + STATUS, headers=AUTHORIZATION).status_code == 404


def test_without_a_token_tcp_has_health_only(tmp_path: Path) -> None:
    with serving.process(tmp_path, management_address="127.0.0.1:0"), serving.control(tmp_path) as control:
        url = control.get(STATUS).json()["addresses"][0]
        assert httpx2.get(f"{url}/healthz").status_code == 200
        assert httpx2.get(url + STATUS).json()["error"] == "route_not_found"


def test_a_management_address_in_use_is_named() -> None:
    async def run() -> None:
        async with serve_management(settings, Limits.of(settings), Engine(MemoryStore()), None, None, lambda: None):
            pass

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = Settings(management_address=address)
        with pytest.raises(Unavailable, match=f"cannot listen on {address}: Address already in use"):
            asyncio.run(run())


@asynccontextmanager
async def impatient_management() -> AsyncIterator[tuple[str, int]]:
    """A management server with an admin token and short deadlines. Yields its host and port."""
    settings = Settings(management_address="127.0.0.1:0")
    limits = replace(
        Limits.of(settings), header_seconds=0.2, keep_alive_seconds=0.2, body_idle_seconds=0.2, rate_grace_seconds=0.2
    )
    token = AccessToken("GATEWAY_ADMIN_TOKEN", serving.ADMIN_TOKEN)
    async with (
        asyncio.timeout(60),
        serve_management(settings, limits, Engine(MemoryStore()), None, token, lambda: None) as management,
    ):
        host, _, port = management.addresses[0].removeprefix("http://").rpartition(":")
        yield host, int(port)


@rows(
    ("sent", "expected"),
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: ", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 "),
        (
            b"POST /admin/v1/maintenance/gc HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n"
            b"Authorization: Bearer %b\r\n\r\n{" % serving.ADMIN_TOKEN.encode(),
            b"HTTP/1.1 400 ",
        ),
    ],
)
def test_a_silent_client_of_the_management_address_loses_its_connection(sent: bytes, expected: bytes) -> None:
    async def run() -> None:
        async with impatient_management() as (host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(sent)
            received = await reader.read()
            assert received.startswith(expected)
            assert bool(received) == bool(expected)
            writer.close()

    asyncio.run(run())


def test_idle_connections_to_the_management_address_make_room() -> None:
    async def run() -> None:
        settings = Settings(management_address="127.0.0.1:0")
        limits = Limits.of(settings)
        async with (
            asyncio.timeout(60),
            serve_management(settings, limits, Engine(MemoryStore()), None, None, lambda: None) as management,
        ):
            host, _, port = management.addresses[0].removeprefix("http://").rpartition(":")
            idle = [await asyncio.open_connection(host, int(port)) for _ in range(80)]
            for reader, _ in idle[:16]:
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            for _, writer in idle:
                writer.close()

    asyncio.run(run())


@rows("address", ["9090", ":9090", "localhost:", "localhost:x", "localhost:65536", "[::1]"])
def test_a_malformed_management_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="management_address"):
        Settings(management_address=address)


def test_a_management_address_may_be_ipv6() -> None:
    assert Settings(management_address="[::1]:9090").management_host_and_port == ("::1", 9090)


# --- jobs ------------------------------------------------------------------------------------------------------------


class Counted(msgspec.Struct):
    count: int


async def lines_of(reply: Reply) -> list[Any]:
    assert not isinstance(reply.body, bytes)
    return [json.loads(line) async for line in reply.body]


SCOPE: Any = {"type": "http", "method": "POST", "path": "/x", "headers": []}


def test_an_operation_streams_its_newest_progress_and_a_heartbeat() -> None:
    async def run() -> list[Any]:
        heard = asyncio.Event()

        async def operation(report: ProgressCallback) -> Counted:
            for number in range(1000):
                report(Progress(step="counting", done=number + 1, total=1000, unit="numbers"))
            await heard.wait()
            return Counted(1000)

        lines = []
        reply = Jobs().stream(SCOPE, "count", operation)
        assert not isinstance(reply.body, bytes)
        async with asyncio.timeout(60):
            async for line in reply.body:
                lines.append(json.loads(line))
                if len(lines) == 2:
                    heard.set()
        return lines

    *progress, result = asyncio.run(run())
    shown = {"progress": {"step": "counting", "done": 1000, "total": 1000, "unit": "numbers"}}
    assert progress == [shown] * len(progress)
    assert result == {"result": {"count": 1000}}


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_an_operation_is_logged_if_an_operator_requested_it(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def operation(_: ProgressCallback) -> Counted:
        if fails:
            raise InvalidInput("nothing to count")
        return Counted(1)

    async def run() -> None:
        jobs = Jobs()
        with contextlib.suppress(InvalidInput):
            await jobs.run("gc", operation)
        assert not caplog.messages  # its caller knows whether it has failed before
        reply = jobs.stream(SCOPE, "fsck", operation)
        assert not isinstance(reply.body, bytes)
        async for _ in reply.body:
            pass

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert caplog.messages == ["fsck failed: nothing to count" if fails else "fsck succeeded"]


def test_a_failed_operation_ends_with_its_error_and_another_may_start() -> None:
    async def fail(_: ProgressCallback) -> Counted:
        raise InvalidInput("nothing to count")

    async def run() -> None:
        jobs = Jobs()
        for _ in range(2):
            (line,) = await lines_of(jobs.stream(SCOPE, "count", fail))
            assert line == {"error": {"error": "invalid_request", "message": "nothing to count"}}
        assert jobs.running() == []

    asyncio.run(run())


def test_two_operations_of_one_kind_do_not_run_at_once() -> None:
    async def run() -> None:
        jobs = Jobs()
        waiting = asyncio.Event()

        async def wait(_: ProgressCallback) -> Counted:
            await waiting.wait()
            return Counted(1)

        first = jobs.stream(SCOPE, "wait", wait)
        assert [each.kind for each in jobs.running()] == ["wait"]
        with pytest.raises(Unavailable, match="wait is in progress already"):
            jobs.stream(SCOPE, "wait", wait)
        with pytest.raises(Unavailable, match="wait is in progress already"):
            await jobs.run("wait", wait)
        waiting.set()
        assert await jobs.run("another", wait) == Counted(1)
        assert (await lines_of(first))[-1] == {"result": {"count": 1}}

    asyncio.run(run())


def test_closing_cancels_what_runs_and_nothing_starts_afterwards() -> None:
    async def run() -> None:
        jobs = Jobs()
        reply = jobs.stream(SCOPE, "sleep", lambda _: asyncio.sleep(60, Counted(1)))
        await jobs.close()
        assert (await lines_of(reply))[-1] == {
            "error": {"error": "unavailable", "message": "the gateway is shutting down"}
        }
        with pytest.raises(Unavailable, match="shutting down"):
            jobs.stream(SCOPE, "sleep", lambda _: asyncio.sleep(60, Counted(1)))

    asyncio.run(run())


def test_an_operation_whose_client_disconnects_is_cancelled() -> None:
    async def run() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def operation(_: ProgressCallback) -> Counted:
            began.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()
            return Counted(1)

        async def receive() -> HTTPDisconnectEvent:
            await began.wait()
            return {"type": "http.disconnect"}

        async def send(_: object) -> None:
            pass

        jobs = Jobs()
        async with asyncio.timeout(30):
            await jobs.stream(SCOPE, "sleep", operation)(SCOPE, receive, send)
        assert ended.is_set()
        assert jobs.running() == []

    asyncio.run(run())


def test_what_has_ended_is_counted_by_outcome() -> None:
    async def fail(_: ProgressCallback) -> Counted:
        raise InvalidInput("nothing to count")

    async def run() -> None:
        jobs = Jobs()
        await jobs.run("count", lambda _: asyncio.sleep(0, Counted(7)))
        with pytest.raises(InvalidInput):
            await jobs.run("count", fail)
        reply = jobs.stream(SCOPE, "count", lambda _: asyncio.sleep(60, Counted(1)))
        await jobs.close()
        await lines_of(reply)
        ended = jobs.ended["count"]
        assert ended.counts == {Outcome.SUCCEEDED: 1, Outcome.FAILED: 1, Outcome.CANCELLED: 1}
        assert set(ended.times) == set(Outcome)
        assert ended.result == Counted(7)

    asyncio.run(run())
