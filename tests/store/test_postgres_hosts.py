"""Which of several servers of a database is connected to, when some of them do not answer."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from coregw.store.postgres.connections import Host, Hosts, hosts_of
from tables import rows

pytestmark = pytest.mark.anyio

ONE: Host = ("one", 1)
TWO: Host = ("two", None)
THREE: Host = ("three", 3)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Connection:
    def __init__(self, host: str) -> None:
        self.host = host
        self.is_terminated = False

    def terminate(self) -> None:
        self.is_terminated = True


class Servers:
    """Servers, each of which answers, is a standby, closes connections, or is silent."""

    def __init__(self, **states: str) -> None:
        self.states = states
        self.asked: list[str] = []
        self.connections: list[Connection] = []
        self.abandoned = 0
        self.hosts = Hosts([ONE, TWO, THREE], self.connect)

    async def connect(self, host: str, port: int | None = None) -> Connection:
        self.asked.append(host)
        state = self.states[host]
        if state == "closes":
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        if state == "standby":
            raise asyncpg.TargetServerAttributeNotMatched("no")
        if state == "silent":
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.abandoned += 1
                raise
        self.connections.append(Connection(host))
        return self.connections[-1]


@pytest.mark.parametrize("state", ["closes", "standby", "silent"])
async def test_a_server_that_is_of_no_use_keeps_nobody_from_the_next(state: str) -> None:
    servers = Servers(one=state, two="primary", three="standby")
    assert (await servers.hosts.connect()).host == "two"
    assert servers.asked == ["one", "two"]
    assert (await servers.hosts.connect()).host == "two"  # which is the first to be asked now
    assert servers.asked == ["one", "two", "two"]
    await asyncio.sleep(0)
    assert servers.abandoned == (state == "silent")


async def test_the_reason_that_is_no_standby_is_reported() -> None:
    servers = Servers(one="standby", two="closes", three="standby")
    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        await servers.hosts.connect()
    assert sorted(servers.asked) == ["one", "three", "two"]


async def test_a_cancelled_call_leaves_no_connection() -> None:
    servers = Servers(one="silent", two="silent", three="silent")
    call = asyncio.ensure_future(servers.hosts.connect())
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0)
    assert servers.abandoned == len(servers.asked) == 1


@rows(
    ("url", "expected"),
    [
        ("postgresql://u:p%40@one:1,two,[::1]:3/db?sslmode=disable", [("one", 1), ("two", None), ("::1", 3)]),
        ("postgresql://u@one,[::2]/db", [("one", None), ("::2", None)]),
        ("postgresql://one:1/db", []),
        ("postgresql:///db?host=one,two", []),
    ],
)
def test_the_servers_of_an_address(url: str, expected: list[Host]) -> None:
    assert hosts_of(url) == expected


async def test_without_several_servers_the_address_says_which() -> None:
    async def connect(**given: object) -> str:
        assert not given
        return "connection"

    assert await Hosts([], connect).connect() == "connection"
