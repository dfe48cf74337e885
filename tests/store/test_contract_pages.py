"""What every store does with pages and root records, and what all methods do once it is closed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from coregw.errors import StorageFull, Unavailable
from coregw.store import Store

pytestmark = pytest.mark.anyio

A, B, C = (bytes([i]) * 32 for i in range(3))
ROOT, OTHER = b"\x01root", b"\x01other"


async def test_pages_are_read_in_the_order_asked_and_missing_ones_are_none(store: Store) -> None:
    await store.put_pages([(A, b"page a"), (B, b"page b")])
    assert await store.get_pages([B, C, A, B]) == [b"page b", None, b"page a", b"page b"]


async def test_a_thousand_pages_at_once_are_read_in_the_order_asked(store: Store) -> None:
    digests = [i.to_bytes(32, "big") for i in range(1000)]
    await store.put_pages([(digest, b"page " + digest) for digest in digests[::3]])
    backwards = digests[::-1]
    expected = [b"page " + digest if int.from_bytes(digest, "big") % 3 == 0 else None for digest in backwards]
    assert await store.get_pages(backwards) == expected


async def test_no_pages_asked_or_put_is_nothing_done(store: Store) -> None:
    await store.put_pages([])
    assert await store.get_pages([]) == []
    assert await store.has_roots([]) == []


async def test_pages_may_be_put_again(store: Store) -> None:
    await store.put_pages([(A, b"page a"), (A, b"page a")])
    await store.put_pages([(A, b"page a")])
    assert await store.get_pages([A]) == [b"page a"]


async def test_pages_are_readable_before_a_root_names_them_and_make_no_root(store: Store) -> None:
    await store.put_pages([(A, b"page a")])
    assert await store.get_pages([A]) == [b"page a"]
    assert await store.has_roots([ROOT, A]) == [False, False]


async def test_a_root_exists_when_its_record_does(store: Store) -> None:
    await store.put_roots([ROOT])
    assert await store.has_roots([OTHER, ROOT]) == [False, True]
    await store.put_roots([ROOT, OTHER])
    assert await store.has_roots([OTHER, ROOT]) == [True, True]


async def test_a_root_may_bring_its_last_pages(store: Store) -> None:
    await store.put_roots([ROOT], [(A, b"page a")])
    assert await store.has_roots([ROOT]) == [True]
    assert await store.get_pages([A]) == [b"page a"]


async def test_pages_roots_and_payloads_of_the_same_name_are_apart(store: Store) -> None:
    await store.put_roots([A])
    assert await store.get_pages([A]) == [None]
    assert await store.stat_payload(A) is None


async def test_many_tasks_write_and_read_at_once(store: Store) -> None:
    async def one(i: int) -> None:
        digest, root = i.to_bytes(32, "big"), b"root" + i.to_bytes(4, "big")
        await store.put_pages([(digest, bytes([i % 256]) * 100)])
        await store.put_roots([root])
        assert await store.get_pages([digest]) == [bytes([i % 256]) * 100]
        assert await store.has_roots([root]) == [True]

    await asyncio.gather(*(one(i) for i in range(200)))


async def test_without_room_nothing_is_written_and_reads_go_on(full_store: Store) -> None:
    with pytest.raises(StorageFull) as caught:
        await full_store.put_pages([(A, b"page a")])
    assert caught.value.code == "storage_full"
    with pytest.raises(StorageFull):
        await full_store.put_roots([ROOT], [(A, b"page a")])
    assert await full_store.get_pages([A]) == [None]
    assert await full_store.has_roots([ROOT]) == [False]
    assert await full_store.healthy()


async def test_a_closed_store_says_so_in_every_method(store: Store) -> None:
    writer = store.begin_payload()
    await store.close()
    await store.close()
    now = datetime.now(UTC)
    for call in (
        store.get_pages([A]),
        store.put_pages([(A, b"page a")]),
        store.has_roots([ROOT]),
        store.put_roots([ROOT]),
        store.put_payload(A, b"data"),
        store.stat_payload(A),
        store.has_payloads([A]),
        anext(store.read_payload(A)),
        writer.commit(A),
        store.get_record("scope", "name"),
        store.publish("scope", "name", ROOT, None, now),
        store.freeze("scope", "name", now),
        store.list_records("scope", None, 1),
        store.history("scope", "name", 0, 1),
        store.put_plant(1, b"fern"),
        store.get_plant(1),
    ):
        with pytest.raises(Unavailable, match="closed"):
            await call
    with pytest.raises(Unavailable, match="closed"):
        store.begin_payload()
    assert not await store.healthy()


async def test_an_open_store_is_healthy(store: Store) -> None:
    assert await store.healthy()
