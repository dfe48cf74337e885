"""Reader of the blocks of a CAR that is in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["blocks_of", "named_blocks_of"]

_CID: Final = b"\x01\x55\x12\x20"  # CIDv1, codec raw, sha2-256 of 32 bytes
_CID_BYTES: Final = len(_CID) + 32
_MAX_VARINT_BYTES: Final = 4


def blocks_of(car: bytes) -> list[bytes]:
    """Return the bytes of all blocks, without the header. O(bytes); no hash is checked.

    Raises:
        ValueError: The bytes do not end where a block ends, or a CID is not one of plain bytes.
    """
    blocks: list[bytes] = []
    for begin, end in _frames(car):
        if not car.startswith(_CID, begin) or end - begin < _CID_BYTES:
            raise ValueError(f"byte {begin}: expected the CID of a block of bytes")
        blocks.append(car[begin + _CID_BYTES : end])
    return blocks


def named_blocks_of(car: bytes, cids: Sequence[bytes]) -> list[bytes | None]:
    """Return the bytes of the block with each of these CIDs, None for those that were left out.

    O(bytes); no hash is checked.

    Args:
        car: The bytes of the CAR.
        cids: Binary CIDs, in the order in which their blocks come.

    Raises:
        ValueError: The bytes do not end where a block ends, or a block has none of the remaining CIDs.
    """
    blocks: list[bytes | None] = [None] * len(cids)
    remaining = iter(enumerate(cids))
    for begin, end in _frames(car):
        for number, cid in remaining:
            if car.startswith(cid, begin, end):  # a CID says where it ends: none begins with another
                blocks[number] = car[begin + len(cid) : end]
                break
        else:
            raise ValueError(f"byte {begin}: a block that was not requested here")
    return blocks


def _frames(car: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the CID of each block begins, and the block ends."""
    _, at = _frame(car, 0)  # the header names no block
    while at < len(car):
        begin, at = _frame(car, at)
        yield begin, at


def _frame(car: bytes, at: int) -> tuple[int, int]:
    """Return where the frame whose length is at byte `at` begins and ends."""
    length = 0
    for count in range(_MAX_VARINT_BYTES):
        if at + count >= len(car):
            break
        byte = car[at + count]
        length |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            begin = at + count + 1
            if begin + length > len(car):
                break
            return begin, begin + length
    raise ValueError(f"byte {at}: no whole block")
