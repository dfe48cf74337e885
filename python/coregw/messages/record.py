"""The JSON messages of the administration routes (protocol section 5, *published record*) as msgspec structs.

Kept apart from `coregw.messages`, which clients load: publication is operator policy. Leaves out the rules of
revisions and freezing, which are the store's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from coregw.messages.common import MAX_INTEGER, Message

__all__ = ["MAX_RECORDS", "PublishRequest", "PublishedRecord", "PublishedRecords", "RecordHistory"]

MAX_RECORDS = 1000
"""The most records in one page of a listing or a history, and as many where no limit is given."""

_Revision = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]


class PublishRequest(Message, frozen=True, kw_only=True):
    """``POST /admin/v1/scopes/{scope}/roots``: with `expected_revision`, only if that is the newest one (0: none)."""

    name: str
    root: str
    expected_revision: Annotated[int, Meta(ge=0, le=MAX_INTEGER)] | UnsetType = UNSET


class PublishedRecord(Message, frozen=True, kw_only=True):
    """One revision of a published root; times are UTC."""

    scope: str
    name: str
    root: str
    revision: _Revision
    previous_root: str | None
    published_at: datetime
    frozen: bool
    frozen_at: datetime | UnsetType = UNSET


class PublishedRecords(Message, frozen=True, kw_only=True):
    """A page of a scope's records in the byte order of names; `next`, the next ``after``, is there if more follow."""

    records: list[PublishedRecord]
    next: str | UnsetType = UNSET


class RecordHistory(Message, frozen=True, kw_only=True):
    """A page of a record's revisions, oldest first; `next`, the next ``after``, is there if more follow."""

    records: list[PublishedRecord]
    next: _Revision | UnsetType = UNSET
