"""The front of a gateway: its sockets, its queue of reads, and a server that stops."""

from __future__ import annotations

import errno
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from coregw import InvalidInput
from coregw._core import Front, FrontLimits, Listener, PageCache, StoreReads, StoreWrites
from coregw.errors import ERROR_CODES

LIMITS = FrontLimits(
    threads=2,
    connections=100,
    connections_per_address=100,
    unsent_bytes=1 << 20,
    buffered_bytes=1 << 20,
    buffered_bytes_per_address=1 << 20,
    payload_cache_bytes=1 << 20,
    log_bytes=1 << 20,
    head_bytes=1 << 14,
    header_fields=100,
    head_seconds=60,
    idle_seconds=60,
    min_rate_bytes=0,
    rate_grace_seconds=60,
    body_pause_seconds=60,
    body_seconds=60,
    read_pause_seconds=60,
    drain_seconds=60,
    json_body_bytes=1 << 16,
    verify_body_bytes=1 << 16,
    resolve_batch_body_bytes=1 << 16,
    batch_answer_bytes=1 << 16,
    payload_bytes=1 << 16,
    change_body_bytes=1 << 16,
    node_budget=1000,
    max_nodes=1000,
    operation_seconds=60,
    long_queries=1,
    worker_threads=1,
    upstream_idle_seconds=1,
)
PAYLOAD = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq"  # of b"hello"


@dataclass
class Running:
    """A front that serves."""

    front: Front
    reads: StoreReads
    port: int

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body


def new_front(reads: StoreReads, cache: PageCache, upstream: Path, **changed: object) -> Front:
    named = {
        "hosts": "auto",
        "allow_origin": "none",
        "listens_on": "127.0.0.1",
        "proxies": "none",
        "codes": {code: row.status for code, row in ERROR_CODES.items()},
        "fields": [("x-content-type-options", "nosniff")],
    }
    return Front(reads, StoreWrites(), cache, LIMITS, upstream=upstream, **named | changed)  # type: ignore[arg-type]


@contextmanager
def serving_front(upstream: Path, **changed: object) -> Iterator[Running]:
    cache = PageCache(1 << 20)
    reads = StoreReads(cache)
    front = new_front(reads, cache, upstream, **changed)
    listener = Listener("127.0.0.1", 0, 16)
    thread = threading.Thread(target=front.serve, args=([listener], 60))
    thread.start()
    try:
        yield Running(front, reads, listener.address[1])
    finally:
        front.stop()
        reads.close()
        thread.join(60)
    assert not thread.is_alive()


def supply_hello(reads: StoreReads) -> None:
    """Answer batches from a store with one payload."""
    while (batch := reads.next()) is not None:
        assert not batch.pages
        found = [(5, b"hello") if name.hex().startswith("12202cf24d") else None for name in batch.payloads]
        reads.supply(batch.id, [], [None] * len(batch.roots), [], found, [None] * len(batch.sizes), [])


def test_a_listener_in_use_is_named_by_the_system() -> None:
    taken = Listener("127.0.0.1", 0, 1)
    with pytest.raises(OSError, match="in use") as error:
        Listener("127.0.0.1", taken.address[1], 1)
    assert error.value.errno == errno.EADDRINUSE
    taken.close()
    taken.close()
    Listener("127.0.0.1", taken.address[1], 1).close()


def test_an_ipv6_listener_of_every_address_takes_ipv4_as_well() -> None:
    listener = Listener("::", 0, 1)
    socket.create_connection(("127.0.0.1", listener.address[1]), timeout=60).close()


def test_a_listener_needs_an_ip_address() -> None:
    with pytest.raises(ValueError, match="host: localhost is not valid"):
        Listener("localhost", 0, 1)


