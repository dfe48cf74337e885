"""Merged reads of pages: two in flight, each page once, and nobody gets another's error or an outdated answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from coregw.engine.pages import MAX_IN_FLIGHT, MAX_MERGED_PAGES, PageReads
from coregw.errors import StoreDamaged, Unavailable
from coregw.store import Table
from coregw.store.memory import MemoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class HeldStore(MemoryStore):
    """A store whose reads wait for `release`, and fail if they include a damaged page."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[list[bytes]] = []
        self.in_flight = self.most = 0
        self.damaged: set[bytes] = set()
        self.is_away = False
        self._may_end = asyncio.Event()

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads.append(list(keys))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        found = await super().get(table, keys)  # as of now
        try:
            await self._may_end.wait()
            await begun()  # it takes some time nevertheless
        finally:
            self.in_flight -= 1
        if self.is_away:
            raise Unavailable("the store is away")
        if not self.damaged.isdisjoint(keys):
            raise StoreDamaged("a damaged page")
        return found

    def release(self) -> None:
        self._may_end.set()


async def begun() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def digest(number: int) -> bytes:
    return b"%032d" % number


async def filled(count: int = 40) -> HeldStore:
    store = HeldStore()
    await store.put({Table.PAGES: [(digest(i), b"page %d" % i) for i in range(count)]}, durable=False)
    return store


async def test_requests_share_few_reads_and_each_page_is_read_once() -> None:
    store = await filled()
    reads = PageReads(store)
    wanted = [[digest(i), digest((i + 1) % 40)] for i in range(40) for _ in range(2)]
    requests = [asyncio.create_task(reads.get(each)) for each in wanted]
    await begun()
    assert store.in_flight == MAX_IN_FLIGHT
    store.release()
    pages = await asyncio.gather(*requests)
    assert pages == [[b"page %d" % int(each) for each in digests] for digests in wanted]
    assert sorted(page for read in store.reads for page in read) == sorted(digest(i) for i in range(40))
    assert (len(store.reads), store.most) == (MAX_IN_FLIGHT, MAX_IN_FLIGHT)
    assert (reads.reads, reads.pages_read) == (2, 40)


async def test_clients_that_ask_again_and_again_keep_two_equal_reads_in_flight() -> None:
    store = await filled(40 * 64)
    store.release()
    reads = PageReads(store)

    async def client(first: int) -> None:
        for i in range(40):
            await reads.get([digest(first + 64 * i)])

    await asyncio.gather(*map(client, range(64)))
    assert reads.pages_read == 40 * 64
    assert store.most == MAX_IN_FLIGHT
    assert {len(read) for read in store.reads} == {32}


async def test_a_request_that_comes_during_a_read_is_read_at_once_unless_two_are_in_flight() -> None:
    store = await filled()
    reads = PageReads(store)
    requests = []
    for i in range(4):
        requests.append(asyncio.create_task(reads.get([digest(i)])))
        await begun()
        assert len(store.reads) == min(i + 1, MAX_IN_FLIGHT)
    store.release()
    assert await asyncio.gather(*requests) == [[b"page %d" % i] for i in range(4)]
    assert [len(read) for read in store.reads] == [1, 1, 2]


async def test_an_absent_page_is_none_and_one_stored_during_a_read_is_found_by_later_requests() -> None:
    store = await filled(2)
    reads = PageReads(store)
    early = asyncio.create_task(reads.get([digest(0), digest(7)]))
    await begun()
    await store.put({Table.PAGES: [(digest(7), b"page 7")]}, durable=False)
    late = asyncio.create_task(reads.get([digest(7), digest(8)]))
    await begun()
    store.release()
    assert await early == [b"page 0", None]
    assert await late == [b"page 7", None]


async def test_a_damaged_page_fails_the_requests_for_it_and_no_others() -> None:
    store = await filled()
    store.damaged = {digest(30)}
    reads = PageReads(store)
    requests = [asyncio.create_task(reads.get([digest(i)])) for i in (1, 2, 30, 31, 30)]
    await begun()
    store.release()
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert [type(result) for result in results] == [list, list, StoreDamaged, list, StoreDamaged]
    assert results[3] == [b"page 31"]


async def test_an_outage_fails_all_requests_without_asking_again() -> None:
    store = await filled()
    store.is_away = True
    reads = PageReads(store)
    requests = [asyncio.create_task(reads.get([digest(i)])) for i in (1, 2, 1)]
    await begun()
    store.release()
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert [str(result) for result in results] == ["the store is away"] * 3
    assert len(store.reads) == 1
    store.is_away = False
    assert await reads.get([digest(1)]) == [b"page 1"]


async def test_a_cancelled_request_does_not_end_what_others_wait_for() -> None:
    store = await filled()
    reads = PageReads(store)
    requests = [asyncio.create_task(reads.get([digest(i)])) for i in (1, 2, 1, 3, 3)]
    await begun()
    requests[0].cancel()  # it began the read that the third request shares
    requests[3].cancel()
    await begun()
    store.release()
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError, list, list, asyncio.CancelledError, list]
    assert (results[2], results[4]) == ([b"page 1"], [b"page 3"])
    await reads.close()
    assert store.in_flight == 0
    assert await reads.get([digest(5)]) == [b"page 5"]


async def test_a_read_for_which_nobody_waits_any_more_is_given_up() -> None:
    store = await filled()
    reads = PageReads(store)
    requests = [asyncio.create_task(reads.get([digest(i)])) for i in range(20)]  # two portions
    await begun()
    others = [asyncio.create_task(reads.get([digest(i)])) for i in range(20, 30)]
    await begun()
    assert store.in_flight == MAX_IN_FLIGHT
    for request in requests[:19]:
        request.cancel()
    await begun()
    assert [len(read) for read in store.reads] == [16, 4, 10]  # nobody waits for the first
    requests[19].cancel()
    await begun()
    assert store.in_flight == 1
    store.release()
    assert [page for [page] in await asyncio.gather(*others)] == [b"page %d" % i for i in range(20, 30)]
    await reads.close()


async def test_a_large_request_neither_waits_nor_delays() -> None:
    store = await filled(MAX_MERGED_PAGES + 1)
    reads = PageReads(store)
    requests = [asyncio.create_task(reads.get([digest(i) for i in range(MAX_MERGED_PAGES + 1)])) for _ in range(3)]
    small = asyncio.create_task(reads.get([digest(0)]))
    await begun()
    assert store.in_flight == 4
    store.release()
    assert [len(pages) for pages in await asyncio.gather(*requests)] == [MAX_MERGED_PAGES + 1] * 3
    assert await small == [b"page 0"]
