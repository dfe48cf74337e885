"""Base of read-only stores: every write is refused, and whole, checked payloads are read from files."""

# ruff: noqa: D102 - the protocol documents the methods
from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import IO, NoReturn, TypeVar

from coregw.store import CHUNK_BYTES, PayloadWriter, Stored, Table
from coregw.store.arguments import check_renewal, check_whole_payload

__all__ = ["ReadingStore", "for_each", "range_of", "whole_of"]

K = TypeVar("K")
R = TypeVar("R")


class ReadingStore(ABC):
    """The methods of `coregw.store.Store` that write: all of them refuse. Nothing has a date."""

    @property
    def expiries(self) -> int:
        return 0

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        self._refuse()

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
        requires: Sequence[bytes] = (),
    ) -> bool:
        self._refuse()

    async def delete(self, table: Table, keys: Sequence[bytes]) -> None:
        self._refuse()

    async def renew(self, kind: Stored, keys: Sequence[bytes]) -> list[int | None]:
        """Look payloads up: nothing here has a date. Roots are renewed for writes alone, which are refused."""
        check_renewal(kind)
        if kind is Stored.ROOTS:
            self._refuse()
        return await self.stat_payloads(keys)

    def begin_payload(self) -> PayloadWriter:
        self._refuse()

    async def put_payloads(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        self._refuse()

    @abstractmethod
    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]: ...

    @abstractmethod
    def _refuse(self) -> NoReturn:
        """Raise `InvalidInput` (code ``read_only``), which says where to send writes."""


def range_of(file: IO[bytes], start: int, end: int | None) -> Iterator[bytes]:
    """Yield the bytes `start` to `end` (exclusive, None for all) of a payload as `Store.read_payload`."""
    file.seek(start)
    left = -1 if end is None else end - start
    while left and (chunk := file.read(CHUNK_BYTES if left < 0 else min(left, CHUNK_BYTES))):
        left -= len(chunk) if left > 0 else 0
        yield chunk


def whole_of(file: IO[bytes], multihash: bytes) -> bytes:
    """Return a payload as `Store.get_payloads`, and close it.

    Raises:
        InvalidInput: It is longer than `CHUNK_BYTES`.
    """
    with file:
        check_whole_payload(multihash, file.seek(0, 2))
        file.seek(0)
        return file.read()


async def for_each(function: Callable[[K], Awaitable[R]], keys: Sequence[K]) -> list[R]:
    """Call a function for each key, concurrently; if one call fails, the others are cancelled."""
    if len(keys) == 1:
        return [await function(keys[0])]
    tasks = [asyncio.ensure_future(function(key)) for key in keys]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
