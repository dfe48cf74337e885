"""Maps from lines of arcs: all or nothing, in bounded memory, whatever the client or the disk does meanwhile."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest

import coregw
import serving
from coregw.store.memory import MemoryStore
from processes import open_files, until
from tables import rows

LINES = {"content-type": "application/x-ndjson"}
SMALL = {"buffered_bytes": 4 << 20, "roots_body_bytes": 1 << 20}
"""Limits with which a run has 128 KiB, so that some thousand arcs are several runs."""

MIB = 1 << 20
TARGETS = [coregw.payload_cid(bytes([i])) for i in range(100)]


def arc(i: int) -> tuple[str, str]:
    return f"{i * 2654435761 % 2**32:08x}/{i % 7}", TARGETS[i % len(TARGETS)]


def lines(first: int, end: int, step: int = 500) -> Iterator[bytes]:
    """Lines of arcs in chunks that end anywhere."""
    for at in range(first, end, step):
        chunk = b"".join(
            b'["%s","%s"]\n' % (path.encode(), cid.encode()) for path, cid in map(arc, range(at, at + step))
        )
        yield chunk[:-30]
        yield chunk[-30:]


def post(client: httpx2.Client | str, content: Iterator[bytes] | bytes, **parameters: str) -> httpx2.Response:
    if isinstance(client, str):
        return httpx2.post(f"{client}/v1/roots", content=content, headers=LINES, params=parameters, timeout=60)
    return client.post("/v1/roots", content=content, headers=LINES, params=parameters)


def root_of(first: int, end: int, suite: str = "sha2-256") -> str:
    return coregw.Map(map(arc, range(first, end)), suite).root


def is_held(client: httpx2.Client, root: str) -> bool:
    asked = {"profile": "core.resolve/v0alpha1", "root": root, "segments": ["x"]}
    return bool(client.post("/v1/resolve", json=asked).json()["error"] == "path_not_found")


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
def test_lines_in_any_order_make_the_root_that_the_client_computes(suite: str) -> None:
    with serving.thread(MemoryStore(), **SMALL) as url, httpx2.Client(base_url=url, timeout=60) as client:
        answer = post(client, lines(0, 20_000), suite=suite)
        assert (answer.status_code, answer.json()) == (201, {"root": root_of(0, 20_000, suite)}), answer.text
        for i in range(0, 20_000, 1999):
            path, target = arc(i)
            asked = {"profile": "core.resolve/v0alpha1", "root": answer.json()["root"], "segments": path.split("/")}
            result = client.post("/v1/resolve", json=asked).content
            assert coregw.verify_resolve(json.dumps(asked), result) == target
        assert post(client, lines(0, 20_000), suite=suite).json() == answer.json()  # once more
        for content in (b"", b"\r\n\n"):
            assert post(client, content, suite=suite).json()["root"] == coregw.Map({}, suite).root


@rows(
    ("line", "code", "message"),
    [
        ('["a"]', "invalid_request", "line 6001: expected [path, CID]"),
        ('{"a":"CID"}', "invalid_request", "line 6001: expected [path, CID]"),
        ('["a","x"]', "invalid_cid", 'line 6001: arc "a": CID "x"'),
        ('["a//b","CID"]', "invalid_path", 'line 6001: path "a//b": empty segment'),
        ("x" * 40_000, "invalid_request", "line 6001: longer than 32,768 bytes"),
        ('["00000000/0","CID"]', "invalid_request", 'arcs: the path "00000000/0" occurs twice'),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_created(
    gateway: str, client: httpx2.Client, expect_refusal: Callable[..., str], line: str, code: str, message: str
) -> None:
    bad = line.replace("CID", TARGETS[3]).encode()
    body = b"".join(lines(0, 6000)) + bad + b"\n" + b"".join(lines(6000, 9000))
    assert expect_refusal(post(client, body), 400, code).startswith(message)
    assert not is_held(client, root_of(0, 9000))


def test_requests_are_checked_before_their_bodies(client: httpx2.Client, expect_refusal: Callable[..., str]) -> None:
    expect_refusal(post(client, b"", suite="md5"), 400, "invalid_request")
    expect_refusal(post(client, b"", sort="no"), 400, "invalid_request")
    compressed = client.post("/v1/roots", content=b"", headers=LINES | {"content-encoding": "gzip"})
    expect_refusal(compressed, 415, "unsupported_media_type")
    in_query = client.post("/v1/roots", json={"arcs": {}}, params={"suite": "blake3"})
    expect_refusal(in_query, 400, "invalid_request")
    utf8 = client.post("/v1/roots", content=b"", headers={"content-type": "application/x-ndjson; charset=utf-8"})
    assert utf8.status_code == 201


@pytest.mark.parametrize(
    ("settings", "status", "code"),
    [
        ({"build_body_bytes": 100_000}, 413, "too_large"),
        ({"build_spool_bytes": 500_000}, 507, "storage_full"),
        ({"reserve_bytes": 1 << 60}, 507, "storage_full"),
        ({"buffered_bytes": 1 << 20, "proxies": "none"}, 201, None),
    ],
)
def test_limits_end_a_build_and_leave_nothing(
    tmp_path: Path, settings: dict[str, object], status: int, code: str | None
) -> None:
    data = tmp_path / "data"
    with (
        serving.process(data, **(SMALL | settings)) as running,
        httpx2.Client(base_url=running.url, timeout=60) as client,
    ):
        answer = post(client, lines(0, 20_000))
        assert (answer.status_code, answer.json().get("error")) == (status, code), answer.text
        assert is_held(client, root_of(0, 20_000)) is (status == 201)
        assert unnamed_files(running.popen.pid) == 0
        assert client.get("/healthz").status_code == 200


def unnamed_files(pid: int) -> int:
    """The deleted files that a process has open, without RocksDB's own and the socket of the application."""
    own = (".sst", ".log", "/application ")
    return sum(name.endswith("(deleted)") and not any(each in name for each in own) for name in open_files(pid))


