"""Contract of a store's payloads: uploads, reads of ranges, concurrent and aborted uploads."""

from __future__ import annotations

import asyncio

import pytest

from coregw.errors import InvalidInput, PayloadNotFound
from coregw.store import CHUNK_BYTES, Store
from coregw.store.testing.support import AsyncContract, multihash_of, random_bytes, read, upload

__all__ = ["PayloadContract"]

_SIZES = [0, 1, 1000, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 7]


class PayloadContract(AsyncContract):
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
