"""Worker processes on one store: this process opens the store, starts the workers, and restarts them.

Each worker is a program of its own (`coregw.gateway.server.run_worker`) with one end of a socket pair: it asks this
process for what it cannot read from the SST files (`coregw.store.workers`), and ends when this process does. All listen
on one port, over which the kernel distributes connections (``docs/decisions/0090``). A store in a database has no
owner: each worker opens it itself, and tells this process no more than its metrics.
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
from functools import partial
from typing import Final

import msgspec

from coregw.errors import CoregwError, Unavailable
from coregw.gateway.access import AccessToken, warn_of_open_writes
from coregw.gateway.app import open_engine
from coregw.gateway.collectors import WorkerReports
from coregw.gateway.heap import limit_collector, limit_heap
from coregw.gateway.limits.descriptors import fit_descriptors
from coregw.gateway.limits.machine import Limits, memory_of, warn_of_memory
from coregw.gateway.listener import announce, open_certificate, reserve, run_in_thread, scheme_of, url_of
from coregw.gateway.logs import log_to_stderr
from coregw.gateway.management import serve_management
from coregw.gateway.routes.publications import TOKEN_VARIABLE
from coregw.gateway.settings import MIB, Settings
from coregw.gateway.stores import open_settings_store
from coregw.store import Store
from coregw.store.rocksdb import RocksStore
from coregw.store.workers import share_store
from coregw.telemetry import RepeatedFailure

__all__ = ["run"]

logger = logging.getLogger("coregw.workers")

_MIN_BACKOFF_SECONDS: Final = 0.1
_MAX_BACKOFF_SECONDS: Final = 30.0
_STABLE_SECONDS: Final = 60.0
"""A worker that ran this long is restarted with the minimal backoff."""

_MISS_WINDOW_SECONDS: Final = 5.0
_MAX_MISSES: Final = 100
"""Reads within a window that workers could not answer from SST files, before the memtables are flushed."""

_ENGINE_CACHE_BYTES: Final = 4 * MIB
"""Memory for parsed pages in this process, which reads trees only for administration."""

_KILL_AFTER_SECONDS: Final = 5
"""Time that a worker has to exit, besides the time for its requests in flight."""


def run(
    settings: Settings,
    command: Sequence[str],
    on_ready: Callable[[str], None] = announce,
    on_reloadable: Callable[[Callable[[], None]], None] = lambda _: None,
) -> None:
    """Run ``settings.workers`` processes on one store until SIGINT or SIGTERM, then shut them down and return.

    Args:
        settings: Memory and connections are for all workers together.
        command: The command of a worker. Its number and the file descriptor of its socket are appended, and ``COREGW_``
            variables hold its settings. It writes a line to stdout when it accepts connections.
        on_ready: Called with the address when every worker accepts connections.
        on_reloadable: Called with a function that lets the workers read the certificate's files again, if there is TLS.

    Raises:
        Unavailable: If the address or the store is in use, or a worker exits before all have started.
        InvalidInput: If the data directory contains something else than a store, `memory` does not
            suffice, or the certificate cannot be used.
        StoreDamaged: If the store's files are corrupt.
    """
    log_to_stderr(settings)
    warn_of_open_writes(settings)
    limit_heap()
    warn_of_memory(settings)
    settings = msgspec.structs.replace(settings, memory=memory_of(settings))  # all derive theirs from the same
    limits = Limits.of(settings)
    fit_descriptors(replace(limits, connections=1, backlog=1))  # each worker fits its own connections
    admin_token = AccessToken.from_environment(TOKEN_VARIABLE)
    open_certificate(settings)  # or each worker would fail
    owner = _Owner()
    if settings.tls_files is not None:
        on_reloadable(owner.reload)
    run_in_thread(lambda: owner.run(settings, limits, command, on_ready, admin_token), owner.stop)


class _Owner:
    """The process that opens the store, and starts the workers."""

    def __init__(self) -> None:
        self._is_stopped = False
        self._running: tuple[asyncio.AbstractEventLoop, _Workers] | None = None

    def stop(self) -> None:
        """Shut the workers down, from any thread."""
        self._is_stopped = True
        if self._running is not None:
            loop, workers = self._running
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(workers.stop)

    def reload(self) -> None:
        """Let the workers read the certificate's files again, from any thread."""
        if self._running is not None:
            loop, workers = self._running
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(workers.reload)

    async def run(
        self,
        settings: Settings,
        limits: Limits,
        command: Sequence[str],
        on_ready: Callable[[str], None],
        admin_token: AccessToken | None,
    ) -> None:
        """Run the workers until `stop` is called. Raises as the function `run`."""
        with reserve(settings) as address:
            of_workers = msgspec.structs.replace(settings, port=address.getsockname()[1])
            store = await open_settings_store(settings, limits, settings.workers + 1)
            own = replace(limits, cache_bytes=_ENGINE_CACHE_BYTES, worker_threads=1)
            engine = await open_engine(settings, own, store)
            try:
                workers = _Workers(of_workers, command, store)
                async with serve_management(
                    settings, own, engine, settings.data, admin_token, workers.phase
                ) as management:
                    workers.reports = management.workers
                    limit_collector()

                    def ready() -> None:
                        management.urls.append(url_of(address, scheme_of(settings)))
                        on_ready(management.urls[0])

                    self._running = asyncio.get_running_loop(), workers
                    if self._is_stopped:
                        workers.stop()
                    await workers.run(ready)
            finally:
                await engine.close()
        logger.info("stopped")


