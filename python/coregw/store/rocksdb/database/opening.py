"""Opening of a database: its epoch, its dates, and what unfinished uploads left.

The four rows read here are the store's state. One that is damaged is replaced by a value that keeps more, or for
longer, since nothing can be written without them.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from coregw.errors import StoreDamaged
from coregw.store.clock import Clock
from coregw.store.rocksdb.database.rows import ADVICE, Rows, Write
from coregw.store.rocksdb.layout import (
    EPOCH_KEY,
    EXPIRED_KEY,
    TIME_KEY,
    UNDATED_KEY,
    Confirmed,
    Family,
    PayloadRow,
    chunk_range,
    decode_date,
    decode_epoch,
    encode_date,
    encode_epoch,
    epoch_of_upload,
    upload_of_chunk,
)

__all__ = ["Opening", "begin_opening", "drop_incomplete_payloads", "read_epoch", "read_expired", "read_undated"]

_T = TypeVar("_T")

_LAST_GUESS: Final = 0xFFFF_0000
"""A clock that is wrong by decades must leave some of the epochs, which have 4 bytes."""

_log = logging.getLogger(__name__)


class Opening(NamedTuple):
    """The state of a store that was opened for writing.

    Attributes:
        epoch: The number of this opening; a greater one if the number of those before was lost.
        expired_before: Roots dated before this time, in milliseconds, have expired.
        undated: When rows without a date count as dated, and those with an earlier one: at the opening, unless that
            was decided before and is still right.
    """

    epoch: int
    expired_before: int
    undated: int


def begin_opening(database: Rows, clock: Clock, *, is_first: bool, salvage: bool) -> Opening:
    """Increment the epoch, renew rows of the state that are damaged, and delete what unfinished uploads left.

    Args:
        database: The database.
        clock: The store's clock, which continues from the recorded time, after that before which roots have expired.
        is_first: Whether the database was just created.
        salvage: Whether rows may be lost; then the epoch may be missing.

    Raises:
        StoreDamaged: The epoch is missing, and with it perhaps other rows.
    """
    expired = _readable(database, EXPIRED_KEY, read_expired)
    # Without a limit, roots that have expired are held until the next collection: their pages and payloads are still
    # there, since these are removed after the rows of all roots that have expired.
    expired_before = expired or 0
    before = _readable(database, EPOCH_KEY, read_epoch)
    if before is None:
        before = _unused_epoch(database, clock)
    elif before == 0 and not is_first:
        if not salvage:
            raise StoreDamaged(f"the store in {database.path} has lost its epoch, the count of its openings")
        before = _unused_epoch(database, clock)
    epoch = before + 1
    undated = _readable(database, UNDATED_KEY, read_undated)
    time = _readable(database, TIME_KEY, _read_time)
    if undated is None or time is None or not undated.epoch == time.epoch == before:
        undated = time = None
    # Without a recorded time, the system's may be wrong: what is stored counts as stored now.
    clock.resume(clock.now() if time is None else time.time)
    clock.advance_to(expired_before)  # or new roots would count as expired
    now = clock.now()
    date = now if undated is None else undated.time
    unfinished = list(database.keys(Family.UPLOADS))  # no process can continue them: this one holds the lock
    rows: list[Write] = [
        (Family.META, EPOCH_KEY, encode_epoch(epoch)),
        (Family.META, UNDATED_KEY, Confirmed(epoch, date).encode()),
        (Family.META, TIME_KEY, Confirmed(epoch, now).encode()),
        *((Family.UPLOADS, upload, None) for upload in unfinished),
    ]
    if expired is None:
        rows.append((Family.META, EXPIRED_KEY, encode_date(expired_before)))
    database.write(rows, [(Family.CHUNKS, *chunk_range(upload)) for upload in unfinished])
    database.sync()
    # An SST is out of reach of damage to the log: an epoch used twice would mix up payloads.
    try:
        database.flush(Family.META)
    except StoreDamaged as error:
        database.note_fault(error)
        raise
    return Opening(epoch, expired_before, date)


def read_epoch(database: Rows) -> int:
    """Return the number of openings before this one; 0 if the row is missing."""
    (epoch,) = database.get(Family.META, [EPOCH_KEY])
    return 0 if epoch is None else decode_epoch(epoch)


def read_expired(database: Rows) -> int:
    """Return before when roots have expired."""
    (expired,) = database.get(Family.META, [EXPIRED_KEY])
    return 0 if expired is None else decode_date(expired)


def read_undated(database: Rows) -> Confirmed | None:
    """Return when rows without a date count as dated; None if no version decided that."""
    return _confirmed(database, UNDATED_KEY)


def _read_time(database: Rows) -> Confirmed | None:
    return _confirmed(database, TIME_KEY)


def _confirmed(database: Rows, key: bytes) -> Confirmed | None:
    (found,) = database.get(Family.META, [key])
    return None if found is None else Confirmed.decode(found)


def _readable(database: Rows, key: bytes, read: Callable[[Rows], _T]) -> _T | None:
    """Read a row of the state; None if it is damaged, which the log says."""
    try:
        return read(database)
    except StoreDamaged as error:
        what = "the store in %s: its row %r is not readable, and is renewed: %s; %s"
        _log.warning(what, database.path, key.decode(), error, ADVICE)
        return None


def _unused_epoch(database: Rows, clock: Clock) -> int:
    """Return an epoch from which on none was used: no store is opened once a second, so none counts that far.

    That of the newest chunk is compared as well, in case the clock was set back after an epoch was lost before.
    """
    now = max(clock.system_ms, clock.now())
    newest = None
    with suppress(StoreDamaged):
        newest = database.last_key(Family.CHUNKS)
    return max(min(now // 1000, _LAST_GUESS), 0 if newest is None else epoch_of_upload(upload_of_chunk(newest)))


def drop_incomplete_payloads(database: Rows) -> None:
    """Delete the rows of payloads that lost chunks with a damaged log, so that they can be stored again. Slow."""
    chunks = Counter(upload_of_chunk(key) for key in database.keys(Family.CHUNKS))
    for multihash, value in database.scan(Family.PAYLOADS, b"", None, limit=sys.maxsize):
        row = PayloadRow.decode(multihash, value)
        if chunks[row.upload_id] != row.chunks:
            database.write([(Family.PAYLOADS, multihash, None)])
