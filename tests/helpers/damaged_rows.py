"""Damage to the rows of a store, by its own calls: what a disk or an administrator may do to a database."""

from __future__ import annotations

import random
from typing import NamedTuple

from coregw._core import Cid
from coregw.store import CHUNK_BYTES, Stored, Table
from coregw.store.collection import CollectableStore, collect_in_turn
from damage_support import Truth


class Damage(NamedTuple):
    """What was damaged, by CID."""

    payload: str
    long_payload: str
    damaged_root: str
    """The root of a tree whose top page was replaced."""
    missing_root: str
    """The root of a tree whose top page was removed."""


async def damage_rows(store: CollectableStore, truth: Truth, rng: random.Random) -> Damage:
    """Replace two payloads and a page by others, and remove a page. Published roots name all of them."""
    long_payload = next(cid for cid, data in truth.payloads.items() if len(data) > CHUNK_BYTES)
    targets = {target for arcs in truth.roots.values() for target in arcs.values()}
    payload = rng.choice(sorted(cid for cid, data in truth.payloads.items() if 0 < len(data) < 5000 and cid in targets))
    damaged_root, missing_root = sorted(root for root, arcs in truth.roots.items() if len(arcs) > 500)
    names = [Cid(payload).multihash, Cid(long_payload).multihash]
    async with collect_in_turn(store, 0.0, 60) as collection:  # a check may be listing payloads
        assert await collection.remove(Stored.PAYLOADS, names) == [True, True]
    await store.put_payloads([(names[0], b"something else")])
    async with store.begin_payload() as writer:
        await writer.write(truth.payloads[long_payload][:-1] + b"?")
        await writer.commit(names[1])
    await store.delete(Table.PAGES, [Cid(damaged_root).digest, Cid(missing_root).digest])
    await store.put({Table.PAGES: [(Cid(damaged_root).digest, b"no page")]})
    return Damage(payload, long_payload, damaged_root, missing_root)
