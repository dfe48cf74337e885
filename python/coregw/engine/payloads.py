"""Payloads and blocks: storing, finding and reading them.

An identity CID contains its payload. Such a payload is always held: storing it writes nothing, and reading it returns
the bytes in the CID (protocol section 1).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple

from coregw._core import Cid, PayloadHasher, read_cids, read_has_batch
from coregw.engine.driver import Driver
from coregw.engine.objects import MAX_BLOCK_BYTES, RAW_CODEC, Scope, entity_size, is_one_block, top_block
from coregw.errors import PayloadNotFound, RootNotFound, StoreDamaged
from coregw.messages import encode
from coregw.messages.payloads import HasBatchResult, Presence
from coregw.store import CHUNK_BYTES, Store, Stored, Table
from coregw.store.protocol import raw_cid

__all__ = ["OneBlock", "Payloads", "StoredPayload"]

CONCURRENT_LOOK_UPS: Final = 4096
"""The number of payloads that are looked up, and dated again, at once."""

IDENTITY: Final = "identity"
"""The name of the hash function whose digest is the payload itself."""

LookUp = Callable[[Sequence[bytes]], Awaitable[list[int | None]]]
"""Returns the sizes of payloads by multihash, None for an absent one."""

_IDENTITY_CODE: Final = 0x00


class StoredPayload(NamedTuple):
    """A held payload: the requested CID (normalised), its multihash, and the payload's size in bytes."""

    cid: str
    multihash: bytes
    size: int


class OneBlock(NamedTuple):
    """A block that is all that an IPFS client requests.

    Attributes:
        content: The block, or where it is.
        entity_size: How many bytes the entity has that the block is; None if it is not bytes, or that is not known.
    """

    content: StoredPayload | bytes
    entity_size: int | None


