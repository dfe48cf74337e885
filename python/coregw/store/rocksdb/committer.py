"""The committer groups the writes of many tasks into few batches and fewer syncs (group commit).

Requests are taken from a queue in order, as many as are waiting, up to a size. Their writes form one atomic batch; if
any of them must be durable, one sync follows for all. One thread at a time does so: that of the committer, or one that
has writes of its own (`Committer.commit`). Nothing else writes, so a request may read a row and write depending on its
value (compare-and-set). ``docs/decisions/0011`` gives the reasons and measurements.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from coregw.errors import StorageFull, StoreDamaged, Unavailable
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import Family, RowKey
from coregw.store.rocksdb.options import WriteStalled
from coregw.store.rocksdb.rows import Write
from coregw.telemetry import Histogram

__all__ = ["MAX_WAITING", "CommitFigures", "Committer", "Outage", "Request", "Transaction"]

_log = logging.getLogger(__name__)


class Outage:
    """The state of a store's writes, for the thread that writes; other threads may read `is_failure`.

    Args:
        path: The store's directory, for the log.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._error: Exception | None = None
        self._since = 0.0
        self._last_cause = ""
        self.needs_reopening = False
        """Whether nothing may be written before the database is reopened."""
        self.is_new = False
        """Whether reopening has not been tried yet."""

    @property
    def is_failure(self) -> bool:
        """Whether writes fail, other than for lack of room."""
        return self._error is not None and not isinstance(self._error, StorageFull)

    @property
    def reason(self) -> Exception | None:
        """Why writes fail; None if they do not, or only for lack of room, which may be over."""
        return self._error if self.needs_reopening or self.is_failure else None

    def require_over(self) -> None:
        """Raise `StorageFull` or `Unavailable` if writes are suspended, for which a lack of room alone is no reason."""
        if self._error is None or not self.needs_reopening:
            return
        if isinstance(self._error, StorageFull):
            raise StorageFull(f"writes are suspended: {self._error}")
        raise Unavailable(f"writes are suspended until the store can be reopened: {self._error}")

    def begins(self, error: Exception, *, needs_reopening: bool) -> None:
        """Note that a write failed, and why. Only the first one is logged, and one that needs reopening."""
        if self.needs_reopening:
            return  # this is what it leads to
        if self._error is None or needs_reopening:
            self.is_new = needs_reopening
            self._since = time.monotonic() if self._error is None else self._since
            self._last_cause = _cause(error)
            what = "storage full" if isinstance(error, StorageFull) else "writes fail"
            then = "; the store is reopened as soon as the disk can be written to" if needs_reopening else ""
            _log.error("%s: %s%s", what, error, then)
        self._error = error
        self.needs_reopening = needs_reopening

    def goes_on(self, error: Exception) -> None:
        """Note that the database could not be reopened, and why. Each cause is logged once in a row."""
        if _cause(error) != self._last_cause:
            self._last_cause = _cause(error)
            _log.error("writes still fail: %s", error)
        self._error = error

    def ends(self) -> None:
        """Note that writes succeed again."""
        if self._error is not None:
            _log.warning("writes resumed after %.1f s: the store in %s", time.monotonic() - self._since, self._path)
        self._error = None
        self.needs_reopening = False


def _cause(error: Exception) -> str:
    """Return an error's text without the numbers that differ from one occurrence to the next."""
    return re.sub(r"[0-9,]+", "", str(error))


class CommitFigures:
    """What the committer counts.

    Attributes:
        sync_nanoseconds: Times of syncs.
        group_requests: Writes that shared a commit.
        failures: Commits that failed, other than by lack of room.
    """

    __slots__ = ("failures", "group_requests", "sync_nanoseconds")

    def __init__(self) -> None:
        self.sync_nanoseconds = Histogram()
        self.group_requests = Histogram()
        self.failures = 0


_T = TypeVar("_T")

MAX_WAITING: Final = 16_384
"""The maximum number of queued requests; further ones raise `Unavailable`."""

_GROUP_BYTES: Final = 1 << 20

_GROUP_REQUESTS: Final = 1024

_MAX_UNSYNCED_BYTES: Final = 16 << 20

_WRITE_BYTES: Final = 128
"""The memory of a write besides its key and value: writes of pages are kept until they are synced."""

_TICK_SECONDS: Final = 1.0
"""How often the high-water mark is refreshed, and how often a database that cannot write is reopened."""

_PAGES: Final = frozenset({Family.PAGES, Family.DIFFERENCES})

_HIDDEN_UNTIL_DURABLE: Final = frozenset({Family.ROOTS, Family.PAYLOADS, Family.RECORDS})
"""The families whose rows tell a client that something is stored, so none may be shown before it is durable."""


