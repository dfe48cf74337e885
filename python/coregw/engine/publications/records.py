"""Published records as rows: their layout in `Table.RECORDS`, and the rules for the next revision and for freezing.

Pure functions on values. `coregw.engine.publications` applies them to a store.

```
n scope 00 name 00                      -> the newest revision of a name
r scope 00 name 00 revision (8 bytes)   -> each revision of it
```

Scopes and names contain no byte 00, so it ends them, and keys are in the byte order of scope, name and revision.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import msgspec

from coregw.errors import Conflict, InvalidInput, RecordNotFound, StoreDamaged
from coregw.undecodable import UNDECODABLE

__all__ = [
    "Record",
    "check_expected",
    "check_names",
    "decode_record",
    "encode_record",
    "existing",
    "frozen_record",
    "next_record",
    "record_key",
    "require_unfrozen",
    "restored_record",
    "revision_key",
    "revision_prefix",
    "scope_prefix",
    "utc",
    "without_freeze",
]

_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}")
"""Names are segments of URLs, and clients resolve `.` and `..` there before they send a request (RFC 3986)."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One revision of a published record (protocol section 5, *published record*).

    Attributes:
        scope: The scope, ``[A-Za-z0-9._-]{1,128}`` but not ``.`` or ``..``.
        name: The name in that scope, of the same form.
        root: The binary root CID that is published.
        revision: Counts the publications of this name from 1, also when the same root is published again.
        previous_root: The binary root CID of the previous revision, or None for revision 1.
        published_at: When this revision was published, not before the previous one; aware, in UTC.
        frozen: Whether the name was frozen while this revision was its newest.
        frozen_at: When it was frozen, or None.
    """

    scope: str
    name: str
    root: bytes
    revision: int
    previous_root: bytes | None
    published_at: datetime
    frozen: bool = False
    frozen_at: datetime | None = None


# --- layout -----------------------------------------------------------------------------------------------------------

_DECODER: Final = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Encode the value of a row."""
    return msgspec.msgpack.encode(record)


def decode_record(value: bytes) -> Record:
    """Decode the value of a row; `StoreDamaged` if it is malformed."""
    try:
        return _DECODER.decode(value)
    except UNDECODABLE as error:
        raise StoreDamaged(f"the row of a published record is malformed: {error}") from error


def scope_prefix(scope: str) -> bytes:
    """The prefix of `record_key` for all names of a scope."""
    return b"n" + scope.encode() + b"\0"


def record_key(scope: str, name: str) -> bytes:
    """The key of a name's newest revision. Within a scope, keys are in the byte order of names."""
    return scope_prefix(scope) + name.encode() + b"\0"


def revision_prefix() -> bytes:
    """The prefix of `revision_key` for all scopes and names."""
    return b"r"


def revision_key(scope: str, name: str, revision: int) -> bytes:
    """The key of one revision."""
    return b"r" + scope.encode() + b"\0" + name.encode() + b"\0" + revision.to_bytes(8, "big")


# --- checks -----------------------------------------------------------------------------------------------------------


def check_names(scope: str, *names: str) -> None:
    """Raise `InvalidInput` if a scope or name is not of the form of protocol section 5."""
    for what, value in (("scope", scope), *(("name", name) for name in names)):
        if not _NAME.fullmatch(value):
            raise InvalidInput(
                f"{what} {value!r:.200}: expected 1 to 128 of the characters A-Z a-z 0-9 . _ -, not . or .."
            )


def check_expected(expected_revision: int | None) -> None:
    """Raise `InvalidInput` if no record can have the expected revision."""
    if expected_revision is not None and expected_revision < 0:
        raise InvalidInput(f"expected_revision {expected_revision}: must not be negative")


def utc(now: datetime) -> datetime:
    """Convert a time to UTC; `InvalidInput` if it is naive."""
    if now.tzinfo is None:
        raise InvalidInput(f"the time {now.isoformat()} has no time zone")
    return now.astimezone(UTC)


# --- rules ------------------------------------------------------------------------------------------------------------


def next_record(
    current: Record | None, scope: str, name: str, root: bytes, expected_revision: int | None, now: datetime
) -> Record:
    """The revision that publishing `root` adds to `current`.

    Raises:
        Conflict: `current` is frozen (code ``record_frozen``), else its revision is not the expected one (code
            ``revision_mismatch``). ``details`` is JSON ``{"revision": <the newest>}``.
    """
    revision = current.revision if current is not None else 0
    details = msgspec.json.encode({"revision": revision})
    if current is not None and current.frozen:
        raise Conflict(
            f"{scope}/{name} is frozen at revision {revision}; nothing was published",
            code="record_frozen",
            details=details,
        )
    if expected_revision is not None and expected_revision != revision:
        raise Conflict(
            f"{scope}/{name} is at revision {revision}, not {expected_revision}; nothing was published",
            code="revision_mismatch",
            details=details,
        )
    return Record(
        scope=scope,
        name=name,
        root=root,
        revision=revision + 1,
        previous_root=current.root if current is not None else None,
        published_at=now if current is None else max(now, current.published_at),
    )


def frozen_record(current: Record, now: datetime) -> Record:
    """`current` frozen at `now`, but not before it was published; `current` itself if it is frozen already."""
    if current.frozen:
        return current
    return msgspec.structs.replace(current, frozen=True, frozen_at=max(now, current.published_at))


def without_freeze(record: Record) -> Record:
    """`record` as it was before it was frozen."""
    return msgspec.structs.replace(record, frozen=False, frozen_at=None)


def require_unfrozen(current: Record | None, newest: Record) -> None:
    """Raise `Conflict` (code ``record_frozen``) if a name was frozen before the revision `newest`."""
    if current is not None and current.frozen and newest.revision > current.revision:
        raise Conflict(
            f"{current.scope}/{current.name} is frozen at revision {current.revision}; nothing was restored",
            code="record_frozen",
            details=msgspec.json.encode({"revision": current.revision}),
        )


def restored_record(held: Record | None, given: Record) -> Record | None:
    """Return what a revision becomes when it is restored; None if it stays as it is.

    Raises:
        Conflict: They are different publications (code ``revision_mismatch``).
    """
    if held is None:
        return given
    if (held.root, held.published_at) != (given.root, given.published_at):
        raise Conflict(
            f"{held.scope}/{held.name}: another revision {held.revision} was published here; nothing was restored",
            code="revision_mismatch",
            details=msgspec.json.encode({"revision": held.revision}),
        )
    return given if given.frozen and not held.frozen else None


def existing(current: Record | None, scope: str, name: str) -> Record:
    """`current`; raises `RecordNotFound` if it is None."""
    if current is None:
        raise RecordNotFound(f"no record {scope}/{name} is published")
    return current