def test_a_hot_read_is_answered_from_the_queue_of_reads_and_counted(tmp_path: Path) -> None:
    with serving_front(tmp_path / "absent") as running:
        store = threading.Thread(target=supply_hello, args=[running.reads])
        store.start()
        assert running.get(f"/v1/cas/{PAYLOAD}") == (200, b"hello")
        assert running.get(f"/v1/cas/{PAYLOAD}") == (200, b"hello")
        assert running.get("/v1/cas/nothing")[0] == 400
        assert running.reads.figures[0] == 1  # the second is in the memory of small payloads
        (route,) = running.front.counts().routes
        assert (route.method, route.route, route.statuses) == ("GET", "/v1/cas/{cid}", {200: 2, 400: 1})
        assert route.sizes[0] >= 10
        assert sum(route.nanoseconds[1:]) == 3
        assert running.front.counts().refusals == {"invalid_cid": 1}
        assert running.front.figures().no_room == 0
        running.reads.close()
        store.join()


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("unavailable", 503, b"unavailable"),
        ("not_found", 404, b"payload_not_found"),
        ("damaged", 500, b"internal"),
        ("internal", 500, b"internal"),
    ],
)
def test_a_failed_read_is_told_to_the_client(tmp_path: Path, kind: str, status: int, code: bytes) -> None:
    def refuse(reads: StoreReads) -> None:
        while (batch := reads.next()) is not None:
            reads.fail(batch.id, kind, "a broken disk")  # type: ignore[arg-type]

    with serving_front(tmp_path / "absent") as running:
        store = threading.Thread(target=refuse, args=[running.reads])
        store.start()
        answered, body = running.get(f"/v1/cas/{PAYLOAD}")
        running.reads.close()
        store.join()
    assert answered == status
    assert b'"error":"' + code + b'"' in body
    assert (b"a broken disk" in body) == (kind in {"unavailable", "not_found"})


def test_reads_refuse_what_does_not_fit() -> None:
    reads = StoreReads(PageCache(1 << 20))
    with pytest.raises(ValueError, match="kind: lost is not valid"):
        reads.fail(1, "lost", "")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a digest has 32 bytes"):
        reads.supply(1, [], [], [(b"short", b"")], [], [], [])
    reads.supply(1, [], [], [], [], [], [])  # of no batch


def test_what_is_not_hot_is_answered_by_the_application_or_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "application"
    with serving_front(path) as running:
        status, body = running.get("/v1/anything")
        assert (status, b'"error":"unavailable"' in body) == (503, True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            heads = []

            def answer() -> None:
                with listener.accept()[0] as connection:
                    heads.append(connection.recv(1 << 16))
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell")

            application = threading.Thread(target=answer)
            application.start()
            assert running.get("/v1/anything", **{"X-Forwarded-For": "192.0.2.1"}) == (200, b"well")
            application.join()
        assert b"x-forwarded-for: 127.0.0.1\r\n" in heads[0].lower()
        assert b"192.0.2.1" not in heads[0]


def test_requests_are_logged_until_the_server_has_ended(tmp_path: Path) -> None:
    lines = []

    def write(front: Front) -> None:
        while taken := front.take_log():
            lines.extend(taken)

    with serving_front(tmp_path / "absent", access_log=True) as running:
        writer = threading.Thread(target=write, args=[running.front])
        writer.start()
        running.get("/v1/cas/%6Eothing", **{"X-Request-Id": "a-name"})
    writer.join(60)
    (line,) = lines
    assert (line.client, line.method, line.path, line.id) == ("127.0.0.1", "GET", "/v1/cas/nothing", "a-name")
    assert (line.status, line.failure) == (400, None)
    assert line.bytes > 0


def test_a_front_serves_a_listener_once(tmp_path: Path) -> None:
    cache = PageCache(1 << 20)
    front = new_front(StoreReads(cache), cache, tmp_path / "absent")
    listener = Listener("127.0.0.1", 0, 1)
    listener.close()
    with pytest.raises(ValueError, match="listener: a closed one is not valid"):
        front.serve([listener], 1)
    assert front.take_log() == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hosts": "a b"}, "hosts: a b is not a host name"),
        ({"proxies": "10.0.0.1/8"}, "proxies: 10.0.0.1/8 is neither an address nor a network"),
    ],
)
def test_a_front_refuses_what_is_no_host_or_network(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    cache = PageCache(1 << 20)
    with pytest.raises(InvalidInput, match=said):
        new_front(StoreReads(cache), cache, tmp_path, **changed)


def test_a_front_refuses_a_malformed_field(tmp_path: Path) -> None:
    cache = PageCache(1 << 20)
    with pytest.raises(ValueError, match="field: a b is not valid"):
        new_front(StoreReads(cache), cache, tmp_path, fields=[("a b", "c")])
