"""Answers to calls by the engine of a gateway in this process, over a store that reads a static tree or gateways.

Answers, and errors with their codes, are those of a gateway byte for byte, and the client verifies them like any other.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from functools import partial
from typing import IO, Final

import msgspec
from msgspec import UNSET

from coregw import _core
from coregw.client.settings import MIB, ClientSettings, ConnectionOptions
from coregw.client.static.upstream import HttpUpstream
from coregw.client.transport.exchange import OCTETS, Answer, Attempt, Call, error_from
from coregw.client.transport.gateways import Address, Gateways, watch_forks
from coregw.concurrency import EventLoopThread
from coregw.engine import Engine, EngineLimits
from coregw.errors import (
    ERROR_CODES,
    CoregwError,
    InvalidInput,
    PayloadNotFound,
    ProofError,
    RecordNotFound,
    StoreDamaged,
    Unavailable,
    UpstreamDamaged,
)
from coregw.messages import ErrorBody, encode
from coregw.messages.common import NAME
from coregw.store.origin import OriginStore

__all__ = ["BlockingStaticTransport", "EngineTransport", "static_transport"]

_CACHE_BYTES: Final = 64 * MIB

_CHUNK_BYTES: Final = 256 << 10

_IDENTITY: Final = "identity"

_DIFF: Final = re.compile(r"/v1/roots/([a-z0-9]+)/diff/([a-z0-9]+)")

_CAR: Final = re.compile(r"/v1/roots/([a-z0-9]+)/car")

_PAYLOAD: Final = re.compile(r"/v1/cas/([a-z0-9]+)")

_RECORD: Final = re.compile(rf"/admin/v1/scopes/({NAME})/roots/({NAME})")

_PUBLICATION: Final = re.compile(rf"/v1/publications/({NAME})/({NAME})")

_MAX_RECORD_BYTES: Final = 4096


def static_transport(address: Address, settings: ClientSettings, connection: ConnectionOptions) -> EngineTransport:
    """Return what answers the calls of an asyncio client from a static tree.

    Args:
        address: The static tree.
        settings: The client's settings. Its retries are made for each object.
        connection: How the tree's server is reached.
    """
    upstream = HttpUpstream(address, settings, connection)
    store = OriginStore(upstream, requests_at_once=settings.connections)
    return EngineTransport(upstream, store, settings)


class EngineTransport:
    """Answers calls by an engine. For the tasks of one event loop.

    Args:
        upstream: Where published records are, and what messages name.
        store: Where trees and payloads are read.
        settings: The client's settings.

    Attributes:
        gateways: The upstream as the one gateway of a list.
        upstream: Counts what is requested of it.
    """

    def __init__(self, upstream: HttpUpstream, store: OriginStore, settings: ClientSettings) -> None:
        self._settings = settings
        self.upstream: Final = upstream
        self.gateways: Final = upstream.gateways
        self._store = store
        self._engine = Engine(store, EngineLimits(cache_bytes=_CACHE_BYTES, operation_seconds=settings.answer_seconds))
        self._posts: Mapping[str, Callable[[bytes], Awaitable[bytes]]] = {
            "/v1/resolve": self._engine.resolve,
            "/v1/resolve/batch": self._engine.resolve_batch,
            "/v1/read": self._engine.read,
            "/v1/map-proof": self._engine.map_proof,
            "/v1/scan": self._engine.scan,
            "/v1/cas/has": self._engine.payloads.held,
        }
        self._octet_posts: Mapping[str, Callable[[bytes], Awaitable[bytes]]] = {
            "/v1/map-proof": partial(self._engine.map_proof, bare=True),
        }

    async def outcome(self, call: Call) -> Answer | CoregwError:
        """Return the answer to a call, or the error that a gateway would send.

        It is a `ProofError` with the URL of an object that is not what its name says, and `Unavailable` if one could
        not be read, after all retries.
        """
        try:
            return await self._answer(call)
        except CoregwError as error:
            return error

    async def _answer(self, call: Call) -> Answer:
        attempt = Attempt(call, self._settings)
        async with aclosing(self._parts(call)) as parts:
            part = await self._next(call, parts)
            attempt.start(200, {"content-type": call.preferred_type})
            while part is not None:
                attempt.feed(part)
                part = await self._next(call, parts)
        return attempt.end()

    async def aclose(self) -> None:
        """Close the connections, and wait for worker threads."""
        await self._engine.close()

    async def _next(self, call: Call, parts: AsyncGenerator[bytes, None]) -> bytes | None:
        """Return the next part of an answer, None at its end, with errors as a client of a gateway gets them."""
        try:
            return await anext(parts, None)
        except UpstreamDamaged as error:
            raise ProofError(f"{call.what}: {error.message}", check="digest") from None
        except StoreDamaged as error:
            raise StoreDamaged(f"{call.what}: {self.upstream.address.shown}: {error.message}") from None
        except (Unavailable, ProofError):
            raise
        except CoregwError as error:
            raise _as_from_a_gateway(call, error) from None

    async def _parts(self, call: Call) -> AsyncGenerator[bytes, None]:
        """Yield the body of the answer."""
        content = call.content if isinstance(call.content, bytes) else b""
        path, query = call.path, call.params
        posts = self._octet_posts if call.preferred_type == OCTETS else self._posts
        if call.method == "POST" and path in posts:
            yield await posts[path](content)
        elif call.method == "POST" and path == "/v1/cas/car":
            async for part in self._payloads(_core.read_get_batch(content)):
                yield part
        elif call.method == "GET" and (found := _PAYLOAD.fullmatch(path)):
            async for part in self._payload(_core.Cid(found[1])):
                yield part
        elif call.method == "GET" and (found := _DIFF.fullmatch(path)):
            limit = int(query.get("limit", "1000"))
            yield await self._engine.diff(found[1], found[2], query.get("prefix", ""), query.get("after"), limit)
        elif call.method == "GET" and (found := _CAR.fullmatch(path)):
            chunks = await self._engine.cars.export_car(found[1], payloads=query.get("payloads") == "true")
            async with aclosing(chunks):
                async for part in chunks:
                    yield part
        elif call.method == "GET" and (found := _RECORD.fullmatch(path)):
            yield await self._record(*found.groups())
        elif call.method == "GET" and (found := _PUBLICATION.fullmatch(path)):  # a static tree has no signed logs
            yield b'{"record":' + await self._record(*found.groups()) + b',"status":"unsigned"}'
        else:
            raise InvalidInput(f"{self.upstream.address.shown} is a static tree, which is only read", code="read_only")

    async def _record(self, scope: str, name: str) -> bytes:
        record = await self.upstream.get(f"/admin/v1/scopes/{scope}/roots/{name}", _MAX_RECORD_BYTES)
        if record is None:
            raise RecordNotFound(f"no record {scope}/{name} is published")
        return record

    async def _payload(self, cid: _core.Cid) -> AsyncIterator[bytes]:
        """Yield a payload. There is no lookup before, as a gateway makes it: it would be another request."""
        if cid.hash_name == _IDENTITY:
            yield cid.digest
            return
        file = await self._store.open_payload(cid.multihash)
        if file is None:
            raise PayloadNotFound(f"the payload {cid.text} is not held")
        with file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    async def _payloads(self, cids: Sequence[_core.Cid]) -> AsyncIterator[bytes]:
        """Yield the CAR of many payloads, without those that are not held; a few are requested ahead."""
        yield _core.payload_car_header()
        ahead: list[tuple[_core.Cid, asyncio.Task[IO[bytes] | None] | None]] = []
        rest = iter(cids)
        try:
            while True:
                while len(ahead) < self._settings.connections and (cid := next(rest, None)) is not None:
                    is_stored = cid.hash_name != _IDENTITY
                    open_payload = self._store.open_payload
                    ahead.append((cid, asyncio.create_task(open_payload(cid.multihash)) if is_stored else None))
                if not ahead:
                    return
                cid, task = ahead[0]
                file = None if task is None else await task
                ahead.pop(0)
                if task is None:
                    yield _core.block_head(cid, len(cid.digest)) + cid.digest
                elif file is not None:
                    with file:
                        yield _core.block_head(cid, file.seek(0, 2))
                        file.seek(0)
                        while chunk := file.read(_CHUNK_BYTES):
                            yield chunk
        finally:
            await _closed([task for _, task in ahead if task is not None])


async def _closed(tasks: Sequence[asyncio.Task[IO[bytes] | None]]) -> None:
    """Cancel requests that were made ahead, and close the files of those that have ended."""
    for task in tasks:
        task.cancel()
    for file in await asyncio.gather(*tasks, return_exceptions=True):
        if file is not None and not isinstance(file, BaseException):
            file.close()


def _as_from_a_gateway(call: Call, error: CoregwError) -> CoregwError:
    """Return the exception that a gateway's response to this error would be."""
    known = ERROR_CODES.get(error.code)
    if known is None or error.code == "internal":
        return error
    details = UNSET if error.details is None else msgspec.Raw(error.details)
    return error_from(call, known.status, encode(ErrorBody(error=error.code, message=error.message, details=details)))


