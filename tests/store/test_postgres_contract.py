"""The store in PostgreSQL keeps the contract, with chunks in rows, in a bucket, and while connections are cut."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coregw.store.postgres import PostgresStore, open_store
from network import proxy_of
from postgres_support import new_bucket, new_schema, opened
from servers import Bucket, Postgres
from store_contract import CollectionContract, FullStoreContract, StoreContract


class TestRows(StoreContract, CollectionContract):
    @pytest.fixture
    async def store(self, primary: Postgres) -> AsyncIterator[PostgresStore]:
        async with opened(primary) as store:
            yield store


class TestBucket(StoreContract, CollectionContract):
    @pytest.fixture
    async def store(self, primary: Postgres, s3: Bucket) -> AsyncIterator[PostgresStore]:
        async with opened(primary, bucket=new_bucket(s3)) as store:
            yield store


class TestFull(FullStoreContract):
    @pytest.fixture
    async def full_store(self, primary: Postgres) -> AsyncIterator[PostgresStore]:
        async with opened(primary, quota_bytes=0) as store:
            yield store


class TestCutConnections(StoreContract):
    """Each connection lives for some tens of milliseconds."""

    @pytest.fixture
    async def store(self, primary: Postgres) -> AsyncIterator[PostgresStore]:
        url = new_schema(primary) + "&sslmode=disable"
        async with (
            proxy_of(primary.port) as proxy,
            await open_store(url.replace(str(primary.port), str(proxy.port))) as store,
        ):
            proxy.cut_every = 0.15
            yield store
            proxy.cut_every = 0.0
