"""Connections to the database, and how a call survives losing one.

A read may be cancelled, and is repeated for some seconds if its connection is lost. A write runs to its end, whatever
happens to the task that asked for it: cancelling the wait for a standby would make rows visible that no standby has. If
its connection is lost, it is repeated, and its attempt says whether it was completed (`coregw.store.postgres.schema`).
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from coregw.errors import Unavailable
from coregw.store.postgres.connections.errors import Retry, UnconfirmedWrite, retry_of, translated
from coregw.store.postgres.connections.hosts import Hosts, hosts_of
from coregw.waiting import result_of

__all__ = ["Connection", "Database", "Query", "Row", "columns"]

T = TypeVar("T")
Connection = Any
"""A connection of asyncpg, which has no types."""
Row = Any
"""A row of asyncpg: a tuple that is also indexed by names."""
Query = tuple[str, *tuple[object, ...]]
"""A query and its arguments."""

READ_SECONDS: Final = 5.0
"""How long a read is repeated, and how long one takes at most."""
WRITE_SECONDS: Final = 10.0
"""How long a write is repeated after its connection was lost. Waiting for a standby has no limit."""
_WARM_CONNECTIONS: Final = 3
"""A request reads on up to two connections at once, and another may write."""
_ATTEMPT_SHARE: Final = 0.45
"""The share of a read's time after which it is repeated."""
_CONNECT_SECONDS: Final = 5.0
_MAX_CONFLICTS: Final = 20
_MIN_PAUSE_SECONDS: Final = 0.02
_MAX_PAUSE_SECONDS: Final = 0.5
_LOST_AFTER_SECONDS: Final = 4
"""A connection is lost if the other machine acknowledges nothing for this long (TCP_USER_TIMEOUT), data or probe."""
_PROBE_AFTER_SECONDS: Final = 2
"""A connection on which nothing was received for this long, as of a call that waits for its answer, is probed."""

_SESSION: Final = {
    "application_name": "coregw",
    "default_transaction_isolation": "read committed",
    "synchronous_commit": "on",
    "statement_timeout": "0",  # it would cut the wait for a standby short
    "lock_timeout": "0",
    "idle_session_timeout": "0",
    "jit": "off",
}
"""Settings of every session; parameters of the address take precedence."""


