"""Contract of a store's rows: batches, atomic conditional writes, listings and deletions."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from coregw.errors import InvalidInput
from coregw.store import Store, Table
from coregw.store.testing.support import AsyncContract

__all__ = ["RowContract"]

A, B, C = (bytes([i]) * 32 for i in range(3))
PAGES, ROOTS, RECORDS = Table.PAGES, Table.ROOTS, Table.RECORDS


class RowContract(AsyncContract):
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

    async def test_listings_without_a_prefix_or_without_a_limit_are_refused(self, store: Store) -> None:
        for prefix, limit in ((b"", 1), (b"k", 0), (b"k", -1)):
            with pytest.raises(InvalidInput):
                await store.list_rows(RECORDS, prefix, None, limit)

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
