"""Absent targets: named by held trees, published records or pins, but not held; never stored, or lost without a trace.

After damage nothing tells the two apart. Another gateway may: what it holds can be fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from coregw._core import Cid
from coregw.messages.progress import ProgressCallback
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.raw.database import RawDatabase, Rows
from coregw.upkeep.integrity.check import Known, StoreCheck
from coregw.upkeep.integrity.findings import payload_cid
from coregw.upkeep.integrity.records import published
from coregw.upkeep.pins import PINS, pinned_root

__all__ = ["absent_rows", "absent_targets"]

_Name = tuple[bool, bytes]
"""Whether it is a root, and its binary CID, or its multihash."""

_IDENTITY: Final = 0
_REMEMBERED: Final = 1 << 20
"""CIDs of which is remembered that they were returned; more than that may come twice."""


def absent_targets(path: Path, named: Iterable[str], report: ProgressCallback) -> Iterator[str]:
    """Iterate over the CIDs of payloads and roots that a database does not hold, though something names them.

    These are the leaves of its trees, the revisions of published records, its pins, and `named`. Reads all pages, and
    the rows of payloads, roots and records. Memory: 8 bytes for each payload and root that is held, and 1 Mi CIDs.

    Args:
        path: The directory of a database to which nothing writes, or a snapshot of one.
        named: Further CIDs that may be absent.
        report: Called often, with how far it is.

    Raises:
        InvalidInput: `named` has something that is not a CID.
        OSError: A file cannot be opened.
    """
    with RawDatabase(path) as database:
        yield from absent_rows(database, StoreCheck(database, report), named)


def absent_rows(database: Rows, check: StoreCheck, named: Iterable[str]) -> Iterator[str]:
    """Do what `absent_targets` does, for rows and a check of them."""
    payloads, roots = check.held_payloads(), Known(key for key, _ in check.roots())
    returned: set[bytes] = set()
    for is_root, key in chain(_given(named), _recorded(database), _linked(check)):
        if key in returned or key in (roots if is_root else payloads):
            continue
        if len(returned) >= _REMEMBERED:
            returned.clear()
        returned.add(key)
        yield Cid(key).text if is_root else payload_cid(key)


def _given(named: Iterable[str]) -> Iterator[_Name]:
    for cid in map(Cid, named):
        if cid.kind != "cas":
            yield True, bytes(cid)
        elif cid.hash_code != _IDENTITY:
            yield False, cid.multihash


def _recorded(database: Rows) -> Iterator[_Name]:
    """The roots of all revisions of published records, and of pins."""
    for name in published(database):
        for record in name.revisions.values():
            yield True, record.root
    for row in database.rows(Family.RECORDS, PINS, bytes((PINS[0] + 1,))):
        if row.newest is not None and row.newest.value is not None:
            yield True, pinned_root(bytes(row.newest.value))


def _linked(check: StoreCheck) -> Iterator[_Name]:
    """What the leaves of all trees name."""
    for _, links in check.pages.links():
        for root in links.roots:
            yield True, root
        for multihash in links.payloads:
            yield False, multihash
