"""The JSON messages of the maintenance routes for checks, garbage and pins."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from coregw.messages.common import Message

__all__ = [
    "CheckRequest",
    "CollectRequest",
    "GarbageCollected",
    "GarbageRoot",
    "PinRequest",
    "PinnedRoot",
    "PinnedRoots",
    "UnpinRequest",
]


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
