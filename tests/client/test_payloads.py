"""Payloads: CIDs are computed locally, and bytes are verified before they are returned or get a file name."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import coregw
from client_calls import Call, both_clients
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.client.files import CHUNK_BYTES, Upload
from coregw.errors import Conflict, InvalidInput, PayloadNotFound, ProofError, TooLarge, Unavailable
from gateways import Liar, Reply, names
from tables import rows

Change = Callable[[bytes], bytes]

DATA = os.urandom(CHUNK_BYTES * 2 + 17)


def cid_of(code: bytes, digest: bytes) -> str:
    """CIDv1, raw, of a hash function by its varint code."""
    binary = b"\x01\x55" + code + bytes([len(digest)]) + digest
    return "b" + base64.b32encode(binary).decode().lower().rstrip("=")


@rows("hash", ["sha2-256", "blake3"])
@rows("codec", ["raw", "dag-cbor", "0x55"])
@rows("data", [b"", b"hello", DATA], ids=["empty", "small", "chunks"])
def test_a_stored_payload_is_returned_for_its_cid(client: Client, data: bytes, codec: str, hash: str) -> None:
    cid = client.put_payload(data, codec, hash)
    assert cid == coregw.payload_cid(data, codec, hash)
    assert client.get_payload(cid) == data


def test_a_file_is_streamed_to_the_gateway_and_back(client: Client, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(DATA)
    cid = client.put_payload(source)
    assert cid == coregw.payload_cid(DATA)
    assert client.save_payload(cid, target) == len(DATA)
    assert target.read_bytes() == DATA
    assert names(tmp_path) == ["source", "target"]


def test_text_is_neither_a_payload_nor_a_path(client: Client, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    for wrong in (str(tmp_path / "secret"), "hello", 5, {"a": 1}, None):
        for put in (client.put_payload, lambda each: [*client.put_payloads([each])], coregw.payload_cid):
            with pytest.raises(TypeError):
                put(wrong)  # type: ignore[arg-type]


def test_a_missing_payload_is_not_found(client: Client, tmp_path: Path) -> None:
    cid = coregw.payload_cid(b"not stored")
    with pytest.raises(PayloadNotFound):
        client.get_payload(cid)
    with pytest.raises(PayloadNotFound):
        client.save_payload(cid, tmp_path / "target")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "lie",
    [lambda data: data + b"!", lambda data: data[:-1], lambda data: bytes([data[0] ^ 1]) + data[1:], lambda data: b""],
    ids=["longer", "shorter", "one bit", "empty"],
)
def test_tampered_bytes_are_refused_and_leave_no_file(liar: Liar, client: Client, tmp_path: Path, lie: Change) -> None:
    cid = client.put_payload(DATA)
    lying = liar(lambda reply: reply.with_body(lie(reply.body)))
    with pytest.raises(ProofError, match="different hash"):
        lying.get_payload(cid)
    with pytest.raises(ProofError, match="different hash"):
        lying.save_payload(cid, tmp_path / "target")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "cid",
    [
        cid_of(b"\x13", hashlib.sha512(b"x").digest()),
        cid_of(b"\x16", hashlib.sha3_256(b"x").digest()),
        cid_of(b"\xa0\xe4\x02", hashlib.blake2b(b"x", digest_size=32).digest()),
        coregw.payload_cid(b"x", hash="sha2-256"),
        coregw.payload_cid(b"x", hash="blake3"),
        cid_of(b"\x00", b"x"),
    ],
    ids=["sha2-512", "sha3-256", "blake2b-256", "sha2-256", "blake3", "identity"],
)
def test_payloads_are_verified_with_every_hash_function(liar: Liar, tmp_path: Path, cid: str) -> None:
    right = liar(lambda reply: reply.with_body(b"x"), honest=None)
    assert right.get_payload(cid) == b"x"
    assert right.save_payload(cid, tmp_path / "right") == 1
    wrong = liar(lambda reply: reply.with_body(b"y"), honest=None)
    with pytest.raises(ProofError):
        wrong.get_payload(cid)
    with pytest.raises(ProofError):
        wrong.save_payload(cid, tmp_path / "wrong")
    assert names(tmp_path) == ["right"]


@rows(
    "answer",
    [
        b'{"cid": "%s"}' % coregw.payload_cid(b"other").encode(),
        b'{"cid": "no cid"}',
        b'{"root": "x"}',
        b"[" * 100_000,
        b"\xff\xfe",
        b"",
    ],
    ids=["another", "no cid", "another shape", "nested", "no text", "nothing"],
)
def test_cid_that_does_not_match_the_bytes_is_refused(liar: Liar, answer: bytes) -> None:
    with pytest.raises(ProofError):
        liar(lambda reply: reply.with_body(answer)).put_payload(b"data")


def test_an_existing_file_is_never_overwritten(client: Client, tmp_path: Path) -> None:
    cid = client.put_payload(DATA)
    taken, link = tmp_path / "taken", tmp_path / "link"
    taken.write_bytes(b"mine")
    link.symlink_to(tmp_path / "elsewhere")
    for path in (taken, link):
        with pytest.raises(InvalidInput, match="exists already"):
            client.save_payload(cid, path)
    assert taken.read_bytes() == b"mine"
    assert names(tmp_path) == ["link", "taken"]


def test_a_file_created_during_the_download_is_not_overwritten(client: Client, liar: Liar, tmp_path: Path) -> None:
    cid = client.put_payload(DATA)
    target = tmp_path / "target"

    def lie(reply: Reply) -> Reply:
        target.write_bytes(b"mine")
        return reply

    with pytest.raises(InvalidInput, match="exists already"):
        liar(lie).save_payload(cid, target)
    assert target.read_bytes() == b"mine"
    assert names(tmp_path) == ["target"]


@pytest.mark.parametrize("framing", ["declared", "undeclared"])
def test_an_oversized_payload_is_not_received(liar: Liar, framing: str) -> None:
    body = b"x" * 1001
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:900], body[900:])) + b"0\r\n\r\n"

    def lie(reply: Reply) -> Reply:
        if framing == "declared":
            return reply.with_body(body)
        return Reply(reply.method, reply.path, b"", 200, chunked, {"transfer-encoding": "chunked"})

    cid = coregw.payload_cid(body)
    assert liar(lie, honest=None).get_payload(cid) == body
    with pytest.raises(TooLarge, match="longer than 1000 bytes"):
        liar(lie, ClientSettings(max_payload_bytes=1000), honest=None).get_payload(cid)
    with pytest.raises(TooLarge, match="longer than 1000 bytes"):
        liar(lie, honest=None).get_payload(cid, max_bytes=1000)


def test_an_oversized_payload_is_not_sent(liar: Liar, tmp_path: Path) -> None:
    received: list[Reply] = []

    def lie(reply: Reply) -> Reply:
        received.append(reply)
        return reply

    small = liar(lie, ClientSettings(max_payload_bytes=CHUNK_BYTES), honest=None)
    with pytest.raises(TooLarge):
        small.put_payload(DATA)
    (tmp_path / "large").write_bytes(DATA)
    with pytest.raises(TooLarge):
        small.put_payload(tmp_path / "large")
    assert received == []


def test_a_compressed_answer_is_refused(liar: Liar) -> None:
    def lie(reply: Reply) -> Reply:
        return Reply(reply.method, reply.path, b"", 200, b"\x1f\x8b", {"content-encoding": "gzip"})

    with pytest.raises(ProofError, match="compressed"):
        liar(lie, honest=None).get_payload(coregw.payload_cid(b""))


def test_a_file_that_changes_while_it_is_sent_is_a_conflict(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(DATA)
    chunks = Upload(source, "raw", "sha2-256", 1 << 30).chunks()
    next(chunks)
    with source.open("ab") as file:
        file.write(b"more")
    with pytest.raises(Conflict, match="changed while it was read"):
        list(chunks)


def test_a_truncated_download_is_retried_from_the_start(liar: Liar, client: Client, tmp_path: Path) -> None:
    cid = client.put_payload(DATA)
    attempts: list[Reply] = []

    def lie(reply: Reply) -> Reply:
        attempts.append(reply)
        if len(attempts) > 1:
            return reply
        half = {"content-length": str(len(reply.body)), "connection": "close"}
        return Reply(reply.method, reply.path, b"", 200, reply.body[: len(DATA) // 2], half)

    assert liar(lie).save_payload(cid, tmp_path / "target") == len(DATA)
    assert (tmp_path / "target").read_bytes() == DATA
    assert len(attempts) == 2


def test_a_retried_upload_reads_the_file_again(liar: Liar, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(DATA)
    received: list[bytes] = []

    def lie(reply: Reply) -> Reply:
        received.append(reply.request)
        if len(received) < 3:
            return reply.with_body(b'{"error": "unavailable", "message": "later"}', 503)
        return reply.with_body(b'{"cid": "%s"}' % coregw.payload_cid(DATA).encode(), 201)

    assert liar(lie, honest=None).put_payload(tmp_path / "source") == coregw.payload_cid(DATA)
    assert received == [DATA, DATA, DATA]


def test_a_full_store_is_not_retried(liar: Liar) -> None:
    received: list[Reply] = []

    def lie(reply: Reply) -> Reply:
        received.append(reply)
        return reply.with_body(b'{"error": "storage_full", "message": "no room"}', 507)

    with pytest.raises(Unavailable, match="no room"):
        liar(lie, honest=None).put_payload(b"x")
    assert len(received) == 1


@both_clients
@rows("kind", [bytearray, memoryview, lambda data: memoryview(b"x" + data)[1:]])
def test_payloads_are_taken_from_any_buffer(call: Call, gateway: str, kind: Callable[[bytes], Any]) -> None:
    cid = coregw.payload_cid(b"hello")
    assert call(gateway, ClientSettings(), "put_payload", kind(b"hello")) == cid
    assert call(gateway, ClientSettings(), "put_payloads", [kind(b"hello"), b"hello"]) == [cid, cid]
    assert call(gateway, ClientSettings(), "held_payloads", kind(bytes(coregw.Cid(cid))), 1) == b"\1"
    assert call(gateway, ClientSettings(), "get_payload", cid) == b"hello"
    with pytest.raises(TypeError):
        call(gateway, ClientSettings(), "put_payload", 5)


@pytest.mark.parametrize("kind", ["named", "descriptor"])
def test_a_pipe_is_read_to_its_end(client: Client, tmp_path: Path, kind: str) -> None:
    pieces = [b"hello ", b"slow ", b"world"]
    path, ends = tmp_path / "pipe", (0, 0)
    if kind == "named":
        os.mkfifo(path)
    else:
        ends = os.pipe()
        path = Path(f"/dev/fd/{ends[0]}")

    def write() -> None:
        time.sleep(0.2)
        with path.open("wb", buffering=0) if kind == "named" else os.fdopen(ends[1], "wb", buffering=0) as file:
            for piece in pieces:
                file.write(piece)
                time.sleep(0.2)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        assert client.put_payload(path) == coregw.payload_cid(b"".join(pieces))
    finally:
        writing.join()


def test_a_pipe_is_sent_again_and_not_longer_than_a_payload(tmp_path: Path) -> None:
    for limit in (5, 4):
        reading, writing = os.pipe()
        os.write(writing, b"hello")
        os.close(writing)
        upload = Upload(Path(f"/dev/fd/{reading}"), "raw", "sha2-256", limit)
        if limit == 4:
            with pytest.raises(TooLarge):
                list(upload.chunks())
        else:
            assert (list(upload.chunks()), list(upload.chunks())) == ([b"hello"], [b"hello"])
            assert upload.cid == coregw.payload_cid(b"hello")
        os.close(reading)


@pytest.mark.parametrize("sent", [None, b"", b"hello"], ids=["nobody writes", "nothing", "a part"])
def test_cancelling_does_not_wait_for_the_writer_of_a_pipe(gateway: str, tmp_path: Path, sent: bytes | None) -> None:
    os.mkfifo(path := tmp_path / "pipe")

    async def cancel() -> bool:
        async with AsyncClient(gateway) as client:
            call = asyncio.ensure_future(client.put_payload(path))
            await asyncio.sleep(0.2)
            writer = None if sent is None else os.open(path, os.O_WRONLY)
            if writer is not None and sent:
                os.write(writer, sent)
                await asyncio.sleep(0.2)
            call.cancel()
            ended, _ = await asyncio.wait([call], timeout=20)
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK) if writer is None else writer)  # ends a wait for it
            with suppress(asyncio.CancelledError):
                await call
            return bool(ended)

    assert asyncio.run(cancel())
