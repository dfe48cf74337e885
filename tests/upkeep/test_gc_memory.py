"""The memory of a garbage collection, which does not depend on the size of the store."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

import coregw
from coregw._core import Cid
from coregw.store.rocksdb import committer
from coregw.upkeep import marks
from upkeep_site import Time, site_on

pytestmark = pytest.mark.anyio

SMALL, LARGE = 4_000, 24_000
"""Numbers of payloads, half of which are garbage. A set of all kept ones would take six times the memory."""


async def _peak(path: Path, count: int) -> int:
    """The peak memory that Python's allocator had given out for a collection, in bytes."""
    async with site_on(path, Time()) as site:
        for start in range(0, count, 1000):
            rows = [b"%d" % number for number in range(start, start + 1000)]
            await site.store.put_payloads([(Cid(coregw.payload_cid(row)).multihash, row) for row in rows])
        kept = await site.create({str(number): coregw.payload_cid(b"%d" % number) for number in range(0, count, 2)})
        await site.publish(kept)
        site.time.seconds += 100
        tracemalloc.start()
        try:
            result = await site.collect()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert result.payloads == count
    assert 0 <= count // 2 - result.payloads_removed <= count // 1000  # false positives of the filter
    return peak


async def test_a_store_of_six_times_the_size_does_not_take_six_times_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "_PAGES_AT_ONCE", 4)  # pages, of about a hundred payloads each
    monkeypatch.setattr(committer, "_MAX_UNSYNCED_BYTES", 64 << 10)  # the rows removed since are remembered
    await _peak(tmp_path / "first", 1000)  # imports
    small, large = await _peak(tmp_path / "small", SMALL), await _peak(tmp_path / "large", LARGE)
    assert large <= 2 * small, f"{small:,} bytes for {SMALL:,} payloads, {large:,} for {LARGE:,}"
