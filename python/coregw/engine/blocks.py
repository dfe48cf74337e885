"""Blocks named by root CIDs: the top node of a stored page, on its own. Payloads are blocks as they are."""

from __future__ import annotations

from typing import Final

from coregw import _core
from coregw._core import Cid
from coregw.errors import RootNotFound, StoreDamaged

__all__ = ["top_block"]

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