@pytest.mark.slow
def test_a_killed_build_leaves_no_root_and_no_files_and_can_be_repeated(tmp_path: Path) -> None:
    data, root = tmp_path / "data", root_of(0, 60_000)
    body = b"".join(lines(0, 60_000))
    head = b"POST /v1/roots HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n"
    held = 0
    for sent in (len(body) // 2, len(body), len(body)):
        running = serving.start(data, **SMALL)
        with serving.connect(running.url) as connection:
            connection.sendall(head % len(body) + body[:sent])
            if held == 0 and sent == len(body):
                connection.settimeout(0.2)  # while it is built, or it is complete: either is right
                with suppress(TimeoutError):
                    connection.recv(1000)
            running.end(signal.SIGKILL)
            running.popen.communicate()
        with serving.process(data, **SMALL) as again, httpx2.Client(base_url=again.url, timeout=60) as client:
            held = int(is_held(client, root))
            assert held == 0 or sent == len(body)
            if held:  # then it is whole
                car = client.get(f"/v1/roots/{root}/car")
                assert car.status_code == 200
        assert [each.name for each in data.iterdir() if each.name.startswith((".tmp", "tmp", "#"))] == []
    with serving.process(data, **SMALL) as again:
        assert post(again.url, body).json() == {"root": root}


def test_an_aborted_build_gives_back_its_place_and_its_file(tmp_path: Path) -> None:
    with serving.process(tmp_path / "data", builds=1, **SMALL) as running:
        for _ in range(2):
            with serving.connect(running.url) as connection:
                connection.sendall(
                    b"POST /v1/roots HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n"
                    b"Content-Length: 90000000\r\n\r\n" + b"".join(lines(0, 20_000))
                )
        answers: list[httpx2.Response] = []

        def is_accepted() -> bool:
            answers.append(post(running.url, lines(0, 1000)))
            return answers[-1].status_code != 503

        until(is_accepted)  # when the gateway has noticed that the clients are gone
        assert answers[-1].json() == {"root": root_of(0, 1000)}
        until(lambda: not unnamed_files(running.popen.pid))


@pytest.mark.slow
def test_slow_builds_keep_no_place_from_others() -> None:
    with ExitStack() as stack:
        url = stack.enter_context(serving.thread(MemoryStore(), builds=1, **SMALL))
        slow = [stack.enter_context(serving.connect(url)) for _ in range(3)]
        for connection in slow:
            connection.sendall(
                b"POST /v1/roots HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n"
                b"Content-Length: 90000000\r\n\r\n" + b"".join(lines(0, 1000))
            )
            while (answer := post(url, lines(0, 500))).status_code == 503:
                assert answer.json()["error"] == "unavailable"  # until the slow one has been stalled for some time
            assert answer.json() == {"root": root_of(0, 500)}
            assert b" 201 " not in serving.everything(connection)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_number_of_arcs(tmp_path: Path) -> None:
    """The same arcs in one JSON object would take 250 MiB more in the second case than in the first."""

    def peak(count: int) -> int:
        with serving.process(tmp_path / str(count), cache_bytes=MIB, store_cache_bytes=MIB) as running:
            assert post(running.url, lines(0, count, 5000)).status_code == 201
            text = Path(f"/proc/{running.popen.pid}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM:")) * 1024

    growth = peak(700_000) - peak(200_000)
    assert growth < 64 * MIB, f"{growth / MIB:.0f} MiB"
