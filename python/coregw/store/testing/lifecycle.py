"""Contract of a store as a whole: health, closing, and lack of room."""

from __future__ import annotations

import pytest

from coregw.errors import PayloadNotFound, StorageFull, Unavailable
from coregw.store import CHUNK_BYTES, Store, Table
from coregw.store.testing.support import AsyncContract, multihash_of, random_bytes, read, upload

__all__ = ["FullStoreContract", "LifecycleContract"]

KEY = b"key"


class LifecycleContract(AsyncContract):
    """Tests of `healthy`, `obstacles` and `close`. Needs the fixture `store`."""

    async def test_an_open_store_is_healthy(self, store: Store) -> None:
        assert await store.healthy()
        assert await store.obstacles() == []

    async def test_every_method_of_a_closed_store_is_unavailable(self, store: Store) -> None:
        writer = store.begin_payload()
        await store.close()
        await store.close()
        for call in (
            store.get(Table.PAGES, [KEY]),
            store.get(Table.RECORDS, [KEY]),
            store.put({Table.PAGES: [(KEY, b"page")]}, durable=False),
            store.put({Table.ROOTS: [(KEY, b"")]}),
            store.compare_and_set(Table.RECORDS, KEY, None, b"value"),
            store.list_rows(Table.RECORDS, KEY, None, 1),
            store.delete(Table.RECORDS, [KEY]),
            store.put_payloads([(KEY, b"data")]),
            store.stat_payloads([KEY]),
            store.get_payloads([KEY]),
            anext(store.read_payload(KEY)),
            writer.commit(KEY),
        ):
            with pytest.raises(Unavailable, match="closed"):
                await call
        with pytest.raises(Unavailable, match="closed"):
            store.begin_payload()
        assert not await store.healthy()
        assert len(await store.obstacles()) == 1


class FullStoreContract(AsyncContract):
    """Tests of a store without room. Needs the fixture `full_store`: empty, and every write raises `StorageFull`."""

    async def test_rows_are_refused_and_reads_continue(self, full_store: Store) -> None:
        with pytest.raises(StorageFull) as caught:
            await full_store.put({Table.PAGES: [(KEY, b"page")]}, durable=False)
        assert caught.value.code == "storage_full"
        with pytest.raises(StorageFull):
            await full_store.put({Table.PAGES: [(KEY, b"page")], Table.ROOTS: [(KEY, b"")]})
        with pytest.raises(StorageFull):
            await full_store.compare_and_set(Table.RECORDS, KEY, None, b"value")
        for table in Table:
            assert await full_store.get(table, [KEY]) == [None]
        assert await full_store.list_rows(Table.RECORDS, KEY, None, 1) == []

    async def test_deletions_succeed(self, full_store: Store) -> None:
        await full_store.delete(Table.RECORDS, [KEY])

    async def test_a_full_store_is_healthy_and_says_that_it_is_full(self, full_store: Store) -> None:
        assert await full_store.healthy()
        assert len(await full_store.obstacles()) == 1

    async def test_put_payload_is_refused(self, full_store: Store) -> None:
        with pytest.raises(StorageFull):
            await full_store.put_payloads([(multihash_of(b"data"), b"data")])
        assert await full_store.stat_payloads([multihash_of(b"data")]) == [None]

    @pytest.mark.parametrize("size", [10, 3 * CHUNK_BYTES])
    async def test_an_upload_is_refused_and_leaves_nothing(self, full_store: Store, size: int) -> None:
        data = random_bytes(size)
        with pytest.raises(StorageFull):
            await upload(full_store, data)
        assert await full_store.stat_payloads([multihash_of(data)]) == [None]
        with pytest.raises(PayloadNotFound):
            await read(full_store, multihash_of(data))