class BlockingStaticTransport:
    """Answers the calls of a blocking client. Safe to share between threads, and to use after a fork.

    Args:
        address: The static tree.
        settings: The client's settings.
        connection: How the tree's server is reached.
    """

    def __init__(self, address: Address, settings: ClientSettings, connection: ConnectionOptions) -> None:
        self._address = address
        self._settings = settings
        self._connection = connection
        self._lock = threading.Lock()
        self._opened = ExitStack()
        self._running: tuple[EventLoopThread, EngineTransport] | None = self._start()
        watch_forks(self)

    def _start(self) -> tuple[EventLoopThread, EngineTransport]:
        try:
            thread = self._opened.enter_context(EventLoopThread())
            transport = thread.call(self._connect())
            self._opened.callback(lambda: thread.call(transport.aclose()))
        except BaseException:
            self._opened.close()
            raise
        return thread, transport

    async def _connect(self) -> EngineTransport:
        """Return a transport for the tasks of the event loop that runs this."""
        return static_transport(self._address, self._settings, self._connection)

    def _started(self) -> tuple[EventLoopThread, EngineTransport]:
        running = self._running
        if running is None:
            with self._lock:
                running = self._running = self._running or self._start()
        return running

    def forked(self) -> object:
        """Forget the thread of the parent process, and return what is its own."""
        kept = self._opened, self._running
        self._lock, self._opened, self._running = threading.Lock(), ExitStack(), None
        return kept

    @property
    def gateways(self) -> Gateways:
        """The tree as the one gateway of a list."""
        return self._started()[1].gateways

    def outcome(self, call: Call) -> Answer | CoregwError:
        """Return the answer to a call, or its error; see `EngineTransport.outcome`. Sinks run in the other thread."""
        thread, transport = self._started()
        return thread.call(transport.outcome(call))

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent."""
        self._opened.close()
