"""Forged parts of folders: answers of payloads that a gateway sends, and records of attributes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import car_files
import coregw
from coregw.client import Client, ClientSettings
from coregw.errors import CoregwError, InvalidInput, ProofError, Unavailable
from coregw.folders.tree import decode_attributes, encode_attributes
from gateways import Reply, lying_gateway, names

ONCE = ClientSettings(attempts=1)
FILES = {"a": b"the first", "b": b"the second payload"}


@pytest.fixture
def refused(gateway: str, client: Client, tmp_path: Path) -> Callable[[bytes], CoregwError]:
    """Restores a folder from a gateway whose answer has other blocks. Returns the refusal; nothing is restored."""
    root = client.create_root({name: client.put_payload(data) for name, data in FILES.items()})

    def get(blocks: bytes) -> CoregwError:
        def lie(reply: Reply) -> Reply:
            if reply.path != "/v1/cas/car" or not reply.body:
                return reply
            head = reply.body.index(honest("a")[:1] + binary("a")) if binary("a") in reply.body else 26
            return reply.with_body(reply.body[:head] + blocks)

        (tmp_path / "in").mkdir(exist_ok=True)
        with (
            lying_gateway(lie, gateway) as url,
            Client(url, ONCE) as lied_to,
            pytest.raises(CoregwError) as caught,
        ):
            lied_to.get(root, tmp_path / "in/out")
        assert names(tmp_path / "in") == []
        return caught.value

    return get


def binary(name: str) -> bytes:
    return bytes(coregw.Cid(coregw.payload_cid(FILES[name])))


def honest(name: str) -> bytes:
    return car_files.block(binary(name), FILES[name])


def test_answer_with_another_payload_is_refused(refused: Callable[[bytes], CoregwError]) -> None:
    other = bytes(coregw.Cid(coregw.payload_cid(b"other")))
    for blocks in (
        car_files.block(binary("a"), FILES["b"]),
        car_files.block(binary("a"), b""),
        honest("a") + car_files.block(binary("b"), FILES["b"][:-1]),
        car_files.block(other, b"other"),
    ):
        assert isinstance(refused(blocks), ProofError)


def test_answer_with_payloads_in_another_order_is_refused(refused: Callable[[bytes], CoregwError]) -> None:
    for blocks in (honest("a") * 2, honest("b") * 2, honest("a") + honest("b") + honest("a")):
        assert isinstance(refused(blocks), ProofError)


def test_truncated_answer_of_payloads_is_refused(refused: Callable[[bytes], CoregwError]) -> None:
    whole = honest("a") + honest("b")
    for length in (0, 1, 20, len(honest("a")) - 1, len(honest("a")), len(whole) - 1):
        assert isinstance(refused(whole[:length]), ProofError | Unavailable)


def test_record_of_attributes_in_another_form_is_refused() -> None:
    target, record = encode_attributes(
        "file", mode=0o644, mtime_ns=1_700_000_000_250_000_000, xattrs={"user.a": b"7" * 200}
    )
    assert record is not None
    assert decode_attributes(target, record).mode == 0o644
    for at in range(len(record)):
        for bit in range(8):
            forged = bytearray(record)
            forged[at] ^= 1 << bit
            with pytest.raises(InvalidInput):
                decode_attributes(target, bytes(forged))
    for other in (record[:-1], record + b"\0"):
        with pytest.raises(InvalidInput):
            decode_attributes(coregw.payload_cid(other), other)
    with pytest.raises(InvalidInput):
        decode_attributes(coregw.payload_cid(record), record)
