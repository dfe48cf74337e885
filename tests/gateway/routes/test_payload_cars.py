"""``POST /v1/cas/car``: many payloads in one answer, in order, streamed, and whole or left out."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import httpx2
import pytest

import serving
from car_files import block, cid, frames, header
from car_support import MAP, RAW, put
from coregw._core import Cid
from coregw.errors import StoreDamaged
from coregw.store.memory import MemoryStore

MIB = 1 << 20
EMPTY = bytes.fromhex("01550000")
PROFILE = "cas.get-batch/v0alpha1"


def ask(client: httpx2.Client, cids: Sequence[str]) -> httpx2.Response:
    return client.post("/v1/cas/car", json={"profile": PROFILE, "cids": cids})


def some_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def test_payloads_come_in_the_requested_order_and_those_not_held_are_left_out(client: httpx2.Client) -> None:
    sizes = [0, 1, 127, 70_000, MIB - 1, MIB, MIB + 1, 3 * MIB + 5, 2, *range(1000, 1100)]
    datas = [some_bytes(size) for size in sizes]
    held = {cid(RAW, data): data for data in datas}
    for data in datas:
        put(client, data)
    identity, other_codec = b"\x01\x55\x00\x03abc", cid(0x71, datas[3])
    held |= {identity: b"abc", other_codec: datas[3]}
    asked = [*held, *(cid(RAW, b"absent %d" % i) for i in range(5)), cid(RAW, datas[1])]
    random.Random(1).shuffle(asked)
    answer = ask(client, [Cid(each).text for each in asked])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.ipld.car; version=1"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.content == header(EMPTY) + b"".join(block(each, held[each]) for each in asked if each in held)
    assert ask(client, []).content == header(EMPTY)


def test_malformed_requests_for_payloads_are_refused(client: httpx2.Client, expect_refusal: Callable[..., str]) -> None:
    root, raw = Cid(cid(MAP, b"\0")).text, Cid(cid(RAW, b"x")).text
    assert "cids[1]" in expect_refusal(ask(client, [raw, "nonsense"]), 400, "invalid_cid")
    assert "cids[2]" in expect_refusal(ask(client, [raw, raw, root]), 400, "kind_mismatch")
    expect_refusal(ask(client, [raw] * 4097), 413, "too_large")
    for body in ({"cids": [raw]}, {"profile": PROFILE}, {"profile": PROFILE, "cids": raw}):
        expect_refusal(client.post("/v1/cas/car", json=body), 400, "invalid_request")
    other = {"profile": "cas.has-batch/v0alpha1", "cids": [raw]}
    expect_refusal(client.post("/v1/cas/car", json=other), 400, "unknown_profile")
    assert ask(client, [raw] * 4096).status_code == 200


class _Damaged(MemoryStore):
    """A store in which two payloads have lost a part; it counts the chunks that are read."""

    def __init__(self, small: bytes, large: bytes, later: bytes) -> None:
        super().__init__()
        self.damaged = [cid(RAW, each)[2:] for each in (small, large, later)]
        self.chunks = 0

    async def get_payloads(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        if set(multihashes) & {*self.damaged}:
            raise StoreDamaged("a chunk is missing")
        return await super().get_payloads(multihashes)

    async def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> object:  # type: ignore[override]
        async for chunk in super().read_payload(multihash, start, end):
            self.chunks += 1
            if multihash in self.damaged and start // MIB == self.damaged.index(multihash) - 1:
                raise StoreDamaged("a chunk is missing")
            yield chunk
            start += len(chunk)


def test_a_damaged_payload_is_left_out_and_one_that_has_begun_ends_the_answer() -> None:
    good = [b"first", b"second", b"third", b"fourth"]
    small, large, later = b"small", some_bytes(2 * MIB), some_bytes(3 * MIB)
    with (
        serving.thread(_Damaged(small, large, later)) as url,
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        cids = [put(client, data) for data in (good[0], small, good[1], large, good[2], later, good[3])]
        answer = ask(client, [each for each in cids if each != cids[5]])
        assert answer.content == header(EMPTY) + b"".join(block(cid(RAW, data), data) for data in good)
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            ask(client, cids)
        assert ask(client, cids[:1]).status_code == 200


def test_nothing_is_read_for_a_client_that_does_not_read_or_has_left() -> None:
    store = _Damaged(b"", b"", b"")
    data = some_bytes(64 * MIB)
    with (
        serving.thread(store) as url,
        httpx2.Client(base_url=url, timeout=60) as client,
        serving.connect(url) as slow,
    ):
        large = put(client, data)
        body = b'{"profile":"%b","cids":[%b]}' % (PROFILE.encode(), b",".join([b'"%b"' % large.encode()] * 4096))
        slow.sendall(b"POST /v1/cas/car HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert slow.recv(9) == b"HTTP/1.1 "
        small = put(client, b"small")
        assert len(frames(ask(client, [small]).content)) == 2
        time.sleep(0.5)
        read = store.chunks
        assert read < 32  # what a connection's buffers take, one part in memory, and one that is read ahead
        with serving.connect(url) as leaving:
            leaving.sendall(b"POST /v1/cas/car HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert leaving.recv(9) == b"HTTP/1.1 "
        assert len(frames(ask(client, [small]).content)) == 2
        time.sleep(0.5)
        assert store.chunks < read + 32
