"""The contract of `coregw.store.Store`, which each store keeps.

A test class derives from a contract, and has its fixture: `store` is empty and has room, `full_store` has none. What
the contract cannot test is durability: other tests kill stores, and cut their power.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from coregw.errors import InvalidInput, PayloadNotFound, RootNotFound, StorageFull, Unavailable
from coregw.store import CHUNK_BYTES, Store, Stored, Table
from coregw.store.collection import CollectableStore
from store_payloads import multihash_of, random_bytes, read, upload

A, B, C = (bytes([i]) * 32 for i in range(3))
PAGES, ROOTS, RECORDS = Table.PAGES, Table.ROOTS, Table.RECORDS
KEY = b"key"
_SIZES = [0, 1, 1000, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 7]


async def older() -> None:
    """Let the store's clock advance, so that what follows is younger than what came before."""
    await asyncio.sleep(0.003)


@pytest.mark.anyio
class RowContract:
    """Tests of `get`, `put`, `compare_and_set`, `list_rows` and `delete`. Needs the fixture `store`."""

    # --- get and put --------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("table", Table)
    async def test_rows_are_read_in_the_order_of_the_keys_and_absent_ones_are_none(
        self, store: Store, table: Table
    ) -> None:
        await store.put({table: [(A, b"value a"), (B, b"value b")]})
        assert await store.get(table, [B, C, A, B]) == [b"value b", None, b"value a", b"value b"]

    async def test_a_thousand_rows_are_read_in_the_order_of_the_keys(self, store: Store) -> None:
        keys = [i.to_bytes(32, "big") for i in range(1000)]
        await store.put({PAGES: [(key, b"page " + key) for key in keys[::3]]}, durable=False)
        expected = [b"page " + key if int.from_bytes(key, "big") % 3 == 0 else None for key in reversed(keys)]
        assert await store.get(PAGES, keys[::-1]) == expected

    async def test_empty_batches_are_accepted(self, store: Store) -> None:
        await store.put({})
        await store.put({PAGES: []}, durable=False)
        await store.delete(RECORDS, [])
        for table in Table:
            assert await store.get(table, []) == []

    async def test_a_row_may_be_put_again(self, store: Store) -> None:
        await store.put({PAGES: [(A, b"page a"), (A, b"page a")]}, durable=False)
        await store.put({PAGES: [(A, b"page a")]})
        assert await store.get(PAGES, [A]) == [b"page a"]

    async def test_put_replaces_a_value(self, store: Store) -> None:
        await store.put({RECORDS: [(A, b"old"), (B, b"other")]})
        await store.put({RECORDS: [(A, b"new")]})
        assert await store.get(RECORDS, [A, B]) == [b"new", b"other"]

    async def test_an_empty_value_is_a_row(self, store: Store) -> None:
        await store.put({ROOTS: [(A, b"")]})
        assert await store.get(ROOTS, [A, B]) == [b"", None]

    async def test_pages_are_readable_before_a_durable_put(self, store: Store) -> None:
        await store.put({PAGES: [(A, b"page a")]}, durable=False)
        assert await store.get(PAGES, [A]) == [b"page a"]

    async def test_one_put_writes_to_several_tables(self, store: Store) -> None:
        await store.put({PAGES: [(A, b"page")], ROOTS: [(B, b"")], RECORDS: [(C, b"record")]})
        assert await store.get(PAGES, [A]) == [b"page"]
        assert await store.get(ROOTS, [B]) == [b""]
        assert await store.get(RECORDS, [C]) == [b"record"]

    async def test_tables_are_separate_namespaces(self, store: Store) -> None:
        for table in Table:
            await store.put({table: [(A, table.encode())]})
        for table in Table:
            assert await store.get(table, [A]) == [table.encode()]
        assert await store.stat_payloads([A]) == [None]

    async def test_keys_and_values_may_hold_any_bytes(self, store: Store) -> None:
        rows = [(b"n" + bytes([i, 0, 255 - i]), bytes([i]) * 3) for i in range(256)]
        await store.put({RECORDS: rows})
        assert await store.get(RECORDS, [key for key, _ in rows]) == [value for _, value in rows]

    async def test_many_tasks_write_and_read_concurrently(self, store: Store) -> None:
        async def one(i: int) -> None:
            digest, root = i.to_bytes(32, "big"), b"root" + i.to_bytes(4, "big")
            await store.put({PAGES: [(digest, bytes([i % 256]) * 100)]}, durable=False)
            await store.put({ROOTS: [(root, b"")]})
            assert await store.get(PAGES, [digest]) == [bytes([i % 256]) * 100]
            assert await store.get(ROOTS, [root]) == [b""]

        await asyncio.gather(*(one(i) for i in range(200)))

    # --- compare and set ----------------------------------------------------------------------------------------------

    async def test_put_if_absent_writes_an_absent_row_only(self, store: Store) -> None:
        assert await store.compare_and_set(RECORDS, A, None, b"first")
        assert not await store.compare_and_set(RECORDS, A, None, b"second")
        assert not await store.compare_and_set(RECORDS, A, None, b"first")
        assert await store.get(RECORDS, [A]) == [b"first"]

    async def test_compare_and_set_replaces_the_expected_value_only(self, store: Store) -> None:
        assert not await store.compare_and_set(RECORDS, A, b"one", b"two")
        await store.put({RECORDS: [(A, b"one")]})
        assert not await store.compare_and_set(RECORDS, A, b"on", b"two")
        assert not await store.compare_and_set(RECORDS, A, b"", b"two")
        assert await store.compare_and_set(RECORDS, A, b"one", b"two")
        assert await store.get(RECORDS, [A]) == [b"two"]

    async def test_an_empty_value_is_not_an_absent_row(self, store: Store) -> None:
        await store.put({RECORDS: [(A, b"")]})
        assert not await store.compare_and_set(RECORDS, A, None, b"new")
        assert await store.compare_and_set(RECORDS, A, b"", b"new")

    async def test_further_rows_are_written_with_the_compared_row_or_not_at_all(self, store: Store) -> None:
        assert await store.compare_and_set(RECORDS, A, None, b"one", [(B, b"1"), (C, b"2")])
        assert not await store.compare_and_set(RECORDS, A, None, b"two", [(B, b"3")])
        assert await store.get(RECORDS, [A, B, C]) == [b"one", b"1", b"2"]

    async def test_of_concurrent_puts_if_absent_exactly_one_wins(self, store: Store) -> None:
        for key in (A, B, C):
            values = [b"value %d" % i for i in range(20)]
            won = await asyncio.gather(*(store.compare_and_set(RECORDS, key, None, value) for value in values))
            assert won.count(True) == 1
            assert await store.get(RECORDS, [key]) == [values[won.index(True)]]

    async def test_concurrent_increments_by_compare_and_set_lose_nothing(self, store: Store) -> None:
        await store.put({RECORDS: [(A, b"0")]})

        async def increment() -> int:
            for attempts in itertools.count(1):
                (value,) = await store.get(RECORDS, [A])
                assert value is not None
                new = b"%d" % (int(value) + 1)
                if await store.compare_and_set(RECORDS, A, value, new, [(b"step " + new, b"")]):
                    return attempts
            raise AssertionError

        await asyncio.gather(*(increment() for _ in range(20)))
        assert await store.get(RECORDS, [A]) == [b"20"]
        assert None not in await store.get(RECORDS, [b"step %d" % i for i in range(1, 21)])

    # --- listings -----------------------------------------------------------------------------------------------------

    async def test_a_listing_has_the_rows_of_a_prefix_in_byte_order(self, store: Store) -> None:
        keys = [b"n", b"n\0", b"n\0\0", b"n\0\xff", b"na", b"na\0b", b"n\xff", b"n\xff\xff"]
        others = [b"m", b"m\xff", b"o", b"o\0", b"N"]
        await store.put({RECORDS: [(key, b"value of " + key) for key in reversed([*keys, *others])]})
        rows = [(key, b"value of " + key) for key in keys]
        assert await store.list_rows(RECORDS, b"n", None, 100) == rows
        assert await store.list_rows(RECORDS, b"n\0", None, 100) == rows[1:4]
        assert await store.list_rows(RECORDS, b"n\xff", None, 100) == rows[6:]
        assert await store.list_rows(RECORDS, b"x", None, 100) == []
        assert await store.list_rows(ROOTS, b"n", None, 100) == []
        everything = [(key, b"value of " + key) for key in sorted([*keys, *others])]
        assert await store.list_rows(RECORDS, b"", None, 100) == everything
        assert await store.list_rows(RECORDS, b"", b"n", 2) == rows[1:3]

    async def test_a_listing_of_a_prefix_without_a_successor_ends_with_the_table(self, store: Store) -> None:
        keys = [b"\xfe\xff", b"\xff", b"\xff\0", b"\xff\xff", b"\xff\xff\xff"]
        await store.put({RECORDS: [(key, b"") for key in keys]})
        assert await store.list_rows(RECORDS, b"\xff", None, 10) == [(key, b"") for key in keys[1:]]
        assert await store.list_rows(RECORDS, b"\xff\xff", None, 10) == [(key, b"") for key in keys[3:]]
        assert await store.list_rows(RECORDS, b"\xfe\xff", None, 10) == [(keys[0], b"")]

    async def test_listings_are_paged_by_limit_and_after(self, store: Store) -> None:
        rows = [(b"k%d" % i, b"%d" % i) for i in range(10)]
        await store.put({RECORDS: rows})
        assert await store.list_rows(RECORDS, b"k", None, 3) == rows[:3]
        assert await store.list_rows(RECORDS, b"k", b"k2", 3) == rows[3:6]
        assert await store.list_rows(RECORDS, b"k", b"k2!", 3) == rows[3:6]  # a key that does not exist
        assert await store.list_rows(RECORDS, b"k", b"a", 2) == rows[:2]
        assert await store.list_rows(RECORDS, b"k", b"k9", 3) == []
        assert await store.list_rows(RECORDS, b"k", b"z", 3) == []

    async def test_a_listing_shows_acknowledged_writes(self, store: Store) -> None:
        await store.put({RECORDS: [(b"k1", b"old")]})
        assert await store.compare_and_set(RECORDS, b"k1", b"old", b"new", [(b"k2", b"")])
        assert await store.list_rows(RECORDS, b"k", None, 9) == [(b"k1", b"new"), (b"k2", b"")]

    async def test_listings_without_a_limit_are_refused(self, store: Store) -> None:
        for limit in (0, -1):
            with pytest.raises(InvalidInput):
                await store.list_rows(RECORDS, b"k", None, limit)

    # --- deletions ----------------------------------------------------------------------------------------------------

    async def test_deleted_rows_are_absent_and_others_stay(self, store: Store) -> None:
        await store.put({RECORDS: [(key, b"record") for key in (b"ka", b"kb", b"kc")], ROOTS: [(b"ka", b"")]})
        await store.delete(RECORDS, [b"ka", b"kc", b"absent"])
        assert await store.get(RECORDS, [b"ka", b"kb", b"kc"]) == [None, b"record", None]
        assert await store.list_rows(RECORDS, b"k", None, 9) == [(b"kb", b"record")]
        assert await store.get(ROOTS, [b"ka"]) == [b""]

    async def test_a_deleted_row_can_be_put_if_absent(self, store: Store) -> None:
        await store.put({RECORDS: [(A, b"old")]})
        await store.delete(RECORDS, [A])
        assert not await store.compare_and_set(RECORDS, A, b"old", b"new")
        assert await store.compare_and_set(RECORDS, A, None, b"new")
        assert await store.get(RECORDS, [A]) == [b"new"]


