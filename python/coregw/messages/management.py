"""What operators are told: published records, garbage, pins, progress."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coregw.messages.common import MAX_INTEGER, Message

__all__ = [
    "MAX_RECORDS",
    "CheckRequest",
    "CollectRequest",
    "GarbageCollected",
    "GarbageRoot",
    "PinRequest",
    "PinnedRoot",
    "PinnedRoots",
    "Progress",
    "ProgressCallback",
    "PublishRequest",
    "PublishedRecord",
    "PublishedRecords",
    "RecordHistory",
    "UnpinRequest",
]

MAX_RECORDS = 1000
"""The maximum number of records in one page of a listing or history, and the default."""

_Revision = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]


class PublishRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /admin/v1/scopes/{scope}/roots``: `expected_revision` (0: none) must be the newest."""

    name: str
    root: str
    expected_revision: Annotated[int, Meta(ge=0, le=MAX_INTEGER)] | UnsetType = UNSET


class PublishedRecord(Message, frozen=True, kw_only=True):
    """One revision of a published root. Times are in UTC."""

    scope: str
    name: str
    root: str
    revision: _Revision
    previous_root: str | None
    published_at: datetime
    frozen: bool
    frozen_at: datetime | UnsetType = UNSET


class PublishedRecords(Message, frozen=True, kw_only=True):
    """A page of a scope's records in byte order of their names. If more follow, `next` is the next page's ``after``."""

    records: list[PublishedRecord]
    next: str | UnsetType = UNSET


class RecordHistory(Message, frozen=True, kw_only=True):
    """A page of a record's revisions, oldest first. If more follow, `next` is the next page's ``after``."""

    records: list[PublishedRecord]
    next: _Revision | UnsetType = UNSET


class CheckRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /admin/v1/maintenance/fsck``.

    Attributes:
        bytes_per_second: How much is read per second at most; None for no limit.
    """

    bytes_per_second: Annotated[int, Meta(ge=1)] | None = None


class CollectRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /admin/v1/maintenance/gc``.

    Attributes:
        dry_run: Whether to count only.
        grace_seconds: What is younger stays; None is the gateway's setting.
        revisions: How many revisions of each published name keep their roots, 0 for all; None is the gateway's setting.
            That of the newest signed checkpoint always does.
        keep: Roots that are kept, whether they are held or not.
        ask_seconds: If roots would be removed that were stored or confirmed later than this many seconds ago, nothing
            is: it is a dry run. 0 asks for none.
    """

    dry_run: bool = False
    grace_seconds: int | None = None
    revisions: int | None = None
    keep: Annotated[list[str], Meta(max_length=10_000)] = []  # noqa: RUF012 - msgspec copies it
    ask_seconds: Annotated[int, Meta(ge=0)] = 0


class GarbageRoot(Message, frozen=True, kw_only=True):
    """A root that a collection would remove.

    Attributes:
        root: Its CID.
        age_seconds: How long ago it was last stored or confirmed.
    """

    root: str
    age_seconds: int


class GarbageCollected(Message, frozen=True, kw_only=True):
    """The result of a collection; of a dry run, what it would have removed.

    Attributes:
        dry_run: Whether nothing was removed.
        listed_roots: Of a dry run, the first 1,000 of the roots that would be removed.
        young_roots: How many of these are younger than `CollectRequest.ask_seconds`.
        roots: Root records before.
        roots_removed: Those that were removed.
        pages: Pages before.
        pages_removed: Those that were removed.
        page_bytes: Their sizes before.
        page_bytes_removed: The sizes of those that were removed.
        payloads: Payloads before.
        payloads_removed: Those that were removed.
        payload_bytes: Their sizes before.
        payload_bytes_removed: The sizes of those that were removed.
        disk_bytes_before: The space that the files of the store took before.
        disk_bytes: The space that they take now.
        seconds: How long it took.
    """

    dry_run: bool
    listed_roots: list[GarbageRoot] = []  # noqa: RUF012 - msgspec copies it
    young_roots: int = 0
    roots: int = 0
    roots_removed: int = 0
    pages: int = 0
    pages_removed: int = 0
    page_bytes: int = 0
    page_bytes_removed: int = 0
    payloads: int = 0
    payloads_removed: int = 0
    payload_bytes: int = 0
    payload_bytes_removed: int = 0
    disk_bytes_before: int = 0
    disk_bytes: int = 0
    seconds: float = 0.0


class PinRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /admin/v1/maintenance/pins``.

    Attributes:
        root: The root CID.
        name: The name of the pin; None takes the CID.
        expires_at: When it ends; None never.
    """

    root: str
    name: str | None = None
    expires_at: datetime | None = None


class UnpinRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /admin/v1/maintenance/pins/remove``."""

    name: str


class PinnedRoot(Message, frozen=True, kw_only=True):
    """A pin.

    Attributes:
        name: Its name.
        root: The root CID.
        pinned_at: When it was pinned.
        expires_at: When it ends, or None.
        has_expired: Whether it has ended.
    """

    name: str
    root: str
    pinned_at: datetime
    expires_at: datetime | None
    has_expired: bool


class PinnedRoots(Message, frozen=True, kw_only=True):
    """All pins of a store, by name."""

    pins: list[PinnedRoot]


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far an operation is. An operation may add members of its own in a subclass.

    Attributes:
        step: What it does now, as a short phrase: ``reading pages``.
        done: How much of the step is done.
        total: How much the step is, if that is known.
        unit: What `done` and `total` count, in the plural; ``bytes`` are shown with binary prefixes.
    """

    step: str
    done: int = 0
    total: int | None = None
    unit: str = ""


ProgressCallback = Callable[[Progress], None]
"""Called with the progress of an operation as it runs. May raise, to stop the operation."""
