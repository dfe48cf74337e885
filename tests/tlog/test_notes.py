"""Signed notes, keys, cosignatures and policies: those of the specifications, wrong keys, and malformed ones."""

from __future__ import annotations

import pytest

from coregw import InvalidInput, ProofError
from coregw.tlog.checkpoint import Checkpoint, Policy, decode_hashes
from coregw.tlog.note import Note, Signer, VerifierKey, load_private_key, new_private_key
from coregw.tlog.tree import EMPTY_ROOT, leaf_hash
from tables import rows

# The example of c2sp.org/signed-note.
FOO = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
EXAMPLE = """This is an example message.

— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=
"""


def signer(name: str, kind: int = 1) -> Signer:
    return Signer(name, load_private_key(new_private_key(), "new"), 4 if kind == 4 else 1)


LOG, OTHER = signer("example.org/docs/main"), signer("example.org/docs/main")
WITNESSES = [signer(f"w{number}.example", 4) for number in range(3)]
HEAD = Checkpoint("example.org/docs/main", 1, leaf_hash(b"x"))
SIGNED = Note(HEAD.text(), (LOG.sign(HEAD.text()),))


def test_the_example_of_the_specification_verifies() -> None:
    key = VerifierKey.parse(FOO)
    note = Note.parse(EXAMPLE)
    assert str(key) == FOO
    assert note.encode() == EXAMPLE
    assert key.verify(note) == 0
    with pytest.raises(ProofError) as refused:
        key.verify(Note("This is another message.\n", note.signatures))
    assert refused.value.check == "signature"
    assert LOG.key.verify(note) is None


@rows(
    "bad",
    [
        "",
        "text\n",
        "text\n\n",
        "\n\n— a AAAAAAAA\n",
        "text\n\n— a AAAAAAAA",
        "text\n\n- a AAAAAAAA\n",
        "text\n\n— a AAAA\n",
        "text\n\n— a A\n",
        "text\n\n— a+b AAAAAAAA\n",
        "text\n\n—  AAAAAAAA\n",
        "te\x01xt\n\n— a AAAAAAAA\n",
        "te\rxt\n\n— a AAAAAAAA\n",
        "text\n\n" + "— a AAAAAAAA\n" * 65,
        "t" * (256 << 10) + "\n\n— a AAAAAAAA\n",
        "é" * (128 << 10) + "\n\n— a AAAAAAAA\n",
        "te\ud800xt\n\n— a AAAAAAAA\n",
        b"te\xffxt\n\n\xe2\x80\x94 a AAAAAAAA\n",
    ],
)
def test_a_malformed_note_is_refused(bad: str | bytes) -> None:
    with pytest.raises(InvalidInput, match="signed note"):
        Note.parse(bad)


@rows(
    "bad",
    [
        "",
        "a+b",
        FOO.replace("530d903a", "530d903b"),
        FOO.replace("foo+", "fo o+"),
        FOO[:-4],
        FOO.replace("+Aek", "+Cek"),
        "+" + FOO,
        "\ud800" + FOO,
    ],
)
def test_a_malformed_key_is_refused(bad: str) -> None:
    with pytest.raises(InvalidInput, match="key"):
        VerifierKey.parse(bad)


@rows(
    "bad",
    [
        "",
        "o\n1\n",
        "o\n01\nAAAA\n",
        HEAD.text()[:-1],
        HEAD.text().replace("\n1\n", "\n-1\n"),
        HEAD.text().replace("\n1\n", "\n9007199254740992\n"),
        HEAD.text().replace("\n1\n", "\n0\n"),
        HEAD.text() + "\nmore\n",
        HEAD.text().replace("=", ""),
    ],
)
def test_a_malformed_checkpoint_is_refused(bad: str) -> None:
    with pytest.raises(InvalidInput):
        Checkpoint.parse(bad)
    assert Checkpoint.parse(HEAD.text()) == HEAD
    assert Checkpoint.parse(HEAD.text() + "extension\n") == HEAD
    assert Checkpoint.parse(Checkpoint("o", 0, EMPTY_ROOT).text()).size == 0
    with pytest.raises(InvalidInput):
        decode_hashes([HEAD.text().split("\n")[2]] * 64)


def test_a_wrong_key_of_the_same_name_is_refused() -> None:
    policy = Policy.parse(f"log {LOG.key}\nquorum none\n")
    assert policy.verify(SIGNED) == HEAD
    wrong = Note(HEAD.text(), (OTHER.sign(HEAD.text()),))
    forged = Note(HEAD.text(), (LOG.sign("another"),))
    elsewhere = signer("example.org/docs/other")
    for note in (wrong, forged, Note(HEAD.text(), (elsewhere.sign(HEAD.text()),))):
        with pytest.raises(ProofError) as refused:
            policy.verify(note)
        assert refused.value.check == "signature"
    both = Note(HEAD.text(), (OTHER.sign(HEAD.text()), LOG.sign(HEAD.text())))
    assert policy.verify(both) == HEAD  # unknown keys are ignored
    with pytest.raises(ProofError):  # a key of the log, for the checkpoint of another
        Policy.parse(f"log {elsewhere.key}\nquorum none").verify(SIGNED)