@pytest.mark.anyio
class PayloadContract:
    """Tests of uploads (`begin_payload`, `put_payloads`) and of reads of payloads. Needs the fixture `store`."""

    # --- uploads ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", _SIZES)
    async def test_a_committed_payload_is_read_back(self, store: Store, size: int) -> None:
        data = random_bytes(size)
        assert await upload(store, data)
        assert await store.stat_payloads([multihash_of(data)]) == [size]
        assert await read(store, multihash_of(data)) == data

    @pytest.mark.parametrize("piece", [1, 999, 65_536, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES])
    async def test_pieces_of_any_size_make_the_same_payload(self, store: Store, piece: int) -> None:
        data = random_bytes(5_000 if piece == 1 else 3 * CHUNK_BYTES + 7)
        async with store.begin_payload() as writer:
            for offset in range(0, len(data), piece):
                await writer.write(data[offset : offset + piece])
                await writer.write(b"")
            assert await writer.commit(multihash_of(data))
        assert await read(store, multihash_of(data)) == data

    @pytest.mark.parametrize("size", [0, 1, 4096, CHUNK_BYTES])
    async def test_put_payloads_stores_what_uploads_would(self, store: Store, size: int) -> None:
        data, other = random_bytes(size), b"other"
        pairs = [(multihash_of(each), each) for each in (data, other, data)]
        assert await store.put_payloads([]) == []
        assert await store.put_payloads(pairs) == [True, True, False]
        assert await store.put_payloads(pairs) == [False, False, False]
        assert not await upload(store, data)
        assert await read(store, multihash_of(other)) == other
        assert await store.stat_payloads([multihash_of(data)]) == [size]
        assert await read(store, multihash_of(data)) == data

    async def test_put_payloads_refuses_all_if_one_has_more_than_a_chunk(self, store: Store) -> None:
        datas = [b"short", random_bytes(CHUNK_BYTES + 1)]
        with pytest.raises(InvalidInput, match="at most 1,048,576 bytes, not 1,048,577"):
            await store.put_payloads([(multihash_of(data), data) for data in datas])
        assert await store.stat_payloads([multihash_of(data) for data in datas]) == [None, None]

    @pytest.mark.parametrize("size", [10, 2 * CHUNK_BYTES])
    async def test_a_second_upload_of_the_same_bytes_is_not_new(self, store: Store, size: int) -> None:
        data = random_bytes(size)
        assert [await upload(store, data) for _ in range(2)] == [True, False]
        assert await read(store, multihash_of(data)) == data

    @pytest.mark.parametrize("size", [10, 2 * CHUNK_BYTES + 5])
    async def test_of_concurrent_uploads_of_the_same_bytes_exactly_one_is_new(self, store: Store, size: int) -> None:
        data = random_bytes(size)
        is_new = await asyncio.gather(*(upload(store, data) for _ in range(8)))
        assert is_new.count(True) == 1
        assert await read(store, multihash_of(data)) == data

    async def test_concurrent_uploads_of_different_bytes_do_not_mix(self, store: Store) -> None:
        datas = [random_bytes(size, seed) for seed, size in enumerate((0, 10, CHUNK_BYTES, 2 * CHUNK_BYTES + 3) * 4)]
        distinct = list(dict.fromkeys(datas))
        assert all(await asyncio.gather(*(upload(store, data) for data in distinct)))
        assert [await read(store, multihash_of(data)) for data in distinct] == distinct

    @pytest.mark.parametrize("size", [10, 3 * CHUNK_BYTES])
    async def test_an_upload_that_is_aborted_or_not_committed_stores_nothing(self, store: Store, size: int) -> None:
        data = random_bytes(size)

        async def lose_connection() -> None:
            async with store.begin_payload() as writer:
                await writer.write(data)
                raise ConnectionError

        with pytest.raises(ConnectionError):
            await lose_connection()
        async with store.begin_payload() as writer:
            await writer.write(data)
        assert await store.stat_payloads([multihash_of(data)]) == [None]
        assert await upload(store, data)

    async def test_an_upload_ends_with_its_commit(self, store: Store) -> None:
        async with store.begin_payload() as writer:
            await writer.write(b"one")
            await writer.commit(multihash_of(b"one"))
            with pytest.raises(InvalidInput, match="ended"):
                await writer.write(b"two")
            with pytest.raises(InvalidInput, match="ended"):
                await writer.commit(multihash_of(b"onetwo"))
        assert await read(store, multihash_of(b"one")) == b"one"

    # --- reads --------------------------------------------------------------------------------------------------------

    async def test_every_range_is_a_slice_of_the_payload(self, store: Store) -> None:
        data = random_bytes(2 * CHUNK_BYTES + 10)
        await upload(store, data)
        offsets = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, len(data) - 1, len(data)]
        offsets += [len(data) + 1, 3 * CHUNK_BYTES, 1 << 60]
        for i, start in enumerate(offsets):
            assert await read(store, multihash_of(data), start) == data[start:]
            for end in offsets[i:]:
                assert await read(store, multihash_of(data), start, end) == data[start:end]

    @pytest.mark.parametrize(("start", "end"), [(-1, None), (-1, 5), (5, 4), (0, -1)])
    async def test_an_invalid_range_is_refused(self, store: Store, start: int, end: int | None) -> None:
        await upload(store, b"some bytes")
        with pytest.raises(InvalidInput, match="range"):
            await read(store, multihash_of(b"some bytes"), start, end)

    async def test_an_absent_payload_is_not_found(self, store: Store) -> None:
        known, unknown = multihash_of(b"known"), multihash_of(b"unknown")
        await upload(store, b"known")
        assert await store.stat_payloads([unknown, known, unknown]) == [None, 5, None]
        assert await store.stat_payloads([]) == []
        with pytest.raises(PayloadNotFound, match=unknown.hex()):
            await read(store, unknown)

    async def test_payloads_of_at_most_a_chunk_are_read_in_one_batch(self, store: Store) -> None:
        datas = [random_bytes(size, seed) for seed, size in enumerate([0, 1, 1000, CHUNK_BYTES - 1, CHUNK_BYTES] * 3)]
        for data in datas:
            await upload(store, data)
        names = [multihash_of(data) for data in datas]
        unknown = multihash_of(b"unknown")
        assert await store.get_payloads([*names, unknown, *reversed(names)]) == [*datas, None, *reversed(datas)]
        assert await store.get_payloads([]) == []
        await upload(store, random_bytes(CHUNK_BYTES + 1))
        with pytest.raises(InvalidInput, match="1,048,577 bytes; get_payloads reads at most 1,048,576"):
            await store.get_payloads([names[0], multihash_of(random_bytes(CHUNK_BYTES + 1))])

    async def test_a_payload_is_read_concurrently_and_resumed(self, store: Store) -> None:
        data = random_bytes(3 * CHUNK_BYTES)
        await upload(store, data)
        chunks = store.read_payload(multihash_of(data))
        assert await anext(chunks) == data[:CHUNK_BYTES]
        assert await asyncio.gather(*(read(store, multihash_of(data)) for _ in range(4))) == [data] * 4
        assert await anext(chunks) == data[CHUNK_BYTES : 2 * CHUNK_BYTES]