class _Workers:
    """The worker processes, and what happens when one exits."""

    def __init__(self, settings: Settings, command: Sequence[str], store: Store) -> None:
        self._settings = settings
        self._command = command
        self._store = store
        self._count = settings.workers
        self._stopping = asyncio.Event()
        self._ready: set[int] = set()
        self._running: set[int] = set()
        self._processes: dict[int, asyncio.subprocess.Process] = {}  # those that handle SIGHUP
        self._reloads = 0
        self._all_ready = False
        self._failure: Unavailable | None = None
        self._misses = 0
        self._on_ready: Callable[[], None] = lambda: None
        self.reports = WorkerReports()

    def phase(self) -> str | None:
        """Return why clients are not served at the moment, or None if they are."""
        if self._stopping.is_set():
            return "the gateway is shutting down"
        return None if self._running else "no worker is running"

    def stop(self) -> None:
        """Shut the workers down; none is restarted."""
        self._stopping.set()

    def reload(self) -> None:
        """Let the workers read the certificate's files again; those that start do so when they are ready."""
        self._reloads += 1
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGHUP)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Keep the workers running until `stop`."""
        self._on_ready = on_ready
        flushing = asyncio.create_task(self._flush_after_misses())
        await asyncio.gather(*(self._keep_running(number) for number in range(1, self._count + 1)))
        flushing.cancel()
        if self._failure is not None:
            raise self._failure

    async def _keep_running(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        backoff = _MIN_BACKOFF_SECONDS
        while not self._stopping.is_set():
            began = loop.time()
            try:
                reason = _reason(await self._run_one(number))
            except OSError as error:  # out of files, memory or processes; the other workers go on, and it may pass
                reason = f"it did not start: {error}"
            if self._stopping.is_set():
                return
            if not self._all_ready:
                self._failure = Unavailable(f"worker {number} exited during the start: {reason}")
                self.stop()
                return
            is_stable = loop.time() - began > _STABLE_SECONDS
            backoff = _MIN_BACKOFF_SECONDS if is_stable else min(2 * backoff, _MAX_BACKOFF_SECONDS)
            logger.error("worker %d exited: %s; restarting it in %.1f s", number, reason, backoff)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff):
                    await self._stopping.wait()

    async def _run_one(self, number: int) -> int:
        """Start a worker, serve the store to it, and return its exit code. Raises OSError if it does not start."""
        here, there = socket.socketpair()
        reloads = self._reloads
        with there:
            shared = await share_store(self._store, here, self._count_miss, partial(self.reports.take, number))
            process = await asyncio.create_subprocess_exec(
                *self._command,
                str(number),
                str(there.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=[there.fileno()],
                env={**os.environ, **self._settings.environ()},
                start_new_session=True,  # so that Ctrl+C reaches this process alone, which stops the workers
            )
        ending = asyncio.create_task(self._terminate_on_stop(process))
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        if await process.stdout.readline():
            self._processes[number] = process
            if self._reloads > reloads:
                process.send_signal(signal.SIGHUP)
            self._is_ready(number)
        code = await process.wait()
        self._processes.pop(number, None)
        self._running.discard(number)
        ending.cancel()
        await shared.ended()
        self.reports.end(number)
        return code

    def _count_miss(self) -> None:
        self._misses += 1

    async def _flush_after_misses(self) -> None:
        """Flush the memtables when workers miss too often."""
        if not isinstance(self._store, RocksStore):
            return
        unflushed = RepeatedFailure(logger, "the memtables cannot be flushed", "the memtables are flushed again")
        while True:
            await asyncio.sleep(_MISS_WINDOW_SECONDS)
            if self._misses >= _MAX_MISSES:
                try:
                    await self._store.flush()
                    unflushed.ends()
                except CoregwError as error:
                    unflushed.occurs(error)
            self._misses = 0

    def _is_ready(self, number: int) -> None:
        logger.info("worker %d is ready", number)
        self._ready.add(number)
        self._running.add(number)
        if len(self._ready) == self._count and not self._all_ready:
            self._all_ready = True
            self._on_ready()

    async def _terminate_on_stop(self, process: asyncio.subprocess.Process) -> None:
        """Terminate a worker when all are to stop, and kill it if that takes too long."""
        await self._stopping.wait()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            await asyncio.sleep(self._settings.shutdown_seconds + _KILL_AFTER_SECONDS)
            process.kill()


def _reason(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