class Payloads:
    """The payloads of one store, ``engine.payloads``."""

    def __init__(self, store: Store, driver: Driver) -> None:
        """Made by `Engine`."""
        self._store = store
        self._driver = driver

    # --- storing ------------------------------------------------------------------------------------------------------

    async def put(self, chunks: AsyncIterator[bytes], codec: str, hash_name: str) -> str:
        """Store a payload that arrives in chunks, and return its CID; durable on return.

        Args:
            chunks: The bytes. An exception raised by the iterator passes through, and nothing is stored.
            codec: Multicodec name or number.
            hash_name: A hash function of protocol section 1.

        Raises:
            InvalidInput: The codec (code ``invalid_codec``) or the hash function is not allowed for payloads.
            TooLarge: More bytes than an identity CID can contain.
            Unavailable: The store cannot write at the moment (`StorageFull`: it has no room).
        """
        hasher = PayloadHasher(codec, hash_name)
        if hash_name == IDENTITY:
            async for chunk in chunks:
                hasher.update(chunk)
            return hasher.cid()
        async with self._store.begin_payload() as writer:
            async for chunk in chunks:
                hasher.update(chunk)
                await writer.write(chunk)
            cid = hasher.cid()
            await writer.commit(Cid(cid).multihash)
        return cid

    async def put_whole(self, body: AbstractAsyncContextManager[bytes], codec: str, hash_name: str) -> str:
        """Store a short payload that arrives in one piece; cheaper than `put`.

        Args:
            body: Provides the payload, at most 1 MiB; exited when the payload is stored. Its exceptions pass through.
            codec: Multicodec name or number.
            hash_name: A hash function of protocol section 1.

        Raises:
            InvalidInput: As `put`, before `body` is entered; also if the payload is longer than 1 MiB.
            TooLarge, Unavailable: As `put`.
        """
        hasher = PayloadHasher(codec, hash_name)
        async with body as data:
            hasher.update(data)
            cid = hasher.cid()
            if hash_name != IDENTITY:
                await self._store.put_payloads([(Cid(cid).multihash, data)])
        return cid

    # --- finding and reading ------------------------------------------------------------------------------------------

    async def batch_held(self, request: bytes, *, renews: bool = True) -> bytes:
        """Return which payloads of a batch are held; what is held is durable.

        Args:
            request: The JSON body of ``POST /v1/cas/has``.
            renews: Whether what is held counts as stored now.

        Raises:
            InvalidInput: The request is malformed; the message names the CID.
            TooLarge: There are too many CIDs.
            Unavailable: The store cannot write at the moment (`StorageFull`: it has no room).
        """
        cids = await self._driver.call(len(request), read_has_batch, request)
        look_up = self._renew if renews else self._store.stat_payloads
        sizes = await self._sizes([cid.multihash for cid in cids], look_up)
        found = zip(cids, sizes, strict=True)
        return encode(HasBatchResult(results=[Presence(cid=cid.text, present=size is not None) for cid, size in found]))

    async def held(self, request: bytes, *, renews: bool = True) -> bytes:
        """Return which payloads are held: a bit for each, the lowest one of a byte first. What is held is durable.

        Args:
            request: The body of ``POST /v1/cas/has``.
            renews: Whether what is held counts as stored now.

        Raises:
            InvalidInput: Something is not a CID; the message names it.
            TooLarge: There are too many CIDs.
            Unavailable: The store cannot write at the moment (`StorageFull`: it has no room).
        """
        multihashes = await self._driver.call(len(request), read_cids, request)
        bits = bytearray(-(-len(multihashes) // 8))
        for start in range(0, len(multihashes), CONCURRENT_LOOK_UPS):
            look_up = self._renew if renews else self._store.stat_payloads
            sizes = await self._sizes(multihashes[start : start + CONCURRENT_LOOK_UPS], look_up)
            for index, size in enumerate(sizes, start):
                if size is not None:
                    bits[index >> 3] |= 1 << (index & 7)
        return bytes(bits)

    async def find(self, cid: str) -> StoredPayload:
        """Look up a payload by any CID with its multihash.

        Raises:
            InvalidInput: `cid` is not a CID of the protocol (code ``invalid_cid``).
            PayloadNotFound: The store does not hold the payload.
        """
        parsed = Cid(cid)
        (size,) = await self._sizes([parsed.multihash], self._store.stat_payloads)
        if size is None:
            raise PayloadNotFound(f"the payload {parsed.text} is not held")
        return StoredPayload(parsed.text, parsed.multihash, size)

    async def find_block(self, cid: Cid) -> StoredPayload | bytes:
        """Look up the block that an IPFS client requests: a payload, or the tree node that a root CID names.

        The tree nodes served as blocks are the top nodes of pages: those of all held roots, and some below them.

        Raises:
            PayloadNotFound: The store does not hold the payload.
            RootNotFound: No stored page begins with such a node.
            StoreDamaged: The page of a held root is missing, or a page does not match its digest.
        """
        if cid.kind == "cas":
            return await self.find(cid.text)
        [is_held] = await self._driver.are_held([bytes(cid)])  # before the page: a root record is written after it
        [page] = await self._store.get(Table.PAGES, [cid.digest])
        if page is not None:
            return top_block(cid, page)
        if is_held:
            raise StoreDamaged(f"the page of the held root {cid.text} is missing")
        raise RootNotFound(f"the store holds no root or page {cid.text}")

    async def one_block(self, cid: Cid, block: StoredPayload | bytes, scope: Scope) -> OneBlock | None:
        """Return the block if it is all that an IPFS client requests, as `find_block` found it or its bytes; else None.

        None also if that is not known. Reads the block if that may depend on its links; then it is returned as bytes,
        unless it is longer than a chunk.

        Raises:
            Unavailable, StoreDamaged: The block cannot be read.
        """
        data = block
        if isinstance(data, StoredPayload):
            if cid.codec == RAW_CODEC:
                return OneBlock(block, data.size)
            if scope == "block":
                return OneBlock(block, None)
            if data.size > MAX_BLOCK_BYTES:
                return None
            data = b"".join([chunk async for chunk in self.read(data, 0, data.size)])
        if not is_one_block(cid, data, scope):
            return None
        size = None if scope == "block" else entity_size(cid, data)
        return OneBlock(data if len(data) <= CHUNK_BYTES else block, size)

    def read(self, payload: StoredPayload, start: int, end: int) -> AsyncIterator[bytes]:
        """Read the bytes `start` to `end` (exclusive) of a payload, in chunks of at most 1 MiB.

        Raises as `coregw.store.Store.read_payload`.
        """
        identity = _identity_payload(payload.multihash)
        if identity is not None:
            return _one_chunk(identity[start:end])
        return self._store.read_payload(payload.multihash, start, end)

    async def read_small(self, payload: StoredPayload, start: int, end: int) -> bytes | None:
        """Read the same range at once, or return None if it is larger than a chunk."""
        if end - start > CHUNK_BYTES:
            return None
        return b"".join([chunk async for chunk in self.read(payload, start, end)])

    async def _renew(self, multihashes: Sequence[bytes]) -> list[int | None]:
        """The sizes of payloads, for an answer on which a client may rely instead of sending them."""
        return await self._store.renew(Stored.PAYLOADS, multihashes)

    async def _sizes(self, multihashes: Sequence[bytes], look_up: LookUp) -> list[int | None]:
        """The sizes of payloads, None for one that is not held."""
        identities = [_identity_payload(multihash) for multihash in multihashes]
        stored = [each for each, identity in zip(multihashes, identities, strict=True) if identity is None]
        sizes = iter(await look_up(stored) if stored else [])
        return [next(sizes) if identity is None else len(identity) for identity in identities]


def _identity_payload(multihash: bytes) -> bytes | None:
    """The payload that an identity multihash contains; None for any other hash function."""
    return raw_cid(multihash).digest if multihash[0] == _IDENTITY_CODE else None


async def _one_chunk(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data