class Transaction:
    """The view that an action has of the database, including the writes of earlier actions in its batch.

    An action must raise before its first write or not at all: its writes are part of the group's batch.
    """

    def __init__(self, read: dict[RowKey, bytes | None], epoch: int) -> None:
        self._rows = read
        self._families_read = {row.family for row in read}
        self._epoch = epoch
        self._deleted: set[RowKey] = set()
        self.writes: list[Write] = []

    def require_epoch(self, epoch: int) -> None:
        """Raise `Unavailable` if the database was reopened since it had this epoch: unsynced rows may be lost."""
        if epoch != self._epoch:
            raise _reopened()

    def get(self, row: RowKey) -> bytes | None:
        """The value of a row that the request named in `reads`."""
        return self._rows[row]

    def put(self, row: RowKey, value: bytes) -> None:
        """Write a row."""
        self._write(row, value)

    def put_all(self, family: Family, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Write rows of one family."""
        self.writes += [(family, key, value) for key, value in pairs]
        if family in self._families_read:
            self._rows.update((row, value) for key, value in pairs if (row := RowKey(family, key)) in self._rows)

    def delete(self, row: RowKey) -> None:
        """Delete a row."""
        self._deleted.add(row)
        self._write(row, None)

    def deleted(self, family: Family) -> set[bytes]:
        """Return the keys of rows that this batch deletes, which reads of the database still find."""
        return {row.key for row in self._deleted if row.family is family}

    def _write(self, row: RowKey, value: bytes | None) -> None:
        self.writes.append((row.family, row.key, value))
        if row in self._rows:
            self._rows[row] = value


@dataclass(slots=True, eq=False)
class Request:
    """A request for writes.

    Attributes:
        action: Runs in the thread that writes and must be quick.
        reads: The rows that it may `Transaction.get`; those of a whole group are read in one batch.
        size: The approximate number of bytes it writes; 0 for one that only deletes, which a full disk allows.
        durable: Whether its writes must be durable before it is done.
        after_sync: Whether the writes of earlier requests must be durable before these are written; for a row that
            refers to other rows.
        count: How many writes it counts for.
        future: Who waits for it, if that is a task.
        result: What the action has returned.
        error: Why it failed.
        is_settled: Whether the future was told.
    """

    action: Callable[[Transaction], Any]
    reads: Sequence[RowKey]
    size: int
    durable: bool
    after_sync: bool = False
    count: int = 1
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None
    is_settled: bool = False


class Committer:
    """Writes for any number of tasks, event loops and threads, one after the other.

    Args:
        database: The database; nothing else may write to it.
        reserve_bytes: Requests that need room are refused if less than this is free on the disk, so that RocksDB never
            runs out of room for its own work.
        quota_bytes: They are also refused if the database has more data than this; 0 sets no limit.
    """

    def __init__(self, database: Database, reserve_bytes: int, quota_bytes: int = 0) -> None:
        self._database = database
        self._reserve_bytes = reserve_bytes
        self._quota_bytes = quota_bytes
        self._queue: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._writing = threading.Lock()
        """Held by the thread that writes, from when it takes requests to when they are done."""
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_woken = False
        self._unsynced_bytes = 0
        self._unsynced_pages: list[Write] = []
        self._not_durable: set[tuple[Family, bytes]] = set()
        self._is_closed = False
        self.figures: Final = CommitFigures()
        self._next_tick = 0.0
        self._outage = Outage(database.path)
        if database.read_only is not None and database.read_only.is_temporary:
            self._outage.begins(database.read_only.error(), needs_reopening=True)
        self._thread = threading.Thread(target=self._run, name="coregw-committer", daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether nothing can be written, other than for lack of room."""
        state = self._database.read_only
        return self._outage.is_failure or (state is not None and not state.is_temporary)

    @property
    def epoch(self) -> int:
        """The epoch of the database, which changes when it is reopened."""
        return self._database.epoch

    def submit(
        self,
        action: Callable[[Transaction], _T],
        *,
        reads: Sequence[RowKey] = (),
        size: int,
        durable: bool,
        after_sync: bool = False,
    ) -> asyncio.Future[_T]:
        """Queue an action. The future resolves to its result or error when its writes are done.

        Cancelling the future, or the task that awaits it, does not cancel the action.

        Args: as the attributes of `Request`.

        Raises:
            Unavailable: The store is closed or read-only, or `MAX_WAITING` requests are queued.
        """
        return self.queue(Request(action, reads, size, durable, after_sync))

    def queue(self, request: Request) -> asyncio.Future[Any]:
        """As `submit`, for a request."""
        self._require_open()
        if self._queue.qsize() >= MAX_WAITING:
            raise Unavailable(f"the disk does not keep up: {MAX_WAITING:,} writes are queued")
        request.future = asyncio.get_running_loop().create_future()
        self._queue.put(request)
        if not self._is_woken:
            self._is_woken = True
            self._wake.put(None)
        return request.future

    def commit(self, requests: Sequence[Request]) -> None:
        """Do requests in this thread, and what is queued with them. Each has its result or its error then.

        For threads without an event loop: it blocks.

        Raises:
            Unavailable: The store is closed or read-only.
        """
        with self._writing:
            self._require_open()
            self._work([*self._next_group(), *requests])

    def _require_open(self) -> None:
        if self._is_closed:
            raise Unavailable("the store is closed")
        if (state := self._database.read_only) is not None:
            raise state.error()

    async def wait_durable(self, rows: Iterable[RowKey], epoch: int) -> None:
        """Return when all of `rows`, as they were read just now, are durable.

        Args:
            rows: The rows.
            epoch: The epoch when the read began.

        Raises:
            Unavailable: The rows are not durable, or the database was reopened, perhaps without them.
        """
        if self.are_undurable(rows):
            await self.submit(lambda transaction: transaction.require_epoch(epoch), size=0, durable=True)
        self.require_epoch(epoch)

    def wait_durable_in_thread(self, rows: Iterable[RowKey], epoch: int) -> None:
        """As `wait_durable`, for a thread without an event loop."""
        if self.are_undurable(rows):
            request = Request(lambda transaction: transaction.require_epoch(epoch), (), 0, durable=True)
            self.commit([request])
            if request.error is not None:
                raise request.error
        self.require_epoch(epoch)

    def are_undurable(self, rows: Iterable[RowKey]) -> bool:
        """Whether some of `rows` may not be durable. For any thread."""
        return bool(self._not_durable) and not self._not_durable.isdisjoint(rows)

    def require_epoch(self, epoch: int) -> None:
        """Raise `Unavailable` if the database was reopened since this epoch, perhaps without what was read in it."""
        if epoch != self.epoch:
            raise _reopened()

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return self._queue.qsize()

    def obstacles(self) -> list[str]:
        """Return why new data is refused at the moment. Blocks for a system call."""
        reason = self._outage.reason or self._full()
        return [] if reason is None else [str(reason)]

    def close(self) -> None:
        """Finish the queued requests, sync, and end the thread. Blocks."""
        self._is_closed = True
        self._wake.put(None)
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed or self._queue.qsize():
            with suppress(queue.Empty):
                self._wake.get(timeout=0 if self._queue.qsize() else _TICK_SECONDS)
            with self._writing:
                self._is_woken = False  # who comes from now on wakes this thread again
                self._work(self._next_group())

    # --- in the thread that writes ------------------------------------------------------------------------------------

    def _work(self, group: Sequence[Request]) -> None:
        """Do requests, and tell who waits for them."""
        try:
            self._tick()
            self._outage.require_over()
            if group:
                self._commit(group)
        except Exception as error:  # noqa: BLE001 - the waiting tasks must be told, whatever it is
            self._outage.begins(error, needs_reopening=False)
            for request in group:
                request.error = request.error or error
        _settle(group)

    def _tick(self) -> None:
        """Reopen a database that cannot write, at once and then every `_TICK_SECONDS`.

        Otherwise refresh its mark, and record its time.
        """
        state = self._database.read_only
        if state is not None and not state.is_temporary:
            self._outage.begins(state.error(), needs_reopening=False)
        elif self._outage.needs_reopening:
            if self._outage.is_new or time.monotonic() >= self._next_tick:
                self._next_tick = time.monotonic() + _TICK_SECONDS
                self._reopen()
        elif time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + _TICK_SECONDS
            try:
                self._database.refresh_mark()
                is_recorded = self._database.record_time()
            except Exception as error:
                self._note_fault(error)
                raise
            if is_recorded:
                self._sync()

    def _reopen(self) -> None:
        self._outage.is_new = False
        try:
            self._database.reopen()
            if (state := self._database.read_only) is not None:
                if state.is_temporary:
                    self._outage.goes_on(state.error())
                return
            if self._unsynced_pages:
                self._database.write(self._unsynced_pages)
                self._database.sync()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may succeed
            self._outage.goes_on(error)
            return
        self._note_sync()
        self._outage.ends()

    def _note_fault(self, error: Exception) -> None:
        """Stop all writes after a failed write or sync until the database is reopened."""
        if not isinstance(error, WriteStalled):
            self._outage.begins(error, needs_reopening=True)
            if self._outage.is_failure:
                self.figures.failures += 1

    def _next_group(self) -> list[Request]:
        """Take the queued requests in order, up to about `_GROUP_BYTES`."""
        group: list[Request] = []
        size = 0
        while size < _GROUP_BYTES and len(group) < _GROUP_REQUESTS and self._queue.qsize():
            group.append(self._queue.get_nowait())
            size += group[-1].size
        return group

    def _commit(self, group: Sequence[Request]) -> None:
        self.figures.group_requests.add(sum([request.count for request in group]))
        transaction = self._perform(group)
        accepted = [request for request in group if request.error is None]
        durable = [request for request in accepted if request.durable]
        size = sum([request.size for request in accepted])
        if self._unsynced_bytes and any(request.after_sync for request in accepted):
            self._sync()
        if writes := transaction.writes:
            # Recorded before the write makes them readable.
            self._not_durable.update([row[:2] for row in writes if row[0] in _HIDDEN_UNTIL_DURABLE])
            # Pages are readable before they are durable, and whoever found one may refer to it.
            before = len(self._unsynced_pages)
            self._unsynced_pages += [row for row in writes if row[0] in _PAGES]
            try:
                self._database.write(writes)
            except Exception as error:
                if isinstance(error, WriteStalled):  # nothing was written
                    del self._unsynced_pages[before:]
                self._note_fault(error)
                raise
            self._unsynced_bytes += size + _WRITE_BYTES * len(writes)
        if len(durable) < len(group):
            _settle([request for request in group if request.error is not None or not request.durable])
        # Syncing the chunks of uploads in progress keeps the sync of a commit, which others wait for, short.
        if durable or self._unsynced_bytes > _MAX_UNSYNCED_BYTES:
            self._sync()
        if size or self._outage.is_failure:
            self._outage.ends()

    def _perform(self, group: Sequence[Request]) -> Transaction:
        """Run the actions of a group on the rows that they read. An action's error is stored in its request."""
        found, unreadable = self._read(group)
        transaction = Transaction(found, self.epoch)
        full = self._full() if any(request.size for request in group) else None
        if full is not None:
            self._outage.begins(full, needs_reopening=False)
        for request in group:
            try:
                if full is not None and request.size:
                    raise full
                if unreadable and (damaged := unreadable.keys() & set(request.reads)):
                    raise unreadable[min(damaged)]
                request.result = request.action(transaction)
            except Exception as error:  # noqa: BLE001 - it concerns this request, not the group
                request.error = error
        return transaction

    def _read(self, group: Sequence[Request]) -> tuple[dict[RowKey, bytes | None], dict[RowKey, StoreDamaged]]:
        """Read the rows that a group's actions may get. Damaged ones are returned with their errors."""
        wanted: defaultdict[Family, set[RowKey]] = defaultdict(set)
        for request in group:
            for row in request.reads:
                wanted[row.family].add(row)
        found: dict[RowKey, bytes | None] = {}
        unreadable: dict[RowKey, StoreDamaged] = {}
        for family, rows in wanted.items():
            ordered = sorted(rows)
            try:
                values = self._database.get_rows(family, [row.key for row in ordered])
                found.update(zip(ordered, values, strict=True))
            except StoreDamaged:  # of some row; the requests that read others must not fail with it
                for row in ordered:
                    try:
                        (found[row],) = self._database.get_rows(family, [row.key])
                    except StoreDamaged as error:
                        unreadable[row] = error
        return found, unreadable

    def _full(self) -> StorageFull | None:
        if self._quota_bytes and (used := self._database.data_bytes()) >= self._quota_bytes:
            return StorageFull(f"the store has {used:,} bytes of data, and its quota is {self._quota_bytes:,}")
        free = self._database.free_bytes()
        if free >= self._reserve_bytes:
            return None
        reserve = f"less than the reserve of {self._reserve_bytes:,}"
        return StorageFull(f"the disk of {self._database.path} has {free:,} bytes free, {reserve}")

    def _sync(self) -> None:
        began = time.perf_counter_ns()
        try:
            self._database.sync()
        except Exception as error:
            self._note_fault(error)
            raise
        self.figures.sync_nanoseconds.add(time.perf_counter_ns() - began)
        self._note_sync()

    def _note_sync(self) -> None:
        self._unsynced_bytes = 0
        self._unsynced_pages.clear()
        self._not_durable.clear()


def _reopened() -> Unavailable:
    return Unavailable("the store was reopened after a failed write; send the request again")


def _settle(requests: Iterable[Request]) -> None:
    """Resolve the futures of requests: one call into each event loop, however many tasks wait there."""
    loops: defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Request]]] = defaultdict(list)
    for request in requests:
        if request.future is not None and not request.is_settled:
            request.is_settled = True
            loops[request.future.get_loop()].append((request.future, request))
    for loop, settled in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve_all, settled)
        except RuntimeError:  # the loop is closed, so no task waits in it
            continue


def _resolve_all(settled: Iterable[tuple[asyncio.Future[Any], Request]]) -> None:
    for future, request in settled:
        if future.done():  # it was cancelled
            continue
        if request.error is None:
            future.set_result(request.result)
        else:
            future.set_exception(request.error)