GROUPS = "\n".join(
    [
        "# comment",
        f"log\t{LOG.key} https://log.example",
        *(f"witness w{number} {each.key} https://w{number}.example" for number, each in enumerate(WITNESSES)),
        "group two 2 w0 w1",
        "group any any two w2",
    ]
)


def test_a_quorum_counts_verified_cosignatures_of_known_witnesses() -> None:
    lines = [each.sign(HEAD.text(), 1_700_000_000) for each in WITNESSES]
    stranger = signer("w9.example", 4).sign(HEAD.text(), 1)
    two, anyone = Policy.parse(f"{GROUPS}\nquorum two"), Policy.parse(f"{GROUPS}\nquorum any")
    assert two.witnesses["w1"].url == "https://w1.example"
    for count in range(3):
        note = Note(HEAD.text(), (*SIGNED.signatures, stranger, *lines[:count]))
        for policy, is_enough in ((two, count >= 2), (anyone, count >= 2)):
            if is_enough:
                assert policy.verify(note) == HEAD
            else:
                with pytest.raises(ProofError) as refused:
                    policy.verify(note)
                assert refused.value.check == "witnesses"
    assert anyone.verify(Note(HEAD.text(), (*SIGNED.signatures, lines[2]))) == HEAD
    assert WITNESSES[0].key.verify(Note(HEAD.text(), (lines[0],))) == 1_700_000_000
    replayed = WITNESSES[0].sign(Checkpoint(HEAD.origin, 2, HEAD.root).text(), 1)
    with pytest.raises(ProofError) as refused:  # a cosignature of another checkpoint
        anyone.verify(Note(HEAD.text(), (*SIGNED.signatures, replayed, lines[2])))
    assert refused.value.check == "signature"


def test_of_the_signatures_by_a_known_key_those_that_verify_are_kept() -> None:
    witness = WITNESSES[0]
    text = HEAD.text()
    (own,) = SIGNED.signatures
    old, new = (witness.sign(text, seconds) for seconds in (5, 6))
    wrong = old._replace(data=bytes(72))
    stranger = WITNESSES[1].sign(text, 1)
    for first, more in (([old], [wrong]), ([wrong], [old]), ([], [wrong, old, wrong]), ([wrong, old], [])):
        note = Note(text, (own, stranger, *first)).with_signatures(more, [witness.key])
        assert set(note.signatures) == {own, stranger, old}
        assert witness.key.verify(note) == 5
    assert Note(text, (own, old)).with_signatures([new], [witness.key]).signatures == (new, own)
    assert SIGNED.with_signatures([wrong, stranger], [witness.key]) == SIGNED
    assert SIGNED.with_signatures([own._replace(data=bytes(64))], [LOG.key, witness.key]) == SIGNED


@rows(
    "bad",
    [
        "",
        "log x\nquorum none",
        "log {witness}\nquorum none",
        "log {log}\nlog {log}\nquorum none",
        "witness a {log}\nquorum a",
        "witness none {witness}\nquorum none",
        "quorum none\nquorum none",
        "quorum a",
        "witness a {witness}\ngroup g 2 a\nquorum g",
        "witness a {witness}\ngroup g 0 a\nquorum g",
        "witness a {witness}\ngroup g all\nquorum g",
        "witness a {witness}\ngroup g all a a\nquorum g",
        "witness a {witness}\ngroup g all a\ngroup h all a\nquorum g",
        "witness a {witness}\nwitness b {witness}\nquorum a",
        "group g all g\nquorum g",
        "nothing\nquorum none",
        "quorum none\x01",
        "#" * 70_000 + "\nquorum none",
        "#" + "é" * 32_763 + "\nquorum none",
    ],
)
def test_a_malformed_policy_is_refused(bad: str) -> None:
    with pytest.raises(InvalidInput, match="policy"):
        Policy.parse(bad.format(log=LOG.key, witness=WITNESSES[0].key))


def test_the_longest_policy_is_accepted() -> None:
    policy = "#" * (65_536 - len("\nquorum none")) + "\nquorum none"
    assert Policy.parse(policy).witnesses == {}
    with pytest.raises(InvalidInput, match="65,536 bytes"):
        Policy.parse("#" + policy)


def test_only_an_unencrypted_ed25519_key_is_taken() -> None:
    with pytest.raises(InvalidInput, match="place: expected an Ed25519"):
        load_private_key(b"nonsense", "place")
    for name in ("", "a b", "a+b", "a\nb", "a" * 257):
        with pytest.raises(InvalidInput, match="key name"):
            signer(name)
