"""Drives the operations of the asyncio client over libcurl."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, TypeVarTuple

from coregw.client.driver import ClientBase
from coregw.client.operations.steps import Steps, Stream, StreamItem, resume
from coregw.client.settings import DEFAULT_GATEWAY, ClientSettings, ConnectionOptions
from coregw.client.transport.asynchronous import AsyncTransport
from coregw.client.transport.exchange import Answer, Call
from coregw.client.transport.gateways import Address, Gateways, parse_addresses
from coregw.concurrency import in_thread
from coregw.errors import CoregwError, ProofError

if TYPE_CHECKING:
    from coregw.client.static.transport import EngineTransport
    from coregw.trust import TrustStore

__all__ = ["AsyncDriver", "Outcome", "on_loop", "run", "run_in_workers", "stream"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Outcome = Callable[[Call], Awaitable[Answer | CoregwError]]
"""Returns the answer to a call, or the error that it had."""

Refused = Callable[[ProofError, str | None], None]
"""Told of an answer that was not proven, with the address of the gateway that sent it."""


async def run(steps: Steps[T], outcome: Outcome, refused: Refused | None = None) -> T:
    """Drive an operation to its end, and return its value. Raises what it raises."""
    try:
        call = next(steps)
        while True:
            call = resume(steps, await outcome(call), refused)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()


async def run_in_workers(steps: Steps[T], outcome: Outcome, refused: Refused | None = None) -> T:
    """Drive an operation as `run` does, but what it does between its calls in worker threads: it reads and hashes."""
    try:
        step = await in_thread(_step, partial(next, steps))
        while isinstance(step, Call):
            step = await in_thread(_step, partial(resume, steps, await outcome(step), refused))
        value: T = step.value
        return value
    finally:
        steps.close()


def _step(go_on: Callable[[], Call]) -> Call | StreamItem[Any]:
    """Return the next call of an operation, or its value: no future can have a `StopIteration` as its exception."""
    try:
        return go_on()
    except StopIteration as stop:
        return StreamItem(stop.value)


async def stream(steps: Stream[T], outcome: Outcome, refused: Refused | None = None) -> AsyncGenerator[T, None]:
    """Drive an operation, and yield its items. Raises what it raises."""
    try:
        item = next(steps)
        while True:
            if isinstance(item, StreamItem):
                yield item.value
                item = next(steps)
            else:
                item = resume(steps, await outcome(item), refused)
    except StopIteration:
        return
    finally:
        steps.close()


async def on_loop(work: Callable[[*Ts], Coroutine[Any, Any, T]], *clients: *Ts) -> T:
    """Return what `work` returns for asyncio clients: these, here. The blocking client has another loop for it."""
    return await work(*clients)


class AsyncDriver(ClientBase):
    """What an asyncio client is without its methods: addresses, connections, and what exchanges calls over them."""

    _transport: AsyncTransport | EngineTransport

    def __init__(
        self,
        base_url: str | Sequence[str] = DEFAULT_GATEWAY,
        settings: ClientSettings | None = None,
        connection: ConnectionOptions | None = None,
        gateways: Gateways | None = None,
        *,
        trust: TrustStore | None = None,
    ) -> None:
        self._set(settings)
        self._trust = trust
        self._connection = connection if connection is not None else ConnectionOptions()
        self._transport = _transport(parse_addresses(base_url), self.settings, self._connection, gateways)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    def run(self, steps: Steps[T]) -> Coroutine[None, None, T]:
        """Drive an operation of `coregw.client.operations` to its end, and return its value. Raises what it raises."""
        return self._run(steps)

    def _run(self, steps: Steps[T]) -> Coroutine[None, None, T]:
        return run(steps, self._transport.outcome, self._transport.gateways.refused)

    def _run_in_workers(self, steps: Steps[T]) -> Coroutine[None, None, T]:
        return run_in_workers(steps, self._transport.outcome, self._transport.gateways.refused)

    def _stream(self, steps: Stream[T]) -> AsyncGenerator[T, None]:
        return stream(steps, self._transport.outcome, self._transport.gateways.refused)


def _transport(
    addresses: Sequence[Address], settings: ClientSettings, connection: ConnectionOptions, gateways: Gateways | None
) -> AsyncTransport | EngineTransport:
    """Return what answers calls: gateways over HTTP, or an engine in this process over a static tree."""
    if not addresses[0].is_static:
        return AsyncTransport(gateways or Gateways(addresses, settings, connection), settings)
    from coregw.client.static.transport import static_transport  # noqa: PLC0415 - few programs need it

    return static_transport(addresses[0], settings, connection)
