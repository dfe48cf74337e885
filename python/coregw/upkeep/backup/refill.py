"""Restoring a generation to a store that is not made of files, row by row.

The names come last, so what a killed restore leaves are roots with all of their pages, and payloads. The next one goes
on: a destination that holds nothing but a part of the generation is taken for such a remainder.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from coregw._core import Cid
from coregw.errors import InvalidInput, StoreDamaged
from coregw.messages.progress import ProgressCallback
from coregw.store import Store, Stored, Table
from coregw.store.collection import CollectableStore, collect_in_turn
from coregw.store.rocksdb import RocksStore, open_store
from coregw.upkeep.backup.check import check_store
from coregw.upkeep.backup.files import using
from coregw.upkeep.backup.manifest import Generation
from coregw.upkeep.backup.repository import Repository
from coregw.upkeep.backup.restore import Restored
from coregw.upkeep.backup.track import Track, in_thread
from coregw.upkeep.backup.verify import compare, linked
from coregw.upkeep.copy import copy_store
from coregw.upkeep.integrity.findings import payload_cid
from coregw.upkeep.listings import all_items, all_records

__all__ = ["refill"]

_WAIT_SECONDS: Final = 600.0


async def refill(
    source: Path, destination: CollectableStore, number: int | None, report: ProgressCallback, *, quick: bool = False
) -> Restored:
    """Restore a generation to an empty store, such as one in PostgreSQL. May be interrupted and run again.

    Needs space in the temporary directory for the log of the generation, at most some 64 MiB, and 40 bytes a page.

    Args:
        source: The directory of the repository, which is only read.
        destination: The store. No gateway should use it before this has returned.
        number: The generation; None means the newest.
        report: Called with the progress, from any thread.
        quick: Do not check the generation before; also for one of a damaged store, of which what is sound is restored.

    Raises:
        InvalidInput: The source is not a repository, or the destination holds something that is not in the generation.
        NotFound: The repository has no such generation.
        StoreDamaged: The generation, or the store in it, is damaged. Without `quick`, nothing was restored.
        StorageFull, Unavailable: The destination has no room or does not answer, or a directory cannot be used.
    """
    began = time.monotonic()
    repository = Repository.open(source)
    with repository.locked(shared=True):
        generation = repository.newest() if number is None else repository.generation(number)
        await in_thread(partial(compare, repository, generation.files), report)
        async with _opened(repository, generation, report, quick=quick) as held:
            await _require_part(destination, held, generation)
            copied = await copy_store(held, destination, report=report)
    if copied.damaged_count:
        raise StoreDamaged(
            f"{copied.damaged_count:,} objects of generation {generation.number} are damaged and were not restored, "
            f"all others were: {copied.damaged[0]}"
        )
    return Restored(
        generation=generation.number,
        created=generation.created,
        files=len(generation.files),
        size_bytes=generation.size,
        roots=copied.roots,
        pages=copied.pages_copied,
        payloads=copied.payloads,
        seconds=round(time.monotonic() - began, 3),
    )


@asynccontextmanager
async def _opened(
    repository: Repository, generation: Generation, report: ProgressCallback, *, quick: bool
) -> AsyncIterator[RocksStore]:
    """Open a generation where it is: table files are linked, and RocksDB never changes them."""
    with tempfile.TemporaryDirectory(prefix="coregw-restore-") as scratch:

        def prepare(track: Track) -> Path:
            with using(Path(scratch)):
                data = linked(repository, generation, Path(scratch))
            if not quick:
                check_store(data, track)
            return data

        data = await in_thread(prepare, report)
        async with await open_store(data, reserve_bytes=0) as store:
            yield store


async def _require_part(destination: CollectableStore, held: Store, generation: Generation) -> None:
    """Require that a store holds nothing but a part of a generation. Raises `InvalidInput`."""

    def refuse(what: str) -> InvalidInput:
        return InvalidInput(
            f"the destination is not empty: it holds {what}, which is not in generation {generation.number}"
        )

    async for rows in all_records(destination):
        found = await held.get(Table.RECORDS, [key for key, _ in rows])
        for (key, value), other in zip(rows, found, strict=True):
            if value != other:
                raise refuse(f"a record under the key {key!r}")
    async with collect_in_turn(destination, 0.0, _WAIT_SECONDS) as listing:
        async for items in all_items(listing, Stored.ROOTS):
            keys = [item.key for item in items]
            for key, row in zip(keys, await held.get(Table.ROOTS, keys), strict=True):
                if row is None:
                    raise refuse(f"the root {Cid(key).text}")
        async for items in all_items(listing, Stored.PAYLOADS):
            keys = [item.key for item in items]
            for key, size in zip(keys, await held.stat_payloads(keys), strict=True):
                if size is None:
                    raise refuse(f"the payload {payload_cid(key)}")
