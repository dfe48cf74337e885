"""The blocks that root CIDs name, from stored pages: the top node of a page, by itself.

Leaves out payloads, which are blocks as they are, and all I/O (`coregw.engine`).
"""

from __future__ import annotations

from typing import Final

from coregw import _core
from coregw._core import Cid
from coregw.errors import RootNotFound, StoreDamaged

__all__ = ["top_block"]

_KIND_BITS: Final = 0x300
"""What the codecs of maps and lists differ in (protocol section 1, `S`)."""


def top_block(root: Cid, page: bytes) -> bytes:
    """The encoding of the top node of `page`, which `root` names; it has the digest of `root`. O(size).

    Raises:
        RootNotFound: The page is of the other kind: a map asked for as a list, or the reverse.
        StoreDamaged: The page is not what its digest says.
    """
    try:
        return _core.root_block(root, page)
    except StoreDamaged:
        if not _is_of_other_kind(root, page):
            raise
        raise RootNotFound(f"the store has no {root.kind} {root.text}") from None


def _is_of_other_kind(root: Cid, page: bytes) -> bool:
    """Whether the page is sound, and its top is the node that the other kind's root of this digest names."""
    binary = bytearray(bytes(root))
    binary[2] ^= _KIND_BITS >> 7  # the second byte of the codec's varint, behind the version, has bits 7 to 13
    try:
        _core.root_block(bytes(binary), page)
    except StoreDamaged:
        return False
    return True