@pytest.mark.anyio
class RenewalContract:
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


@pytest.mark.anyio
class CollectionContract:
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
        told: list[int] = []
        store.watch_expiries(lambda: told.append(store.expiries))
        async with store.collect(0) as collection:
            assert await collection.keep([A, C]) == [True, False]
            assert await collection.remove(Stored.ROOTS, [B]) == [False]
            assert told == []
            assert await collection.expire() == []
            assert store.expiries == 1
            assert told == [1]
            assert await store.get(ROOTS, [A, B]) == [b"", None]
            assert await store.renew(Stored.ROOTS, [A, B]) == [0, None]
            assert [key for key, _ in await store.list_rows(ROOTS, b"\1", None, 9)] == []
            with pytest.raises(RootNotFound):
                await store.put({ROOTS: [(C, b"")]}, True, [B])
            assert await collection.remove(Stored.ROOTS, [A, B]) == [False, True]
            assert told == [1]
        assert told == [1, 1]
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

    async def test_payloads_below_a_held_root_are_dated_while_garbage_is_collected(
        self, store: CollectableStore
    ) -> None:
        await store.put_payloads([(A, b"renewed")])
        await older()
        async with store.collect(0) as collection:
            assert await store.renew(Stored.PAYLOADS, [A, B], True) == [7, None]
            assert await collection.remove(Stored.PAYLOADS, [A]) == [False]
        assert await store.renew(Stored.PAYLOADS, [A, B], True) == [7, None]

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


@pytest.mark.anyio
class LifecycleContract:
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


class StoreContract(RowContract, PayloadContract, RenewalContract, LifecycleContract):
    """The whole contract of a store with room.

    A store whose garbage can be collected (`coregw.store.collection`) also keeps `CollectionContract`.
    """


@pytest.mark.anyio
class FullStoreContract:
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
