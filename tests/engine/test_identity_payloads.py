"""Payloads with identity CIDs (protocol section 1): always held, never stored."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import coregw
from coregw._core import Cid
from coregw.engine import Engine, StoredPayload
from coregw.errors import InvalidInput, StorageFull, TooLarge
from coregw.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

SIZES = [0, 1, 32, 127, 128]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """An engine whose store has no room for a single byte."""
    engine = Engine(MemoryStore(max_bytes=0))
    yield engine
    await engine.close()


def some_bytes(size: int) -> bytes:
    return bytes(i % 251 for i in range(size))


async def in_chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 50):
        yield data[start : start + 50]


@asynccontextmanager
async def at_once(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.mark.parametrize("size", SIZES)
async def test_an_identity_payload_is_held_although_it_was_never_stored(engine: Engine, size: int) -> None:
    data = some_bytes(size)
    cid = coregw.payload_cid(data, hash="identity")
    payload = await engine.payloads.find(cid)
    assert (payload.cid, payload.size) == (cid, size)
    assert await engine.payloads.read_small(payload, 0, size) == data
    assert await engine.payloads.find_block(Cid(cid)) == payload


@pytest.mark.parametrize("size", SIZES)
async def test_storing_an_identity_payload_stores_nothing(engine: Engine, size: int) -> None:
    data = some_bytes(size)
    cid = coregw.payload_cid(data, "dag-cbor", "identity")
    assert await engine.payloads.put(in_chunks(data), "dag-cbor", "identity") == cid
    assert await engine.payloads.put_whole(at_once(data), "dag-cbor", "identity") == cid


@pytest.mark.parametrize(("start", "end"), [(0, 5), (0, 3), (2, 5), (1, 4), (3, 3)])
async def test_ranges_of_an_identity_payload_are_slices(engine: Engine, start: int, end: int) -> None:
    payload = await engine.payloads.find(coregw.payload_cid(b"hello", hash="identity"))
    chunks = [chunk async for chunk in engine.payloads.read(payload, start, end)]
    assert b"".join(chunks) == b"hello"[start:end]
    assert all(chunks)


async def test_an_identity_payload_is_found_by_any_codec(engine: Engine) -> None:
    found = [
        await engine.payloads.find(coregw.payload_cid(b"\xa0", codec, "identity")) for codec in ("raw", "dag-cbor")
    ]
    assert isinstance(found[0], StoredPayload)
    assert found[0].multihash == found[1].multihash


@pytest.mark.parametrize("size", [129, 300])
async def test_more_bytes_than_an_identity_cid_contains_are_too_large(engine: Engine, size: int) -> None:
    with pytest.raises(TooLarge):
        await engine.payloads.put(in_chunks(bytes(size)), "raw", "identity")
    with pytest.raises(TooLarge):
        await engine.payloads.put_whole(at_once(bytes(size)), "raw", "identity")


@pytest.mark.parametrize("function", ["sha2-256", "sha2-512", "sha3-256", "blake2b-256", "blake3"])
async def test_payloads_of_other_hash_functions_are_stored(engine: Engine, function: str) -> None:
    with pytest.raises(StorageFull):
        await engine.payloads.put_whole(at_once(b"hello"), "raw", function)


async def test_an_unknown_hash_function_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidInput, match="md5"):
        await engine.payloads.put_whole(at_once(b"hello"), "raw", "md5")


async def test_a_batch_reports_identity_payloads_as_present(engine: Engine) -> None:
    absent, identity = coregw.payload_cid(b"absent"), coregw.payload_cid(b"hello", hash="identity")
    cids = [identity, absent, identity, coregw.payload_cid(b"", hash="identity")]
    request = {"profile": "cas.has-batch/v0alpha1", "cids": cids}
    results = json.loads(await engine.payloads.batch_held(json.dumps(request).encode()))["results"]
    assert results == [
        {"cid": cid, "present": is_present} for cid, is_present in zip(cids, [True, False, True, True], strict=True)
    ]
