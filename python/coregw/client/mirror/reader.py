"""Queries in this process, on pages of which each is fetched from the side that has it.

For what the source cannot answer by one request: a tree of which the destination has only parts, or a difference from
a root that the source does not hold. The destination is asked for each page first, so the source sends only those below
which something is new there: equal subtrees are equal pages.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Final, TypeVar

from coregw.client.connection import ConnectionOptions
from coregw.client.driving.asynchronous import run, stream
from coregw.client.exchange.call import Answer, Call
from coregw.client.operations.steps import Steps, Stream
from coregw.client.settings import MIB, ClientSettings
from coregw.client.static.upstream import HttpUpstream
from coregw.client.transport.address import Address
from coregw.engine import Engine
from coregw.engine.objects.checks import ObjectChecks
from coregw.errors import CoregwError, ProofError, UpstreamDamaged
from coregw.store import Table
from coregw.store.origin import OriginStore

__all__ = ["PageReader"]

T = TypeVar("T")

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
        nearer = OriginStore(there, ObjectChecks(), requests_at_once=at_once)
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
        super().__init__(upstream, ObjectChecks(), requests_at_once=settings.connections)
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
