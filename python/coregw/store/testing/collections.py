"""Contract of a store whose garbage can be collected: dates, expiry of roots, and removal."""

from __future__ import annotations

import asyncio

import pytest

from coregw.errors import InvalidInput, PayloadNotFound, RootNotFound, Unavailable
from coregw.store import CHUNK_BYTES, Store, Stored, Table
from coregw.store.collection import CollectableStore
from coregw.store.testing.support import AsyncContract, multihash_of, random_bytes, read, upload

__all__ = ["CollectionContract", "RenewalContract"]

A, B, C = (bytes([i]) * 32 for i in range(3))
PAGES, ROOTS, RECORDS = Table.PAGES, Table.ROOTS, Table.RECORDS


async def older() -> None:
    """Let the store's clock advance, so that what follows is younger than what came before."""
    await asyncio.sleep(0.003)


class RenewalContract(AsyncContract):
    """Tests of `renew`, and of what writes require. Needs the fixture `store`."""

    async def test_renewing_tells_what_is_held(self, store: Store) -> None:
        await store.put({ROOTS: [(A, b""), (B, b"value")]})
        data = random_bytes(CHUNK_BYTES + 1)
        await upload(store, data)
        await store.put_payloads([(C, b"")])
        assert await store.renew(Stored.ROOTS, [B, C, A, B]) == [0, None, 0, 0]
        assert await store.renew(Stored.PAYLOADS, [A, multihash_of(data), C]) == [None, len(data), 0]
        assert await store.get(ROOTS, [A, B]) == [b"", b"value"]
        for kind in (Stored.ROOTS, Stored.PAYLOADS):
            assert await store.renew(kind, []) == []

    async def test_pages_are_not_renewed(self, store: Store) -> None:
        with pytest.raises(InvalidInput, match="pages"):
            await store.renew(Stored.PAGES, [A])

    async def test_a_put_that_requires_a_root_writes_all_or_nothing(self, store: Store) -> None:
        with pytest.raises(RootNotFound):
            await store.put({PAGES: [(B, b"page")], ROOTS: [(B, b"")], RECORDS: [(B, b"")]}, True, [A])
        for table in Table:
            assert await store.get(table, [B]) == [None]
        await store.put({ROOTS: [(A, b"")]})
        await store.put({PAGES: [(B, b"page")], ROOTS: [(B, b"")]}, True, [A, A])
        assert await store.get(ROOTS, [B]) == [b""]
        with pytest.raises(RootNotFound):
            await store.put({ROOTS: [(C, b"")]}, True, [A, C])

    async def test_a_compare_and_set_that_requires_a_root_writes_all_or_nothing(self, store: Store) -> None:
        with pytest.raises(RootNotFound):
            await store.compare_and_set(RECORDS, A, None, b"value", [(B, b"further")], [C])
        assert await store.get(RECORDS, [A, B]) == [None, None]
        await store.put({ROOTS: [(C, b"")]})
        assert await store.compare_and_set(RECORDS, A, None, b"value", [(B, b"further")], [C])
        assert not await store.compare_and_set(RECORDS, A, None, b"value", [], [A])  # compared first

    async def test_a_put_returns_a_time_that_does_not_decrease(self, store: Store) -> None:
        times = [await store.put({}, durable=False) for _ in range(3)]
        assert times == sorted(times)
        await store.put({ROOTS: [(A, b"")]}, True, [], times[0])
        assert store.expiries == 0


