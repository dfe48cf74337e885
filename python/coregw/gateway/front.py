"""The front of a gateway: connections and hot reads in Rust, and uvicorn behind it for everything else.

```
sockets -> Front (threads of its own, no GIL) -> hot reads  -> StoreReads  -> threads here -> the store
                                              -> hot writes -> StoreWrites -> a thread here -> the store
                                              -> other requests -> a private Unix socket -> uvicorn -> the application
```

What clients are held to is the front's (``rust/front``). It says who a client is in a header, which the application
believes because nobody else can connect to the socket: it has no name, or is in a folder of this user's alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from coregw._core import (
    Certificate,
    Front,
    FrontLimits,
    Listener,
    ReadBatch,
    StoreReads,
    StoreWrites,
    WriteBatch,
)
from coregw.concurrency import beside, usable_cores
from coregw.engine.pages import INCOMPLETE, put_guided, put_of_trees
from coregw.errors import (
    ERROR_CODES,
    CoregwError,
    PayloadNotFound,
    RootNotFound,
    StorageFull,
    StoreDamaged,
    Unavailable,
)
from coregw.gateway.access import AccessToken
from coregw.gateway.context import Gateway
from coregw.gateway.listener import UPSTREAM_IDLE_SECONDS, serving
from coregw.gateway.logs import log_hot_request
from coregw.gateway.tracing import is_traced
from coregw.store import Store
from coregw.store.protocol import (
    BatchStore,
    GuidedStore,
    Put,
    Stored,
    Table,
    ThreadCalls,
    ThreadStore,
    WriteOutcomes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litestar.types import ASGIApp

__all__ = ["RunningFront", "serve_front"]

logger = logging.getLogger("coregw.gateway")

T = TypeVar("T")

_HEADER_FIELDS: Final = 128
_LOG_BYTES: Final = 1 << 20
_BACKLOG: Final = 1024


class RunningFront(NamedTuple):
    """A front that serves.

    Attributes:
        front: The front.
        reads: What it reads from the store.
    """

    front: Front
    reads: StoreReads


@asynccontextmanager
async def serve_front(
    gateway: Gateway,
    app: ASGIApp,
    headers: Sequence[tuple[bytes, bytes]],
    listener: Listener,
    certificate: Certificate | None = None,
    *,
    write_token: AccessToken | None = None,
    hot: bool = True,
) -> AsyncIterator[RunningFront]:
    """Serve clients while the context is active; at its end the requests in progress are finished.

    If it fails, the task of the context is cancelled, and the failure is raised.

    Args:
        gateway: What clients may have, how long they may take, and the engine, whose cache and store answer hot reads.
        app: The ASGI application that answers all other requests.
        headers: Those of all answers.
        listener: The socket for clients.
        certificate: With one, clients connect by TLS.
        write_token: The token of those who may write; None if everybody may.
        hot: Whether it answers hot requests; otherwise all requests are the application's.

    Raises:
        Unavailable: If the private socket cannot be created.
    """
    engine, limits = gateway.engine, gateway.limits
    reads = StoreReads(engine.cache, isinstance(engine.store, GuidedStore))
    writes = StoreWrites(chunks=isinstance(engine.store, ThreadStore))  # others would make one upload wait for another
    async with AsyncExitStack() as stack:
        private, path = stack.enter_context(_listen_in_private())
        patience = gateway.settings.shutdown_seconds
        await stack.enter_async_context(serving(private, app, patience=patience, is_private=True))
        front = _new_front(gateway, reads, writes, headers, path, write_token, hot=hot)
        loop = asyncio.get_running_loop()
        visit = _visit_of(engine.store, reads.small_payload_bytes, loop)
        readers = limits.store_threads if hot else 0
        writers = int(hot)  # what comes during a batch is gathered for the next one, so that one call is for all
        pool = stack.enter_context(ThreadPoolExecutor(readers + writers + 2, "coregw-front"))
        helpers = [loop.run_in_executor(pool, _read_store, reads, visit) for _ in range(readers)]
        write = _write_of(engine.store, loop)
        helpers += [loop.run_in_executor(pool, _write_store, writes, write) for _ in range(writers)]
        helpers.append(loop.run_in_executor(pool, _write_log, front))
        ended = loop.run_in_executor(pool, front.serve, [listener], float(patience), certificate)
        try:
            async with beside(ended, front.stop):
                yield RunningFront(front, reads)
        finally:
            reads.close()
            writes.close()
            await asyncio.wait(helpers)


def _new_front(
    gateway: Gateway,
    reads: StoreReads,
    writes: StoreWrites,
    headers: Sequence[tuple[bytes, bytes]],
    upstream: str,
    write_token: AccessToken | None,
    *,
    hot: bool,
) -> Front:
    settings, limits = gateway.settings, gateway.limits
    of_front = FrontLimits(
        threads=usable_cores() if hot else 1,
        connections=limits.connections,
        connections_per_address=limits.share_of_address(limits.connections),
        unsent_bytes=limits.unsent_bytes,
        buffered_bytes=limits.hot_body_bytes,
        buffered_bytes_per_address=limits.share_of_address(limits.hot_body_bytes),
        payload_cache_bytes=limits.payload_cache_bytes,
        log_bytes=_LOG_BYTES,
        head_bytes=limits.header_bytes,
        header_fields=_HEADER_FIELDS,
        head_seconds=limits.header_seconds,
        idle_seconds=limits.keep_alive_seconds,
        min_rate_bytes=limits.min_rate_bytes,
        rate_grace_seconds=limits.rate_grace_seconds,
        body_pause_seconds=limits.body_idle_seconds,
        body_seconds=limits.body_seconds,
        read_pause_seconds=limits.write_seconds,
        drain_seconds=limits.drain_seconds,
        json_body_bytes=limits.json_body_bytes,
        verify_body_bytes=limits.verify_body_bytes,
        resolve_batch_body_bytes=limits.resolve_batch_body_bytes,
        batch_answer_bytes=limits.batch_answer_bytes,
        payload_bytes=limits.payload_bytes,
        change_body_bytes=min(limits.roots_body_bytes, limits.mutation_body_bytes),
        node_budget=limits.node_budget,
        max_nodes=limits.max_nodes,
        operation_seconds=limits.operation_seconds,
        long_queries=limits.long_queries,
        worker_threads=limits.worker_threads,
        upstream_idle_seconds=UPSTREAM_IDLE_SECONDS / 2,
    )
    return Front(
        reads,
        writes,
        gateway.engine.cache,
        of_front,
        hosts=settings.hosts,
        allow_origin=settings.allow_origin,
        listens_on=settings.host,
        proxies=settings.proxies,
        codes={code: row.status for code, row in ERROR_CODES.items()},
        fields=[(name.decode(), value.decode()) for name, value in headers],
        upstream=upstream,
        write_tokens=None if write_token is None else [write_token.digest],
        read_only=settings.read_only,
        hot=hot and not is_traced(),  # the application traces
        access_log=settings.access_log,
    )


@contextmanager
def _listen_in_private() -> Iterator[tuple[socket.socket, str]]:
    """Listen on a Unix socket that only this user can connect to; yield it, and the path to connect to.

    On Linux it is reached by a descriptor and has no name any more, so nothing stays if the process is killed.

    Raises:
        Unavailable: If the system refuses it.
    """
    with ExitStack() as stack:
        try:
            folder = tempfile.TemporaryDirectory(prefix="coregw-", ignore_cleanup_errors=True)
            stack.enter_context(folder)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(path := f"{folder.name}/application")
            listener.listen(_BACKLOG)
            if sys.platform == "linux":
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                path = f"/proc/self/fd/{descriptor}"
                folder.cleanup()
        except OSError as error:
            raise Unavailable(f"the gateway cannot create a socket for its application: {error}") from None
        yield listener, path


def _write_log(front: Front) -> None:
    """Log the requests that the front has answered, in a thread."""
    while lines := front.take_log():
        for line in lines:
            log_hot_request(line)


# --- writes to the store ----------------------------------------------------------------------------------------------


_Write = Callable[[WriteBatch], WriteOutcomes]


def _write_store(writes: StoreWrites, write: _Write) -> None:
    """Write batches until there are no more, in a thread."""
    while (batch := writes.next()) is not None:
        try:
            outcomes = write(batch)
            writes.done(
                batch.id,
                [None if error is None else _reason(error) for error in outcomes.payloads],
                [_reason(each) if isinstance(each, CoregwError) else each for each in outcomes.puts],
                [_reason(each) if isinstance(each, CoregwError) else _held(each) for each in outcomes.renewals],
                [None if error is None else _reason(error) for error in outcomes.chunks],
            )
        except Exception as error:  # noqa: BLE001 - those who wait must be told, whatever it is
            writes.fail(batch.id, *_reason(error))
        del batch  # do not keep its payloads in memory until the next one comes


def _held(found: Sequence[int | None]) -> list[bool]:
    return [each is not None for each in found]


def _reason(error: Exception) -> tuple[_Kind, str]:
    """Return the kind and the message of `StoreReads.fail` and `StoreWrites.fail`; log what a client may not know."""
    for kind, classes in _KINDS.items():
        if isinstance(error, classes):
            return kind, str(error)
    logger.error("the store cannot be used", exc_info=error)
    return "internal", ""


_Kind = Literal["full", "unavailable", "damaged", "not_found", "internal"]

_KINDS: Final[Mapping[_Kind, tuple[type[CoregwError], ...]]] = {
    "full": (StorageFull,),
    "unavailable": (Unavailable,),
    "damaged": (StoreDamaged,),
    "not_found": (PayloadNotFound, RootNotFound),
}


def _write_of(store: Store, loop: asyncio.AbstractEventLoop) -> _Write:
    """Return what writes a batch to a store, for threads."""
    guided = isinstance(store, GuidedStore)

    def parts(batch: WriteBatch) -> _Parts:
        puts = [put_of_trees(*trees, replaces=INCOMPLETE, guided=guided) for trees in batch.trees]
        return batch.payloads, puts, batch.renewals

    if isinstance(store, ThreadStore):
        blocking = store.thread_calls()
        return lambda batch: blocking.write(*parts(batch), batch.chunks, batch.dropped)
    write = store.write if isinstance(store, BatchStore) else partial(_write_each, store)
    return lambda batch: asyncio.run_coroutine_threadsafe(write(*parts(batch)), loop).result()


_Parts = tuple[Sequence[tuple[bytes, bytes]], Sequence[Put], Sequence[Sequence[bytes]]]


async def _write_each(
    store: Store, payloads: Sequence[tuple[bytes, bytes]], puts: Sequence[Put], renewals: Sequence[Sequence[bytes]]
) -> WriteOutcomes:
    """Write a batch as `BatchStore.write`, by a call for each of its parts."""
    stored, trees, renewed = await asyncio.gather(
        _outcome_of(store.put_payloads(payloads)),
        asyncio.gather(*(_outcome_of(put_guided(store, put, durable=put.is_durable)) for put in puts)),
        asyncio.gather(*(_outcome_of(store.renew(Stored.ROOTS, roots)) for roots in renewals)),
    )
    failure = stored if isinstance(stored, CoregwError) else None
    return WriteOutcomes([failure] * len(payloads), trees, renewed)


async def _outcome_of(call: Awaitable[T]) -> T | CoregwError:
    """Return what a call returns or raises."""
    try:
        return await call
    except CoregwError as error:
        return error


# --- reads of the store -----------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """The arguments of `StoreReads.supply`."""

    pages: Sequence[bytes | None]
    roots: Sequence[bool | None]
    early: Sequence[tuple[bytes, bytes]]
    payloads: Sequence[tuple[int, bytes | None] | None]
    sizes: Sequence[int | None]
    chunks: Sequence[bytes]


_Visit = Callable[[ReadBatch], _Found]


def _read_store(reads: StoreReads, visit: _Visit) -> None:
    """Answer batches of reads until there are no more, in a thread."""
    while (batch := reads.next()) is not None:
        try:
            reads.supply(batch.id, *visit(batch))
        except Exception as error:  # noqa: BLE001 - those who wait must be told, whatever it is
            reads.fail(batch.id, *_reason(error))


def _visit_of(store: Store, small: int, loop: asyncio.AbstractEventLoop) -> _Visit:
    """Return what reads a batch from a store, for threads. Called in the store's event loop."""

    def on_loop(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    if not isinstance(store, ThreadStore):
        return lambda batch: on_loop(_visit(store, batch, small))
    blocking = store.thread_calls()

    def visit(batch: ReadBatch) -> _Found:
        return _Found(
            blocking.get(Table.PAGES, batch.pages) if batch.pages else [],
            _are_complete(blocking.get(Table.ROOTS, batch.roots)) if batch.roots else [],
            [],
            blocking.find_payloads(batch.payloads, small) if batch.payloads else [],
            _sizes(blocking, batch.sizes),
            [blocking.read_payload(*chunk) for chunk in batch.chunks],
        )

    return visit


def _are_complete(rows: Sequence[bytes | None]) -> list[bool | None]:
    return [None if row is None else row != INCOMPLETE for row in rows]


def _sizes(blocking: ThreadCalls, names: Sequence[bytes]) -> list[int | None]:
    found = blocking.find_payloads(names, -1) if names else []
    return [None if each is None else each[0] for each in found]


async def _visit(store: Store, batch: ReadBatch, small: int) -> _Found:
    """Read a batch from a store, everything at once."""
    pages, roots, early, payloads, sizes, chunks = await asyncio.gather(
        store.get(Table.PAGES, batch.pages) if batch.pages else _nothing(),
        store.get(Table.ROOTS, batch.roots) if batch.roots else _nothing(),
        _early(store, batch),
        _payloads(store, batch.payloads, small),
        store.stat_payloads(batch.sizes) if batch.sizes else _nothing(),
        _chunks(store, batch),
    )
    return _Found(pages, _are_complete(roots), early, payloads, sizes, chunks)


async def _nothing() -> list[Any]:
    return []


async def _early(store: Store, batch: ReadBatch) -> list[tuple[bytes, bytes]]:
    """Read what may not be needed, so a failure counts only when it is."""
    if not batch.descents or not isinstance(store, GuidedStore):
        return []
    try:
        return list((await store.get_descents(dict(batch.descents))).items())
    except CoregwError:
        return []


async def _payloads(store: Store, names: Sequence[bytes], small: int) -> list[tuple[int, bytes | None] | None]:
    sizes = await store.stat_payloads(names) if names else []
    held = [name for name, size in zip(names, sizes, strict=True) if size is not None and size <= small]
    payloads = iter(await store.get_payloads(held) if held else [])
    found: list[tuple[int, bytes | None] | None] = []
    for size in sizes:
        payload = next(payloads) if size is not None and size <= small else None
        is_gone = size is None or (size <= small and payload is None)  # or it was removed meanwhile
        found.append(None if size is None or is_gone else (size, payload))
    return found


async def _chunks(store: Store, batch: ReadBatch) -> list[bytes]:
    async def chunk(name: bytes, start: int, end: int) -> bytes:
        return b"".join([part async for part in store.read_payload(name, start, end)])

    return list(await asyncio.gather(*(chunk(*each) for each in batch.chunks)))
