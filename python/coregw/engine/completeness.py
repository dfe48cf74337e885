"""Whether a root is held completely: all pages, nested roots and theirs, and all payloads below it.

The first positive answer takes a walk of the tree, which asks for all payloads, and dates them again if garbage is
collected meanwhile: a collection that begins after the root has been dated keeps everything below it. If the root was
made by changes of one that is marked, the walk leaves out what is below that one, which is dated first. The walk leaves
a mark in the row of the root, so that the next question is one durable write. The mark stays true while the root is
held, because garbage collection keeps everything below a root that it keeps. A root that expires and is stored again
meanwhile has no mark:

```
row of the root:  complete ──► checking + random number ──► whole        each step is a compare-and-set that
                      ▲               │   (walk)              │          requires the root to be held
                      └── stored again, as by POST /v1/roots ─┘
```
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from coregw._core import Cid, Need, Operation, PageCache
from coregw.engine.driver import Driver
from coregw.engine.pages import CHECKING, COMPLETE, INCOMPLETE, WHOLE
from coregw.engine.scheduling import Execution
from coregw.errors import InvalidInput, RootNotFound, StoreDamaged, TooLarge
from coregw.messages import encode
from coregw.messages.roots import Completeness
from coregw.store import Store, Stored, Table

__all__ = ["CHECK_FACTOR", "check_complete", "forget_whole"]

CHECK_FACTOR: Final = 3
"""A check may take this many times the limit of a query: it asks for each payload, once for each root."""

_MAX_TRIES: Final = 3
_ROWS_AT_ONCE: Final = 1000


async def check_complete(
    store: Store, driver: Driver, cache: PageCache, root: str, seconds: float, *, renews: bool
) -> bytes:
    """Return whether a root is held completely, as JSON; if it is, everything below it is as young as if just stored.

    O(1) if the root is marked, otherwise O(pages + payloads); the answer is no after `seconds`. Without `renews`, it
    writes nothing: neither dates nor the mark.

    Raises:
        InvalidInput: `root` is not a root CID.
        Unavailable: The store cannot write.
    """
    cid = Cid(root)
    if cid.kind == "cas":
        raise InvalidInput(f"{cid.text} is a payload, not a root", code="kind_mismatch")
    missing: str | None = cid.text
    for _ in range(_MAX_TRIES):
        try:
            async with asyncio.timeout(seconds):
                missing = await _try(store, driver, cache, cid, renews=renews)
        except RootNotFound:
            missing = cid.text
        except _ConcurrentChangeError:
            continue
        except (StoreDamaged, TooLarge, TimeoutError):
            missing = None
            break
        return encode(Completeness(root=cid.text, complete=missing is None, missing=missing))
    return encode(Completeness(root=cid.text, complete=False, missing=missing))


async def forget_whole(store: Store) -> None:
    """Remove all marks, and those that are about to be made: for a store that may have lost payloads. O(roots)."""
    after = None
    while rows := await store.list_rows(Table.ROOTS, b"", after, _ROWS_AT_ONCE):
        after = rows[-1][0]
        for key, value in rows:
            if value == WHOLE or value.startswith(CHECKING):
                await store.compare_and_set(Table.ROOTS, key, value, COMPLETE)


class _ConcurrentChangeError(Exception):
    """The row of the root changed meanwhile."""


async def _try(store: Store, driver: Driver, cache: PageCache, cid: Cid, *, renews: bool) -> str | None:
    """Return the CID of what is missing, or None."""
    key = bytes(cid)
    [row] = await store.get(Table.ROOTS, [key])
    if row is None or row == INCOMPLETE:
        return cid.text
    if not renews:
        operation = Operation.check_complete(cache, cid)
        return None if row == WHOLE else await _find_missing(store, driver, operation, renews=False)
    if row == WHOLE:
        await _replace(store, key, WHOLE, WHOLE)  # in one step with the check that it is still marked
        return None
    token = CHECKING + secrets.token_bytes(16)
    await _replace(store, key, row, token)
    base = await _whole_base(store, cache, cid)
    try:
        missing = await _find_missing(store, driver, Operation.check_complete(cache, cid, base), renews=True)
    except StoreDamaged:
        if base is None:
            raise
        # What is damaged may be a page that only the base has.
        missing = await _find_missing(store, driver, Operation.check_complete(cache, cid), renews=True)
    if missing is None:
        await _replace(store, key, token, WHOLE)
    return missing


async def _whole_base(store: Store, cache: PageCache, cid: Cid) -> Cid | None:
    """Return a root that this one was made of and that is held completely, and date it; None if none is known."""
    bases = cache.bases(cid)
    rows = await store.get(Table.ROOTS, [bytes(base) for base in bases]) if bases else []
    for base, row in zip(bases, rows, strict=True):
        if row == WHOLE:
            try:
                await _replace(store, bytes(base), WHOLE, WHOLE)
            except (_ConcurrentChangeError, RootNotFound):
                continue
            return base
    return None


async def _replace(store: Store, key: bytes, before: bytes, after: bytes) -> None:
    """Replace the value of a held root's row, and date it again."""
    if not await store.compare_and_set(Table.ROOTS, key, before, after, requires=[key]):
        raise _ConcurrentChangeError


async def _find_missing(store: Store, driver: Driver, operation: Operation, *, renews: bool) -> str | None:
    async def first_missing(cids: Sequence[Cid]) -> str | None:
        names = [cid.multihash for cid in cids]
        # What a read has found may be removed a moment later, so an answer on which a client may rely dates it.
        sizes = await (store.renew(Stored.PAYLOADS, names, True) if renews else store.stat_payloads(names))
        return cids[sizes.index(None)].text if None in sizes else None

    execution = Execution(operation)
    execution.renews = renews
    missing: str | None = None
    polled = await driver.advance(execution)
    while missing is None and isinstance(polled, Need):
        _, cids = polled.output or (b"", ())
        polled, missing = await asyncio.gather(driver.advance(execution), first_missing(cids))
    return missing or (None if isinstance(polled, Need) else polled.decode() or None)