class Database:
    """A small pool of connections to the primary. For tasks of one event loop.

    Args:
        pool: The pool.
        size: Its maximum number of connections; all but one may be writing.
        connect: Makes a connection that the pool does not count.
    """

    def __init__(self, pool: Any, size: int, connect: Callable[[], Awaitable[Connection]]) -> None:  # noqa: ANN401
        self._pool = pool
        self._connect = connect
        self.size = size
        self._writers = asyncio.Semaphore(size - 1)
        self._writing: dict[asyncio.Task[Any], float] = {}
        self.retries = 0
        """How many calls were repeated."""
        self._is_closing = self._is_closed = False

    @classmethod
    async def connect(cls, url: str, size: int, *, attributes: str = "primary") -> Database:
        """Connect to the first server of an address that has the attributes.

        Raises:
            Unavailable: None of them answers, has them, or lets us in.
        """
        given = {name for name, _ in parse_qsl(urlsplit(url).query)}
        session = {name: value for name, value in _SESSION.items() if name not in given}

        async def connect_to(**host: object) -> Connection:
            connection = await asyncpg.connect(
                url, timeout=_CONNECT_SECONDS, server_settings=session, target_session_attrs=attributes, **host
            )
            _detect_loss(connection)
            _know_arrays(connection)
            return connection

        async def connect(*_: object, **_classes: object) -> Connection:
            return await hosts.connect()  # the pool's classes of connections and rows are the defaults

        try:
            hosts = Hosts(hosts_of(url), connect_to)
            # Without a minimum, since the pool would log each attempt to keep it while the database is away.
            # Idle ones stay: they are probed, and a new one costs the database some 10 ms.
            pool = await asyncpg.create_pool(
                min_size=0, max_size=size, max_inactive_connection_lifetime=0, connect=connect, reset=_leave
            )
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, ValueError) as error:
            raise Unavailable(f"no connection to the database: {error}") from None
        database = cls(pool, size, connect)
        try:
            await database.read("SELECT 1")
        except BaseException:
            await database.close()
            raise
        return database

    async def warm(self, *queries: Query) -> None:
        """Open connections, and make queries on each, with their arguments: the first ones of a connection take longer.

        Raises `Unavailable` if the database does not answer.
        """
        count = min(self.size, _WARM_CONNECTIONS)
        are_open = asyncio.Barrier(count)

        async def warm_one() -> None:
            async with self._pool.acquire() as connection:
                await are_open.wait()  # or one connection would do for all
                for query, *arguments in queries:
                    await connection.fetch(query, *arguments)

        tasks = [asyncio.ensure_future(warm_one()) for _ in range(count)]
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.gather(*tasks)
        except Exception as error:
            raise translated(error) from error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Wait for writes in progress, and close the connections. Idempotent."""
        self._is_closing = True
        while self._writing:  # what has begun may need further calls
            await asyncio.wait(self._writing)
        self._is_closed = True
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._pool.close()
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._pool.terminate()

    def require_open(self) -> None:
        """Raise `Unavailable` if `close` was called: each call of the store begins with this."""
        if self._is_closing:
            raise Unavailable("the store is closed")

    def _require_connections(self) -> None:
        if self._is_closed:
            raise Unavailable("the store is closed")

    @property
    def oldest_write_seconds(self) -> float:
        """How long the oldest write in progress has been waiting; 0 without one."""
        return time.monotonic() - min(self._writing.values()) if self._writing else 0.0

    @property
    def in_use(self) -> tuple[int, int]:
        """The number of open connections, and of those that are in use."""
        return self._pool.get_size(), self._pool.get_size() - self._pool.get_idle_size()

    async def read(self, query: str, *arguments: object, seconds: float = READ_SECONDS) -> list[Row]:
        """Return the rows of a query that changes nothing.

        Raises:
            Unavailable: The database did not answer within `seconds`, or this is closed.
            StoreDamaged: It found its files damaged.
        """
        self._require_connections()

        async def fetch(connection: Connection) -> list[Row]:
            # An answer that does not come in time is asked for on another connection: this one may lead nowhere.
            async with asyncio.timeout(_ATTEMPT_SHARE * seconds):
                rows: list[Row] = await connection.fetch(query, *arguments)
            return rows

        try:
            async with asyncio.timeout(seconds):
                return await self._repeat(fetch, seconds)
        except TimeoutError:
            raise Unavailable("the database does not answer in time") from None

    async def write(self, query: str, *arguments: object) -> list[Row]:
        """Return the rows of a call that writes, once what it wrote is durable. May be repeated, so is idempotent.

        Cancelling this does not end the call.

        Raises:
            StorageFull: The disk of the database is full.
            Unavailable: The database did not confirm the call; it may be completed nevertheless.
            StoreDamaged: It found its files damaged.
        """

        async def fetch(connection: Connection) -> list[Row]:
            warnings: list[object] = []

            def note(_: object, message: object) -> None:
                if isinstance(message, asyncpg.PostgresWarning) or getattr(message, "sqlstate", "") == "57P01":
                    warnings.append(message)

            connection.add_log_listener(note)
            try:
                rows: list[Row] = await connection.fetch(query, *arguments)
            finally:
                connection.remove_log_listener(note)
            if warnings:  # our functions raise none, so it says that a standby has not confirmed the commit
                raise UnconfirmedWrite(str(warnings[0]))
            return rows

        return await self.to_end(lambda: self._repeat(fetch, WRITE_SECONDS), is_writing=True)

    async def to_end(self, call: Callable[[], Awaitable[T]], *, is_writing: bool = False) -> T:
        """Run a call to its end, even if the task that asked for it is cancelled."""
        self._require_connections()

        async def run() -> T:
            if not is_writing:
                return await call()
            async with self._writers:
                return await call()

        task = asyncio.get_running_loop().create_task(run())
        self._writing[task] = time.monotonic()
        task.add_done_callback(self._writing.pop)
        return await result_of(task)

    async def _repeat(self, fetch: Callable[[Connection], Awaitable[T]], seconds: float) -> T:
        """Call `fetch` with a connection until it succeeds, at most for this many seconds after the first failure."""
        last = 0.0
        pause, conflicts = _MIN_PAUSE_SECONDS, 0
        while True:
            try:
                async with self._pool.acquire() as connection:
                    try:
                        return await fetch(connection)
                    except BaseException as error:
                        if retry_of(error) is Retry.CONNECTION:
                            connection.terminate()  # or the pool would give it to the next call
                        raise
            except Exception as error:
                kind = retry_of(error)
                now = time.monotonic()
                last = last or now + seconds
                conflicts += kind is Retry.CONFLICT
                if kind is Retry.NEVER or now + pause > last or conflicts > _MAX_CONFLICTS:
                    raise translated(error) from error
            self.retries += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads retries
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """Open a connection that the pool does not count. Errors are translated, and nothing is repeated."""
        self.require_open()
        connection: Connection = None
        try:
            connection = await self._connect()
            yield connection
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise translated(error) from error
        finally:
            if connection is not None:
                connection.terminate()


async def _leave(_connection: Connection) -> None:
    """Leave a session as it is: nothing changes one, and a reset would cost a round trip for each call."""


def _detect_loss(connection: Connection) -> None:
    """Let the kernel notice that the other machine is gone; without it, a call would wait for a quarter of an hour."""
    # asyncpg offers no other way to the socket; pyproject.toml bounds its version.
    endpoint = connection._transport.get_extra_info("socket")  # noqa: SLF001
    if endpoint is None or endpoint.family not in (socket.AF_INET, socket.AF_INET6):
        return
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_SECONDS)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _LOST_AFTER_SECONDS)


def _know_arrays(connection: Connection) -> None:
    """Tell asyncpg of the array types of our arguments. It would ask the database, which takes several round trips."""
    numbers = {"bytea": (1001, 17), "int4": (1007, 23), "int8": (1016, 20), "uuid": (2951, 2950)}
    absent = dict.fromkeys(("basetype", "range_subtype", "attrtypoids"))
    types = [
        {"oid": array, "ns": "pg_catalog", "name": f"_{name}", "kind": b"b", "elemtype": element, "elemdelim": ","}
        | absent
        for name, (array, element) in numbers.items()  # the numbers of built-in types never change
    ]
    # asyncpg has no public way to do that; pyproject.toml bounds its version.
    connection._protocol.get_settings().register_data_types(types)  # noqa: SLF001


def columns(rows: Sequence[tuple[bytes, bytes]]) -> tuple[list[bytes], list[bytes]]:
    """Return keys and values, each key once with its last value, in the order in which rows are locked."""
    pairs = sorted(dict(rows).items())
    return [key for key, _ in pairs], [value for _, value in pairs]
