"""The rules of published records, once for every store: names, the next revision, freezing; and of plants' ids.

Pure functions on `Record` values. Where records are kept, and that nothing happens between reading one and writing the
next, is the store's part.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from coregw.errors import Conflict, InvalidInput, RecordNotFound
from coregw.store import Record

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


def check_names(scope: str, *names: str) -> None:
    """Refuses a scope or name that is not of the form of protocol section 5 (`InvalidInput`)."""
    for what, value in (("scope", scope), *(("name", name) for name in names)):
        if not _NAME.fullmatch(value):
            raise InvalidInput(f"the {what} {value!r:.200} is not 1 to 128 of the characters A-Z a-z 0-9 . _ -")


def check_limit(limit: int) -> None:
    """Refuses a page of a listing that could hold nothing (`InvalidInput`)."""
    if limit < 1:
        raise InvalidInput(f"the limit is {limit}, but must be at least 1")


def check_plant_id(plant_id: int) -> None:
    """Refuses an id that is no int64 (`InvalidInput`)."""
    if not -(1 << 63) <= plant_id < 1 << 63:
        raise InvalidInput(f"the plant id {plant_id} is no integer of 64 bits")


def utc(now: datetime) -> datetime:
    """`now` in UTC; a time without a zone names no instant and is refused (`InvalidInput`)."""
    if now.tzinfo is None:
        raise InvalidInput("the time to record has no time zone")
    return now.astimezone(UTC)


def check_expected(expected_revision: int | None) -> None:
    """Refuses an expected revision that no record can have (`InvalidInput`)."""
    if expected_revision is not None and expected_revision < 0:
        raise InvalidInput(f"the expected revision is {expected_revision}, but must not be negative")


def next_record(
    current: Record | None, scope: str, name: str, root: bytes, expected_revision: int | None, now: datetime
) -> Record:
    """The record that publishing `root` makes of `current`; `Conflict` where `Store.publish` says so."""
    revision = current.revision if current is not None else 0
    details = msgspec.json.encode({"revision": revision})
    if current is not None and current.frozen:
        raise Conflict(
            f"{scope}/{name} is frozen at revision {revision}: nothing is published under it any more",
            code="record_frozen",
            details=details,
        )
    if expected_revision is not None and expected_revision != revision:
        raise Conflict(
            f"{scope}/{name} is at revision {revision}, not {expected_revision}: nothing was published",
            code="revision_mismatch",
            details=details,
        )
    return Record(
        scope=scope,
        name=name,
        root=root,
        revision=revision + 1,
        previous_root=current.root if current is not None else None,
        published_at=now,
    )


def frozen_record(current: Record, now: datetime) -> Record:
    """`current` frozen at `now`, or `current` itself if it was frozen before."""
    return current if current.frozen else msgspec.structs.replace(current, frozen=True, frozen_at=now)


def existing(current: Record | None, scope: str, name: str) -> Record:
    """`current`, or `RecordNotFound` naming what is not there."""
    if current is None:
        raise RecordNotFound(f"nothing is published as {scope}/{name}")
    return current
