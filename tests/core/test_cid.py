"""`coregw.Cid` against the multiformats library, and the CIDs that it refuses."""

from __future__ import annotations

import copy
import hashlib
import pickle

import multiformats
import pytest

import coregw
from coregw import Cid, InvalidInput
from tables import rows

DIGESTS = {
    "sha2-256": hashlib.sha256(b"x").digest(),
    "sha2-512": hashlib.sha512(b"x").digest(),
    "sha3-256": hashlib.sha3_256(b"x").digest(),
    "blake2b-256": hashlib.blake2b(b"x", digest_size=32).digest(),
}
BASES = {"b": "base32", "f": "base16", "k": "base36", "z": "base58btc", "m": "base64", "u": "base64url"}


@rows("function", DIGESTS)
@rows("base", BASES.values())
def test_every_base_and_hash_function_agrees_with_the_multiformats_library(function: str, base: str) -> None:
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


def test_a_cid_of_version_0_is_converted_to_version_1_with_dag_pb() -> None:
    theirs = multiformats.CID("base58btc", 0, "dag-pb", ("sha2-256", DIGESTS["sha2-256"]))
    assert str(theirs).startswith("Qm")
    assert Cid(str(theirs)).text == str(theirs.set(version=1, base="base32"))
    assert Cid(str(theirs)).codec == 0x70


RAW = coregw.payload_cid(b"x")
ROOT = coregw.Map({}).root


@rows(
    "bad",
    [
        "",
        "b",
        RAW[:-1],
        RAW + "a",
        "x" + RAW[1:],
        " " + RAW,
        bytes(Cid(RAW)) + b"\0",
        bytes(Cid(RAW))[:-1],
        bytes.fromhex("015500") + b"",
        bytes.fromhex("01550006") + b"hello",
        bytes.fromhex("0155008101") + bytes(129),
        bytes.fromhex("0190e2c00100") + bytes.fromhex("20") + bytes(32),
        bytes.fromhex("0155111a") + bytes(26),
        bytes.fromhex("01d500") + bytes(Cid(RAW))[2:],
        bytes.fromhex("0190e2c001") + Cid(RAW).multihash[:1] + b"\x1f" + bytes(31),
        bytes.fromhex("0190e2c001") + bytes.fromhex("1e20") + bytes(32),
        bytes.fromhex("0190e0c001") + Cid(ROOT).multihash,
        bytes(Cid(ROOT))[1:],
    ],
)
def test_an_invalid_cid_is_refused(bad: str | bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        Cid(bad)
    assert caught.value.code == "invalid_cid"


@rows("given", [None, 5, True, [RAW], ()])
def test_a_cid_of_a_wrong_type_is_a_type_error(given: object) -> None:
    with pytest.raises(TypeError, match="a CID is a str, bytes or a Cid"):
        Cid(given)  # type: ignore[arg-type]


def test_a_cid_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        Cid("b\ud800")
    assert caught.value.code == "invalid_cid"


def test_a_cid_is_an_immutable_hashable_value() -> None:
    cid = Cid(RAW)
    assert repr(cid) == f"Cid('{RAW}')"
    assert {cid: 1}[Cid(bytes(cid))] == 1
    assert cid != RAW
    assert cid != Cid(ROOT)
    assert cid != 5
    with pytest.raises(AttributeError):
        cid.text = "b"  # type: ignore[misc]
    with pytest.raises(TypeError):
        cid < cid  # type: ignore[operator]  # noqa: B015, PLR0124
    for same in (pickle.loads(pickle.dumps(cid)), copy.copy(cid), copy.deepcopy(cid)):
        assert type(same) is Cid
        assert same == cid


@pytest.mark.parametrize(("suite", "code"), [("sha2-256", 0x12), ("blake3", 0x1E)])
def test_the_cid_of_a_root_names_kind_and_suite(suite: str, code: int) -> None:
    for root, kind in ((coregw.Map({}, suite=suite).root, "map"), (coregw.List([], suite=suite).root, "list")):
        cid = Cid(root)
        assert (cid.kind, cid.suite, cid.hash_name, cid.hash_code) == (kind, suite, suite, code)
        assert len(cid.digest) == 32
