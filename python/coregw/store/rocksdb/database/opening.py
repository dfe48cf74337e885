"""What opening a database reads and writes: its epoch, its dates, and what unfinished uploads left."""

from __future__ import annotations

import sys
from collections import Counter

from coregw.errors import StoreDamaged
from coregw.store.rocksdb.database.rows import Rows
from coregw.store.rocksdb.layout import (
    EPOCH_KEY,
    EXPIRED_KEY,
    UNDATED_KEY,
    Family,
    PayloadRow,
    Undated,
    chunk_range,
    decode_date,
    upload_of_chunk,
)

__all__ = ["begin_epoch", "drop_incomplete_payloads", "read_expired", "read_undated"]


def begin_epoch(database: Rows, now: int, *, is_first: bool) -> tuple[int, int]:
    """Increment the epoch, and delete what unfinished uploads left.

    Returns:
        The epoch, and when rows without a date count as dated: at `now`, unless that was decided before and is still
        right.
    """
    (found,) = database.get(Family.META, [EPOCH_KEY])
    if found is None and not is_first:
        raise StoreDamaged(f"the store in {database.path} has lost its epoch, the count of its openings")
    epoch = int.from_bytes(found or b"", "big") + 1
    unfinished = list(database.keys(Family.UPLOADS))  # no process can continue them: this one holds the lock
    try:
        undated = read_undated(database)
    except StoreDamaged:  # whatever counts as dated now is kept for longer than it had to be
        undated = None
    date = now if undated is None or undated.epoch != epoch - 1 else undated.date
    database.write(
        [
            (Family.META, EPOCH_KEY, epoch.to_bytes(4, "big")),
            (Family.META, UNDATED_KEY, Undated(epoch, date).encode()),
            *((Family.UPLOADS, upload, None) for upload in unfinished),
        ],
        [(Family.CHUNKS, *chunk_range(upload)) for upload in unfinished],
    )
    database.sync()
    # An SST is out of reach of damage to the log: an epoch used twice would mix up payloads.
    try:
        database.flush(Family.META)
    except StoreDamaged as error:
        database.note_fault(error)
        raise
    return epoch, date


def read_expired(database: Rows) -> int:
    """Return before when roots have expired."""
    (expired,) = database.get(Family.META, [EXPIRED_KEY])
    return 0 if expired is None else decode_date(expired)


def read_undated(database: Rows) -> Undated | None:
    """Return when rows without a date count as dated; None if no version decided that."""
    (found,) = database.get(Family.META, [UNDATED_KEY])
    return None if found is None else Undated.decode(found)


def drop_incomplete_payloads(database: Rows) -> None:
    """Delete the rows of payloads that lost chunks with a damaged log, so that they can be stored again. Slow."""
    chunks = Counter(upload_of_chunk(key) for key in database.keys(Family.CHUNKS))
    for multihash, value in database.scan(Family.PAYLOADS, b"", None, limit=sys.maxsize):
        row = PayloadRow.decode(multihash, value)
        if chunks[row.upload_id] != row.chunks:
            database.write([(Family.PAYLOADS, multihash, None)])
