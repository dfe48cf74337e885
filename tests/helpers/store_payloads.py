"""Payloads for tests of stores: made, uploaded and read."""

from __future__ import annotations

import hashlib
import random

from coregw.store import CHUNK_BYTES, Store


def random_bytes(size: int, seed: int = 0) -> bytes:
    """Bytes that do not compress, the same for the same arguments."""
    return random.Random(f"{size} {seed}").randbytes(size)


def multihash_of(data: bytes) -> bytes:
    """The binary sha2-256 multihash of some bytes."""
    return b"\x12\x20" + hashlib.sha256(data).digest()


async def upload(store: Store, data: bytes) -> bool:
    """Upload a payload in one piece; whether it is newly stored."""
    async with store.begin_payload() as writer:
        await writer.write(data)
        return await writer.commit(multihash_of(data))


async def read(store: Store, multihash: bytes, start: int = 0, end: int | None = None) -> bytes:
    """Read a range of a payload, and check the sizes of its chunks."""
    chunks = [chunk async for chunk in store.read_payload(multihash, start, end)]
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)
    return b"".join(chunks)
