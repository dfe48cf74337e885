"""Pins: names that an operator gives to roots, which garbage collection then keeps.

A pin is a row ``g name`` of `Table.RECORDS`. It ends when it is removed or expires; an expired one stays listed. A
repair that can read only the name of a pin notes it as a row ``h name``, until a root is pinned under this name again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from coregw._core import Cid
from coregw.errors import InvalidInput, RecordNotFound, RootNotFound, StoreDamaged
from coregw.messages.common import is_name
from coregw.messages.management import PinnedRoot
from coregw.store import Store, Table
from coregw.undecodable import UNDECODABLE

__all__ = ["LOST_PINS", "PINS", "Pins", "pin_name", "pinned_root"]

PINS: Final = b"g"
"""The first byte of the keys."""

LOST_PINS: Final = b"h"
"""The first byte of the keys that note lost pins."""

_LISTED_AT_ONCE: Final = 1000
_MS: Final = timedelta(milliseconds=1)


class PinRow(msgspec.Struct, frozen=True):
    """The value of a row.

    Attributes:
        root: The binary root CID.
        pinned_at: When it was pinned; aware, in UTC.
        expires_at: When the pin ends, or None.
        pinned_ms: The time of the store's clock when it was pinned; None if an older version did that.
    """

    root: bytes
    pinned_at: datetime
    expires_at: datetime | None
    pinned_ms: int | None = None

    def has_ended(self, now: datetime, now_ms: int) -> bool:
        """Whether the pin has expired by the machine's clock, and by the store's, which is not set."""
        if self.expires_at is None or self.expires_at > now:
            return False
        return self.pinned_ms is None or self.pinned_ms + (self.expires_at - self.pinned_at) / _MS <= now_ms


_DECODER: Final = msgspec.msgpack.Decoder(PinRow)


class Pins:
    """The pins of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, root: str, name: str | None, expires_at: datetime | None) -> PinnedRoot:
        """Pin a held root under a name, which is moved if it is taken; durable on return.

        Args:
            root: The CID of a map or list.
            name: 1 to 128 of the characters A-Z a-z 0-9 . _ -; None takes the CID.
            expires_at: When the pin ends; None never. Aware.

        Raises:
            InvalidInput: A malformed name, an invalid CID, a payload CID (code ``kind_mismatch``), or a time without
                time zone or in the past.
            RootNotFound: The store does not hold the root.
        """
        cid = Cid(root)
        if cid.kind == "cas":
            raise InvalidInput(f"{cid.text} is a payload; only a map or a list can be pinned", code="kind_mismatch")
        name = _checked(cid.text if name is None else name)
        now = datetime.now(UTC)
        if expires_at is not None and (expires_at.tzinfo is None or expires_at <= now):
            raise InvalidInput(f"expires_at {expires_at.isoformat()}: not a time in the future with a time zone")
        try:
            ends = None if expires_at is None else expires_at.astimezone(UTC)
        except OverflowError:
            raise InvalidInput(f"expires_at {expires_at}: not a time of the years 1 to 9999 in UTC") from None
        row = PinRow(bytes(cid), now, ends, await self._store.put({}, durable=False))
        rows = {Table.RECORDS: [(PINS + name.encode(), msgspec.msgpack.encode(row))]}
        try:
            await self._store.put(rows, requires=[row.root])
        except RootNotFound:
            raise RootNotFound(f"the store does not hold the root {cid.text}; nothing was pinned") from None
        await self._forget_lost(name)
        return _shown(name, row, now)

    async def remove(self, name: str) -> PinnedRoot:
        """Remove a pin, durably, and return what it was.

        Raises:
            RecordNotFound: There is no pin of this name. If it was noted as lost, it is no longer.
            InvalidInput: A malformed name.
        """
        key = PINS + _checked(name).encode()
        (value,) = await self._store.get(Table.RECORDS, [key])
        if value is None:
            was = "; that a pin of this name was lost is no longer noted" if await self._forget_lost(name) else ""
            raise RecordNotFound(f"no root is pinned as {name}{was}")
        await self._store.delete(Table.RECORDS, [key])
        return _shown(name, _decoded(value), datetime.now(UTC))

    async def all(self) -> list[PinnedRoot]:
        """List all pins by name, expired ones included."""
        now = datetime.now(UTC)
        return [_shown(name, row, now) for name, row in await self._rows()]

    async def roots(self, now_ms: int) -> list[bytes]:
        """The binary CIDs of the roots of all pins that have not ended.

        A pin whose time has come by the machine's clock ends when that time has passed while the store was open.

        Args:
            now_ms: The time of the store's clock.
        """
        now = datetime.now(UTC)
        return [row.root for _, row in await self._rows() if not row.has_ended(now, now_ms)]

    async def _forget_lost(self, name: str) -> bool:
        """Delete the note of a lost pin. Returns whether there was one."""
        key = LOST_PINS + name.encode()
        if await self._store.get(Table.RECORDS, [key]) == [None]:
            return False
        await self._store.delete(Table.RECORDS, [key])
        return True

    async def _rows(self) -> list[tuple[str, PinRow]]:
        found: list[tuple[str, PinRow]] = []
        after: bytes | None = None
        while rows := await self._store.list_rows(Table.RECORDS, PINS, after, _LISTED_AT_ONCE):
            found += [(key.removeprefix(PINS).decode(), _decoded(value)) for key, value in rows]
            after = rows[-1][0]
        return found


def pin_name(key: bytes) -> str | None:
    """Return the name in the key of a pin, or of the note of a lost one; None if it has none."""
    name = key[1:].decode("ascii", "replace")
    return name if key[:1] in (PINS, LOST_PINS) and is_name(name) else None


def pinned_root(value: bytes) -> bytes:
    """Return the binary root CID in a row's value; `StoreDamaged` if it is malformed."""
    return _decoded(value).root


def _checked(name: str) -> str:
    if not is_name(name):
        raise InvalidInput(f"name {name!r:.200}: expected 1 to 128 of the characters A-Z a-z 0-9 . _ -, not . or ..")
    return name


def _decoded(value: bytes) -> PinRow:
    try:
        return _DECODER.decode(value)
    except UNDECODABLE as error:
        raise StoreDamaged(f"the row of a pin is malformed: {error}") from error


def _shown(name: str, row: PinRow, now: datetime) -> PinnedRoot:
    has_expired = row.expires_at is not None and row.expires_at <= now
    root = Cid(row.root).text
    return PinnedRoot(name=name, root=root, pinned_at=row.pinned_at, expires_at=row.expires_at, has_expired=has_expired)
