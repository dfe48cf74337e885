"""A store with one large map, built once and kept in target/bench-data/ between runs.

Keys are hex digests of their numbers, so they need not be stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from pathlib import Path
from typing import NamedTuple

from coregw._core import Need, Operation, PageCache, payload_cid
from coregw.store import Table
from coregw.store.rocksdb import open_store
from report import REPOSITORY

DATA = REPOSITORY / "target" / "bench-data"


class BigMap(NamedTuple):
    """The path of the store, and the root and size of the one map in it."""

    path: Path
    root: str
    arcs: int
    pages: int
    page_bytes: int


def key(i: int) -> str:
    """Return the key of arc `i`."""
    return hashlib.sha256(b"key %d" % i).hexdigest()[:32]


def big_map(arcs: int) -> BigMap:
    """Return the store with a map of this many arcs. The first call builds it: half a minute and 4 GB for 10^7."""
    path = DATA / f"map-{arcs}"
    note = path.with_suffix(".json")
    if not note.exists():
        print(f"building a map of {arcs:,} arcs in {path}, once")
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        note.write_text(json.dumps(asyncio.run(_build(path, arcs))))
    return BigMap(path, **json.loads(note.read_text()))


async def _build(path: Path, arcs: int) -> dict[str, int | str]:
    parts = (f'"{key(i)}":"{payload_cid(i.to_bytes(8, "big"))}"' for i in range(arcs))
    operation = Operation.create_root(PageCache(0), f'{{"arcs":{{{",".join(parts)}}}}}'.encode())
    pages = page_bytes = 0
    async with await open_store(path) as store:
        while isinstance(need := operation.poll(1 << 20), Need):
            if (asked := need.roots or need.renewal) is not None:
                operation.supply_roots([False] * len(asked))
            elif (trees := need.store) is not None:
                batch, roots, _ = trees
                await store.put({Table.PAGES: batch, Table.ROOTS: [(root, b"") for root in roots]}, durable=bool(roots))
                pages += len(batch)
                page_bytes += sum(len(page) for _, page in batch)
    return {**json.loads(need), "arcs": arcs, "pages": pages, "page_bytes": page_bytes}
