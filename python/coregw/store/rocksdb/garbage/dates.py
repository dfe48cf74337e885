"""Dates in the rows of RocksDB: of roots, in their own rows, and of payloads, in rows of `Family.META`.

Methods with a transaction run in the committer's thread, where all writes are ordered; so `coregw.store.ages` needs no
lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coregw.store import Table
from coregw.store.ages import Ages
from coregw.store.rocksdb.committer import Transaction
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import (
    Family,
    PayloadRow,
    RootRow,
    Row,
    decode_date,
    encode_date,
    payload_date,
)

__all__ = ["Dates", "root_rows"]


def root_rows(roots: Sequence[bytes]) -> list[Row]:
    """The rows of roots."""
    return [Row(Family.ROOTS, root) for root in roots]


class Dates:
    """The dates of one database.

    Args:
        database: The database.
        slice_seconds: See `Ages`.
    """

    def __init__(self, database: Database, slice_seconds: float) -> None:
        self.ages: Final = Ages(
            database.clock,
            undated=database.undated,
            expired_before=database.expired_before,
            slice_seconds=slice_seconds,
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    def of_root(self, stored: bytes | None) -> int | None:
        """The date of a root's row; None if there is no row."""
        return None if stored is None else max(RootRow.decode(stored).date or 0, self.ages.undated)

    def of_payload(self, stored: bytes | None) -> int:
        """The date of a payload whose date row is `stored`."""
        return max(0 if stored is None else decode_date(stored), self.ages.undated)

    def shown(self, table: Table, stored: bytes | None) -> bytes | None:
        """The value of a table's row as the store shows it; None if it is absent, or an expired root."""
        if table is not Table.ROOTS or stored is None:
            return stored
        return RootRow.decode(stored).value if self.ages.is_held(self.of_root(stored)) else None

    # --- writing ------------------------------------------------------------------------------------------------------

    def put(self, transaction: Transaction, table: Table, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Write rows of a table, those of roots with a date."""
        family, now = Family(table), self.ages.clock.now()
        if table is Table.PAGES:
            self.ages.recent.add([key for key, _ in pairs], now)
        elif table is Table.ROOTS:
            pairs = [(key, RootRow(now, value).encode()) for key, value in pairs]
        transaction.put_all(family, pairs)

    def require(self, transaction: Transaction, roots: Sequence[bytes]) -> None:
        """Check that roots are held; see `Ages.require`."""
        self.ages.require((row.key, self.of_root(transaction.get(row))) for row in root_rows(roots))

    def renew_root(self, transaction: Transaction, row: Row) -> bool:
        """Renew the date of a root; False if it is not held."""
        stored = transaction.get(row)
        dated = self.of_root(stored)
        if stored is None or not self.ages.is_held(dated):
            return False
        self.ages.note(row.key, dated)
        self._date_root(transaction, row, stored)
        return True

    def keep_root(self, transaction: Transaction, row: Row) -> bool:
        """As `renew_root`, on behalf of a collection: a root that is young anyway is not written."""
        stored = transaction.get(row)
        dated = self.of_root(stored)
        if stored is None or not self.ages.is_held(dated):
            return False
        if not self.ages.is_kept(dated):
            self._date_root(transaction, row, stored)
        return True

    def _date_root(self, transaction: Transaction, row: Row, stored: bytes) -> None:
        transaction.put(row, RootRow(self.ages.clock.now(), RootRow.decode(stored).value).encode())

    def renew_payload(self, transaction: Transaction, row: Row) -> int | None:
        """Renew the date of a payload, and return its size; None if it is not held."""
        stored = transaction.get(row)
        if stored is None:
            return None
        self.date_payload(transaction, row.key)
        return PayloadRow.decode(row.key, stored).size

    def date_payload(self, transaction: Transaction, multihash: bytes) -> None:
        """Write the date of a payload that is held."""
        transaction.put(payload_date(multihash), encode_date(self.ages.clock.now()))
