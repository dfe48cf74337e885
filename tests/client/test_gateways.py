"""Clients with several gateways: which one is asked, and what a caller sees when one is killed, is full, or lies."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

import coregw
from client_calls import Call, both_clients
from coregw.client import AsyncClient, Client, ClientSettings, ConnectionOptions
from coregw.client.folders.add import Added
from coregw.client.transport.gateways import REFUSED_REST_SECONDS, REST_SECONDS, Address, Gateways
from coregw.errors import InvalidInput, ProofError, StorageFull, Unauthorized, Unavailable
from fronts import front
from gateways import Reply, honest_gateway, lying_gateway, scripted_gateway
from tables import rows

DATA = b"the payload"
CID = coregw.payload_cid(DATA)
ROUND = ClientSettings(attempts=2)
"""Two gateways are tried once each."""
URLS = ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"]


class Chosen:
    """Gateways, and their clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        addresses = [Address.parse(url) for url in URLS]
        self.gateways = Gateways(addresses, ClientSettings(), ConnectionOptions(), lambda: self.now)

    def fail(self, error: coregw.CoregwError) -> int:
        self.gateways.failed(self.gateways.current, error)
        return self.gateways.current.number


def test_a_client_stays_with_the_gateway_that_works_and_failed_ones_come_back() -> None:
    chosen = Chosen()
    assert chosen.gateways.current.number == 0
    assert chosen.fail(Unavailable("down")) == 1
    chosen.now += 2 * REST_SECONDS
    assert chosen.gateways.current.number == 1
    assert chosen.fail(Unavailable("down")) == 2
    assert chosen.fail(Unavailable("down")) == 0  # it has rested
    assert chosen.fail(Unavailable("down")) == 1  # all rest, and its rest ends first
    assert chosen.gateways.switches == 4
    for other in (StorageFull("full"), InvalidInput("no"), Unauthorized("no")):
        assert chosen.fail(other) == 1


def test_a_gateway_that_asks_for_time_is_left_alone() -> None:
    chosen = Chosen()
    asks = Unavailable("busy")
    asks.retry_after = 50.0
    assert chosen.fail(asks) == 1
    assert chosen.fail(Unavailable("down")) == 2
    assert chosen.fail(Unavailable("down")) == 1
    assert chosen.gateways.asked_seconds() == 0
    chosen.now += 51
    for expected in (2, 0):
        assert chosen.fail(Unavailable("down")) == expected
    asks.retry_after = 7.0
    for _ in range(3):
        chosen.fail(asks)
    assert chosen.gateways.asked_seconds() == 7


def test_a_gateway_that_asks_for_years_comes_back() -> None:
    chosen = Chosen()
    asks = Unavailable("busy")
    asks.retry_after = 1e9
    assert chosen.fail(asks) == 1
    chosen.now += 3601
    for expected in (2, 0):
        assert chosen.fail(Unavailable("down")) == expected
    assert chosen.gateways.asked_seconds() == 0


def test_a_refused_gateway_is_the_last_to_come_back() -> None:
    chosen = Chosen()
    error = ProofError("wrong")
    assert chosen.fail(error) == 1
    assert error.gateway == URLS[0]
    assert str(error) == f"wrong (gateway {URLS[0]})"
    for expected in (2, 1, 2):
        assert chosen.fail(Unavailable("down")) == expected
    chosen.now += REFUSED_REST_SECONDS
    assert chosen.fail(Unavailable("down")) == 0


def test_what_is_reported_late_of_another_gateway_changes_nothing() -> None:
    chosen = Chosen()
    first = chosen.gateways.current
    for _ in range(3):  # tasks whose requests were in flight when it died
        chosen.gateways.failed(first, Unavailable("down"))
    assert chosen.gateways.current.number == 1
    assert chosen.gateways.switches == 1


@rows("given", [[], [URLS[0], URLS[0] + "/"], [URLS[0], "static+http://host"], [URLS[0], "host"]])
def test_a_list_of_addresses_is_checked(given: list[str]) -> None:
    with pytest.raises(InvalidInput, match="gateway address"):
        Client(given)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@both_clients
def test_the_next_gateway_is_asked_if_one_does_not_answer(call: Call, gateway: str, nobody: str) -> None:
    assert call([nobody, gateway], ROUND, "put_payload", DATA) == CID


@both_clients
@rows("status", [502, 503, 504])
def test_the_next_gateway_is_asked_if_one_is_unavailable(call: Call, gateway: str, status: int) -> None:
    with lying_gateway(lambda reply: reply.with_body(b"", status)) as unavailable:
        assert call([unavailable, gateway], ROUND, "put_payload", DATA) == CID


@pytest.mark.slow
@both_clients
def test_the_next_gateway_is_asked_if_one_is_silent(call: Call, gateway: str) -> None:
    hasty = ClientSettings(attempts=2, idle_seconds=1)
    with scripted_gateway(lambda connection: [None for _ in iter(lambda: connection.recv(1 << 16), b"")]) as silent:  # type: ignore[arg-type, return-value]
        assert call([silent, gateway], hasty, "put_payload", DATA) == CID


@both_clients
def test_an_answer_that_is_an_error_is_not_asked_for_again(call: Call, gateway: str) -> None:
    with lying_gateway(lambda reply: reply.with_body(b"", 507)) as full, pytest.raises(StorageFull) as raised:
        call([full, gateway], ROUND, "put_payload", DATA)
    assert raised.value.gateway == full
    assert full in str(raised.value)


