"""Trees assembled by hand from the encodings of the protocol (section 3), so that they can contain any value."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import coregw
from car_files import varint

MAP, LIST = 0x303110, 0x303210


class Part(NamedTuple):
    """A subtree: what its parent hashes of it, and its bytes in a proof."""

    count: int
    measure: int
    digest: bytes
    proof: bytes

    def root(self, codec: int) -> bytes:
        """The root whose tree this is, in binary form."""
        return b"\x01" + varint(codec) + b"\x12\x20" + self.digest


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def part(count: int, measure: int, encoding: bytes, proof: bytes) -> Part:
    return Part(count, measure, hashlib.sha256(encoding).digest(), proof)


def map_leaf(key: bytes, target: bytes, floor: int = 0) -> Part:
    tail = bytearray(key[floor // 8 :])
    if tail:
        tail[0] &= 0xFF >> floor % 8
    return part(1, 1, b"\x01" + sized(key) + sized(target), b"\x01" + sized(bytes(tail)) + sized(target))


def map_inner(bit: int, prefix: bytes, left: Part, right: Part) -> Part:
    """An inner node at the top of a tree."""
    label = prefix[: -(-bit // 8)]
    head = b"\x02" + varint(bit) + label
    sides = b"".join(varint(side.count) + side.digest for side in (left, right))
    count = left.count + right.count
    return part(count, count, head + sides, head + left.proof + right.proof)


def map_stub(count: int) -> Part:
    digest = b"\xab" * 32
    return Part(count, count, digest, b"\x03" + varint(count) + digest)


def list_leaf(measure: int, target: bytes) -> Part:
    encoding = b"\x11" + varint(measure) + sized(target)
    return part(1, measure, encoding, encoding)


def list_inner(left: Part, right: Part) -> Part:
    sides = b"".join(varint(side.count) + varint(side.measure) + side.digest for side in (left, right))
    return part(
        left.count + right.count, left.measure + right.measure, b"\x12" + sides, b"\x12" + left.proof + right.proof
    )


def list_stub(count: int, measure: int) -> Part:
    digest = b"\xcd" * 32
    return Part(count, measure, digest, b"\x13" + varint(count) + varint(measure) + digest)


def binary(cid: str) -> bytes:
    return bytes(coregw.Cid(cid))
