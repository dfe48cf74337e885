"""Immutable objects and blocks by name, checked, and whether a block is a whole DAG.

Caches may keep what is returned here forever, so every object is compared with its name before it is sent.

```
dag-pb block (protobuf)           UnixFS data (protobuf)
  field 2: a link, repeated         field 1: the type of the node
  field 1: UnixFS data              field 2: the bytes of a file
                                    field 3: the size of a file
```
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final, Literal, NamedTuple, cast

from coregw import _core
from coregw._core import Cid, is_linkless, read_varint
from coregw.engine.driver import Driver
from coregw.errors import InvalidInput, NotFound, RootNotFound, StoreDamaged
from coregw.store import Store, Table

__all__ = [
    "MAX_BLOCK_BYTES",
    "RAW_CODEC",
    "HeldRoot",
    "Objects",
    "Scope",
    "entity_size",
    "is_one_block",
    "page_digest",
    "top_block",
]

_KIND_BITS: Final = 0x300
"""The bits in which the codecs of maps and lists differ (protocol section 1, `S`)."""


def top_block(root: Cid, page: bytes) -> bytes:
    """Return the encoding of the top node of `page`; its digest is that of `root`. O(size).

    Raises:
        RootNotFound: The page is of the other kind: `root` names a map and the page is of a list, or the reverse.
        StoreDamaged: The page does not match its digest.
    """
    try:
        return _core.root_block(root, page)
    except StoreDamaged:
        if not _is_of_other_kind(root, page):
            raise
        raise RootNotFound(f"the store holds no {root.kind} {root.text}") from None


def _is_of_other_kind(root: Cid, page: bytes) -> bool:
    """Whether the page is valid and its top node is the one that the other kind's root of this digest names."""
    binary = bytearray(bytes(root))
    binary[2] ^= _KIND_BITS >> 7  # the codec is a varint after the version byte; its second byte has bits 7 to 13
    try:
        _core.root_block(bytes(binary), page)
    except StoreDamaged:
        return False
    return True


_DIGEST: Final = re.compile("[0-9a-f]{64}")

_PAGES_AT_ONCE: Final = 64
"""Pages of an answer that are read, checked and sent together: at most 1 MiB."""


class HeldRoot(NamedTuple):
    """A held root: its CID in normalised form, and the page that begins with its top node."""

    cid: str
    page: bytes


