"""Connections to the primary and the standbys of a database, and which errors are retried.

A read may be cancelled, and is repeated for some seconds if its connection is lost. A write runs to its end, whatever
happens to the task that asked for it: cancelling the wait for a standby would make rows visible that no standby has. If
its connection is lost, it is repeated, and its attempt says whether it was completed (`coregw.store.postgres.schema`).

asyncpg tries the servers of an address one after the other within one time limit, and gives up at the first that
accepts a connection and closes it again. So one machine without power, or one proxy without a server, would keep a
gateway from the others. Here each server is tried in a task of its own: first the one that answered last, and the
others when it fails, or does not answer within `_HEAD_START_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncpg

from coregw.concurrency import result_of
from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable
from coregw.telemetry import RepeatedFailure

__all__ = [
    "Connection",
    "ConnectionPool",
    "Hosts",
    "Query",
    "Replicas",
    "Retry",
    "Row",
    "UnconfirmedWrite",
    "columns",
    "hosts_of",
    "retry_of",
    "translated",
]


class UnconfirmedWrite(Exception):
    """A write was committed with a warning: it may be durable on this server alone."""


class Retry(Enum):
    """What to do with a call that failed."""

    NEVER = 0
    CONFLICT = 1
    """Repeat it soon: another call was in the way, and nothing was written."""
    CONNECTION = 2
    """Repeat it on another connection; it is not known whether it was completed."""


_CONFLICTS: Final = frozenset({"40001", "40P01"})  # serialization_failure, deadlock_detected

_LOST: Final = frozenset(
    {
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now: starting up or shutting down
        "57P05",  # idle_session_timeout
        "53300",  # too_many_connections
        "25006",  # read_only_sql_transaction: the server is a standby now
        "57014",  # query_canceled, by an administrator; the gateway cancels no write
        "0A000",  # a plan that a migration has outdated (feature_not_supported)
    }
)

_DAMAGED: Final = frozenset({"XX001", "XX002", "58P01"})  # data_corrupted, index_corrupted, undefined_file

_DROPPED: Final = "CG001"
"""Raised by `coregw.store.postgres.schema`: an upload was given up before its commit."""


def retry_of(error: BaseException) -> Retry:
    """Return whether a call that raised `error` is repeated."""
    if isinstance(error, asyncpg.PostgresError):
        code = str(getattr(error, "sqlstate", None) or "")
        if code in _CONFLICTS:
            return Retry.CONFLICT
        return Retry.CONNECTION if code in _LOST or code.startswith("08") else Retry.NEVER
    lost = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, UnconfirmedWrite)
    return Retry.CONNECTION if isinstance(error, lost) else Retry.NEVER


def translated(error: BaseException) -> CoregwError:
    """Return what a call raises that is not repeated, or was repeated in vain."""
    if isinstance(error, CoregwError):
        return error
    if isinstance(error, asyncpg.DiskFullError):
        return StorageFull("the disk of the database is full")
    if isinstance(error, TimeoutError):
        return Unavailable("the database does not answer in time")
    text = str(error) or type(error).__name__
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        text = "no server of its address is the primary"
    if isinstance(error, asyncpg.PostgresError):
        code = str(getattr(error, "sqlstate", None) or "")
        if code in _DAMAGED:
            return StoreDamaged(f"the database is damaged: {text}")
        if code == _DROPPED:
            return Unavailable("the upload made no progress for too long and was dropped; try again")
        if retry_of(error) is Retry.NEVER:
            return Unavailable(f"the database refuses a call (SQLSTATE {code}): {text}")
    return Unavailable(f"the database does not answer: {text}")


_HEAD_START_SECONDS: Final = 0.5

Connect = Callable[..., Awaitable[Any]]

Host = tuple[str, int | None]
"""A name or address, and a port; None for the default."""


def hosts_of(url: str) -> list[Host]:
    """Return the servers of an address that names several; none if asyncpg has to find out which it is.

    Raises:
        ValueError: A port is not a number.
    """
    parts = urlsplit(url)
    names = parts.netloc.rpartition("@")[2].split(",")
    if len(names) < 2 or {"host", "port"} & {name for name, _ in parse_qsl(parts.query)}:
        return []
    hosts: list[Host] = []
    for name in names:
        host, colon, port = name.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = name, ""
        hosts.append((unquote(host.removeprefix("[").removesuffix("]")), int(port) if port else None))
    return hosts


class Hosts:
    """The servers of one address. For tasks of one event loop.

    Args:
        hosts: What `hosts_of` returned.
        connect: Connects to the server that is given by the keywords ``host`` and ``port``, or without them to that of
            the address. Raises if it does not answer in time, or has not what is wanted.
    """

    def __init__(self, hosts: list[Host], connect: Connect) -> None:
        self._hosts = hosts
        self._connect = connect
        self._last = 0

    async def connect(self) -> Any:  # noqa: ANN401 - a connection of asyncpg
        """Connect to the first server that can be connected to.

        Raises what `connect` raised for the server that answered last, or for another one if that is down.
        """
        if not self._hosts:
            return await self._connect()
        order = [*range(self._last, len(self._hosts)), *range(self._last)]
        tasks: dict[asyncio.Task[Any], int] = {}
        errors: list[Exception] = []
        try:
            while order or tasks:
                if order:
                    number = order.pop(0)
                    tasks[asyncio.ensure_future(self._connect_to(number))] = number
                patience = _HEAD_START_SECONDS if order else None
                done, _ = await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    number = tasks.pop(task)
                    if (error := task.exception()) is None:
                        self._last = number
                        return _result(task, done - {task})
                    if not isinstance(error, Exception):
                        raise error
                    errors.append(error)
        finally:
            for task in tasks:
                task.cancel()
                task.add_done_callback(_drop)
        raise min(errors, key=lambda error: isinstance(error, asyncpg.TargetServerAttributeNotMatched))

    async def _connect_to(self, number: int) -> Any:  # noqa: ANN401
        host, port = self._hosts[number]
        return await self._connect(host=host, **({} if port is None else {"port": port}))


def _result(task: asyncio.Task[Any], others: set[asyncio.Task[Any]]) -> Any:  # noqa: ANN401
    """Return the connection of a task, and drop those of others that were as fast."""
    for other in others:
        _drop(other)
    return task.result()


def _drop(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


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


class ConnectionPool:
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
    async def connect(cls, url: str, size: int, *, attributes: str = "primary") -> ConnectionPool:
        """Connect to the first server of an address that has the attributes.

        Raises:
            Unavailable: None of them answers, has them, or lets us in.
        """
        given = {name for name, _ in parse_qsl(urlsplit(url).query)}
        session = {name: value for name, value in _SESSION.items() if name not in given}

        async def connect_to(**host: object) -> Connection:
            connection = await asyncpg.connect(
                url,
                timeout=_CONNECT_SECONDS,
                server_settings=session,
                target_session_attrs=attributes,
                connection_class=_ProbedConnection,
                **host,
            )
            try:  # asyncpg asks the database for each array type it meets; this makes it ask for all at once
                await connection.fetch(_ARRAYS, [], [], [], [], [], timeout=_CONNECT_SECONDS)
            except BaseException:
                connection.terminate()
                raise
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


class _ProbedConnection(asyncpg.Connection):  # type: ignore[misc] # asyncpg has no types
    """A connection whose kernel notices that the other machine is gone; else a call would wait a quarter of an hour."""

    __slots__ = ()

    def __init__(self, protocol: object, transport: asyncio.Transport, *arguments: object) -> None:
        super().__init__(protocol, transport, *arguments)
        endpoint = transport.get_extra_info("socket")
        if endpoint is None or endpoint.family not in (socket.AF_INET, socket.AF_INET6):
            return
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_SECONDS)
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _LOST_AFTER_SECONDS)


_ARRAYS: Final = "SELECT $1::bytea[], $2::int4[], $3::int8[], $4::text[], $5::uuid[]"
"""A query with the array types of all calls."""


def columns(rows: Sequence[tuple[bytes, bytes]]) -> tuple[list[bytes], list[bytes]]:
    """Return keys and values, each key once with its last value, in the order in which rows are locked."""
    pairs = sorted(dict(rows).items())
    return [key for key, _ in pairs], [value for _, value in pairs]


logger = logging.getLogger("coregw.store")

_CONNECTIONS: Final = 2

_RETRY_SECONDS: Final = 30.0

_READ_SECONDS: Final = 1.0


class Replicas:
    """Connections to one of the standbys, opened when they are needed. For tasks of one event loop.

    Args:
        url: The address of the store.
        queries: Queries that are prepared on its connections, with arguments.
    """

    def __init__(self, url: str, queries: Sequence[Query]) -> None:
        self._url = url
        self._queries = queries
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "")
        self.is_used: Final = "," in hosts
        self._database: ConnectionPool | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._next_attempt = 0.0
        self._away = RepeatedFailure(logger, "reads go to the primary", "reads go to a standby again")
        self.hits = 0
        """How many rows a standby returned."""

    async def read(self, query: str, *arguments: object) -> list[Row]:
        """Return what a standby has; nothing if none answers soon."""
        if not self.is_used:
            return []
        if self._database is None:
            if self._connecting is None and time.monotonic() >= self._next_attempt:
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
            return []
        try:
            rows = await self._database.read(query, *arguments, seconds=_READ_SECONDS)
        except CoregwError as error:
            self._away.occurs(f"the standby failed: {error}")
            self._next_attempt = time.monotonic() + _RETRY_SECONDS
            lost, self._database = self._database, None
            if lost is not None:
                await lost.close()
            return []
        self.hits += len(rows)
        return rows

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._database is not None:
            await self._database.close()

    async def _connect(self) -> None:
        try:
            database = await ConnectionPool.connect(self._url, _CONNECTIONS, attributes="standby")
            try:
                await database.warm(*self._queries)
            except BaseException:
                await database.close()
                raise
            self._database = database
            self._away.ends()
        except CoregwError as error:
            self._away.occurs(f"no standby answers: {error}")
            self._next_attempt = time.monotonic() + _RETRY_SECONDS
        finally:
            self._connecting = None
