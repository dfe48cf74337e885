"""Which work runs when: limits, callers, slots, weights and threads.

Changes take turns (`ChangeSlots`): the nodes that a mutation has visited and made stay in memory until it ends, and a
body of a few kilobytes may make it visit millions. A new root has its arcs and pages in memory, an import the positions
of all blocks. So what all of them hold together is bounded. If it is exceeded, the change that began first goes on, and
each of the others fails when it needs more.

Inside one call, the extension decides by itself whether it releases the GIL (`rust/python/src/detach.rs`).

An operation runs in time slices, and is queued again after each. So a short operation waits only for the slices in
progress and for others that are as short, however many long ones there are. Slices grow with the time that an
operation has run for, so a long one is queued only a few times.

```
level   has run      slice
0       < 1 ms       1 ms      a new operation: before all others
1       < 2 ms       1 ms
2       < 4 ms       2 ms
...
5, ...  < 32 ms, ... 16 ms
```
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from coregw._core import Need, Operation
from coregw.errors import InvalidInput, TooLarge, Unavailable

__all__ = [
    "CALLER",
    "HEAVY_BODY_BYTES",
    "MAX_CHANGES",
    "MAX_KEPT_BYTES",
    "MAX_KEPT_QUERIES",
    "MAX_LOADING_QUERIES",
    "MAX_LOOP_BLOCKS",
    "MAX_LOOP_BYTES",
    "MAX_LOOP_PAGES",
    "MULTIPROOF_FACTOR",
    "MUTATION_NODES_FACTOR",
    "SPANS_PER_VISIT",
    "WORKER_BUDGET_FACTOR",
    "Caller",
    "ChangeSlots",
    "ClientDisconnected",
    "EngineLimits",
    "Execution",
    "Holder",
    "QuerySlots",
    "QueryState",
    "ReadSpan",
    "WorkerPool",
    "batch_weight",
    "level_of",
    "mutation_weight",
    "require_caller",
    "slice_seconds",
    "verify_weight",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """The limits of an engine.

    Attributes:
        cache_bytes: Memory for parsed pages.
        held_roots: How many roots known to be held are remembered.
        node_budget: Tree nodes that a query may visit before it leaves the event loop.
        worker_threads: Threads for long work.
        max_nodes: Tree nodes that a query, or all resolves of a batch together, may visit. A mutation may visit 16
            times as many, and one more for each byte of its request.
        operation_seconds: Timeout of one query or mutation, writing aside.
        long_queries: Queries and batches in progress at once that need more than a millisecond.
        batch_answer_bytes: Bound of the answer to a batch of resolves.
        heavy_requests: Root creations, mutations and CARs in memory over 1 MiB in progress at once; as many builds of
            streamed arcs are merged and stored at once, while more wait, when they have arrived; and as many trees are
            checked for completeness.
        change_bytes: Memory for all root creations, imports and mutations in progress.
        payload_bytes: Bytes of one payload of an imported CAR.
        car_blocks: Blocks of an imported CAR; each takes about 60 bytes of memory.
        cars_at_once: Spooled CARs that are checked and stored at once; more wait, when they are spooled.
        build_run_bytes: Memory of one run of streamed arcs. A build needs four times as much while its arcs arrive.
        build_spool_bytes: Bound of the temporary files of all builds together.
        spool: The folder of temporary files; None is the system's.
        reserve_bytes: Free space on that disk below which nothing more is spooled.
    """

    cache_bytes: int = 256 << 20
    held_roots: int = 65_536
    node_budget: int = 2000
    worker_threads: int = 4
    max_nodes: int = 1_000_000
    operation_seconds: float = 30.0
    long_queries: int = 4
    batch_answer_bytes: int = 16 << 20
    heavy_requests: int = 2
    change_bytes: int = 1 << 30
    payload_bytes: int = 64 << 20
    car_blocks: int = 4_000_000
    cars_at_once: int = 2
    build_run_bytes: int = 4 << 20
    build_spool_bytes: int = 64 << 30
    spool: Path | None = None
    reserve_bytes: int = 0


class ClientDisconnected(InvalidInput):
    """A client that disconnected before its request was complete, or answered. Nobody reads the response."""


class Caller(Protocol):
    """Who waits for an answer."""

    def has_left(self) -> bool:
        """Whether nobody can read the answer any more. O(1)."""


CALLER: Final[ContextVar[Caller | None]] = ContextVar("CALLER", default=None)
"""Who waits for the answer of the current task; None if its work is to be done in any case."""


def require_caller() -> None:
    """Raise `ClientDisconnected` if nobody waits for the answer of the current task. O(1)."""
    caller = CALLER.get()
    if caller is not None and caller.has_left():
        raise ClientDisconnected("the client disconnected before its request was answered")


MAX_LOOP_BYTES: Final = 64 << 10
"""Work of a greater weight, in bytes of a query, runs in a worker thread: it would block the loop for a millisecond."""

MAX_LOOP_BLOCKS: Final = 1024
"""The index of a CAR without trees that has more blocks than these is sorted in a worker thread."""

MAX_LOOP_PAGES: Final = 8
"""More pages than these are checked and parsed in a worker thread: each takes 8 to 19 microseconds."""

HEAVY_BODY_BYTES: Final = 1 << 20
"""Larger root creations, mutations and CARs in memory wait for a slot: they need more than the memory of their body."""

MAX_CHANGES: Final = 16
"""Root creations, mutations and CARs in memory, in progress in worker threads. So many share a sync of the store."""

MAX_KEPT_QUERIES: Final = 32
"""At most this many long queries wait for a thread, or a slot, with what they have found; others start again."""

MAX_KEPT_BYTES: Final = 1 << 20
"""A query that holds more than this does not wait with it, so that all those that wait hold little."""

MAX_LOADING_QUERIES: Final = 8
"""At most this many queries read more than `MAX_LOOP_PAGES` pages at once; others then find them in the cache."""

WORKER_BUDGET_FACTOR: Final = 4
"""A poll in a worker thread has this many times the budget of one on the event loop. The end of a slice of time
(`coregw.engine.scheduling`) is noticed between two."""

SPANS_PER_VISIT: Final = 64
"""Spans of a spooled CAR (1 MiB in all) that are read in one visit of a worker thread."""

MUTATION_FACTOR: Final = 64
"""A byte of a mutation is as much work as this many of a query: each coordinate is a walk, hashes and new pages, which
take 30 microseconds."""

VERIFY_FACTOR: Final = 4
"""A byte of a result to verify is as much work as this many of a query: its proof is replayed."""

MUTATION_NODES_FACTOR: Final = 16
"""A mutation may visit this many times the nodes of a query. The first commitment to a fixed list checks all of it."""

MULTIPROOF_FACTOR: Final = 4
"""A byte of a map-proof request is as much work as this many of other queries: a key of some thirty bytes is a lookup,
which takes two microseconds."""

BATCH_FACTOR: Final = 64
"""A byte of a batch of resolves is as much work as this many of a query: a path has some dozens, and is a lookup."""


def mutation_weight(request: bytes) -> int:
    """The weight of applying a mutation, or of creating a root, in bytes of a query."""
    return MUTATION_FACTOR * len(request)


def verify_weight(envelope: bytes) -> int:
    """The weight of verifying a result, in bytes of a query."""
    return VERIFY_FACTOR * len(envelope)


def batch_weight(request: bytes) -> int:
    """The weight of a batch of resolves, in bytes of a query."""
    return BATCH_FACTOR * len(request)


class Holder(Protocol):
    """A change, or a part of one, such as an `Operation` or the reader of a CAR."""

    @property
    def held_bytes(self) -> int:
        """The memory of what it holds. O(1)."""


class ChangeSlots:
    """The changes of one engine. For tasks of one event loop."""

    def __init__(self, limits: EngineLimits) -> None:
        """Args: the limits, of which ``heavy_requests`` and ``change_bytes`` count."""
        self._heavy: Final = asyncio.Semaphore(limits.heavy_requests)
        self._others: Final = asyncio.Semaphore(MAX_CHANGES)
        self._max_bytes = limits.change_bytes
        self._held: dict[Holder, int] = {}  # by age
        self.total = 0
        """The memory of all changes, as they last told."""

    def place_for(self, request: bytes) -> AbstractAsyncContextManager[object]:
        """Return a context that limits the number of changes in progress; small ones, which need no thread, are exempt.

        Without it, time slices would let all of them be half done at once. Entering it raises `ClientDisconnected` if
        the caller leaves meanwhile.
        """
        if mutation_weight(request) <= MAX_LOOP_BYTES:
            return nullcontext()
        return _occupied(self._heavy if len(request) > HEAVY_BODY_BYTES else self._others)

    @contextmanager
    def holding(self, holder: Holder) -> Iterator[None]:
        """Count the memory of a change while the context is active: what it holds now, and what `hold` is told.

        Raises:
            TooLarge, Unavailable: As `hold`.
        """
        self._held[holder] = 0
        try:
            self.hold(holder)
            yield
        finally:
            self.total -= self._held.pop(holder)

    def hold(self, holder: Holder) -> None:
        """Note the memory that a change needs now; for others than changes nothing happens. O(1).

        Raises:
            TooLarge: If it alone exceeds the limit.
            Unavailable: If all changes together exceed it, and another one is older.
        """
        held = self._held.get(holder)
        if held is None:
            return
        size = holder.held_bytes
        self.total += size - held
        self._held[holder] = size
        if size > self._max_bytes:
            raise TooLarge(f"the change needs more than {self._max_bytes:,} bytes of memory; send fewer at once")
        if size > held and self.total > self._max_bytes and holder is not next(iter(self._held)):
            raise Unavailable("the changes in progress need too much memory; retry later")


@asynccontextmanager
async def _occupied(slots: asyncio.Semaphore) -> AsyncGenerator[None, None]:
    """Wait for a slot, and have it while the context is active."""
    if slots.locked():
        require_caller()
    async with slots:
        require_caller()
        yield


R = TypeVar("R")

_SHORTEST_SECONDS: Final = 0.001

_MAX_GROWTH: Final = 4
"""How often the slice doubles: a slice of 16 ms is as long as a few switches of threads."""


def level_of(busy_seconds: float) -> int:
    """Return the level of an operation that has run for this long; lower ones are served first."""
    return int(busy_seconds / _SHORTEST_SECONDS).bit_length()


def slice_seconds(level: int) -> float:
    """Return the length of the time slice of an operation at this level."""
    return _SHORTEST_SECONDS * 2.0 ** min(max(level - 1, 0), _MAX_GROWTH)


class _PoolCall(NamedTuple):
    """A call that waits for a thread, or runs. They are compared by level, then by number."""

    level: int
    number: int
    work: Callable[[], Any]
    done: asyncio.Future[Any]


class WorkerPool:
    """A number of worker threads. For tasks of one event loop."""

    def __init__(self, threads: int) -> None:
        """Args: how many calls run at once."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="coregw-engine")
        self._count = self._free = threads
        self._waiting: list[_PoolCall] = []
        self._running: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def jobs(self) -> int:
        """How many calls run or wait; a cancelled call that waits counts until a thread would take it."""
        return self._count - self._free + len(self._waiting)

    async def run(self, work: Callable[[], R], level: int = 0) -> R:
        """Call a function in a thread as soon as one is free for it. Raises what the function raises.

        If cancelled, it does not wait for a call that has begun.

        Args:
            work: The function.
            level: How long the operation that it belongs to has run already; see `level_of`.
        """
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        call = _PoolCall(level, next(self._numbers), work, done)
        if self._free:
            self._free -= 1
            self._idle.clear()
            self._start(call)
        else:
            heapq.heappush(self._waiting, call)
        try:
            return await done
        finally:
            del call, done  # an exception refers to this frame: as a cycle, they would keep what the call used

    async def close(self) -> None:
        """Wait for all calls. Idempotent."""
        await self._idle.wait()
        await asyncio.to_thread(self._threads.shutdown)

    def _start(self, call: _PoolCall) -> None:
        self._running[call.number] = call.done
        # An exception refers to the frames of its thread. As a cycle, they would keep what the call used if its future,
        # which has the exception, were in one of them.
        self._threads.submit(self._work, call.number, call.work, call.done.get_loop())

    def _work(self, number: int, work: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        """Make a call, in a thread."""
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised where the call is awaited
            loop.call_soon_threadsafe(self._end, number, None, error)
        else:
            loop.call_soon_threadsafe(self._end, number, result, None)

    def _end(self, number: int, result: object, error: BaseException | None) -> None:
        """Give the thread to the next call, and the result to the caller."""
        while self._waiting:
            following = heapq.heappop(self._waiting)
            if not following.done.cancelled():
                self._start(following)
                break
        else:
            self._free += 1
            if self._free == self._count:
                self._idle.set()
        done = self._running.pop(number)
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)


