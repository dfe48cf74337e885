"""Whether the answer to an IPFS client is one block: what a block says about the blocks that it links to.

```
dag-pb block (protobuf)           UnixFS data (protobuf)
  field 2: a link, repeated         field 1: the type of the node
  field 1: UnixFS data
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from coregw._core import Cid, is_linkless, read_varint

__all__ = ["MAX_BLOCK_BYTES", "RAW_CODEC", "Scope", "is_one_block"]

Scope = Literal["block", "entity", "all"]
"""How much a client requests: a block, what it takes to read a file or to list a folder, or everything below."""

MAX_BLOCK_BYTES: Final = 2 << 20
"""IPFS clients take no longer blocks, and longer ones are not looked into."""

RAW_CODEC: Final = 0x55
"""The codec of blocks that have no links."""

_DAG_PB: Final = 0x70

_DIRECTORY: Final = 1
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
