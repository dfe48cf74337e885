"""One side of a copy: runs operations on a client, counts their bytes, and names the side in what it raises."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from coregw.client.connection import ConnectionOptions
from coregw.client.driving.asynchronous import Outcome
from coregw.client.exchange.call import Answer, Body, Call, Divided, Partial, SentOnce, Sink
from coregw.client.operations.steps import Item, Steps, Stream, resume
from coregw.client.part_size import PartSize
from coregw.client.settings import ClientSettings
from coregw.client.transport.address import Address
from coregw.errors import CoregwError, ProofError

__all__ = ["Run", "Side", "Streaming"]

T = TypeVar("T")
Y = TypeVar("Y")


class Run(Protocol):
    """Drives an operation to its end."""

    async def __call__(self, steps: Steps[T], /) -> T:
        """Return the operation's value."""


class RunInWorkers(Protocol):
    """Drives an operation to its end; what it does between its calls in worker threads."""

    async def __call__(self, steps: Steps[T], around: Callable[[Outcome], Outcome], /) -> T:
        """Return the operation's value. `around` wraps what makes its calls, in the event loop."""


class Streaming(Protocol):
    """Drives an operation, and yields its items."""

    def __call__(self, steps: Stream[T], /) -> AsyncGenerator[T, None]:
        """Return the operation's items."""


class Side:
    """A gateway or static tree, as the source or destination of a copy.

    Args:
        address: The address.
        run: Drives operations on it.
        stream: Drives operations on it that have items.
        settings: The settings of its client.
        connection: How its client reaches it.
        run_in_workers: Drives operations on it that read and hash much.

    Attributes:
        on_sent: Called with further numbers of bytes that are sent.
        sent: The number of bytes of the bodies of requests, each attempt of a streamed one.
        received: The number of bytes of the bodies of answers.
        parts: How long the parts of an upload may be.
    """

    def __init__(
        self,
        address: Address,
        run: Run,
        stream: Streaming,
        settings: ClientSettings,
        connection: ConnectionOptions,
        run_in_workers: RunInWorkers,
    ) -> None:
        self.address = address
        self.settings = settings
        self.connection = connection
        self._run = run
        self._run_in_workers = run_in_workers
        self._stream = stream
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
                if isinstance(given, Item):
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

    def __init__(self, side: Side, partial: Partial) -> None:
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
