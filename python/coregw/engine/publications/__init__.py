"""Publications: the only state that changes (protocol section 5, *published record*).

A publication reads the newest revision, applies the rules of `coregw.engine.publications.records`, and writes by
compare-and-set; if another one won, it starts again. So any number of processes may publish to one store, and a frozen
record stays frozen.
Who may publish is decided by `coregw.gateway.admin`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import UNSET, structs

from coregw._core import Cid
from coregw.engine.publications.log import NameLog, checkpoint_key, signed_checkpoint
from coregw.engine.publications.records import (
    Record,
    check_expected,
    check_names,
    decode_record,
    encode_record,
    existing,
    frozen_record,
    next_record,
    record_key,
    require_unfrozen,
    restored_record,
    revision_key,
    scope_prefix,
    utc,
    without_freeze,
)
from coregw.errors import Conflict, InvalidInput, RecordNotFound, RootNotFound, StoreDamaged
from coregw.messages.publication import PublicationProof, UnsignedPublication
from coregw.messages.record import PublishedRecord
from coregw.store import Store, Table
from coregw.tlog.checkpoint import Checkpoint, encode_hashes
from coregw.tlog.note import Note

__all__ = ["Publications", "RecordTable"]


class RecordTable:
    """Published records in a store's `Table.RECORDS`, with binary CIDs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, scope: str, name: str) -> Record | None:
        """Return the newest revision of a record, or None if the name was never published.

        Raises:
            InvalidInput: `scope` or `name` is not of the form of protocol section 5; so do all methods here.
        """
        check_names(scope, name)
        value = await self._newest(scope, name)
        return None if value is None else decode_record(value)

    async def publish(
        self,
        scope: str,
        name: str,
        root: bytes,
        expected_revision: int | None,
        now: datetime,
        requires: Sequence[bytes] = (),
    ) -> Record:
        """Publish a root as the next revision of a name, durably.

        Args:
            scope: The scope.
            name: The name in it.
            root: The binary root CID.
            expected_revision: The required newest revision, 0 if the name must be new; None accepts any.
            now: The time to record; aware.
            requires: Roots that must be held when the record is written.

        Returns:
            The new revision. Concurrent publications get different ones.

        Raises:
            Conflict: As `coregw.engine.publications.records.next_record`.
            RootNotFound: A required root is not held.
            InvalidInput: Also if `now` is naive or `expected_revision` is negative.
        """
        check_expected(expected_revision)
        now = utc(now)
        return await self._change(
            scope, name, lambda current: next_record(current, scope, name, root, expected_revision, now), requires
        )

    async def freeze(self, scope: str, name: str, now: datetime) -> Record:
        """Freeze a record permanently and durably: nothing is published under its name any more. Idempotent.

        Returns:
            The frozen record; if it was frozen before, unchanged.

        Raises:
            RecordNotFound: The name was never published.
            InvalidInput: Also if `now` is naive.
        """
        now = utc(now)
        return await self._change(scope, name, lambda current: frozen_record(existing(current, scope, name), now))

    async def restore(self, revisions: Sequence[Record]) -> bool:
        """Add the revisions of one name that are missing, as they were published elsewhere; durable on return.

        The newest of them becomes the newest of the name if it is newer. What is there is never replaced, except that
        a revision is frozen if the given one is.

        Args:
            revisions: All of one name, of which there is at least one.

        Returns:
            Whether anything was missing.

        Raises:
            Conflict: Another revision of the same number is there (code ``revision_mismatch``), or the name was frozen
                at an older one (``record_frozen``); nothing was changed.
            RootNotFound: The newest root is not held; nothing was changed.
            InvalidInput: A malformed scope or name.
        """
        newest = max(revisions, key=lambda record: record.revision)
        scope, name = newest.scope, newest.name
        check_names(scope, name)
        while True:
            value = await self._newest(scope, name)
            current = None if value is None else decode_record(value)
            require_unfrozen(current, newest)
            keys = [revision_key(scope, name, each.revision) for each in revisions]
            held = await self._store.get(Table.RECORDS, keys)
            rows = [
                (key, encode_record(merged))
                for key, found, each in zip(keys, held, revisions, strict=True)
                if (merged := restored_record(None if found is None else decode_record(found), each)) is not None
            ]
            if not rows and current is not None and current.revision >= newest.revision:
                await self._complete_log(current)
                return False
            top = newest if current is None or current.revision < newest.revision else current
            if top.revision == newest.revision:
                top = restored_record(current if top is current else None, newest) or top
            if await self._store.compare_and_set(
                Table.RECORDS, record_key(scope, name), value, encode_record(top), rows, [top.root]
            ):
                await self._complete_log(top)
                return True

    async def _complete_log(self, newest: Record) -> None:
        """Compute the rows of a log that are missing, unless revisions are still missing, too."""
        log = NameLog(self._store, newest.scope, newest.name)
        try:
            await log.root(newest.revision + newest.frozen)
        except StoreDamaged:
            with suppress(StoreDamaged):
                await log.complete(newest.revision)

    async def in_scope(self, scope: str, after: str | None, limit: int) -> list[Record]:
        """List the newest revisions of at most `limit` names of a scope, in byte order of the names.

        Args:
            scope: The scope; an unknown one is empty.
            after: Only names greater than this one, which need not exist; None starts at the first.
            limit: At least 1.
        """
        check_names(scope, *(() if after is None else (after,)))
        start = None if after is None else record_key(scope, after)
        rows = await self._store.list_rows(Table.RECORDS, scope_prefix(scope), start, limit)
        return [decode_record(value) for _, value in rows]

    async def history(self, scope: str, name: str, after: int, limit: int) -> list[Record]:
        """List at most `limit` revisions of a record that are greater than `after`, oldest first.

        Raises:
            RecordNotFound: The name was never published.
            InvalidInput: Also if `limit` is less than 1.
            StoreDamaged: A revision is missing.
        """
        if limit < 1:
            raise InvalidInput(f"the limit of a listing is at least 1, not {limit}")
        newest = existing(await self.get(scope, name), scope, name)
        first = max(after, 0) + 1
        revisions = range(first, min(first + limit, newest.revision + 1))
        keys = [revision_key(scope, name, revision) for revision in revisions]
        values = await self._store.get(Table.RECORDS, keys)
        records = [decode_record(value) for value in values if value is not None]
        if len(records) != len(keys):
            raise StoreDamaged(f"{len(keys) - len(records)} revisions of {scope}/{name} are missing")
        return records

    async def _newest(self, scope: str, name: str) -> bytes | None:
        (value,) = await self._store.get(Table.RECORDS, [record_key(scope, name)])
        return value

    async def _change(
        self, scope: str, name: str, change: Callable[[Record | None], Record], requires: Sequence[bytes] = ()
    ) -> Record:
        """Replace the newest revision by what `change` makes of it; repeated as long as others change it meanwhile."""
        check_names(scope, name)
        key = record_key(scope, name)
        while True:
            value, signed = await self._store.get(Table.RECORDS, [key, checkpoint_key(scope, name)])
            current = None if value is None else decode_record(value)
            record = change(current)
            if record is current:
                return record
            _require_whole(scope, name, current, signed)
            new = encode_record(record)
            further = [(revision_key(scope, name, record.revision), new)]
            further += await NameLog(self._store, scope, name).rows_of(record)
            if await self._store.compare_and_set(Table.RECORDS, key, value, new, further, requires):
                return record


def _require_whole(scope: str, name: str, current: Record | None, signed: bytes | None) -> None:
    """Raise `StoreDamaged` if a signed checkpoint has leaves that a history lacks: the next one would fork the log."""
    size = 0 if current is None else current.revision + current.frozen
    if signed is not None and (expected := signed_checkpoint(scope, name, signed).size) > size:
        raise StoreDamaged(
            f"{scope}/{name} has {size} leaves, but its signed checkpoint {expected}: restore the lost revisions by "
            "`coregw heal`; nothing was published"
        )


class Publications:
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
