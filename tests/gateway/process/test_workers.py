"""Worker processes on one store: a shared view of the data, and the exit of any process."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

import coregw
import serving
from car_files import TYPE, car_of_payloads
from coregw.gateway.settings import MIB
from worker_processes import client_ports, has_connection, is_alive, open_files, until, workers_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at processes by /proc")

Cid = Callable[..., str]
AUTHORIZATION = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}


class Caller:
    """One connection to a gateway, and so to one of its workers."""

    def __init__(self, url: str) -> None:
        self._http = httpx2.Client(base_url=url, timeout=60, limits=httpx2.Limits(max_connections=1))
        self.healthy()

    def close(self) -> None:
        self._http.close()

    def healthy(self) -> None:
        assert self._http.get("/healthz").status_code == 200

    def add(self, data: bytes) -> str:
        answer = self._http.post("/v1/cas", content=data)
        assert answer.status_code == 201
        return str(answer.json()["cid"])

    def payload(self, cid: str) -> bytes:
        return self._http.get(f"/v1/cas/{cid}").content

    def create(self, arcs: dict[str, str]) -> str:
        return str(self._http.post("/v1/roots", json={"arcs": arcs}).json()["root"])

    def change(self, root: str, path: str, target: str) -> str:
        deltas = [{"kind": "map", "changes": [{"path": path, "after": {"target": target}}]}]
        return str(self._http.post(f"/v1/roots/{root}/mutations", json={"deltas": deltas}).json()["new_root"])

    def target(self, root: str, path: str) -> object:
        request = {"profile": "core.resolve/v0alpha1", "root": root, "segments": path.split("/")}
        return self._http.post("/v1/resolve", json=request).json().get("target")

    def add_batch(self, *datas: bytes) -> list[str]:
        assert self._http.post("/v1/car", content=car_of_payloads(*datas), headers=TYPE).status_code == 201
        return [coregw.payload_cid(data) for data in datas]

    def are_there(self, cids: list[str]) -> list[bool]:
        answer = self._http.post("/v1/cas/has", json={"profile": "cas.has-batch/v0alpha1", "cids": cids})
        return [each["present"] for each in answer.json()["results"]]

    def publish(self, name: str, root: str, revision: int | None = None) -> int:
        body = {"name": name, "root": root} | ({} if revision is None else {"expected_revision": revision})
        return self._http.post("/admin/v1/scopes/s/roots", json=body, headers=AUTHORIZATION).status_code

    def published(self, name: str) -> object:
        return self._http.get(f"/admin/v1/scopes/s/roots/{name}", headers=AUTHORIZATION).json().get("root")

    def history(self, name: str) -> list[int]:
        answer = self._http.get(f"/admin/v1/scopes/s/roots/{name}/history?limit=1000", headers=AUTHORIZATION)
        return [each["revision"] for each in answer.json()["records"]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Process]:
    with serving.process(tmp_path_factory.mktemp("workers") / "data", serving.ADMIN, workers=2) as process:
        yield process


@pytest.fixture
def callers(shared: serving.Process) -> Iterator[list[Caller]]:
    """Open connections to both workers; all reach the same one as rarely as a coin shows 15 heads in a row."""
    with ExitStack() as stack:
        opened = [Caller(shared.url) for _ in range(16)]
        for caller in opened:
            stack.callback(caller.close)
        yield opened


def test_connections_are_distributed_over_workers(shared: serving.Process) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(serving.connect(shared.url)) for _ in range(64)]
        workers = workers_of(shared.popen.pid)
        ports = {connection.getsockname()[1] for connection in connections}
        taken: dict[int, int] = {}

        def are_taken() -> bool:
            taken.update((worker, len(client_ports(worker) & ports)) for worker in workers)
            return sum(taken.values()) == len(ports)

        until(are_taken)
    assert len(workers) == 2
    assert all(taken[worker] >= 8 for worker in workers), taken


@pytest.mark.slow
def test_every_worker_sees_what_one_acknowledged(callers: list[Caller], cid_of: Cid) -> None:
    root = callers[0].create({"a/b": cid_of(b"leaf")})
    for number, writer in enumerate(callers * 3):
        data = f"payload {number}".encode() * (1 + 9999 * (number % 3))
        cid = writer.add(data)
        together = writer.add_batch(b"a" + data, b"b" + data)
        created = writer.create({f"d{number}/f{i}": cid for i in range(100)})
        changed = root = writer.change(root, f"new{number}", cid)
        name = f"name{number % 5}"
        assert writer.publish(name, changed) == 200
        for reader in callers:
            assert reader.payload(cid) == data
            assert reader.are_there([cid, cid_of(b"never"), *together]) == [True, False, True, True]
            assert reader.target(created, f"d{number}/f99") == cid
            assert reader.target(changed, f"new{number}") == cid
            assert reader.published(name) == changed


def test_large_payload_is_read_through_another_worker(callers: list[Caller]) -> None:
    data = hashlib.shake_256(b"big").digest(20 * MIB + 1)
    cid = callers[0].add(data)
    for reader in callers[1:6]:
        assert reader.payload(cid) == data


def test_frequent_reads_are_soon_answered_without_the_owner(shared: serving.Process, callers: list[Caller]) -> None:
    cid = callers[0].add(b"read often")

    def is_read_without_the_owner() -> bool:
        for caller in callers * 10:
            assert caller.payload(cid) == b"read often"
        os.kill(shared.popen.pid, signal.SIGSTOP)
        try:
            answers = [httpx2.get(f"{shared.url}/v1/cas/{cid}", timeout=2).content for _ in range(8)]
        except httpx2.TimeoutException:
            return False
        finally:
            os.kill(shared.popen.pid, signal.SIGCONT)
        return answers == [b"read often"] * 8

    until(is_read_without_the_owner)


def test_one_publisher_over_all_workers_wins_each_revision(callers: list[Caller], cid_of: Cid) -> None:
    roots = [callers[0].create({"n": cid_of(bytes([i]))}) for i in range(len(callers))]
    with ThreadPoolExecutor(len(callers)) as threads:
        for revision in range(10):
            race = zip(callers, roots, strict=True)
            statuses = list(threads.map(lambda each: each[0].publish("race", each[1], revision), race))  # noqa: B023
            assert sorted(statuses) == [200] + [409] * (len(callers) - 1)
    assert [caller.history("race") for caller in callers] == [list(range(1, 11))] * len(callers)


def begin_upload(url: str) -> tuple[socket.socket, int]:
    """Open a connection, send two of five bytes of an upload, and return it with its local port."""
    connection = serving.connect(url)
    connection.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhe")
    assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
    return connection, connection.getsockname()[1]


def test_killed_worker_is_restarted_while_others_serve(tmp_path: Path) -> None:
    with serving.process(tmp_path, workers=2) as process:
        connection, port = begin_upload(process.url)
        with connection:
            before = workers_of(process.popen.pid)
            (spared,) = (worker for worker in before if has_connection(worker, port))
            (killed,) = before - {spared}
            os.kill(killed, signal.SIGKILL)
            until(lambda: not is_alive(killed))
            caller = Caller(process.url)
            caller.add(b"while there is one worker")
            connection.sendall(b"llo")
            assert connection.recv(4096).startswith(b"HTTP/1.1 201 ")
            caller.close()
        until(lambda: len(workers_of(process.popen.pid)) == 2)
        (replacing,) = workers_of(process.popen.pid) - {spared}
        os.kill(spared, signal.SIGTERM)  # a single worker that is stopped gracefully is restarted too
        until(lambda: not is_alive(spared) and len(workers_of(process.popen.pid)) == 2)
        until(lambda: can_add(process.url, b"by others"))
        assert is_alive(replacing)
        assert process.end() == 0
        errors = process.popen.communicate()[1]
        assert "worker 1 exited" in errors
        assert "worker 2 exited" in errors


def test_failed_restart_of_a_worker_is_retried(tmp_path: Path) -> None:
    with serving.process(tmp_path, workers=2) as process:
        owner = process.popen.pid
        _, most = resource.prlimit(owner, resource.RLIMIT_NOFILE)
        limits = resource.prlimit(owner, resource.RLIMIT_NOFILE, (3, most))  # the owner cannot open another file
        killed = min(workers_of(owner))
        os.kill(killed, signal.SIGKILL)
        assert process.popen.stderr is not None
        told = iter(process.popen.stderr.readline, "")
        assert any("Too many open files" in line for line in told), "the owner has ended"
        assert len(workers_of(owner)) == 1
        Caller(process.url).close()
        resource.prlimit(owner, resource.RLIMIT_NOFILE, limits)
        until(lambda: len(workers_of(owner)) == 2)
        assert process.end() == 0


def can_add(url: str, data: bytes) -> bool:
    try:
        return httpx2.post(f"{url}/v1/cas", content=data).status_code == 201
    except httpx2.TransportError:
        return False


def test_killing_workers_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with serving.process(tmp_path, workers=3) as process, ThreadPoolExecutor(4) as threads:
        ended: list[bool] = []

        def upload(number: int) -> list[tuple[str, bytes]]:
            acknowledged = []
            for turn in range(10_000):
                data = f"{number} {turn}".encode() * 100
                try:
                    answer = httpx2.post(f"{process.url}/v1/cas", content=data, timeout=60)
                except httpx2.TransportError:
                    continue
                assert answer.status_code == 201
                acknowledged.append((answer.json()["cid"], data))
                if ended:
                    break
            return acknowledged

        uploads = [threads.submit(upload, number) for number in range(4)]
        for _ in range(4):
            until(lambda: len(workers_of(process.popen.pid)) == 3)
            os.kill(max(workers_of(process.popen.pid)), signal.SIGKILL)
        ended.append(True)
        everything = [each for future in uploads for each in future.result()]
        assert len(everything) >= 4
        reader = Caller(process.url)
        assert [reader.payload(cid) for cid, _ in everything] == [data for _, data in everything]
        reader.close()


def test_killing_the_owner_ends_workers_and_loses_nothing_acknowledged(tmp_path: Path, cid_of: Cid) -> None:
    with serving.process(tmp_path, serving.ADMIN, workers=2) as process:
        caller = Caller(process.url)
        cid = caller.add(bytes(3 << 20))
        root = caller.create({"a": cid})
        changed = caller.change(root, "b", cid)
        assert caller.publish("name", changed) == 200
        workers = workers_of(process.popen.pid)
        assert process.end(signal.SIGKILL) == -signal.SIGKILL
        until(lambda: not any(map(is_alive, workers)))
        caller.close()
    with serving.process(tmp_path, serving.ADMIN, workers=2, port=process.port) as again:
        caller = Caller(again.url)
        assert caller.payload(cid) == bytes(3 << 20)
        assert [caller.target(root, "a"), caller.target(changed, "b")] == [cid, cid]
        assert caller.published("name") == changed
        caller.close()


def test_requests_in_flight_finish_when_workers_stop(tmp_path: Path) -> None:
    with serving.process(tmp_path, workers=2) as process, ExitStack() as stack:
        connections = [stack.enter_context(begin_upload(process.url)[0]) for _ in range(8)]
        workers = workers_of(process.popen.pid)
        process.popen.send_signal(signal.SIGTERM)
        until(lambda: all(not is_listening(worker) for worker in workers))
        for connection in connections:
            connection.sendall(b"llo")
        assert [serving.everything(connection)[:13] for connection in connections] == [b"HTTP/1.1 201 "] * 8
        assert process.popen.wait(60) == 0
        assert not any(map(is_alive, workers))


def is_listening(pid: int) -> bool:
    """Whether a worker still accepts connections; False once it has exited."""
    try:
        rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        return bool({f"socket:[{row[9]}]" for row in rows if row[3] == "0A"} & open_files(pid))
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_worker_reports_the_health_of_its_owner(tmp_path: Path) -> None:
    with serving.process(tmp_path, workers=2) as process:
        os.kill(process.popen.pid, signal.SIGSTOP)
        try:
            answers = [httpx2.get(f"{process.url}/healthz", timeout=60).status_code for _ in range(4)]
        finally:
            os.kill(process.popen.pid, signal.SIGCONT)
        assert answers == [503] * 4
        until(lambda: httpx2.get(f"{process.url}/healthz").status_code == 200)


@pytest.mark.parametrize("workers", [1, 2])
def test_data_and_port_of_running_workers_are_in_use(shared: serving.Process, tmp_path: Path, workers: int) -> None:
    with pytest.raises(AssertionError, match=rf"cannot listen on 127\.0\.0\.1:{shared.port}"):
        serving.start(tmp_path, workers=workers, port=shared.port)
    with serving.process(tmp_path, workers=2), pytest.raises(AssertionError, match=f"{tmp_path} is in use"):
        serving.start(tmp_path, workers=workers)


def test_worker_that_fails_to_start_stops_all(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"(?s)GATEWAY_WRITE_TOKEN.*exited during the start: exit code 1"):
        serving.start(tmp_path, {"GATEWAY_WRITE_TOKEN": "no header carries\ta tab"}, workers=2)


def test_the_owner_refuses_a_malformed_token(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"exit code 1: (?s:.*)coregw: GATEWAY_ADMIN_TOKEN"):
        serving.start(tmp_path, {"GATEWAY_ADMIN_TOKEN": "no header carries\ta tab"}, workers=2)


def test_workers_option_sets_their_number(tmp_path: Path) -> None:
    options = ["--workers", "3", "--port", "0", "--data", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "coregw", "serve", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert len(workers_of(process.pid)) == 3
        assert httpx2.get(f"{line.split()[-1]}/openapi.json").status_code == 200
        process.terminate()
        assert process.communicate(timeout=60)[0] == ""  # the lines that workers print do not get there
    assert process.returncode == 0