ReadSpan = Callable[[int, int], bytes]
"""Reads the bytes from a start to an end (exclusive), fewer at the end. Called in worker threads."""


class Execution:
    """An operation in progress, and how it is driven (`coregw.engine.driver`).

    Attributes:
        operation: The operation; None before a query begins, and after it was dropped.
        polled: What it returned last, if that was not handled yet; None polls it again.
        on_loop: Whether it is polled on the event loop unless its budget is spent.
        read: Reads spans of the CAR that is imported.
        renews: Whether the roots that it would renew count as stored now; otherwise they are only looked up.
        deadline: Cleared when something is written: a write is not given up halfway.
        is_query: Whether it reads the trees of the roots about which it asks.
        max_level: The need for a budget is left to the caller when the operation has run for longer than this level.
        max_pages: The need for more pages than these is left to the caller, and that for roots before it looks for
            more keys.
    """

    read: ReadSpan | None = None
    renews = True
    deadline: asyncio.Timeout | None = None
    is_query = False
    max_level: float = math.inf
    max_pages: float = math.inf

    def __init__(
        self, operation: Operation | None, polled: bytes | Need | None = None, *, on_loop: bool = False
    ) -> None:
        """Takes the attributes of the same names; the others are set where they differ from those of the class."""
        self.operation = operation
        self.polled = polled
        self.on_loop = on_loop


