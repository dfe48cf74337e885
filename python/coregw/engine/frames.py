"""Payloads as the blocks of a CAR, in order: small ones read and sent together, large ones chunk by chunk."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple, cast

from coregw._core import Cid, block_head, block_heads
from coregw.errors import InvalidInput, PayloadNotFound, StoreDamaged
from coregw.store import CHUNK_BYTES, Store

__all__ = ["HeldPayload", "find_payloads", "payload_blocks"]

_log = logging.getLogger(__name__)

_BATCH_BYTES: Final = 1 << 20
"""Payloads are read and sent together up to this many bytes."""

IDENTITY_CODE: Final = 0x00
"""The first byte of a multihash that is the payload itself."""


class HeldPayload(NamedTuple):
    """A payload, its binary multihash, and its size in bytes."""

    cid: Cid
    multihash: bytes
    size: int

    def is_stored(self) -> bool:
        """Whether the store has it; the CID itself contains it otherwise."""
        return self.multihash[0] != IDENTITY_CODE


async def find_payloads(store: Store, cids: Sequence[Cid]) -> list[HeldPayload]:
    """Return which of these payloads are held, in the same order. One batch of lookups."""
    multihashes = [cid.multihash for cid in cids]
    stored = [each for each in multihashes if each[0] != IDENTITY_CODE]
    sizes = await store.stat_payloads(stored)
    if len(stored) < len(cids):
        found = iter(sizes)
        named = zip(cids, multihashes, strict=True)
        sizes = [next(found) if each[0] != IDENTITY_CODE else len(cid.digest) for cid, each in named]
    held = zip(cids, multihashes, sizes, strict=True)
    return [HeldPayload(cid, multihash, size) for cid, multihash, size in held if size is not None]


async def payload_blocks(
    store: Store, payloads: Sequence[HeldPayload], *, skip_damaged: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the blocks of payloads in order, without those that were removed meanwhile.

    A chunk has at most 1 MiB and the heads of its blocks: a part of a payload of more than 1 MiB, or the blocks of
    several others. The store is read only as fast as the chunks are consumed.

    Args:
        store: The store.
        payloads: What `find_payloads` has found.
        skip_damaged: Whether a payload is left out, and reported in the log, if it is found to be damaged before its
            first byte is yielded.

    Raises:
        StoreDamaged: A part of a payload is missing or has the wrong size.
        PayloadNotFound: A payload of more than 1 MiB was removed after its first byte was yielded.
    """
    batch: list[HeldPayload] = []
    total = 0
    for payload in payloads:
        if batch and total + payload.size > _BATCH_BYTES:
            yield await _small_blocks(store, batch, skip_damaged=skip_damaged)
            batch, total = [], 0
        if payload.size <= CHUNK_BYTES:
            batch.append(payload)
            total += payload.size
        else:
            async for chunk in _large_block(store, payload, skip_damaged=skip_damaged):
                yield chunk
    if batch:
        yield await _small_blocks(store, batch, skip_damaged=skip_damaged)


async def _small_blocks(store: Store, payloads: Sequence[HeldPayload], *, skip_damaged: bool) -> bytes:
    stored = [multihash for _, multihash, _ in payloads if multihash[0] != IDENTITY_CODE]
    try:
        read = await store.get_payloads(stored)
    except InvalidInput as error:  # one of them is longer than its size said
        raise StoreDamaged(error.message) from error
    except StoreDamaged:
        if not skip_damaged:
            raise
        read = [await _get_undamaged(store, multihash) for multihash in stored]
    cids = [cid for cid, _, _ in payloads]
    if len(stored) < len(payloads):
        found = iter(read)
        read = [next(found) if payload.is_stored() else payload.cid.digest for payload in payloads]
    if None in read:
        cids = [cid for cid, data in zip(cids, read, strict=True) if data is not None]
    held = [data for data in read if data is not None]
    parts = [b""] * (2 * len(held))
    parts[::2] = block_heads(cids, held)
    parts[1::2] = held
    return b"".join(parts)


async def _get_undamaged(store: Store, multihash: bytes) -> bytes | None:
    try:
        (payload,) = await store.get_payloads([multihash])
    except StoreDamaged as error:
        _log.error("left out of a response: %s", error.message)
        return None
    return payload


async def _large_block(store: Store, payload: HeldPayload, *, skip_damaged: bool) -> AsyncIterator[bytes]:
    chunks = cast("AsyncGenerator[bytes, None]", store.read_payload(payload.multihash))
    async with aclosing(chunks):
        try:
            first = await anext(chunks)
        except PayloadNotFound:
            return
        except StoreDamaged as error:
            if not skip_damaged:
                raise
            _log.error("left out of a response: %s", error.message)
            return
        left = _left(payload, payload.size, first)
        yield block_head(payload.cid, payload.size) + first
        async for chunk in chunks:
            left = _left(payload, left, chunk)
            yield chunk
        if left:
            raise _other_size(payload)


def _left(payload: HeldPayload, left: int, chunk: bytes) -> int:
    """Return how many bytes follow a chunk, if the payload has the size that its head says."""
    if len(chunk) > left:
        raise _other_size(payload)
    return left - len(chunk)


def _other_size(payload: HeldPayload) -> StoreDamaged:
    """Return the exception for a size that another store has made up (`coregw.store.origin`)."""
    return StoreDamaged(f"the payload {payload.cid.text} does not have the {payload.size:,} bytes that it should have")
