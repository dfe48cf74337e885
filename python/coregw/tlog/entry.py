"""The leaves of a name's log: what was published, and that it was frozen (protocol section 9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from coregw.errors import InvalidInput

__all__ = ["freeze_entry", "publication_entry"]

_PUBLICATION: Final = b"\x01"
_FREEZE: Final = b"\x02"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def publication_entry(
    scope: str, name: str, revision: int, root: bytes, previous_root: bytes | None, published_at: datetime
) -> bytes:
    """Return the bytes of the leaf ``revision - 1`` of a name's log.

    Args:
        scope: The scope.
        name: The name.
        revision: The revision, from 1.
        root: The binary root CID.
        previous_root: That of the revision before; None for the first.
        published_at: When it was published; to the microsecond.

    Raises:
        InvalidInput: The time is before 1970, or has no offset from UTC.
    """
    head = _head(_PUBLICATION, scope, name, revision)
    return head + _counted(root) + _counted(previous_root or b"") + _time(published_at)


def freeze_entry(scope: str, name: str, revision: int, frozen_at: datetime) -> bytes:
    """Return the bytes of the last leaf of a frozen name's log, number `revision`. Raises as `publication_entry`."""
    return _head(_FREEZE, scope, name, revision) + _time(frozen_at)


def _head(kind: bytes, scope: str, name: str, revision: int) -> bytes:
    return kind + _counted(scope.encode()) + _counted(name.encode()) + _varint(revision)


def _counted(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _time(moment: datetime) -> bytes:
    if moment.tzinfo is None:
        raise InvalidInput(f"the time {moment.isoformat()} has no offset from UTC")
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    if microseconds < 0:
        raise InvalidInput(f"the time {moment.isoformat()} is before 1970")
    return microseconds.to_bytes(8, "big")
