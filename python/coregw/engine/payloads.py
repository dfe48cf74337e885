"""Payloads and blocks: storing, finding and reading them, one or many.

Leaves out trees (`coregw.engine`) and HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple

from coregw._core import Cid, PayloadHasher
from coregw.engine.blocks import top_block
from coregw.engine.cas_batches import Payload, read_cas_batch
from coregw.engine.driver import Driver
from coregw.errors import PayloadNotFound, RootNotFound, StoreDamaged
from coregw.messages import encode
from coregw.messages.batch import HasBatchResult, Presence, PutBatchResult, PutOutcome
from coregw.store import CHUNK_BYTES, Store, Table

__all__ = ["Payloads", "StoredPayload"]

PUTS_AT_ONCE: Final = 256
"""How many payloads of a batch are written at once: they share syncs."""


class StoredPayload(NamedTuple):
    """A payload that the store has: the CID as it was asked for (normalised), its multihash, its size in bytes."""

    cid: str
    multihash: bytes
    size: int


class Payloads:
    """The payloads of one store, ``engine.payloads``."""

    def __init__(self, store: Store, driver: Driver) -> None:
        """Made by `Engine`."""
        self._store = store
        self._driver = driver

    async def put(self, chunks: AsyncIterator[bytes], codec: str, hash_name: str) -> str:
        """Stores a payload that comes in pieces and returns its CID; durable on return.

        Args:
            chunks: The bytes. What it raises passes through, and nothing is stored.
            codec: Multicodec name or number.
            hash_name: ``sha2-256`` or ``blake3``.

        Raises:
            InvalidInput: The codec (code ``invalid_codec``) or the hash function is none that payloads may have.
            Unavailable: The store cannot write now (`StorageFull`: it has no room).
        """
        hasher = PayloadHasher(codec, hash_name)
        async with self._store.begin_payload() as writer:
            async for chunk in chunks:
                hasher.update(chunk)
                await writer.write(chunk)
            cid = hasher.cid()
            await writer.commit(Cid(cid).multihash)
        return cid

    async def put_whole(self, body: AbstractAsyncContextManager[bytes], codec: str, hash_name: str) -> str:
        """Stores a short payload that comes in one piece, as `put` does, at less expense: it is hashed in one step.

        Args:
            body: Gives the payload, at most 1 MiB; left when the payload is stored. What it raises passes through.
            codec: Multicodec name or number.
            hash_name: ``sha2-256`` or ``blake3``.

        Raises:
            InvalidInput: As `put`, before the body is asked for; also where it is longer.
            Unavailable: As `put`.
        """
        hasher = PayloadHasher(codec, hash_name)
        async with body as data:
            hasher.update(data)
            cid = hasher.cid()
            await self._store.put_payload(Cid(cid).multihash, data)
        return cid

    async def batch(self, request: bytes, largest: int) -> bytes:
        """Stores the payloads of a batch, or says which are held; what is said is durable on return.

        If one item is wrong, nothing of the batch is stored. If the store fails half way, what was stored stays.

        Args:
            request: The JSON of ``POST /v1/cas/batch``.
            largest: The most bytes of one payload.

        Raises:
            InvalidInput: It is no such request; the message names the item.
            TooLarge: Too many items or bytes.
            Unavailable: The store cannot write now (`StorageFull`: it has no room).
        """
        async with self._driver.place_for(request):
            to_store, payloads = await self._driver.call(len(request), read_cas_batch, request, largest)
            if to_store:
                return encode(PutBatchResult(results=await self._put_payloads(payloads)))
            sizes = await self._store.stat_payloads([payload.multihash for payload in payloads])
            found = zip(payloads, sizes, strict=True)
            return encode(
                HasBatchResult(results=[Presence(cid=item.cid, present=size is not None) for item, size in found])
            )

    async def _put_payloads(self, payloads: Sequence[Payload]) -> list[PutOutcome]:
        """Stores payloads, each once, and says in their order which are new."""
        first = {payload.multihash: payload for payload in reversed(payloads)}
        different = list(first.values())
        new: set[bytes] = set()
        for start in range(0, len(different), PUTS_AT_ONCE):
            turn = different[start : start + PUTS_AT_ONCE]
            stored = await asyncio.gather(*map(self._put_one, turn), return_exceptions=True)  # none is left under way
            for payload, outcome in zip(turn, stored, strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                if outcome:
                    new.add(payload.multihash)
        return [
            PutOutcome(
                cid=payload.cid,
                status="stored"
                if payload.multihash in new and payload is first[payload.multihash]
                else "already_present",
            )
            for payload in payloads
        ]

    async def _put_one(self, payload: Payload) -> bool:
        data = payload.data or b""
        if len(data) <= CHUNK_BYTES:
            return await self._store.put_payload(payload.multihash, data)
        async with self._store.begin_payload() as writer:
            await writer.write(data)
            return await writer.commit(payload.multihash)

    async def find(self, cid: str) -> StoredPayload:
        """Looks a payload up by any CID with its multihash.

        Raises:
            InvalidInput: `cid` is no CID of the protocol (code ``invalid_cid``).
            PayloadNotFound: The store does not have it.
        """
        parsed = Cid(cid)
        (size,) = await self._store.stat_payloads([parsed.multihash])
        if size is None:
            raise PayloadNotFound(f"no payload {parsed.text} is held here")
        return StoredPayload(parsed.text, parsed.multihash, size)

    async def find_block(self, cid: Cid) -> StoredPayload | bytes:
        """Looks up what an IPFS client asks for: a payload by its multihash, or the tree node that a root CID names.

        Of tree nodes, those are blocks here that pages begin with: the top of every held root, and of what hangs below
        it at its pages' edges.

        Raises:
            PayloadNotFound: The store does not have the payload.
            RootNotFound: No stored page begins with such a node.
            StoreDamaged: The page of a held root is missing, or a page is not what its digest says.
        """
        if cid.kind == "cas":
            return await self.find(cid.text)
        [held] = await self._driver.are_held([bytes(cid)])  # first, since a root comes after its pages
        [page] = await self._store.get(Table.PAGES, [cid.digest])
        if page is not None:
            return top_block(cid, page)
        if held:
            raise StoreDamaged(f"the page of the held root {cid.text} is missing")
        raise RootNotFound(f"the store has no root or page {cid.text}")

    def read(self, payload: StoredPayload, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes `start` to `end` (exclusive) of a payload in chunks of at most 1 MiB. Raises as the store does."""
        return self._store.read_payload(payload.multihash, start, end)

    async def read_small(self, payload: StoredPayload, start: int, end: int) -> bytes | None:
        """The same bytes at once, or None where they are more than one chunk."""
        if end - start > CHUNK_BYTES:
            return None
        return b"".join([chunk async for chunk in self.read(payload, start, end)])
