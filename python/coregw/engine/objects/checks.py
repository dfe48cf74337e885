"""Comparisons of pages and payloads with their names, for stores that read from sources that are not trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coregw import _core
from coregw._core import Cid
from coregw.errors import StoreDamaged
from coregw.hashing import RunningHash, new_hash

__all__ = ["ObjectChecks"]

_RAW: Final = b"\x01\x55"  # CIDv1, codec raw


class ObjectChecks:
    """Implements `coregw.store.origin.Checks`."""

    def are_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Return for each pair of a digest and bytes whether the bytes are the page with this digest. O(bytes)."""
        return [links is not None for links in _core.page_links(pages)]

    def is_root_page(self, root: bytes, page: bytes) -> bool:
        """Return whether the bytes are the page of a binary root CID, of its kind and suite. O(bytes)."""
        try:
            _core.root_block(root, page)
        except StoreDamaged:
            return False
        return True

    def hasher(self, multihash: bytes) -> tuple[RunningHash, bytes]:
        """Return a hasher of the multihash's function, and the digest that a payload must have."""
        cid = Cid(_RAW + multihash)
        return new_hash(cid.hash_name), cid.digest