class CollectionContract(AsyncContract):
    """Tests of `collect` and `usage`. Needs the fixture `store`: a `CollectableStore`, empty."""

    async def test_items_are_listed_in_byte_order(self, store: CollectableStore) -> None:
        await store.put({PAGES: [(B, b"page b"), (A, b"page a")], ROOTS: [(C, b""), (A, b"")]})
        await store.put_payloads([(C, b"payload")])
        async with store.collect(60) as collection:
            assert [item.key for item in await collection.list_items(Stored.PAGES, None, 9)] == [A, B]
            assert [item.key for item in await collection.list_items(Stored.ROOTS, None, 1)] == [A]
            assert [item.key for item in await collection.list_items(Stored.ROOTS, A, 9)] == [C]
            (payload,) = await collection.list_items(Stored.PAYLOADS, None, 9)
            assert payload[:2] == (C, 7)
            assert payload.dated >= collection.before
            assert await collection.list_items(Stored.PAYLOADS, C, 9) == []

    async def test_young_roots_do_not_expire(self, store: CollectableStore) -> None:
        await store.put({ROOTS: [(A, b"")]})
        async with store.collect(60) as collection:
            assert await collection.expire() == []
            assert await collection.remove(Stored.ROOTS, [A]) == [False]
        assert await store.get(ROOTS, [A]) == [b""]

    async def test_old_roots_expire_at_once_and_kept_ones_do_not(self, store: CollectableStore) -> None:
        await store.put({ROOTS: [(A, b""), (B, b"")]})
        await older()
        async with store.collect(0) as collection:
            assert await collection.keep([A, C]) == [True, False]
            assert await collection.remove(Stored.ROOTS, [B]) == [False]
            assert await collection.expire() == []
            assert store.expiries == 1
            assert await store.get(ROOTS, [A, B]) == [b"", None]
            assert await store.renew(Stored.ROOTS, [A, B]) == [0, None]
            assert [key for key, _ in await store.list_rows(ROOTS, b"\1", None, 9)] == []
            with pytest.raises(RootNotFound):
                await store.put({ROOTS: [(C, b"")]}, True, [B])
            assert await collection.remove(Stored.ROOTS, [A, B]) == [False, True]
        assert await store.get(ROOTS, [A, B]) == [b"", None]

    async def test_old_roots_on_which_a_write_relied_are_reported_before_anything_expires(
        self, store: CollectableStore
    ) -> None:
        await store.put({ROOTS: [(A, b""), (B, b""), (C, b"")]})
        await older()
        async with store.collect(0) as collection:
            await store.put({RECORDS: [(A, b"")]}, True, [A])
            await store.renew(Stored.ROOTS, [B])
            assert await collection.expire() == [A, B]
            assert store.expiries == 0
            await collection.keep([A, B])
            assert await collection.expire() == []
        assert await store.get(ROOTS, [A, B, C]) == [b"", b"", None]

    async def test_an_expired_root_can_be_stored_again(self, store: CollectableStore) -> None:
        await store.put({ROOTS: [(A, b"")]})
        await older()
        async with store.collect(0) as collection:
            await collection.expire()
            await store.put({ROOTS: [(A, b"")]})
            assert await collection.remove(Stored.ROOTS, [A]) == [False]
        assert await store.get(ROOTS, [A]) == [b""]

    async def test_pages_that_were_put_lately_are_not_removed(self, store: CollectableStore) -> None:
        await store.put({PAGES: [(A, b"old"), (B, b"old")]})
        await older()
        async with store.collect(0) as collection:
            await store.put({PAGES: [(B, b"old")]}, durable=False)
            assert await collection.remove(Stored.PAGES, [A, B]) == [True, False]
        assert await store.get(PAGES, [A, B]) == [None, b"old"]

    async def test_roots_whose_pages_may_be_gone_are_refused(self, store: CollectableStore) -> None:
        since = await store.put({PAGES: [(A, b"page")]}, durable=False)
        await older()
        async with store.collect(0) as collection:
            await store.put({ROOTS: [(A, b"")]}, True, [], since)
            assert await collection.expire() == [A]
            assert await collection.expire() == []
            with pytest.raises(Unavailable, match="garbage"):
                await store.put({ROOTS: [(B, b"")]}, True, [], since)

    @pytest.mark.parametrize("size", [0, 10, 2 * CHUNK_BYTES + 1])
    async def test_old_payloads_are_removed_and_can_be_stored_again(self, store: CollectableStore, size: int) -> None:
        data = random_bytes(size)
        await upload(store, data)
        await store.put_payloads([(A, b"renewed")])
        await older()
        async with store.collect(0) as collection:
            assert await store.renew(Stored.PAYLOADS, [A]) == [7]
            assert await collection.remove(Stored.PAYLOADS, [multihash_of(data), A, B]) == [True, False, False]
            await collection.compact(list(Stored), lambda _: None)
        assert await store.stat_payloads([multihash_of(data), A]) == [None, 7]
        with pytest.raises(PayloadNotFound):
            await read(store, multihash_of(data))
        assert await upload(store, data)
        assert await read(store, multihash_of(data)) == data

    async def test_of_two_collections_at_once_the_second_is_refused(self, store: CollectableStore) -> None:
        async with store.collect(60):
            with pytest.raises(Unavailable, match="already"):
                async with store.collect(60):
                    pass
        async with store.collect(60):
            pass

    async def test_usage_counts_what_is_stored(self, store: CollectableStore) -> None:
        before = (await store.usage()).data
        await store.put_payloads([(A, random_bytes(CHUNK_BYTES))])
        assert (await store.usage()).data >= before + CHUNK_BYTES // 2
