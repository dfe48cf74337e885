"""`coregw.Cid` against the multiformats library, and what it must refuse."""

from __future__ import annotations

import hashlib

import multiformats
import pytest

import coregw
from coregw import Cid, InvalidInput

DIGESTS = {
    "sha2-256": hashlib.sha256(b"x").digest(),
    "sha2-512": hashlib.sha512(b"x").digest(),
    "sha3-256": hashlib.sha3_256(b"x").digest(),
    "blake2b-256": hashlib.blake2b(b"x", digest_size=32).digest(),
}
BASES = {"b": "base32", "f": "base16", "k": "base36", "z": "base58btc", "m": "base64", "u": "base64url"}


@pytest.mark.parametrize("function", DIGESTS)
@pytest.mark.parametrize("base", BASES.values())
def test_every_base_and_function_reads_as_the_multiformats_library_writes_it(function: str, base: str) -> None:
    theirs = multiformats.CID(base, 1, "raw", (function, DIGESTS[function]))
    ours = Cid(str(theirs))
    assert bytes(ours) == bytes(theirs)
    assert ours.text == str(ours) == str(theirs.set(base="base32"))
    assert (ours.codec, ours.hash_name, ours.digest) == (0x55, function, DIGESTS[function])
    assert ours.multihash == bytes(theirs.digest)
    assert ours == Cid(bytes(theirs)) == Cid(ours)
    assert hash(ours) == hash(Cid(bytes(theirs)))
    assert (ours.kind, ours.suite) == ("cas", None)
    assert coregw._core.payload_matches(ours, b"x")
    assert not coregw._core.payload_matches(ours, b"y")


def test_a_cid_of_version_0_becomes_dag_pb() -> None:
    theirs = multiformats.CID("base58btc", 0, "dag-pb", ("sha2-256", DIGESTS["sha2-256"]))
    assert str(theirs).startswith("Qm")
    assert Cid(str(theirs)).text == str(theirs.set(version=1, base="base32"))
    assert Cid(str(theirs)).codec == 0x70


RAW = coregw.payload_cid(b"x")
ROOT = coregw.Map({}).root


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "b",
        RAW[:-1],
        RAW + "a",
        RAW.upper(),
        "x" + RAW[1:],
        " " + RAW,
        bytes(Cid(RAW)) + b"\0",
        bytes(Cid(RAW))[:-1],
        bytes.fromhex("015500") + b"",
        bytes.fromhex("01550005") + b"hello",
        bytes.fromhex("0155111a") + bytes(26),
        bytes.fromhex("01d500") + bytes(Cid(RAW))[2:],
        bytes.fromhex("0190e2c001") + Cid(RAW).multihash[:1] + b"\x1f" + bytes(31),
        bytes.fromhex("0190e2c001") + bytes.fromhex("1e20") + bytes(32),
        bytes.fromhex("0190e0c001") + Cid(ROOT).multihash,
        bytes(Cid(ROOT))[1:],
    ],
)
def test_what_is_no_cid_is_refused(bad: str | bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        Cid(bad)
    assert caught.value.code == "invalid_cid"


@pytest.mark.parametrize(
    ("given", "code"), [(None, 0x55), ("raw", 0x55), ("85", 0x55), ("0x55", 0x55), (85, 0x55), ("dag-cbor", 0x71)]
)
def test_a_codec_is_a_name_or_a_number(given: str | int | None, code: int) -> None:
    assert coregw._core.codec_code(given) == code


@pytest.mark.parametrize("given", ["", "no-such-codec", "0x303110", 0x300000, 0x30FFFF, -1, 1 << 64, "0b1", "1e3"])
def test_an_unknown_codec_and_the_codecs_of_roots_are_refused(given: str | int) -> None:
    with pytest.raises(InvalidInput) as caught:
        coregw._core.codec_code(given)
    assert caught.value.code == "invalid_codec"
