"""Random pruned trees that no honest writer makes, with the roots that they have."""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))

import coregw
from forging import LIST, MAP, Part, binary, list_inner, list_leaf, list_stub, part, sized, varint

TARGET = binary(coregw.payload_cid(b"target"))
BAD_TARGET = b"\x01\x55\x11\x14" + bytes(20)
LETTERS = "abc"


def a_path(rng: random.Random) -> list[str]:
    return ["".join(rng.choice(LETTERS) for _ in range(rng.choice([1, 1, 2]))) for _ in range(rng.choice([1, 1, 2]))]


def own_bits(key: bytes, floor: int, end: int) -> bytes:
    """The bytes of a key that hold bits `floor` to `end`, other bits 0."""
    if floor == end:
        return b""
    bits = "".join(f"{byte:08b}" for byte in key)[:end].ljust(end, "0")
    start = floor // 8 * 8
    padded = ("0" * (floor - start) + bits[floor:end]).ljust(-(-(end - start) // 8) * 8, "0")
    return bytes(int(padded[i : i + 8], 2) for i in range(0, len(padded), 8))


def flipped(key: bytes, bit: int) -> bytes:
    data = bytearray(key)
    data[bit // 8] ^= 1 << 7 - bit % 8
    return bytes(data)


def rarely(rng: random.Random) -> bool:
    return rng.random() < 0.03


def _leaf(rng: random.Random, key: bytes, floor: int) -> Part:
    target = BAD_TARGET if rarely(rng) else TARGET
    tail = own_bits(key, floor, 8 * len(key))
    return part(1, 1, b"\x01" + sized(key) + sized(target), b"\x01" + sized(tail) + sized(target))


def _map_node(rng: random.Random, keys: list[bytes], floor: int, depth: int) -> Part:
    """A subtree of the sorted keys, most of the time with the node that they demand."""
    if rng.random() < 0.15 or floor >= 8 * len(keys[0]):
        count = 0 if rarely(rng) else len(keys)
        digest = rng.randbytes(32)
        return Part(count, count, digest, b"\x03" + varint(count) + digest)
    if len(keys) == 1 or depth > 8:
        return _leaf(rng, flipped(keys[0], rng.randrange(floor, 8 * len(keys[0]))) if rarely(rng) else keys[0], floor)
    bits = ["".join(f"{byte:08b}" for byte in key) for key in keys]
    pairs = zip(bits[0], bits[-1], strict=False)
    bit = next((i for i, (a, b) in enumerate(pairs) if a != b), floor)
    bit = max(floor, bit + (rng.randrange(-2, 3) if rarely(rng) else 0))
    left = [key for key, each in zip(keys, bits, strict=True) if each[bit : bit + 1] != "1"]
    right = [key for key, each in zip(keys, bits, strict=True) if each[bit : bit + 1] == "1"]
    if rarely(rng):
        left, right = right, left
    sides = [_map_node(rng, each or [keys[0]], bit + 1, depth + 1) for each in (left, right)]
    prefix = own_bits(keys[0], 0, bit)
    encoding = b"\x02" + varint(bit) + prefix + b"".join(varint(side.count) + side.digest for side in sides)
    label = own_bits(keys[0], floor, bit)
    shown = b"\x02" + varint(bit - floor) + label + b"".join(side.proof for side in sides)
    count = sum(side.count for side in sides)
    return part(count, count, encoding, shown)


def a_map(rng: random.Random) -> tuple[str, bytes]:
    """A root and a proof with it."""
    keys = sorted({coregw.encode_key(a_path(rng)) for _ in range(rng.choice([1, 2, 3, 5]))})
    made = _map_node(rng, keys, 0, 0)
    return coregw.Cid(made.root(MAP)).text, made.proof


def _list_node(rng: random.Random, count: int) -> Part:
    if rng.random() < 0.25:
        total = rng.choice([count, 2 * count, 2**52 if rarely(rng) else count])
        return list_stub(0 if rarely(rng) else count, total)
    if count == 1:
        return list_leaf(0 if rarely(rng) else rng.choice([1, 2, 3]), BAD_TARGET if rarely(rng) else TARGET)
    left = 1 << (count - 1).bit_length() - 1
    if rarely(rng):
        left = rng.randrange(1, count)
    return list_inner(_list_node(rng, left), _list_node(rng, count - left))


def a_list(rng: random.Random) -> tuple[str, bytes]:
    """A root and a proof with it."""
    made = _list_node(rng, rng.choice([1, 2, 3, 4, 5, 7]))
    return coregw.Cid(made.root(LIST)).text, made.proof
