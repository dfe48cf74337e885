"""Published records in RocksDB: compare-and-set in the one writing thread, listings by key order.

The rules of revisions and freezing are `coregw.store._records`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from coregw.errors import StoreDamaged
from coregw.store import Record
from coregw.store._records import (
    check_expected,
    check_limit,
    check_names,
    existing,
    frozen_record,
    next_record,
    utc,
)
from coregw.store._rocks_committer import Committer, Transaction
from coregw.store._rocks_layout import (
    Family,
    Row,
    decode_record,
    encode_record,
    record_key,
    record_keys_after,
    revision_key,
)
from coregw.store._rocks_reader import Reader

_ROW_BYTES: Final = 1024
"""About what a publication takes: two rows, each of two names, two CIDs and their names."""


class Records:
    """The part of the store that keeps published records.

    Args:
        reader: Reads of the database.
        committer: Writes to it.
    """

    def __init__(self, reader: Reader, committer: Committer) -> None:
        self._reader = reader
        self._committer = committer

    async def get(self, scope: str, name: str) -> Record | None:
        check_names(scope, name)
        (value,) = await self._reader.get_durable(Family.RECORDS, [record_key(scope, name)])
        return None if value is None else decode_record(value)

    async def publish(self, scope: str, name: str, root: bytes, expected_revision: int | None, now: datetime) -> Record:
        check_names(scope, name)
        check_expected(expected_revision)
        at = utc(now)

        def publish(transaction: Transaction) -> Record:
            current = _current(transaction, scope, name)
            record = next_record(current, scope, name, root, expected_revision, at)
            _put(transaction, record)
            return record

        return await self._change(publish, scope, name)

    async def freeze(self, scope: str, name: str, now: datetime) -> Record:
        check_names(scope, name)
        at = utc(now)

        def freeze(transaction: Transaction) -> Record:
            current = existing(_current(transaction, scope, name), scope, name)
            record = frozen_record(current, at)
            if record is not current:
                _put(transaction, record)
            return record

        return await self._change(freeze, scope, name)

    async def list_records(self, scope: str, after: str | None, limit: int) -> list[Record]:
        check_names(scope, *(() if after is None else (after,)))
        check_limit(limit)
        start, end = record_keys_after(scope, after)
        rows = await self._reader.run(lambda database: database.scan(Family.RECORDS, start, end, limit))
        await self._reader.settle(Family.RECORDS, [key for key, _ in rows])
        return [decode_record(value) for _, value in rows]

    async def history(self, scope: str, name: str, after: int, limit: int) -> list[Record]:
        check_limit(limit)
        newest = existing(await self.get(scope, name), scope, name)
        first = max(after, 0) + 1
        revisions = range(first, min(first + limit, newest.revision + 1))
        keys = [revision_key(scope, name, revision) for revision in revisions]
        values = await self._reader.get_durable(Family.RECORDS, keys)
        records = [decode_record(value) for value in values if value is not None]
        if len(records) != len(keys):
            raise StoreDamaged(f"{len(keys) - len(records)} revisions of {scope}/{name} are missing")
        return records

    async def _change(self, action: Callable[[Transaction], Record], scope: str, name: str) -> Record:
        reads = [Row(Family.RECORDS, record_key(scope, name))]
        return await self._committer.submit(action, reads=reads, size=_ROW_BYTES, durable=True)


def _current(transaction: Transaction, scope: str, name: str) -> Record | None:
    value = transaction.get(Row(Family.RECORDS, record_key(scope, name)))
    return None if value is None else decode_record(value)


def _put(transaction: Transaction, record: Record) -> None:
    value = encode_record(record)
    transaction.put(Row(Family.RECORDS, record_key(record.scope, record.name)), value)
    transaction.put(Row(Family.RECORDS, revision_key(record.scope, record.name, record.revision)), value)
