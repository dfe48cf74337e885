"""One side of a copy between gateways, and queries about the pages of both.

For what the source cannot answer by one request: a tree of which the destination has only parts, or a difference from
a root that the source does not hold. The destination is asked for each page first, so the source sends only those below
which something is new there: equal subtrees are equal pages.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Final, TypeVar

from msgspec.structs import replace

from coregw.client.aio_driver import AsyncDriver, run, run_in_workers, stream
from coregw.client.operations.steps import PartSize, Steps, Stream
from coregw.client.settings import ClientSettings, ConnectionOptions
from coregw.client.static.transport import EngineTransport
from coregw.client.static.upstream import HttpUpstream
from coregw.client.transport.exchange import Answer, Call, Traffic
from coregw.client.transport.gateways import Address
from coregw.errors import CoregwError, ProofError
from coregw.store import Table
from coregw.store.origin import OriginStore

__all__ = ["PageReader", "Side"]

T = TypeVar("T")


class Side:
    """A gateway or static tree, as the source or destination of a copy.

    Args:
        client: Its client.

    Attributes:
        address: The address.
        settings: The client's.
        connection: How the client reaches it.
        traffic: Counts what is sent and received.
        parts: How long the parts of an upload may be.
    """

    def __init__(self, client: AsyncDriver) -> None:
        transport = client._transport  # noqa: SLF001 - whose exchanges this counts
        self.address = transport.gateways.current.address
        self.settings = client.settings
        self.connection = client._connection  # noqa: SLF001 - for connections of its own
        self.traffic: Final = Traffic()
        self.parts = PartSize()
        self._transport = transport

    async def run(self, steps: Steps[T]) -> T:
        """Drive an operation. Raises what it raises; what is not proven names this side."""
        with self._named():
            return await run(steps, self._outcome, self._transport.gateways.refused)

    async def run_in_workers(self, steps: Steps[T]) -> T:
        """Drive an operation, and what it does between its calls in worker threads. Raises as `run`."""
        with self._named():
            return await run_in_workers(steps, self._outcome, self._transport.gateways.refused)

    async def stream(self, steps: Stream[T]) -> AsyncGenerator[T, None]:
        """Drive an operation, and yield its items. Raises as `run`."""
        with self._named():
            async with aclosing(stream(steps, self._outcome, self._transport.gateways.refused)) as items:
                async for item in items:
                    yield item

    async def _outcome(self, call: Call) -> Answer | CoregwError:
        return await self._transport.outcome(replace(call, traffic=self.traffic))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add the address to the message of what this side sent and did not prove."""
        try:
            yield
        except ProofError as error:
            message = error.message.removeprefix("not proven: ")
            if self.address.url in message:
                raise
            message = f"{self.address.shown}: {message}"
            raise ProofError(message, check=error.check, step=error.step, offset=error.offset) from None


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
        upstream = HttpUpstream(source, settings, connections[0])
        there = HttpUpstream(destination, settings, connections[1])
        nearer = OriginStore(there, requests_at_once=settings.connections)
        self._transport = EngineTransport(upstream, _Either(upstream, nearer, settings), settings)

    @property
    def received(self) -> int:
        """The number of bytes of the pages that the source has sent."""
        return self._transport.upstream.traffic.received

    async def aclose(self) -> None:
        """Close the connections, and wait for worker threads."""
        await self._transport.aclose()

    def run(self, steps: Steps[T]) -> Coroutine[None, None, T]:
        """Drive an operation that reads trees to its end.

        Raises:
            ProofError: A page is not what its digest says; the message has its URL.
        """
        return run(steps, self._transport.outcome)

    def stream(self, steps: Stream[T]) -> AsyncGenerator[T, None]:
        """Drive an operation that reads trees, and yield its items. Raises as `run`."""
        return stream(steps, self._transport.outcome)


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