def wrong(reply: Reply) -> Reply:
    return reply.with_body(b"something else") if reply.method == "GET" else reply.with_body(reply.body[:-9] + b"}")


@pytest.mark.parametrize("kind", ["payload", "proof", "stream", "folder"])
def test_a_lying_gateway_is_named_and_the_next_call_goes_to_another(
    kind: str, gateway: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with Client(gateway) as honest:
        root = honest.create_root({"a": honest.put_payload(DATA)})
    calls = {
        "payload": lambda client: client.get_payload(CID),
        "proof": lambda client: client.resolve(root, "a"),
        "stream": lambda client: list(client.contents(CID)),
        "folder": lambda client: client.get(root, tmp_path / "copy").bytes,  # by a client of its own
    }
    with lying_gateway(wrong, gateway) as lying, Client([lying, gateway]) as client:
        with pytest.raises(ProofError, match=f"gateway {lying}") as raised:
            calls[kind](client)
        assert raised.value.gateway == lying
        assert client.base_url == gateway
        assert calls[kind](client) in (DATA, CID, [DATA], len(DATA))
    assert f"gateway {lying} is set aside" in caplog.text


def test_all_gateways_are_tried_again_until_the_time_is_over(nobody: str) -> None:
    answers = iter([b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"] * 9)

    def script(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(next(answers, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(DATA), DATA)))

    patient = ClientSettings(backoff_seconds=0.001, backoff_max_seconds=0.01)
    with scripted_gateway(script) as busy, Client([nobody, busy], patient) as client:
        assert client.get_payload(CID) == DATA
    with Client([nobody, URLS[0]], ClientSettings(retry_seconds=0.01)) as client, pytest.raises(Unavailable):
        client.get_payload(CID)


def tree(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that no gateway knows."""
    top = tmp_path / "sample"
    top.mkdir()
    for number in range(40):
        (top / f"d{number % 4}").mkdir(exist_ok=True)
        (top / f"d{number % 4}" / f"f{number}").write_bytes(os.urandom(40_000 + number))
    (top / "large").write_bytes(os.urandom(9 << 20))
    return top


@contextmanager
def dying(gateway: str, limit: int) -> Iterator[list[str]]:
    with front(gateway, limit) as first:
        yield [first.url, gateway]
        assert first.is_dead


@pytest.mark.parametrize("limit", [0, 100_000, 8_000_000])
def test_a_gateway_dies_while_a_folder_is_added(gateway: str, folder: Path, limit: int) -> None:
    with dying(gateway, limit) as urls, Client(urls) as client:
        added = client.add(folder, use_cache=False)
    with Client(gateway) as client:
        assert client.is_complete(added.root)


@pytest.mark.parametrize("limit", [0, 30_000, 4_000_000])
def test_a_gateway_dies_while_a_folder_is_restored(gateway: str, folder: Path, limit: int, tmp_path: Path) -> None:
    with Client(gateway) as client:
        root = client.add(folder).root
    with dying(gateway, limit) as urls, Client(urls) as client:
        client.get(root, tmp_path / "copy")
    assert tree(tmp_path / "copy") == tree(folder)


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_gateway_dies_between_and_during_look_ups(gateway: str, kind: str) -> None:
    arcs = {f"d/{number}": coregw.payload_cid(b"%d" % number) for number in range(300)}
    with Client(gateway) as client:
        root = client.create_root(arcs)

    async def concurrently(urls: list[str]) -> list[str]:
        found = {}
        async with AsyncClient(urls) as client, anyio.create_task_group() as group:

            async def resolve(path: str) -> None:
                found[path] = await client.resolve(root, path)

            for path in arcs:
                group.start_soon(resolve, path)
        return [found[path] for path in arcs]

    with dying(gateway, 100_000) as urls:
        if kind == "asyncio":
            assert asyncio.run(concurrently(urls)) == list(arcs.values())
        else:
            with Client(urls) as client:
                assert [client.resolve(root, path) for path in arcs] == list(arcs.values())
                assert client.switches == 1


def test_a_gateway_with_another_store_gets_everything(gateway: str, folder: Path, tmp_path: Path) -> None:
    """What the first one has acknowledged before it died is sent again."""

    async def add(urls: list[str]) -> Added:
        async with AsyncClient(urls) as client:
            return await client.add(folder, use_cache=False)

    (folder / "larger").write_bytes(os.urandom(12 << 20))  # 4 MiB are in flight three times
    with honest_gateway(tmp_path / "other") as other, honest_gateway(tmp_path / "one") as one:
        with front(one, 14_000_000) as first:
            added = asyncio.run(add([first.url, other]))
            assert first.is_dead
        with Client(other) as client:
            assert client.is_complete(added.root)
            client.get(added.root, tmp_path / "copy")
    assert tree(tmp_path / "copy") == tree(folder)


def test_requests_are_logged_without_credentials(gateway: str, nobody: str, caplog: pytest.LogCaptureFixture) -> None:
    secret = nobody.replace("//", "//user:hunter2@")
    connection = ConnectionOptions(headers={"X-Key": "hunter2"}, bearer_token="hunter2")
    with caplog.at_level(logging.DEBUG, "coregw.client"), Client([secret, gateway], ROUND, connection) as client:
        client.put_payload(DATA)
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith(f"POST {nobody}/v1/cas: Unavailable: put 11 bytes: gateway {nobody}: Connection refused (")
    assert second.startswith(f"POST {gateway}/v1/cas: 201 (")
    assert "hunter2" not in caplog.text
