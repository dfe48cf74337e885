"""Stores in PostgreSQL for tests: each test has a schema of its own on one server."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from coregw.store.postgres import PostgresStore, open_store
from servers import Bucket, Postgres, bucket, postgres

_numbers = itertools.count()


@pytest.fixture(scope="session")
def primary() -> Iterator[Postgres]:
    """A PostgreSQL server, for tests that share it."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[Bucket]:
    """An S3 server, for tests that share it."""
    with bucket() as server:
        yield server


def new_schema(server: Postgres) -> str:
    """Create an empty schema, and return the address of a store in it."""
    name = f"test_{next(_numbers)}"
    server.execute(f"CREATE SCHEMA {name}")
    return f"{server.url}?search_path={name}"


def new_bucket(server: Bucket) -> str:
    """Return the address of a bucket that nobody has claimed: a prefix of its own."""
    return server.url.replace("?", f"/test-{next(_numbers)}?", 1)


@asynccontextmanager
async def opened(server: Postgres, **options: object) -> AsyncIterator[PostgresStore]:
    """An empty store in a schema of its own, which is dropped afterwards."""
    url = new_schema(server)
    async with await open_store(url, **({"slice_seconds": 0.0} | options)) as store:  # type: ignore[arg-type]
        yield store
    server.execute(f"DROP SCHEMA {url.rpartition('=')[2]} CASCADE")
