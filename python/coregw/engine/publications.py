"""Publications: the only state that changes (protocol section 5, *published record*).

A publication reads the newest revision, applies the rules of `coregw.engine.records`, and writes by
compare-and-set; if another one won, it starts again. So any number of processes may publish to one store, and a frozen
record stays frozen.
Who may publish is decided by `coregw.gateway.routes.publications`.
"""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import UNSET, structs

from coregw._core import Cid
from coregw.engine.records import (
    NameLog,
    Record,
    RecordTable,
    checkpoint_key,
    existing,
    signed_checkpoint,
    without_freeze,
)
from coregw.errors import Conflict, InvalidInput, RecordNotFound, RootNotFound
from coregw.messages.common import check_names
from coregw.messages.management import PublishedRecord
from coregw.messages.query import PublicationProof, UnsignedPublication
from coregw.store import Store, Table
from coregw.tlog.checkpoint import Checkpoint, encode_hashes
from coregw.tlog.note import Note

__all__ = ["PublicationStore"]


class PublicationStore:
    """The published records of one store as clients see them, ``engine.publications``."""

    def __init__(self, store: Store) -> None:
        """Made by `Engine`."""
        self._store = store
        self._records = RecordTable(store)

    async def publish(self, scope: str, name: str, root: str, expected_revision: int | None) -> PublishedRecord:
        """Publish a held root as the next revision of a name; durable on return.

        Args:
            scope: The scope.
            name: The name in it.
            root: The CID of a map or list.
            expected_revision: The required newest revision, 0 if the name must be new; None accepts any.

        Raises:
            InvalidInput: A malformed scope or name, an invalid CID, or a payload CID (code ``kind_mismatch``).
            RootNotFound: The store does not hold the root.
            Conflict: The record is frozen, or at another revision; nothing was published.
            Unavailable: The store cannot write at the moment (`StorageFull`: it has no room).
        """
        cid = Cid(root)
        if cid.kind == "cas":
            raise InvalidInput(f"{cid.text} is a payload; only a map or a list can be published", code="kind_mismatch")
        try:
            binary, now = bytes(cid), datetime.now(UTC)
            record = await self._records.publish(scope, name, binary, expected_revision, now, [binary])
        except RootNotFound:
            raise RootNotFound(f"the store does not hold the root {cid.text}; nothing was published") from None
        return _published(record)

    async def freeze(self, scope: str, name: str) -> PublishedRecord:
        """Freeze a record permanently; durable on return. Idempotent.

        Raises:
            RecordNotFound: The name was never published. Otherwise as `publish`.
        """
        return _published(await self._records.freeze(scope, name, datetime.now(UTC)))

    async def get(self, scope: str, name: str) -> PublishedRecord:
        """Return the newest revision of a record.

        Raises:
            RecordNotFound: The name was never published.
            InvalidInput: A malformed scope or name.
        """
        return _published(existing(await self._records.get(scope, name), scope, name))

    async def in_scope(self, scope: str, after: str | None, limit: int) -> tuple[list[PublishedRecord], bool]:
        """List at most `limit` records of a scope whose names are greater than `after`; and whether more follow."""
        records = await self._records.in_scope(scope, after, limit + 1)
        return [_published(record) for record in records[:limit]], len(records) > limit

    async def history(self, scope: str, name: str, after: int, limit: int) -> tuple[list[PublishedRecord], bool]:
        """List at most `limit` revisions of a record greater than `after`, oldest first; and whether more follow."""
        records = await self._records.history(scope, name, after, limit + 1)
        return [_published(record) for record in records[:limit]], len(records) > limit

    # --- proofs (protocol section 9) ----------------------------------------------------------------------------------

    async def prove(
        self, scope: str, name: str, old: int = 0, revision: int | None = None, size: int | None = None
    ) -> PublicationProof:
        """Prove a revision of a name in a tree of its log, and that this tree continues an older one. O(log n).

        Args:
            scope: The scope.
            name: The name.
            old: The size of the older tree; the proof is empty for 0, and for more than `size`.
            revision: The revision; None is the newest one of the tree.
            size: The size of the tree; None is the whole log.

        Raises:
            RecordNotFound: The name was never published, or there is no such revision in the tree.
            InvalidInput: A malformed scope or name, or a size that is not from 1 to that of the log.
            StoreDamaged: A revision is missing.
        """
        newest = existing(await self._records.get(scope, name), scope, name)
        whole = newest.revision + newest.frozen
        size = whole if size is None else size
        if not 1 <= size <= whole:
            raise InvalidInput(f"size {size}: the log of {scope}/{name} has {whole} leaves")
        wanted = min(size, newest.revision) if revision is None else revision
        if not 1 <= wanted <= min(size, newest.revision):
            raise RecordNotFound(f"revision {wanted} of {scope}/{name} is not in the tree of {size} leaves")
        (record,) = await self._records.history(scope, name, wanted - 1, 1)
        is_frozen = record.frozen and size == wanted + 1
        log = NameLog(self._store, scope, name)
        return PublicationProof(
            record=_published(record if is_frozen else without_freeze(record)),
            size=size,
            root_hash=encode_hashes([await log.root(size)])[0],
            inclusion=encode_hashes(await log.inclusion(wanted - 1, size)),
            consistency=encode_hashes(await log.consistency(old, size)),
            freeze=encode_hashes(await log.inclusion(wanted, size)) if is_frozen else UNSET,
        )

    async def public(
        self, scope: str, name: str, old: int = 0, revision: int | None = None
    ) -> PublicationProof | UnsignedPublication:
        """Prove a revision in the tree of the newest signed checkpoint, which the answer has.

        If no checkpoint of the name was signed, the answer is the newest record alone.

        Raises:
            RecordNotFound: The name was never published, or there is no such revision in the tree; or another revision
                than the newest one is asked for of a name that is not signed, whose history is not public.
            InvalidInput: A malformed scope or name.
            StoreDamaged: A revision is missing.
        """
        note = await self._checkpoint(scope, name)
        if note is None:
            newest = await self.get(scope, name)
            if revision not in (None, newest.revision):
                raise RecordNotFound(f"no signed checkpoint of {scope}/{name} has revision {revision}")
            return UnsignedPublication(record=newest, status="unsigned")
        proof = await self.prove(scope, name, old, revision, signed_checkpoint(scope, name, note.encode()).size)
        return structs.replace(proof, checkpoint=note)

    async def entries(self, scope: str, name: str, after: int, limit: int) -> tuple[list[PublishedRecord], bool]:
        """List revisions up to the newest signed checkpoint, as `history` does.

        Raises:
            RecordNotFound: No checkpoint of the name was signed: the history of an unsigned name is not public.
            InvalidInput: A malformed scope or name.
            StoreDamaged: A revision is missing.
        """
        note = await self._checkpoint(scope, name)
        if note is None:
            raise RecordNotFound(f"no signed checkpoint of {scope}/{name} is published")
        size = signed_checkpoint(scope, name, note.encode()).size
        records = [each for each in await self._records.history(scope, name, after, limit + 1) if each.revision <= size]
        shown = [each if each.revision + 1 == size else without_freeze(each) for each in records]
        return [_published(record) for record in shown[:limit]], len(records) > limit

    async def sign(self, scope: str, name: str, note: str) -> PublicationProof:
        """Keep a signed checkpoint of a name's log as the newest one; durable on return. No signature is verified.

        Raises:
            InvalidInput: The note, or its text, is malformed.
            Conflict: It is older than the one that is kept, or its root hash is not that of this log's tree (code
                ``checkpoint_mismatch``); nothing was changed.
            RecordNotFound: The name was never published.
        """
        parsed = Note.parse(note)
        given = Checkpoint.parse(parsed.text)
        record = existing(await self._records.get(scope, name), scope, name)
        key, what = checkpoint_key(scope, name), f"{scope}/{name}"
        if not 1 <= given.size <= record.revision + record.frozen:
            raise Conflict(f"the log of {what} has no tree of {given.size} leaves", code="checkpoint_mismatch")
        if await NameLog(self._store, scope, name).root(given.size) != given.root:
            raise Conflict(f"{what}: the tree of {given.size} leaves has another root", code="checkpoint_mismatch")
        while True:
            (held,) = await self._store.get(Table.RECORDS, [key])
            size = 0 if held is None else signed_checkpoint(scope, name, held).size
            if given.size < size:
                raise Conflict(f"{what}: a checkpoint of {size} leaves is there", code="checkpoint_mismatch")
            if await self._store.compare_and_set(Table.RECORDS, key, held, parsed.encode().encode()):
                proof = await self.prove(scope, name, size=given.size)
                return structs.replace(proof, checkpoint=parsed.encode())

    async def _checkpoint(self, scope: str, name: str) -> str | None:
        check_names(scope, name)
        (held,) = await self._store.get(Table.RECORDS, [checkpoint_key(scope, name)])
        return None if held is None else held.decode()


def _published(record: Record) -> PublishedRecord:
    """A record as clients see it, with CIDs in text form."""
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
