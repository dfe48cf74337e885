"""Several processes that answer, and this one, which owns the store and keeps them running.

Each worker is a program of its own, started with one end of a socket: it asks this process for what it can't read from
the table files (`coregw.store.workers`), and ends when this process does. All listen on one port, over which the kernel
spreads connections. Leaves out what a worker does (`coregw.gateway.server`). Reasons and failures:
``docs/decisions/0090-workers.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from coregw.errors import CoregwError, InvalidInput, Unavailable
from coregw.gateway.heap import limit_arenas, limit_collector
from coregw.gateway.listener import announce, log_to_stderr, loop_factory, reserve, url_of
from coregw.gateway.settings import Settings
from coregw.store.rocksdb import RocksStore, open_store
from coregw.store.workers import share_store

__all__ = ["run", "worker_settings"]

logger = logging.getLogger("coregw.workers")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_LIVED_LONG: Final = 60.0
"""A worker that lived for so many seconds is started again without a longer pause."""

_LOOK_SECONDS: Final = 5.0
_MANY_READS: Final = 100
"""After so many questions, within the seconds above, about rows that are in no table file, all rows get into one."""

_KILL_AFTER: Final = 5
"""Seconds that a worker gets beyond those for its requests under way."""


def run(settings: Settings, command: Sequence[str], on_ready: Callable[[str], None] = announce) -> None:
    """Runs ``settings.workers`` processes on one store until SIGINT or SIGTERM, then lets them finish, and returns.

    Args:
        settings: Limits of memory and connections hold for all workers together.
        command: What a worker is started with. Two numbers are appended, its own and that of the file descriptor of its
            socket, and ``COREGW_`` variables say its settings. It writes a line to stdout when it accepts connections.
        on_ready: Called with the address once every worker accepts connections.

    Raises:
        Unavailable: The address or the store is taken, or a worker ended before all had started.
        InvalidInput: The data directory holds something else than a store, or the limits can't be divided.
        StoreDamaged: The store's files are corrupt.
    """
    log_to_stderr(settings)
    limit_arenas()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(settings, command, on_ready))


def worker_settings(settings: Settings) -> Settings:
    """The settings of one of ``settings.workers`` workers: its share of what is bounded for all together.

    Raises:
        InvalidInput: A worker's share of memory for request bodies would not hold the largest one.
    """
    count = settings.workers
    largest = max(settings.roots_body_bytes, settings.batch_body_bytes, settings.mutation_body_bytes)
    if settings.buffered_bytes // count < largest:
        raise InvalidInput(
            f"{count} workers share {settings.buffered_bytes:,} bytes for request bodies, and one body may have "
            f"{largest:,}; set buffered_bytes to {count * largest:,} or more, or allow smaller bodies"
        )
    return replace(
        settings,
        store_cache_bytes=max(1 << 20, settings.store_cache_bytes // (count + 1)),
        cache_bytes=max(1 << 20, settings.cache_bytes // count),
        buffered_bytes=settings.buffered_bytes // count,
        connections=-(-settings.connections // count),
        heavy_requests=-(-settings.heavy_requests // count),
        cars_at_once=-(-settings.cars_at_once // count),
        car_exports=-(-settings.car_exports // count),
        batches_at_once=-(-settings.batches_at_once // count),
    )


async def _run(settings: Settings, command: Sequence[str], on_ready: Callable[[str], None]) -> None:
    with reserve(settings) as address:
        own = worker_settings(replace(settings, port=address.getsockname()[1]))
        async with await open_store(
            settings.data,
            cache_bytes=own.store_cache_bytes,
            reserve_bytes=settings.reserve_bytes,
            read_threads=settings.store_threads,
            salvage=settings.salvage,
        ) as store:
            workers = _Workers(own, command, store, settings.workers)
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, workers.stop)
            limit_collector()
            await workers.run(lambda: on_ready(url_of(address)))
    logger.info("stopped")


class _Workers:
    """The processes, and what to do when one ends."""

    def __init__(self, settings: Settings, command: Sequence[str], store: RocksStore, count: int) -> None:
        self._settings = settings
        self._command = command
        self._store = store
        self._count = count
        self._stopping = asyncio.Event()
        self._ready: set[int] = set()
        self._all_ready = False
        self._failure: Unavailable | None = None
        self._reads = 0
        self._on_ready: Callable[[], None] = lambda: None

    def stop(self) -> None:
        """Begins the end: workers finish what is under way, and none is started again."""
        self._stopping.set()

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Keeps the workers running until `stop`."""
        self._on_ready = on_ready
        spreading = asyncio.create_task(self._spread_rows())
        await asyncio.gather(*(self._keep_running(number) for number in range(1, self._count + 1)))
        spreading.cancel()
        if self._failure is not None:
            raise self._failure

    async def _keep_running(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            began = loop.time()
            try:
                end = _told(await self._run_one(number))
            except OSError as error:  # no file, memory or process is left for it; others answer, and that may pass
                end = f"no start: {error}"
            if self._stopping.is_set():
                return
            if not self._all_ready:
                self._failure = Unavailable(f"worker {number} ended at its start, with {end}")
                self.stop()
                return
            pause = _FIRST_PAUSE if loop.time() - began > _LIVED_LONG else min(2 * pause, _LONGEST_PAUSE)
            logger.error("worker %d ended with %s; another one starts in %.1f s", number, end, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()

    async def _run_one(self, number: int) -> int:
        """Starts a worker, serves it the store until it ends, and returns its exit code. OSError: it did not start."""
        here, there = socket.socketpair()
        with there:
            shared = await share_store(self._store, here, self._count_read)
            process = await asyncio.create_subprocess_exec(
                *self._command,
                str(number),
                str(there.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=[there.fileno()],
                env={**os.environ, **self._settings.environ()},
                start_new_session=True,  # Ctrl+C is for this process, which tells the others
            )
        ending = asyncio.create_task(self._end_in_time(process))
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        if await process.stdout.readline():
            self._is_ready(number)
        code = await process.wait()
        ending.cancel()
        await shared.ended()
        return code

    def _count_read(self) -> None:
        self._reads += 1

    async def _spread_rows(self) -> None:
        """Gets rows that workers ask for again and again to where they can read them themselves."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._reads >= _MANY_READS:
                try:
                    await self._store.flush()
                except CoregwError as error:
                    logger.warning("what was written last is not in table files yet: %s", error)
            self._reads = 0

    def _is_ready(self, number: int) -> None:
        logger.info("worker %d is ready", number)
        self._ready.add(number)
        if len(self._ready) == self._count and not self._all_ready:
            self._all_ready = True
            self._on_ready()

    async def _end_in_time(self, process: asyncio.subprocess.Process) -> None:
        """Ends a worker well when all shall end, and otherwise if that takes too long."""
        await self._stopping.wait()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            await asyncio.sleep(self._settings.shutdown_seconds + _KILL_AFTER)
            process.kill()


def _told(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
