"""The client methods that restoring a folder needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from coregw import _core
from coregw.client.query import CidLike, Proven, Query
from coregw.client.settings import ClientSettings

__all__ = ["PayloadSource"]

T = TypeVar("T")


class PayloadSource(Protocol):
    """The methods of `coregw.client.AsyncClient` that list trees and fetch payloads."""

    @property
    def settings(self) -> ClientSettings:
        """The client's limits."""

    async def query(self, query: Query[T]) -> Proven[T]:
        """Send a query and return the verified value with its proof."""

    async def list_elements(
        self, target: CidLike, *, limit: Callable[[int, int], int] | None = None
    ) -> list[tuple[str, int]]:
        """Return the payloads of a file that is a list, with their sizes."""

    async def get_payload(self, cid: CidLike) -> bytes:
        """Return the verified bytes of a payload."""

    async def get_payloads(self, request: _core.PayloadSink) -> None:
        """Request payloads and give the answer to their sink."""
