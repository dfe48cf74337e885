"""CIDs of payloads, at once and in chunks, against hashlib; the check of bytes against a CID; multicodecs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import multiformats
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coregw
from coregw import Cid, InvalidInput, PayloadHasher
from coregw._core import PayloadCheck, codec_code, payload_matches
from tables import rows

LONG = bytes(range(256)) * 1024
"""Long enough to be hashed with the GIL released."""

hashes = st.sampled_from(["sha2-256", "blake3"])
ALL_HASHES = st.sampled_from(["sha2-256", "sha2-512", "sha3-256", "blake2b-256", "blake3", "identity"])


@given(st.binary(max_size=300), st.sampled_from(["raw", "dag-pb", "json", "0x300", 0x71]))
def test_the_default_is_sha2_256_of_the_bytes(data: bytes, codec: str | int) -> None:
    theirs = multiformats.CID("base32", 1, codec_code(codec), ("sha2-256", hashlib.sha256(data).digest()))
    assert coregw.payload_cid(data, codec) == str(theirs)


def test_a_long_payload_has_the_same_digest_as_hashlib_computes() -> None:
    assert Cid(coregw.payload_cid(LONG)).digest == hashlib.sha256(LONG).digest()


@given(st.lists(st.binary(max_size=200), max_size=10), hashes)
def test_chunks_have_the_cid_of_the_whole_payload(chunks: list[bytes], name: str) -> None:
    hasher = PayloadHasher(codec="dag-cbor", hash=name)
    for chunk in chunks:
        hasher.update(chunk)
        hasher.cid()  # does not change the hasher
    assert hasher.cid() == hasher.cid() == coregw.payload_cid(b"".join(chunks), "dag-cbor", name)


@pytest.mark.parametrize("name", ["sha2-256", "blake3"])
def test_long_chunks_have_the_cid_of_the_whole_payload(name: str) -> None:
    hasher = PayloadHasher(hash=name)
    for chunk in (LONG, b"x", LONG):
        hasher.update(chunk)
    assert hasher.cid() == coregw.payload_cid(LONG + b"x" + LONG, hash=name)


def test_threads_that_share_a_hasher_lose_no_chunk() -> None:
    hasher = PayloadHasher()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hasher.update, [bytes(64 << 10), bytes(64)] * 32))
    assert hasher.cid() == coregw.payload_cid(bytes(32 * ((64 << 10) + 64)))


@given(st.binary(max_size=128), st.integers(1, 50))
def test_an_identity_cid_contains_the_payload(data: bytes, size: int) -> None:
    cid = coregw.payload_cid(data, hash="identity")
    assert (Cid(cid).hash_name, Cid(cid).hash_code, Cid(cid).digest, Cid(cid).kind) == ("identity", 0, data, "cas")
    assert cid == str(multiformats.CID("base32", 1, "raw", ("identity", data)))
    hasher = PayloadHasher(hash="identity")
    for start in range(0, len(data), size):
        hasher.update(data[start : start + size])
    assert hasher.cid() == cid
    assert payload_matches(cid, data)
    assert not payload_matches(cid, data + b"x")
    assert not payload_matches(cid, data[1:]) or not data


def test_an_identity_cid_of_more_than_128_bytes_is_too_large() -> None:
    with pytest.raises(coregw.TooLarge, match="at most 128 bytes; the payload has 129"):
        coregw.payload_cid(bytes(129), hash="identity")
    hasher = PayloadHasher(hash="identity")
    hasher.update(bytes(129))
    with pytest.raises(coregw.TooLarge):
        hasher.cid()


def digest(function: str, data: bytes) -> bytes:
    if function == "blake2b-256":
        return hashlib.blake2b(data, digest_size=32).digest()
    return hashlib.new(function.replace("sha2-", "sha").replace("sha3-", "sha3_"), data).digest()


@rows("data", [b"", b"abc", LONG])
@rows("function", ["sha2-256", "sha2-512", "sha3-256", "blake2b-256"])
def test_only_the_same_bytes_match_a_cid_with_each_hash_function(function: str, data: bytes) -> None:
    cid = str(multiformats.CID("base32", 1, "raw", (function, digest(function, data))))
    assert payload_matches(cid, data)
    assert payload_matches(Cid(cid), data)
    assert not payload_matches(cid, data + b"\0")
    assert not payload_matches(coregw.payload_cid(data + b"\0"), data)


@given(st.binary(max_size=100), hashes)
def test_bytes_match_their_cid_whatever_its_codec(data: bytes, name: str) -> None:
    for codec in ("raw", "dag-cbor"):
        assert payload_matches(coregw.payload_cid(data, codec, name), data)
        assert not payload_matches(coregw.payload_cid(data, codec, name), data + b"x")


def test_the_top_node_of_a_tree_matches_its_root() -> None:
    assert payload_matches(coregw.Map({}).root, b"\x00")
    assert payload_matches(coregw.List([], suite="blake3").root, b"\x10")


@rows("make", [lambda **named: coregw.payload_cid(b"x", **named), PayloadHasher])
@rows(
    ("named", "code"),
    [
        ({"codec": "no-such"}, "invalid_codec"),
        ({"codec": 0x303110}, "invalid_codec"),
        ({"codec": 1 << 63}, "invalid_codec"),
        ({"codec": -1}, "invalid_codec"),
        ({"hash": "sha2-384"}, "invalid_request"),
        ({"hash": ""}, "invalid_request"),
    ],
)
def test_an_invalid_codec_or_hash_function_is_refused(
    make: Callable[..., object], named: dict[str, str], code: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        make(**named)
    assert caught.value.code == code


@given(st.lists(st.binary(max_size=40), max_size=3), ALL_HASHES, st.binary(min_size=1, max_size=3))
def test_a_check_matches_when_exactly_the_bytes_of_the_cid_have_come(
    chunks: list[bytes], name: str, more: bytes
) -> None:
    check = PayloadCheck(coregw.payload_cid(b"".join(chunks), hash=name))
    for number, chunk in enumerate(chunks):
        assert check.matches() is not any(chunks[number:])
        check.update(chunk)
    assert check.matches()
    check.update(more)
    assert not check.matches()


@rows("data", ["text", None, 5, [1], ()])
def test_a_payload_of_another_type_than_bytes_is_a_type_error(data: object) -> None:
    with pytest.raises(TypeError):
        coregw.payload_cid(data)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PayloadHasher().update(data)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        payload_matches(coregw.payload_cid(b""), data)  # type: ignore[arg-type]


@rows(("given", "code"), [(None, 0x55), ("raw", 0x55), ("85", 0x55), ("0x55", 0x55), (85, 0x55), ("dag-cbor", 0x71)])
def test_a_codec_is_a_name_or_a_number(given: str | int | None, code: int) -> None:
    assert codec_code(given) == code


@rows("given", ["", "no-such-codec", "0x303110", 0x300000, 0x30FFFF, -1, 1 << 64, "0b1", "1e3"])
def test_an_unknown_codec_and_the_codecs_of_roots_are_refused(given: str | int) -> None:
    with pytest.raises(InvalidInput) as caught:
        codec_code(given)
    assert caught.value.code == "invalid_codec"


def test_every_name_of_the_multicodec_table_has_its_number() -> None:
    # The library's copy of the table is from 2023; these have been renamed since.
    renamed = {"kangarootwelve", "bls-12381-g1-sig", "bls-12381-g2-sig", "es284"}
    for codec in multiformats.multicodec.table():
        if codec.name in renamed:
            continue
        assert codec_code(codec.name) == codec_code(str(codec.code)) == codec.code


@rows("given", [True, 1.5, b"raw", ["raw"]])
def test_a_codec_of_a_wrong_type_is_a_type_error(given: object) -> None:
    with pytest.raises(TypeError, match="a codec is a str or an int"):
        codec_code(given)  # type: ignore[arg-type]
