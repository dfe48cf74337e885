"""A truncated, damaged, malformed or too large CAR is refused with its place, and nothing of it is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import httpx2
import pytest

import serving
from car_files import block, cid, frames, header, split, varint
from car_support import EMPTY, MAP, RAW, build, export, kept, take
from coregw import Cid
from coregw.store.memory import MemoryStore
from tables import rows


@pytest.fixture(scope="module")
def empty_store() -> Iterator[tuple[httpx2.Client, MemoryStore]]:
    """A gateway, and its store for inspection."""
    store = MemoryStore()
    limits = {"car_blocks": 100, "payload_bytes": 1000, "car_bytes": 20_000}
    with serving.thread(store, **limits) as url, httpx2.Client(base_url=url, timeout=60) as session:
        yield session, store


Refused = Callable[[bytes, int, str, str], None]


@pytest.fixture
def refuses(
    empty_store: tuple[httpx2.Client, MemoryStore], expect_refusal: Callable[[httpx2.Response, int, str], str]
) -> Refused:
    """Send a CAR that must be refused with these words, and check that nothing was stored."""
    session, store = empty_store

    def check(car: bytes, status: int, code: str, words: str) -> None:
        for is_spooled in (False, True):
            message = expect_refusal(take(session, car, is_spooled=is_spooled), status, code)
            assert words in message
        assert kept(store) == (0, 0, 0)

    return check


def small(client: httpx2.Client) -> list[bytes]:
    return frames(export(client, build(client, 4, "small")))


def test_a_truncated_car_stores_nothing(client: httpx2.Client, refuses: Refused) -> None:
    blocks = small(client)
    car = b"".join(blocks)
    borders = {0}
    for frame in blocks:
        borders.add(max(borders) + len(frame))
    for cut in sorted(borders | set(range(0, len(car), 23))):
        if cut < len(car):
            refuses(car[:cut], 400, "invalid_request", "")
    refuses(car[:-1], 400, "invalid_request", f"block {len(blocks) - 2} at byte {len(car) - len(blocks[-1])}: ")


def test_a_flipped_bit_in_any_block_stores_nothing(client: httpx2.Client, refuses: Refused) -> None:
    blocks = small(client)
    for number in range(1, len(blocks)):
        for place in (-1, -20, 30):
            bad = bytearray(blocks[number])
            bad[place] ^= 4
            car = b"".join([*blocks[:number], bytes(bad), *blocks[number + 1 :]])
            at = sum(map(len, blocks[:number]))
            refuses(car, 400, "invalid_request", f"block {number - 1} at byte {at}: ")


def test_swapped_missing_and_stray_nodes_store_nothing(client: httpx2.Client, refuses: Refused) -> None:
    blocks = small(client)
    nodes = [frame for frame in blocks[1:] if split(frame)[0][1] != RAW]
    (name, _), (_, others_bytes) = split(nodes[1]), split(nodes[-1])
    swapped = [block(name, others_bytes) if frame == nodes[1] else frame for frame in blocks]
    refuses(b"".join(swapped), 400, "invalid_request", "another hash")
    for node in nodes:
        car = b"".join(frame for frame in blocks if frame != node)
        refuses(car, 400, "invalid_request", f"{Cid(split(node)[0]).text}, is not among the blocks")
    refuses(b"".join(blocks) + block(EMPTY, b"\0"), 400, "invalid_request", "not reachable from any root")


def test_trees_of_another_shape_store_nothing(refuses: Refused) -> None:
    target = cid(RAW, b"x")

    def leaf(key: bytes) -> bytes:
        return b"\x01" + bytes([len(key)]) + key + b"\x24" + target

    def inner(bit: int, prefix: bytes, *below: bytes) -> bytes:
        return b"\x02" + bytes([bit]) + prefix + b"".join(b"\x01" + hashlib.sha256(node).digest() for node in below)

    a, b = leaf(b"a\0\0"), leaf(b"b\0\0")
    unordered = inner(6, b"\x60", b, a)
    early = inner(5, b"\x60", a, b)
    doubled = inner(6, b"\x60", a, a)
    for top in (unordered, early, doubled):
        car = header(cid(MAP, top)) + b"".join(block(cid(MAP, node), node) for node in (top, a, b))
        refuses(car, 400, "invalid_request", "do not belong below its parent")
    good = inner(6, b"\x60", a, b)
    item = b"\x11\x01\x24" + target
    pair = b"\x12" + 2 * (b"\x01\x01" + hashlib.sha256(item).digest())
    lopsided = b"\x12\x01\x01" + hashlib.sha256(item).digest() + b"\x02\x02" + hashlib.sha256(pair).digest()
    lists = [block(cid(0x303210, node), node) for node in (lopsided, pair, item)]
    refuses(header(cid(0x303210, lopsided)) + b"".join(lists), 400, "invalid_request", "another shape")
    as_list = header(cid(0x303210, good)) + block(cid(0x303210, good), good)
    refuses(as_list, 400, "invalid_request", "not a node of its kind")


@rows(
    ("car", "words"),
    [
        (b"", "the header: the CAR ends inside it, after 0 bytes"),
        (b"\0", "the header: it has no bytes"),
        (b"\xff" * 9, "the header: its length"),
        (b"\xff\xff\xff\xff\x0f", "longer than 64 KiB"),
        (header() + block(EMPTY, b"\0"), "not reachable from any root"),
        (header(b"\x01\x55\0\0") + block(EMPTY, b"\0"), "not reachable from any root"),
        (header(cid(RAW, b"x")), "root 0, "),
        (header(EMPTY).replace(b"version\x01", b"version\x02"), "DAG-CBOR"),
        (b"\x0a\xa1\x67version\x02" + bytes(40), "begins inside the header"),
        (header(EMPTY)[:1] + b"\xa2\x67version\x01" + header(EMPTY)[2:-9], "DAG-CBOR"),
        (header(EMPTY), "root 0, "),
        (header(EMPTY) + b"\0", "block 0 at byte 62: it has no bytes"),
        (header(EMPTY) + b"\x80\0", "minimal form"),
        (header(EMPTY) + b"\xff" * 9, "longer than 9 bytes"),
        (header(EMPTY) + block(b"\x12\x20" + bytes(32), b"CIDv0"), "another hash"),
        (header(EMPTY) + block(b"\x01\x55\x00\x05", b"hello"), "another hash"),
        (header(EMPTY) + varint(1 << 40) + EMPTY + bytes(141), "no tree node has more"),
    ],
)
def test_a_malformed_car_is_refused_with_its_place(refuses: Refused, car: bytes, words: str) -> None:
    refuses(car, 400, "invalid_request", words)


def test_an_exceeded_limit_is_named(refuses: Refused) -> None:
    start = header(EMPTY) + block(EMPTY, b"\0")
    refuses(start + block(cid(RAW, bytes(1001)), bytes(1001)), 413, "too_large", "1000 is the limit")
    refuses(start + 100 * block(EMPTY, b"\0"), 413, "too_large", "more than 100 blocks")
    refuses(start + 30 * block(cid(RAW, bytes(1000)), bytes(1000)), 413, "too_large", "20000 bytes")
