"""Published records: what operators say that a name stands for (protocol section 5, *published record*).

Leaves out who may publish (`coregw.gateway.admin`). The rules of revisions and freezing are the store's.
"""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import UNSET

from coregw._core import Cid
from coregw.engine.driver import Driver
from coregw.errors import InvalidInput, RecordNotFound, RootNotFound
from coregw.messages.record import PublishedRecord
from coregw.store import Record, Store

__all__ = ["Records"]


class Records:
    """The published records of one store, ``engine.records``."""

    def __init__(self, store: Store, driver: Driver) -> None:
        """Made by `Engine`."""
        self._store = store
        self._driver = driver

    async def publish(self, scope: str, name: str, root: str, expected_revision: int | None) -> PublishedRecord:
        """Publishes a root that is held as the next revision of a name; durable on return. Changes nothing else.

        Args:
            scope: The scope.
            name: The name in it.
            root: The CID of a map or list.
            expected_revision: The newest revision as the caller knows it, 0 for none; None for any.

        Raises:
            InvalidInput: A scope or name of another form, no CID, or no root (code ``kind_mismatch``).
            RootNotFound: The store does not hold the root.
            Conflict: The record is frozen, or at another revision; nothing was published.
            Unavailable: The store cannot write now (`StorageFull`: it has no room).
        """
        cid = Cid(root)
        if cid.kind == "cas":
            raise InvalidInput(f"{cid.text} is a payload; what is published is a map or a list", code="kind_mismatch")
        if not all(await self._driver.are_held([bytes(cid)])):
            raise RootNotFound(f"the store has no root {cid.text}; nothing was published")
        return _published(await self._store.publish(scope, name, bytes(cid), expected_revision, datetime.now(UTC)))

    async def freeze(self, scope: str, name: str) -> PublishedRecord:
        """Freezes a record for good; durable on return. Idempotent.

        Raises:
            RecordNotFound: The name was never published. Else as `publish`.
        """
        return _published(await self._store.freeze(scope, name, datetime.now(UTC)))

    async def get(self, scope: str, name: str) -> PublishedRecord:
        """The newest revision of a record. Raises `RecordNotFound`, or `InvalidInput` for names of another form."""
        record = await self._store.get_record(scope, name)
        if record is None:
            raise RecordNotFound(f"nothing is published as {scope}/{name}")
        return _published(record)

    async def in_scope(self, scope: str, after: str | None, limit: int) -> tuple[list[PublishedRecord], bool]:
        """At most `limit` records of a scope with names behind `after`, by name, and whether more follow."""
        records = await self._store.list_records(scope, after, limit + 1)
        return [_published(record) for record in records[:limit]], len(records) > limit

    async def history(self, scope: str, name: str, after: int, limit: int) -> tuple[list[PublishedRecord], bool]:
        """At most `limit` revisions of a record greater than `after`, oldest first, and whether more follow."""
        records = await self._store.history(scope, name, after, limit + 1)
        return [_published(record) for record in records[:limit]], len(records) > limit


def _published(record: Record) -> PublishedRecord:
    """A record as clients see it, its CIDs as text."""
    return PublishedRecord(
        scope=record.scope,
        name=record.name,
        root=Cid(record.root).text,
        revision=record.revision,
        previous_root=None if record.previous_root is None else Cid(record.previous_root).text,
        published_at=record.published_at,
        frozen=record.frozen,
        frozen_at=UNSET if record.frozen_at is None else record.frozen_at,
    )
