"""Drives the operations of the blocking client over libcurl."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from coregw import client
from coregw.client.driver import ClientBase
from coregw.client.operations.steps import Steps, Stream, StreamItem, resume
from coregw.client.settings import DEFAULT_GATEWAY, ClientSettings, ConnectionOptions
from coregw.client.transport.blocking import BlockingTransport
from coregw.client.transport.gateways import Address, Gateways, parse_addresses

if TYPE_CHECKING:
    from coregw.client.static.transport import BlockingStaticTransport
    from coregw.trust import TrustStore

__all__ = ["BlockingDriver", "on_loop"]

T = TypeVar("T")


def on_loop(work: Callable[..., Coroutine[Any, Any, T]], *clients: BlockingDriver) -> T:
    """Return what `work` returns for asyncio clients of the same gateways, in another thread."""
    from coregw.concurrency import EventLoopThread  # noqa: PLC0415 - so that this module loads no asyncio

    async def run() -> T:
        async with AsyncExitStack() as stack:
            made = [each._asynchronous() for each in clients]  # noqa: SLF001 - for this
            return await work(*[await stack.enter_async_context(each) for each in made])

    with EventLoopThread() as thread:
        return thread.call(run())


class BlockingDriver(ClientBase):
    """What a blocking client is without its methods: addresses, connections, and what exchanges calls over them."""

    _transport: BlockingTransport | BlockingStaticTransport

    def __init__(
        self,
        base_url: str | Sequence[str] = DEFAULT_GATEWAY,
        settings: ClientSettings | None = None,
        connection: ConnectionOptions | None = None,
        *,
        trust: TrustStore | None = None,
    ) -> None:
        self._set(settings)
        self._given = base_url
        self._trust = trust
        self._connection = connection if connection is not None else ConnectionOptions()
        self._transport = _transport(parse_addresses(base_url), self.settings, self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        made = partial(type(self), trust=self._trust)
        return made, (self._given, self.settings, self._connection)  # with credentials, which a copy needs

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def _asynchronous(self) -> client.AsyncClient:
        """Return an asyncio client of the same gateways, with what this one knows of them."""
        from coregw.client.aio import AsyncClient  # noqa: PLC0415 - so that this module loads no asyncio

        return AsyncClient(self._given, self.settings, self._connection, self._transport.gateways, trust=self._trust)

    def run(self, steps: Steps[T]) -> T:
        """Drive an operation of `coregw.client.operations` to its end, and return its value. Raises what it raises."""
        return self._run(steps)

    def _run(self, steps: Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                call = resume(steps, self._transport.outcome(call), self._transport.gateways.refused)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            steps.close()

    def _stream(self, steps: Stream[T]) -> Generator[T, None, None]:
        try:
            item = next(steps)
            while True:
                if isinstance(item, StreamItem):
                    yield item.value
                    item = next(steps)
                else:
                    item = resume(steps, self._transport.outcome(item), self._transport.gateways.refused)
        except StopIteration:
            return
        finally:
            steps.close()


def _transport(
    addresses: Sequence[Address], settings: ClientSettings, connection: ConnectionOptions
) -> BlockingTransport | BlockingStaticTransport:
    """Return what answers calls: gateways over HTTP, or an engine in this process over a static tree."""
    if not addresses[0].is_static:
        return BlockingTransport(Gateways(addresses, settings, connection), settings)
    from coregw.client.static.transport import BlockingStaticTransport  # noqa: PLC0415 - few programs need it

    return BlockingStaticTransport(addresses[0], settings, connection)
