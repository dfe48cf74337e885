"""The one thread that writes: it turns the writes of many tasks into few batches and fewer syncs.

Requests are taken from a queue in their order, as many at once as are waiting (up to a size). What they write goes into
one atomic batch; if any of them must be durable, one sync follows for all. Since nothing else writes, a request that
reads a row and then writes by what it found (compare-and-set) needs no lock. Reasons and measurements:
``docs/decisions/0011-log-and-group-commit.md``. What is written is the callers' business.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from coregw.errors import StorageFull, Unavailable
from coregw.store._rocks_database import Database, Write
from coregw.store._rocks_layout import Family, Row

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_GROUP_BYTES: Final = 1 << 20
_GROUP_REQUESTS: Final = 1024
_MAX_WAITING: Final = 16_384
_MAX_UNSYNCED_BYTES: Final = 16 << 20

_SHOWN: Final = frozenset({Family.ROOTS, Family.PAYLOADS, Family.RECORDS})
"""The families whose rows tell a client that something is kept, so that none may be shown before it is durable."""


class Transaction:
    """What an action sees of the database, the writes of earlier actions in its batch included, and writes to it.

    An action refuses (by raising) before its first write, since what it wrote would go through with the batch.
    """

    def __init__(self, read: dict[Row, bytes | None]) -> None:
        self._rows = read
        self.writes: list[Write] = []

    def get(self, row: Row) -> bytes | None:
        """The value of a row that the request announced in `reads`."""
        return self._rows[row]

    def put(self, row: Row, value: bytes) -> None:
        self._write(row, value)

    def delete(self, row: Row) -> None:
        self._write(row, None)

    def _write(self, row: Row, value: bytes | None) -> None:
        self.writes.append((row.family, row.key, value))
        if row in self._rows:
            self._rows[row] = value


@dataclass(slots=True, eq=False)
class _Request:
    action: Callable[[Transaction], Any]
    reads: Sequence[Row]
    size: int
    durable: bool
    after_sync: bool
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    settled: bool = False


class Committer:
    """Writes for any number of tasks and event loops, in one thread.

    Args:
        database: Where to; nothing else may write to it.
        reserve_bytes: Requests that need room are refused when less than this is left on the disk, so that RocksDB
            always has room for its own work and never stops half way.
    """

    def __init__(self, database: Database, reserve_bytes: int) -> None:
        self._database = database
        self._reserve_bytes = reserve_bytes
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._unsynced_bytes = 0
        self._not_durable: set[Row] = set()
        self._closed = False
        self.failed = False
        """Whether the last write or sync failed, other than by lack of room."""
        self._thread = threading.Thread(target=self._run, name="coregw-committer", daemon=True)
        self._thread.start()

    async def submit(
        self,
        action: Callable[[Transaction], _T],
        *,
        reads: Sequence[Row] = (),
        size: int,
        durable: bool,
        after_sync: bool = False,
    ) -> _T:
        """As `enqueue`, and waits for it. If the waiting task is cancelled, the action happens all the same."""
        return await self.enqueue(action, reads=reads, size=size, durable=durable, after_sync=after_sync)

    def enqueue(
        self,
        action: Callable[[Transaction], _T],
        *,
        reads: Sequence[Row] = (),
        size: int,
        durable: bool,
        after_sync: bool = False,
    ) -> asyncio.Future[_T]:
        """Queues an action; the future has its result or error when the action's writes are done.

        Args:
            action: Runs in the committer's thread and must be quick.
            reads: The rows that it may `Transaction.get`; those of a whole batch are read at once.
            size: How many bytes it will write, about; 0 for one that only deletes, which may happen on a full disk.
            durable: Whether the writes must be durable before the future is done.
            after_sync: Whether what earlier requests wrote must be durable before these writes begin: for a row that
                says that other rows are there.

        Raises:
            Unavailable: The store is closed, or too many requests wait already.
        """
        if self._closed:
            raise Unavailable("the store is closed")
        if self._queue.qsize() >= _MAX_WAITING:
            raise Unavailable(f"{_MAX_WAITING:,} writes wait for the disk already")
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._queue.put(_Request(action, reads, size, durable, after_sync, future))
        return future

    async def settle(self, rows: Iterable[Row]) -> None:
        """Returns when none of `rows`, as they were read just now, could be lost to a power cut any more."""
        if self._not_durable and not self._not_durable.isdisjoint(rows):
            await self.submit(lambda _: None, size=0, durable=True)

    def close(self) -> None:
        """Finishes what is queued, syncs, and ends the thread. Blocks."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    # --- in the committer's thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        more = True
        while more:
            group, more = self._next_group()
            try:
                self._commit(group)
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
                self._note(error)
                for request in group:
                    request.error = request.error or error
            _settle(group)
            del group  # and the bytes in it, which may not be kept while nothing comes

    def _next_group(self) -> tuple[list[_Request], bool]:
        """The requests that wait, in their order, up to about `_GROUP_BYTES`; and whether more can come."""
        group: list[_Request] = []
        size = 0
        while size < _GROUP_BYTES and len(group) < _GROUP_REQUESTS:
            try:
                request = self._queue.get(block=not group)
            except queue.Empty:
                break
            if request is None:
                return group, False
            group.append(request)
            size += request.size
        return group, True

    def _commit(self, group: Sequence[_Request]) -> None:
        transaction = self._perform(group)
        accepted = [request for request in group if request.error is None]
        if self._unsynced_bytes and any(request.after_sync for request in accepted):
            self._sync()
        if transaction.writes:
            shown = {Row(family, key) for family, key, _ in transaction.writes if family in _SHOWN}
            self._not_durable |= shown  # before they can be read
            self._database.write(transaction.writes)
            self._unsynced_bytes += sum(request.size for request in accepted) + len(transaction.writes)
        _settle(request for request in group if request.error is not None or not request.durable)
        # Syncing what uploads wrote before they commit keeps the sync of their commit, and of others, short.
        if any(request.durable for request in accepted) or self._unsynced_bytes > _MAX_UNSYNCED_BYTES:
            self._sync()
        self.failed = False

    def _perform(self, group: Sequence[_Request]) -> Transaction:
        """Runs the actions on the rows that they need; what they refuse is noted in their requests."""
        wanted: defaultdict[Family, set[Row]] = defaultdict(set)
        for request in group:
            for row in request.reads:
                wanted[row.family].add(row)
        found: dict[Row, bytes | None] = {}
        for family, rows in wanted.items():
            ordered = sorted(rows)
            values = self._database.get(family, [row.key for row in ordered])
            found.update(zip(ordered, values, strict=True))
        transaction = Transaction(found)
        full = self._full() if any(request.size for request in group) else None
        for request in group:
            try:
                if full is not None and request.size:
                    raise full
                request.result = request.action(transaction)
            except Exception as error:  # noqa: BLE001 - the error is the request's, not the group's
                request.error = error
        return transaction

    def _full(self) -> StorageFull | None:
        free = self._database.free_bytes()
        if free >= self._reserve_bytes:
            return None
        path = self._database.path
        return StorageFull(f"the disk of {path} has {free:,} bytes left; {self._reserve_bytes:,} are kept in reserve")

    def _sync(self) -> None:
        self._database.sync()
        self._unsynced_bytes = 0
        self._not_durable.clear()

    def _note(self, error: Exception) -> None:
        if not isinstance(error, StorageFull):
            self.failed = True
            _log.error("the store could not write", exc_info=error)


def _settle(requests: Iterable[_Request]) -> None:
    """Hands results and errors to the waiting tasks: one call into each event loop, however many tasks it has."""
    loops: defaultdict[asyncio.AbstractEventLoop, list[_Request]] = defaultdict(list)
    for request in requests:
        if not request.settled:
            request.settled = True
            loops[request.future.get_loop()].append(request)
    for loop, settled in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, settled)
        except RuntimeError:  # that loop is closed, and nobody waits in it
            continue


def _resolve(requests: Sequence[_Request]) -> None:
    for request in requests:
        if request.future.done():  # cancelled
            continue
        if request.error is None:
            request.future.set_result(request.result)
        else:
            request.future.set_exception(request.error)
