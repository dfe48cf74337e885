"""Checks and repairs of a store that is in use, by the calls of the store."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from coregw import payload_cid
from coregw._core import Cid
from coregw.engine import Engine
from coregw.engine.roots import INCOMPLETE
from coregw.store import Table
from coregw.store.rocksdb import open_store
from coregw.upkeep.integrity.online import check_online, repair_online
from upkeep.damage_support import fill
from upkeep.damaged_rows import damage_rows

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_sound_store_is_sound_while_it_is_written_to(tmp_path: Path) -> None:
    truth = await fill(tmp_path, 5, is_killed=False)
    async with await open_store(tmp_path, reserve_bytes=0) as store:
        engine = Engine(store)
        is_ended = False

        async def write() -> None:
            for number in range(10_000):
                if is_ended:
                    return
                leaf = payload_cid(b"%d" % number)
                await engine.create_root(json.dumps({"arcs": {f"k{number}/{i}": leaf for i in range(300)}}).encode())

        writing = asyncio.create_task(write())
        found = await check_online(store, lambda _: None)
        is_ended = True
        await writing
    assert found.is_sound, list(found.lines())
    assert found.payloads == len(truth.payloads)
    assert found.roots >= len(truth.roots)
    counts = [len(roots) for roots in truth.names.values()]
    nodes = sum(2 * count - count.bit_count() for count in counts)  # of the complete subtrees of each name's log
    assert found.records == len(counts) + sum(counts) + nodes


async def test_damaged_rows_are_named_with_what_is_above_them_and_a_repair_notes_what_is_lost(tmp_path: Path) -> None:
    truth = await fill(tmp_path, 6, is_killed=False)
    async with await open_store(tmp_path, reserve_bytes=0) as store:
        damage = await damage_rows(store, truth, random.Random(6))
        found = await check_online(store, lambda _: None)
        assert not found.is_sound
        assert {each.cid for each in found.damaged_payloads} == {damage.payload, damage.long_payload}
        # Neither is there as what its root names.
        assert {each.cid for each in found.missing_pages} == {damage.damaged_root, damage.missing_root}
        affected = {each.root: each.is_complete for each in found.affected_roots}
        assert affected[damage.damaged_root] is affected[damage.missing_root] is False
        assert {each.root for each in found.affected_records} & {damage.damaged_root, damage.missing_root}

        result = await repair_online(store, lambda _: None)
        assert result.found.is_sound is result.repaired.is_sound is False
        assert result.repaired.damaged_payloads == []
        assert await store.get(Table.PAGES, [Cid(damage.damaged_root).digest]) == [None]
        assert set(result.repaired.lost) == {damage.payload, damage.long_payload}
        assert set(result.repaired.incomplete_roots) == {damage.damaged_root, damage.missing_root}
        rows = await store.get(Table.ROOTS, [bytes(Cid(damage.damaged_root)), bytes(Cid(damage.missing_root))])
        assert rows == [INCOMPLETE, INCOMPLETE]
        assert await store.stat_payloads([Cid(damage.payload).multihash]) == [None]


async def test_cancelling_a_check_ends_its_thread(tmp_path: Path) -> None:
    await fill(tmp_path, 7, is_killed=False)
    async with await open_store(tmp_path, reserve_bytes=0) as store:
        began = asyncio.Event()
        loop = asyncio.get_running_loop()
        check = asyncio.create_task(check_online(store, lambda _: loop.call_soon_threadsafe(began.set) and None))
        await began.wait()
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check
