"""Answers with many payloads in forms that only imports take: their payloads are those that were verified."""

from __future__ import annotations

import hashlib

import pytest

from car_files import block, cid, header
from coregw import Cid
from coregw._core import payload_car_header
from coregw.client import ClientSettings
from coregw.client.operations.payloads import ReceivedPayloads
from coregw.errors import ProofError

DATA = b"\x0a\x02\x08\x01 payload"
NAME = cid(0x70, DATA)


def received(answer: bytes) -> list[bytes]:
    with ReceivedPayloads("payloads", [Cid(NAME)], ClientSettings()) as body:
        body.write(answer)
        body.check("absent")
        return list(body.payloads())


def test_a_block_under_a_cidv0_has_its_whole_payload() -> None:
    for name in (NAME, NAME[2:]):
        assert received(payload_car_header() + block(name, DATA)) == [DATA]


def test_an_answer_in_a_carv2_is_refused() -> None:
    """Read as a CARv1, the bytes before the verified CAR could be a block with any data under the requested CID."""
    inner = header(b"\x01\x55\0\0") + block(NAME, DATA)
    forged = block(NAME, b"not " + DATA)
    assert hashlib.sha256(DATA).digest() != hashlib.sha256(b"not " + DATA).digest()
    offsets = b"".join(each.to_bytes(8, "little") for each in (51 + len(forged), len(inner), 0))
    with pytest.raises(ProofError, match="CARv2"):
        received(b"\x0a\xa1gversion\x02" + bytes(16) + offsets + forged + inner)


def test_what_has_come_counts_in_the_size_that_an_answer_may_have() -> None:
    """Otherwise a source that ends each of its answers early sends so much again and again."""
    datas = [bytes([number]) * 10_000 for number in range(4)]
    names = [Cid(cid(0x55, data)) for data in datas]
    with ReceivedPayloads("payloads", names, ClientSettings(), 40_000) as body:
        body.restart()
        assert body.size == 40_000
        body.write(payload_car_header() + block(bytes(names[0]), datas[0]) + block(bytes(names[1]), datas[1])[:5_000])
        body.restart()
        assert body.cids == [name.text for name in names[1:]]
        assert body.size is not None
        assert 30_000 <= body.size < 30_500
    with ReceivedPayloads("payloads", names, ClientSettings()) as body:
        body.restart()
        assert body.size is None
