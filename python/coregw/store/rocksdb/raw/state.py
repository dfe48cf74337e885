"""The rows that a store keeps about itself, as a check reads them: its epoch, its dates, the limit of expired roots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Self

from coregw.errors import StoreDamaged
from coregw.store.rocksdb.layout import (
    EPOCH_KEY,
    EXPIRED_KEY,
    TIME_KEY,
    UNDATED_KEY,
    Confirmed,
    Family,
    decode_date,
    decode_epoch,
)
from coregw.store.rocksdb.raw.database import Rows

__all__ = ["StoreState"]


def _confirmed_time(value: bytes) -> int:
    return Confirmed.decode(value).time


_DECODERS: Final[dict[bytes, Callable[[bytes], int]]] = {
    EPOCH_KEY: decode_epoch,
    EXPIRED_KEY: decode_date,
    UNDATED_KEY: _confirmed_time,
    TIME_KEY: _confirmed_time,
}


class StoreState(NamedTuple):
    """The rows of a store's state.

    Attributes:
        found: The number in each row that is readable, by its key.
        damaged: The keys of rows that are there and not readable.
    """

    found: dict[bytes, int]
    damaged: frozenset[bytes]

    @classmethod
    def read(cls, database: Rows) -> Self:
        """Read the rows of a database."""
        found: dict[bytes, int] = {}
        damaged: set[bytes] = set()
        for key, decode in _DECODERS.items():
            for row in database.rows(Family.META, key, key + b"\0"):
                newest = max(row.versions, key=lambda entry: entry.sequence)  # an older one may keep too little
                try:
                    if not newest.is_intact:
                        damaged.add(key)
                    elif newest.value is not None:
                        found[key] = decode(bytes(newest.value))
                except StoreDamaged:
                    damaged.add(key)
        return cls(found, frozenset(damaged))

    @property
    def epoch(self) -> int:
        """The number of openings; 0 if it is lost."""
        return self.found.get(EPOCH_KEY, 0)

    def is_held(self, date: int | None) -> bool:
        """Whether a root of this date has not expired. If the limit is lost, none has: a start does the same."""
        expired_before = self.found.get(EXPIRED_KEY, 0)
        return (self.found.get(UNDATED_KEY, expired_before) if date is None else date) >= expired_before

    def lost(self, *, is_damaged: bool) -> list[str]:
        """Return the names of the rows that are lost.

        Args:
            is_damaged: Whether the files are damaged where the rows are: a missing one may have been there.
        """
        missing = _DECODERS.keys() - self.found.keys()
        # Every opening writes the epoch; a store without the others may be new, or of an older version.
        lost = missing if is_damaged else missing & (self.damaged | {EPOCH_KEY})
        return sorted(key.decode() for key in lost)
