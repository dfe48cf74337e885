"""Published roots: the messages of the administration routes (protocol section 5, *published record*)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from coregw.messages.common import MAX_INTEGER, Message

__all__ = ["MAX_RECORDS", "PublishRequest", "PublishedRecord", "PublishedRecords", "RecordHistory"]

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
