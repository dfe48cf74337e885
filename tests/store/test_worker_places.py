"""Few large parts of payloads at once from a worker to the owner: what it holds for clients that are gone, or slow."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest

from coregw.errors import Unavailable
from coregw.store import CHUNK_BYTES
from coregw.store.memory import MemoryStore
from coregw.store.workers import RemoteStore, share_store
from store_payloads import multihash_of, read, upload
from worker_support import SlowStore, shared_slow

pytestmark = pytest.mark.anyio

PLACES = 16
DATA = bytes(2 * CHUNK_BYTES + 1)
NAME = multihash_of(DATA)
UNKNOWN = 1 << 40  # an upload that there is not


async def let_all_go_on(worker: RemoteStore) -> None:
    """The end of an upload overtakes no call that was sent before it."""
    for _ in range(20):
        await worker._connection.call("abort_payload", UNKNOWN)


async def upload_data(worker: RemoteStore) -> bool:
    async with worker.begin_payload() as writer:
        await writer.write(DATA)  # the first chunk waits for its place, and the second one for the first
        return await writer.commit(NAME)


async def test_uploads_that_end_before_they_have_a_place_send_nothing() -> None:
    async with shared_slow() as (slow, worker, owner):
        uploads = [asyncio.create_task(upload_data(worker)) for _ in range(50)]
        await let_all_go_on(worker)
        assert slow.begun == len(owner._in_progress) == PLACES
        for each in uploads[:40]:  # as if their clients had gone
            each.cancel()
        await let_all_go_on(worker)
        assert slow.begun == PLACES  # the owner still has the parts that it was sent, so no place is free
        slow.may_go.set()
        ended = await asyncio.gather(*uploads, return_exceptions=True)
        assert [isinstance(each, asyncio.CancelledError) for each in ended] == [True] * 40 + [False] * 10
        assert slow.begun == PLACES + 3 * 10
        assert not owner._payloads._uploads
        assert await read(worker, NAME) == DATA


async def test_a_commit_that_ends_before_it_has_a_place_aborts_its_upload() -> None:
    async with shared_slow() as (slow, worker, owner):
        slow.may_go.set()
        async with worker.begin_payload() as writer:
            await writer.write(DATA[:-1])
            await let_all_go_on(worker)
            slow.may_go.clear()
            others = [asyncio.create_task(upload_data(worker)) for _ in range(PLACES)]
            await let_all_go_on(worker)
            assert len(owner._payloads._uploads) == PLACES + 1
            commit = asyncio.create_task(writer.commit(NAME))
            await let_all_go_on(worker)
            commit.cancel()
        await let_all_go_on(worker)
        assert len(owner._payloads._uploads) == PLACES
        slow.may_go.set()
        assert (await asyncio.gather(*others)).count(True) >= 1
        assert not owner._payloads._uploads


async def test_downloads_that_ended_have_their_places_until_the_owner_has_read() -> None:
    async with shared_slow() as (slow, worker, owner):
        slow.may_go.set()
        await upload(slow, DATA)
        slow.may_go.clear()
        slow.begun = 0
        downloads = [asyncio.create_task(read(worker, NAME)) for _ in range(30)]
        await let_all_go_on(worker)
        assert slow.begun == len(owner._in_progress) == PLACES
        for each in downloads[:25]:
            each.cancel()
        await let_all_go_on(worker)
        assert slow.begun == PLACES
        slow.may_go.set()
        assert await asyncio.gather(*downloads[25:]) == [DATA] * 5
        assert slow.begun == PLACES + 4 * 5  # without an end, the last part is empty


async def test_uploads_that_wait_for_a_place_are_unavailable_when_the_owner_ends() -> None:
    here, there = socket.socketpair()
    slow = SlowStore()
    owner = await share_store(slow, there)
    worker = await RemoteStore.connect(here)
    uploads = [asyncio.create_task(upload_data(worker)) for _ in range(30)]
    await let_all_go_on(worker)
    owner.hang_up()
    ended = await asyncio.gather(*uploads, return_exceptions=True)
    assert [type(each) for each in ended] == [Unavailable] * 30
    await worker.close()
    slow.may_go.set()
    await owner.ended()


async def begun() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_short_calls_overtake_long_ones_but_no_upload_its_chunks() -> None:
    order: list[str] = []

    class Noting(MemoryStore):
        async def put_payloads(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
            order.append("put")
            return await super().put_payloads(payloads)

        async def healthy(self) -> bool:
            order.append("healthy")
            return await super().healthy()

    here, there = socket.socketpair()
    async with await RemoteStore.connect(here) as worker:
        long = [b"%07d" % number + bytes(CHUNK_BYTES - 7) for number in range(10)]
        puts = [asyncio.create_task(worker.put_payloads([(multihash_of(data), data)])) for data in long]
        upload = asyncio.create_task(upload_data(worker))
        await begun()  # the first one has filled the socket
        upload.cancel()
        healthy = asyncio.create_task(worker.healthy())
        await begun()
        owner = await share_store(Noting(), there)
        assert await healthy
        assert order.index("healthy") <= 1
        assert await asyncio.gather(*puts) == [[True]] * len(long)
        assert (await asyncio.gather(upload, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        await let_all_go_on(worker)
        assert not owner._payloads._uploads
    await owner.ended()
