"""What an edge remembers of published names beyond its process."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from coregw import Map
from coregw.gateway.edge.lasting import LastingNames
from coregw.messages.record import PublishedRecord
from coregw.store import Table
from coregw.store.memory import MemoryStore
from coregw.store.tiered import NAME

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def record(name: str, revision: int = 1) -> PublishedRecord:
    root = Map({}).root
    previous = None if revision == 1 else root
    now = datetime.now(UTC)
    return PublishedRecord(
        scope="s", name=name, root=root, revision=revision, previous_root=previous, published_at=now, frozen=False
    )


async def test_names_last_until_the_upstream_has_them_no_more() -> None:
    store = MemoryStore()
    names = LastingNames(store, "http://a")
    first, second = record("n"), record("n", 2)
    assert await names.find("s", "n") is None
    assert await names.note(first, None)
    assert not await names.note(first, (1.0, first))  # it was written lately
    assert await names.note(first, (61.0, first))
    assert await names.note(second, (1.0, first))
    found = await LastingNames(store, "http://a").find("s", "n")
    assert found is not None
    assert found[1] == second
    assert 0 <= found[0] < 3600
    assert await LastingNames(store, "http://b").find("s", "n") is None
    await names.forget("s", "n")
    assert await names.find("s", "n") is None


async def test_rows_that_are_damaged_or_of_other_names_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    names = LastingNames(store, "http://a")
    monkeypatch.setattr("coregw.gateway.edge.lasting._SLOT_BYTES", 0)
    await names.note(record("n"), None)
    assert await names.find("s", "other") is None
    await names.forget("s", "other")  # the row is of another name
    assert await names.find("s", "n") is not None
    await names.note(record("other"), None)
    assert await names.find("s", "n") is None
    assert len(await store.list_rows(Table.RECORDS, NAME, None, 10)) == 1
    for damaged in (b"{", b"[]", b"\xff", b"{}"):
        await store.put({Table.RECORDS: [(NAME, damaged)]})
        assert await names.find("s", "other") is None
