"""What a repair could not copy: noted in the store, so that `coregw heal` knows what to fetch.

A payload is a row ``l multihash`` of `Table.RECORDS`. A root whose tree is not complete keeps its row in `Table.ROOTS`,
with `coregw.engine.roots.INCOMPLETE` as its value.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LOST", "lost_key"]

LOST: Final = b"l"
"""The first byte of the keys."""


def lost_key(multihash: bytes) -> bytes:
    """The key that notes a lost payload, by its binary multihash."""
    return LOST + multihash
