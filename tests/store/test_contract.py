"""Every store keeps the contract, and stores that do not are found out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from coregw.store import Store, Table
from coregw.store.collection import CollectableStore
from coregw.store.memory import MemoryStore
from store_contract import CollectionContract, FullStoreContract, StoreContract
from stores import KINDS, opened


class TestStores(StoreContract):
    @pytest.fixture(params=KINDS)
    async def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
        async with opened(request.param, tmp_path / "store") as store:
            yield store


class TestCollections(CollectionContract):
    @pytest.fixture(params=["memory", "rocksdb"])
    async def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CollectableStore]:
        async with opened(request.param, tmp_path / "store") as store:
            yield cast("CollectableStore", store)


class TestFullStores(FullStoreContract):
    @pytest.fixture(params=KINDS)
    async def full_store(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
        async with opened(request.param, tmp_path / "store", is_full=True) as store:
            yield store


# --- the suite fails on stores that break the contract ----------------------------------------------------------------


class Racing(MemoryStore):
    """Compares, waits, then sets."""

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
        requires: Sequence[bytes] = (),
    ) -> bool:
        (found,) = await self.get(table, [key])
        await asyncio.sleep(0)
        if found != expected:
            return False
        await self.put({table: [(key, value), *further]})
        return True


class Forgetful(MemoryStore):
    """Loses the last row of every put."""

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        return await super().put({table: pairs[:-1] for table, pairs in rows.items()}, durable)


class Unordered(MemoryStore):
    """Lists rows in the wrong order."""

    async def list_rows(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        return (await super().list_rows(table, prefix, after, limit))[::-1]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("store", "test"),
    [
        (Racing(), StoreContract.test_of_concurrent_puts_if_absent_exactly_one_wins),
        (Racing(), StoreContract.test_concurrent_increments_by_compare_and_set_lose_nothing),
        (Forgetful(), StoreContract.test_one_put_writes_to_several_tables),
        (Unordered(), StoreContract.test_a_listing_has_the_rows_of_a_prefix_in_byte_order),
    ],
)
async def test_a_store_that_breaks_the_contract_fails_the_suite(store: Store, test: object) -> None:
    with pytest.raises(AssertionError):
        await test(StoreContract(), store)  # type: ignore[operator]
