"""Blocks for IPFS clients: what is read to find out whether one block is all that was requested."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import coregw
from coregw import Cid
from coregw.engine import Engine
from coregw.store import CHUNK_BYTES
from coregw.store.memory import MemoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.mark.parametrize("size", [1, CHUNK_BYTES + 7])
async def test_a_block_that_was_read_for_its_links_is_not_read_again(size: int) -> None:
    engine = Engine(MemoryStore())
    head = b"\x5a" + size.to_bytes(4) if size > 0xFFFF else bytes([0x40 + size])
    data = head + bytes(size)  # a byte string in DAG-CBOR
    cid = Cid(coregw.payload_cid(data, "dag-cbor"))
    await engine.payloads.put(chunks(data), "dag-cbor", "sha2-256")
    found = await engine.payloads.find_block(cid)
    assert await engine.payloads.one_block(cid, found, "block") == (found, None)
    assert await engine.payloads.one_block(cid, found, "all") == (data if len(data) <= CHUNK_BYTES else found, None)
    await engine.close()
