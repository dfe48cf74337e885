"""One side of a copy between gateways, and queries about the pages of both.

For what the source cannot answer by one request: a tree of which the destination has only parts, or a difference from
a root that the source does not hold. The destination is asked for each page first, so the source sends only those below
which something is new there: equal subtrees are equal pages.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from coregw.client.aio_driver import AsyncDriver, Outcome, run, stream
from coregw.client.operations.steps import PartSize, Steps, Stream, StreamItem, resume
from coregw.client.settings import MIB, ClientSettings, ConnectionOptions
from coregw.client.static.upstream import HttpUpstream
from coregw.client.transport.exchange import Answer, Body, Call, Divided, PartialAnswer, SentOnce, Sink
from coregw.client.transport.gateways import Address
from coregw.engine import Engine
from coregw.errors import CoregwError, ProofError, UpstreamDamaged
from coregw.store import Table
from coregw.store.origin import OriginStore

__all__ = ["PageReader", "Side"]

T = TypeVar("T")

Y = TypeVar("Y")


class Side:
    """A gateway or static tree, as the source or destination of a copy.

    Args:
        client: Its client.

    Attributes:
        address: The address.
        settings: The client's.
        connection: How the client reaches it.
        on_sent: Called with further numbers of bytes that are sent.
        sent: The number of bytes of the bodies of requests, each attempt of a streamed one.
        received: The number of bytes of the bodies of answers.
        parts: How long the parts of an upload may be.
    """

    def __init__(self, client: AsyncDriver) -> None:
        self.address = client._transport.gateways.current.address  # noqa: SLF001
        self.settings = client.settings
        self.connection = client._connection  # noqa: SLF001
        self._run = client._run  # noqa: SLF001
        self._run_in_workers = client._run_in_workers  # noqa: SLF001
        self._stream = client._stream  # noqa: SLF001
        self.on_sent: Callable[[int], None] = lambda count: None
        self.sent = 0
        self.received = 0
        self.parts = PartSize()

    async def run(self, steps: Steps[T]) -> T:
        """Drive an operation. Raises what it raises; what is not proven names this side."""
        try:
            return await self._run(self._counted(steps))
        except ProofError as error:
            raise _named(self.address, error) from None

    async def run_in_workers(self, steps: Steps[T]) -> T:
        """Drive an operation, and what it does between its calls in worker threads. Raises as `run`."""
        try:
            return await self._run_in_workers(steps, self._counting_outcome)
        except ProofError as error:
            raise _named(self.address, error) from None

    async def stream(self, steps: Stream[T]) -> AsyncGenerator[T, None]:
        """Drive an operation, and yield its items. Raises as `run`."""
        try:
            async with aclosing(self._stream(self._counted(steps))) as items:
                async for item in items:
                    yield item
        except ProofError as error:
            raise _named(self.address, error) from None

    def _counted(self, steps: Generator[Y, Any, T]) -> Generator[Y, Any, T]:
        """Yield what an operation yields, and count the bytes of its calls."""
        try:
            given = next(steps)
            while True:
                if isinstance(given, StreamItem):
                    yield given
                    given = next(steps)
                    continue
                call: Any = given
                try:
                    counting: Any = self.counting(call)
                    answer: Answer = yield counting
                except CoregwError as error:
                    given = resume(steps, error)
                else:
                    self.received += len(answer.body)
                    given = resume(steps, answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            steps.close()

    def _counting_outcome(self, outcome: Outcome) -> Outcome:
        """Return what makes calls as another does, and counts their bytes in the event loop."""

        async def counted(call: Call) -> Answer | CoregwError:
            found = await outcome(self.counting(call))
            if isinstance(found, Answer):
                self.received += len(found.body)
            return found

        return counted

    def count_sent(self, size: int) -> None:
        """Count bytes of the body of a request."""
        self.sent += size
        self.on_sent(size)

    def counting(self, call: Call) -> Call:
        """Return a call that makes another one, and counts its bytes."""
        if isinstance(call.content, bytes):
            self.count_sent(len(call.content))
        elif isinstance(call.content, SentOnce):
            self.count_sent(len(call.content.data))
        elif call.content is not None:
            call = replace(call, content=_CountedBody(self, call.content))
        if call.sink is not None:
            call = replace(call, sink=self._counted_sink(call.sink))
        if call.partial is not None:
            call = replace(call, partial=_CountedPartial(self, call.partial))
        if call.divided is not None:
            call = replace(call, divided=_CountedCalls(self, call.divided))
        return call

    def _counted_sink(self, sink: Callable[[], Sink]) -> Callable[[], Sink]:
        return lambda: _CountedSink(self, sink())


class _CountedCalls:
    """Calls that continue another, whose bytes are counted."""

    def __init__(self, side: Side, divided: Divided) -> None:
        self._side = side
        self._divided = divided

    @property
    def done(self) -> int:
        return self._divided.done

    def rest(self, error: CoregwError) -> Call | None:
        call = self._divided.rest(error)
        return None if call is None else self._side.counting(call)


class _CountedBody:
    """A streamed request body whose bytes are counted."""

    def __init__(self, side: Side, body: Body) -> None:
        self._side = side
        self._body = body

    def chunks(self) -> Generator[bytes, None, None]:
        for chunk in self._body.chunks():
            self._side.count_sent(len(chunk))
            yield chunk


class _CountedSink:
    """A destination of an answer whose bytes are counted."""

    def __init__(self, side: Side, sink: Sink) -> None:
        self._side = side
        self._write = sink.write

    def write(self, chunk: bytes) -> None:
        self._side.received += len(chunk)
        self._write(chunk)


class _CountedPartial(_CountedSink):
    """A part of an answer that is continued, whose further bytes are counted."""

    def __init__(self, side: Side, partial: PartialAnswer) -> None:
        super().__init__(side, partial)
        self._partial = partial
        self.senders = partial.senders

    @property
    def size(self) -> int:
        return self._partial.size

    def restarted(self) -> Sink:
        return _CountedSink(self._side, self._partial.restarted())


def _named(address: Address, error: ProofError) -> ProofError:
    """Return the exception for what a side sent and did not prove, with its address."""
    message = error.message.removeprefix("not proven: ")
    if address.url in message:
        return error
    return ProofError(f"{address.shown}: {message}", check=error.check, step=error.step, offset=error.offset)


_CACHE_BYTES: Final = 64 * MIB

_DIFF: Final = re.compile(r"/v1/roots/([a-z0-9]+)/diff/([a-z0-9]+)")


class PageReader:
    """An engine over the pages of both sides.

    Args:
        source: The address from which pages come that the destination does not have.
        destination: The address of the destination.
        settings: The settings of the connections.
        connections: How the source and the destination are reached.
    """

    def __init__(
        self,
        source: Address,
        destination: Address,
        settings: ClientSettings,
        connections: tuple[ConnectionOptions, ConnectionOptions],
    ) -> None:
        self._upstream = HttpUpstream(source, settings, connections[0])
        at_once = settings.connections
        there = HttpUpstream(destination, settings, connections[1])
        nearer = OriginStore(there, requests_at_once=at_once)
        store = _Either(self._upstream, nearer, settings)
        self._engine = Engine(store, cache_bytes=_CACHE_BYTES, operation_seconds=settings.answer_seconds)

    @property
    def received(self) -> int:
        """The number of bytes of the pages that the source has sent."""
        return self._upstream.received

    async def aclose(self) -> None:
        """Close the connections, and wait for worker threads."""
        await self._engine.close()

    def run(self, steps: Steps[T]) -> Coroutine[None, None, T]:
        """Drive an operation that reads trees to its end.

        Raises:
            ProofError: A page is not what its digest says; the message has its URL.
        """
        return run(steps, self._outcome)

    def stream(self, steps: Stream[T]) -> AsyncGenerator[T, None]:
        """Drive an operation that reads trees, and yield its items. Raises as `run`."""
        return stream(steps, self._outcome)

    async def _outcome(self, call: Call) -> Answer | CoregwError:
        engine, content = self._engine, call.content if isinstance(call.content, bytes) else b""
        try:
            if call.path == "/v1/scan":
                return Answer(200, await engine.scan(content))
            if call.path == "/v1/read":
                return Answer(200, await engine.read(content))
            if found := _DIFF.fullmatch(call.path):
                query = call.params
                limit = int(query.get("limit", "1000"))
                after = query.get("after")
                return Answer(200, await engine.diff(found[1], found[2], query.get("prefix", ""), after, limit))
        except UpstreamDamaged as error:
            return ProofError(error.message, check="digest")
        except CoregwError as error:
            return error
        raise AssertionError(f"operations that read trees do not call {call.path}")


class _Either(OriginStore):
    """Pages and roots of another store, and of its own upstream what that does not have."""

    def __init__(self, upstream: HttpUpstream, nearer: OriginStore, settings: ClientSettings) -> None:
        super().__init__(upstream, requests_at_once=settings.connections)
        self._nearer = nearer

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read pages or roots from where they are."""
        found = dict(zip(keys, await self._nearer.get(table, keys), strict=True))
        if missing := [key for key, row in found.items() if row is None]:
            found |= zip(missing, await super().get(table, missing), strict=True)
        return [found[key] for key in keys]

    async def close(self) -> None:
        """Close both."""
        await self._nearer.close()
        await super().close()