class Objects:
    """The pages and roots of one store by name, ``engine.objects``."""

    def __init__(self, store: Store, driver: Driver) -> None:
        """Made by `Engine`."""
        self._store = store
        self._driver = driver

    async def page(self, name: str) -> bytes:
        """Return a stored page, which has its digest. O(bytes) hashing.

        Args:
            name: The digest of the page's top node as 64 characters of ``0-9a-f``.

        Raises:
            InvalidInput: If `name` is not such a digest.
            NotFound: If the store does not hold the page (code ``page_not_found``).
            StoreDamaged: If the stored page does not have its digest.
        """
        digest = page_digest(name)
        [page] = await self._store.get(Table.PAGES, [digest])
        if page is None:
            raise NotFound(f"the page {name} is not held", code="page_not_found")
        [links] = _core.page_links([(digest, page)])
        if links is None:
            raise StoreDamaged(f"the page {name} does not have its digest")
        return page

    async def root(self, root: str) -> HeldRoot:
        """Return a held root with its page. O(bytes) hashing.

        Raises:
            InvalidInput: If `root` is not a CID, or is one of a payload (code ``kind_mismatch``).
            RootNotFound: If the store does not hold the root.
            StoreDamaged: If its page is missing or does not have its digest.
        """
        cid = Cid(root)
        if cid.kind == "cas":
            raise InvalidInput(f"{cid.text} is a payload, not a root", code="kind_mismatch")
        [is_held] = await self._driver.are_held([bytes(cid)])
        if not is_held:
            raise RootNotFound(f"the store has no root {cid.text}")
        [page] = await self._store.get(Table.PAGES, [cid.digest])
        if page is None:
            raise StoreDamaged(f"the page of the held root {cid.text} is missing")
        top_block(cid, page)  # raises if the page is damaged
        return HeldRoot(cid.text, page)

    async def pages(self, request: bytes) -> AsyncGenerator[bytes, None]:
        """Begin to write the pages that a request names as a CAR, and return an iterator over its bytes.

        Pages that are not held, or do not have their digests, are left out. Memory is bounded whatever the size.

        Args:
            request: The JSON body of ``POST /v1/pages/car``.

        Raises:
            InvalidInput: If the request is malformed; the message names the digest.
            TooLarge: If it names more than 1,024 pages.
        """
        return self._blocks(await self._driver.call(len(request), _core.read_get_pages, request))

    async def _blocks(self, digests: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
        yield _core.payload_car_header()
        for start in range(0, len(digests), _PAGES_AT_ONCE):
            part = digests[start : start + _PAGES_AT_ONCE]
            pages = await self._store.get(Table.PAGES, part)
            held = [(digest, page) for digest, page in zip(part, pages, strict=True) if page is not None]
            if held:
                yield await self._driver.in_worker(_framed, held)


def page_digest(name: str) -> bytes:
    """Return the digest that names a page in a URL. Raises `InvalidInput` if `name` is not one."""
    if not _DIGEST.fullmatch(name):
        raise InvalidInput(f"page {name!r:.100}: expected a digest as 64 characters of 0-9a-f")
    return bytes.fromhex(name)


def _framed(pages: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the blocks of pages, each under the CID of its bytes; without pages that do not have their digests."""
    parts: list[bytes] = []
    for (_, page), links in zip(pages, _core.page_links(pages), strict=True):
        if links is not None:
            parts += _core.block_head(_core.payload_cid(page), len(page)), page
    return b"".join(parts)


Scope = Literal["block", "entity", "all"]
"""How much a client requests: a block, what it takes to read a file or to list a folder, or everything below."""

MAX_BLOCK_BYTES: Final = 2 << 20
"""IPFS clients take no longer blocks, and longer ones are not looked into."""

RAW_CODEC: Final = 0x55
"""The codec of blocks that have no links."""

_DAG_PB: Final = 0x70

_DIRECTORY: Final = 1
_FILES: Final = (0, 2)
"""The types of UnixFS nodes that are bytes: part of a file, and a file."""

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


def is_one_block(cid: Cid, block: bytes, scope: Scope) -> bool:
    """Return whether all that a request names is this block. O(size).

    False if that is not known: the codec may have links that this function cannot read, or the block does not decode,
    so that other decoders may find links in it.

    Args:
        cid: The CID of the block.
        block: The block, at most `MAX_BLOCK_BYTES`.
        scope: How much is requested.
    """
    if scope == "block" or cid.codec == RAW_CODEC:
        return True
    if cid.codec == _DAG_PB:
        return _is_one_unixfs_block(block, scope)
    if scope == "entity":
        return True  # of anything but UnixFS, the entity is the block
    return is_linkless(cid, block)


def _is_one_unixfs_block(block: bytes, scope: Scope) -> bool:
    """Whether a dag-pb block has no links, or all its links are those of a folder that is only listed."""
    try:
        data: bytes | None = None
        has_links = False
        for field, value in _fields(block):
            if field not in (1, 2) or isinstance(value, int) or (field == 1 and data is not None):
                return False  # not dag-pb, whose fields are these, with data at most once
            has_links |= field == 2
            data = value if field == 1 else data
        if not has_links:
            return True
        kind = dict(_fields(data or b"")).get(1)
    except ValueError:
        return False
    return scope == "entity" and kind == _DIRECTORY


def entity_size(cid: Cid, block: bytes) -> int | None:
    """Return how many bytes the entity that is one block has: a payload of codec raw, or a UnixFS file. O(size).

    None if the entity is not bytes, or its size is not known.

    Args:
        cid: The CID of the block.
        block: The block, for whose scope ``entity`` `is_one_block` is true.
    """
    if cid.codec == RAW_CODEC:
        return len(block)
    if cid.codec != _DAG_PB:
        return None
    try:
        members = dict(_fields(cast("bytes", dict(_fields(block)).get(1, b""))))
    except ValueError:
        return None
    data = members.get(2, b"")
    if members.get(1) not in _FILES or isinstance(data, int) or members.get(3, len(data)) != len(data):
        return None
    return len(data)


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the fields of a protobuf message, as their numbers and values.

    Raises:
        ValueError: The message is malformed.
    """
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        wire_type = key & 7
        if wire_type == _VARINT:
            number, at = read_varint(message, at)
            yield key >> 3, number
            continue
        if wire_type == _BYTES:
            size, at = read_varint(message, at)
        elif wire_type in (_FIXED_64, _FIXED_32):
            size = 8 if wire_type == _FIXED_64 else 4
        else:
            raise ValueError("unknown wire type")
        if size > len(message) - at:
            raise ValueError("truncated")
        value = message[at : at + size]
        yield key >> 3, value if wire_type == _BYTES else int.from_bytes(value, "little")
        at += size
