"""Reader of the blocks of a CAR that is in memory."""

from __future__ import annotations

from typing import Final

__all__ = ["blocks_of"]

_CID: Final = b"\x01\x55\x12\x20"  # CIDv1, codec raw, sha2-256 of 32 bytes
_CID_BYTES: Final = len(_CID) + 32
_MAX_VARINT_BYTES: Final = 4


def blocks_of(car: bytes) -> list[bytes]:
    """Return the bytes of all blocks, without the header. O(bytes); no hash is checked.

    Raises:
        ValueError: The bytes do not end where a block ends, or a CID is not one of plain bytes.
    """
    _, at = _frame(car, 0)  # the header names no block
    blocks: list[bytes] = []
    while at < len(car):
        begin, at = _frame(car, at)
        if car[begin : begin + len(_CID)] != _CID or at - begin < _CID_BYTES:
            raise ValueError(f"byte {begin}: expected the CID of a block of bytes")
        blocks.append(car[begin + _CID_BYTES : at])
    return blocks


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
