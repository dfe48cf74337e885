"""The store in PostgreSQL keeps the contract, with chunks in rows, in a bucket, and while connections are cut."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coregw.store.postgres import PostgresStore, open_store
from coregw.store.testing import CollectionContract, FullStoreContract, StoreContract
from servers import Bucket, Postgres, cutter
from store.postgres_support import database, new_schema, opened, s3

__all__ = ["database", "s3"]


class TestRows(StoreContract, CollectionContract):
    @pytest.fixture
    async def store(self, database: Postgres) -> AsyncIterator[PostgresStore]:
        async with opened(database) as store:
            yield store


class TestBucket(StoreContract, CollectionContract):
    @pytest.fixture
    async def store(self, database: Postgres, s3: Bucket) -> AsyncIterator[PostgresStore]:
        async with opened(database, bucket=s3.url) as store:
            yield store


class TestFull(FullStoreContract):
    @pytest.fixture
    async def full_store(self, database: Postgres) -> AsyncIterator[PostgresStore]:
        async with opened(database, quota_bytes=0) as store:
            yield store


class TestCutConnections(StoreContract):
    """Each connection lives for some tens of milliseconds."""

    @pytest.fixture
    async def store(self, database: Postgres) -> AsyncIterator[PostgresStore]:
        url = new_schema(database) + "&sslmode=disable"
        async with (
            cutter(database.port) as proxy,
            await open_store(url.replace(str(database.port), str(proxy.port))) as store,
        ):
            proxy.cut_every = 0.15
            yield store
            proxy.cut_every = 0.0
