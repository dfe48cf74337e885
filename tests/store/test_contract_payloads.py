"""What every store does with payloads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine

import pytest

from coregw.errors import InvalidInput, PayloadNotFound, StorageFull
from coregw.store import CHUNK_BYTES, Store

pytestmark = pytest.mark.anyio

Put = Callable[[Store, bytes], Coroutine[None, None, bytes]]
Multihash = Callable[[bytes], bytes]

SIZES = [0, 1, 1000, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 7]


def some_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(f"{size} {seed}").randbytes(size)


async def read(store: Store, multihash: bytes, start: int = 0, end: int | None = None) -> bytes:
    chunks = [chunk async for chunk in store.read_payload(multihash, start, end)]
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)
    return b"".join(chunks)


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_committed_is_read_back(store: Store, put: Put, size: int) -> None:
    data = some_bytes(size)
    multihash = await put(store, data)
    assert await store.stat_payload(multihash) == size
    assert await store.has_payloads([multihash]) == [True]
    assert await read(store, multihash) == data


@pytest.mark.parametrize("piece", [1, 999, 65_536, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES])
async def test_pieces_of_any_size_make_the_same_payload(store: Store, multihash: Multihash, piece: int) -> None:
    data = some_bytes(5_000 if piece == 1 else 3 * CHUNK_BYTES + 7)
    async with store.begin_payload() as writer:
        for offset in range(0, len(data), piece):
            await writer.write(data[offset : offset + piece])
            await writer.write(b"")
        assert await writer.commit(multihash(data))
    assert await read(store, multihash(data)) == data


@pytest.mark.parametrize("size", [0, 1, 4096, CHUNK_BYTES])
async def test_a_payload_at_hand_is_put_as_an_upload_would(store: Store, multihash: Multihash, size: int) -> None:
    data = some_bytes(size)
    assert await store.put_payload(multihash(data), data)
    assert not await store.put_payload(multihash(data), data)
    assert await store.stat_payload(multihash(data)) == size
    assert await read(store, multihash(data)) == data
    async with store.begin_payload() as writer:
        await writer.write(data)
        assert not await writer.commit(multihash(data))


async def test_more_than_a_chunk_is_not_put_at_once(store: Store, multihash: Multihash) -> None:
    data = some_bytes(CHUNK_BYTES + 1)
    with pytest.raises(InvalidInput, match="1,048,577 bytes; at most 1,048,576"):
        await store.put_payload(multihash(data), data)
    assert await store.has_payloads([multihash(data)]) == [False]


async def test_every_range_is_the_slice_of_the_whole(store: Store, put: Put) -> None:
    data = some_bytes(2 * CHUNK_BYTES + 10)
    multihash = await put(store, data)
    edges = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, len(data) - 1, len(data)]
    edges += [len(data) + 1, 3 * CHUNK_BYTES, 1 << 60]
    for i, start in enumerate(edges):
        assert await read(store, multihash, start) == data[start:]
        for end in edges[i:]:
            assert await read(store, multihash, start, end) == data[start:end]


@pytest.mark.parametrize(("start", "end"), [(-1, None), (-1, 5), (5, 4), (0, -1)])
async def test_a_range_that_is_none_is_refused(store: Store, put: Put, start: int, end: int | None) -> None:
    multihash = await put(store, b"some bytes")
    with pytest.raises(InvalidInput, match="bytes"):
        await read(store, multihash, start, end)


async def test_an_unknown_payload_is_not_found(store: Store, put: Put, multihash: Multihash) -> None:
    known, unknown = await put(store, b"known"), multihash(b"unknown")
    assert await store.stat_payload(unknown) is None
    assert await store.has_payloads([unknown, known, unknown]) == [False, True, False]
    assert await store.has_payloads([]) == []
    with pytest.raises(PayloadNotFound, match=unknown.hex()):
        await read(store, unknown)


async def test_the_second_upload_of_the_same_bytes_is_told_that_they_were_there(
    store: Store, multihash: Multihash
) -> None:
    for size in (10, 2 * CHUNK_BYTES):
        data = some_bytes(size)
        news = []
        for _ in range(2):
            async with store.begin_payload() as writer:
                await writer.write(data)
                news.append(await writer.commit(multihash(data)))
        assert news == [True, False]
        assert await read(store, multihash(data)) == data


@pytest.mark.parametrize("size", [10, 2 * CHUNK_BYTES + 5])
async def test_of_many_uploads_of_the_same_bytes_at_once_one_is_new(
    store: Store, multihash: Multihash, size: int
) -> None:
    data = some_bytes(size)

    async def upload(number: int) -> bool:
        if size <= CHUNK_BYTES and number % 2:
            return await store.put_payload(multihash(data), data)
        async with store.begin_payload() as writer:
            for offset in range(0, size, CHUNK_BYTES // 2):
                await writer.write(data[offset : offset + CHUNK_BYTES // 2])
                await asyncio.sleep(0)
            return await writer.commit(multihash(data))

    news = await asyncio.gather(*map(upload, range(12)))
    assert sorted(news) == [False] * 11 + [True]
    assert await read(store, multihash(data)) == data


async def test_uploads_at_once_do_not_mix(store: Store, put: Put) -> None:
    datas = [some_bytes(size, seed) for seed in range(4) for size in SIZES]
    multihashes = await asyncio.gather(*(put(store, data) for data in datas))
    for data, multihash in zip(datas, multihashes, strict=True):
        assert await read(store, multihash) == data


@pytest.mark.parametrize("size", [10, 3 * CHUNK_BYTES])
async def test_an_upload_without_a_commit_leaves_no_payload(store: Store, multihash: Multihash, size: int) -> None:
    data = some_bytes(size)
    with pytest.raises(ConnectionError):
        async with store.begin_payload() as writer:
            await writer.write(data)
            raise ConnectionError
    async with store.begin_payload() as writer:
        await writer.write(data)
    assert await store.has_payloads([multihash(data)]) == [False]


async def test_an_upload_ends_with_its_commit(store: Store, multihash: Multihash) -> None:
    async with store.begin_payload() as writer:
        await writer.write(b"one")
        await writer.commit(multihash(b"one"))
        with pytest.raises(InvalidInput, match="ended"):
            await writer.write(b"two")
        with pytest.raises(InvalidInput, match="ended"):
            await writer.commit(multihash(b"onetwo"))
    assert await read(store, multihash(b"one")) == b"one"


async def test_a_payload_may_be_read_by_many_and_left_half_way(store: Store, put: Put) -> None:
    data = some_bytes(3 * CHUNK_BYTES)
    multihash = await put(store, data)
    half_way = store.read_payload(multihash)
    assert await anext(half_way) == data[:CHUNK_BYTES]
    assert await asyncio.gather(*(read(store, multihash) for _ in range(4))) == [data] * 4
    assert await anext(half_way) == data[CHUNK_BYTES : 2 * CHUNK_BYTES]


async def test_without_room_a_payload_is_not_put(full_store: Store, multihash: Multihash) -> None:
    with pytest.raises(StorageFull):
        await full_store.put_payload(multihash(b"data"), b"data")
    assert await full_store.has_payloads([multihash(b"data")]) == [False]


@pytest.mark.parametrize("size", [10, 3 * CHUNK_BYTES])
async def test_without_room_an_upload_is_refused_and_leaves_nothing(
    full_store: Store, multihash: Multihash, size: int
) -> None:
    data = some_bytes(size)
    with pytest.raises(StorageFull):
        async with full_store.begin_payload() as writer:
            await writer.write(data)
            await writer.commit(multihash(data))
    assert await full_store.has_payloads([multihash(data)]) == [False]
    with pytest.raises(PayloadNotFound):
        await read(full_store, multihash(data))