class QueryState(Execution):
    """A query: what it was asked, and what it has found so far, unless that was dropped."""

    is_query = True

    def __init__(self, start: Callable[[], Operation], max_nodes: int, *, on_loop: bool = False) -> None:
        """Args: a function that makes the operation, the limit on the nodes that it visits, and where it is polled."""
        super().__init__(None, on_loop=on_loop)
        self._start = start
        self._max_nodes = max_nodes

    def begin(self, budget: int, seconds: float = 0.0) -> bytes | Need:
        """Make the operation, and poll it once. Raises what the request is refused with.

        Args:
            budget: The nodes that it may visit at once.
            seconds: The time after which it returns when these are spent.
        """
        operation = self._start()
        operation.limit_nodes(self._max_nodes)
        self.polled = operation.poll(budget, seconds)
        self.operation = operation
        return self.polled

    def begin_slice(self, budget: int) -> bytes | Need:
        """Begin with a first time slice, in a worker thread; otherwise as `begin`."""
        return self.begin(budget, slice_seconds(0))

    @property
    def held_bytes(self) -> int:
        """The memory of what it has found, in bytes."""
        return 0 if self.operation is None else self.operation.held_bytes

    def drop(self) -> None:
        """Forget what it has found."""
        self.operation = self.polled = None


class QuerySlots:
    """A number of slots for queries, given first in, first out. For tasks of one event loop."""

    def __init__(self, count: int, max_kept: int) -> None:
        """Args: the number of slots, and of queries that wait for one with what they have found."""
        self._slots = asyncio.Semaphore(count)
        self._max_kept = max_kept
        self._kept = 0

    @asynccontextmanager
    async def occupy(self, query: QueryState) -> AsyncGenerator[None, None]:
        """Wait for a slot, and have it while the context is active.

        The query is dropped if many wait already, or if it would wait with much memory.
        """
        may_wait = self._kept < self._max_kept and query.held_bytes <= MAX_KEPT_BYTES
        is_kept = not self._slots.locked() or may_wait
        if not is_kept:
            query.drop()
        self._kept += is_kept
        try:
            await self._slots.acquire()
        finally:
            self._kept -= is_kept
        try:
            yield
        finally:
            self._slots.release()
