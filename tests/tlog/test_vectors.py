"""Texts, entries, proofs and signed checkpoints of section 9 of the protocol, made by an independent model."""

from __future__ import annotations

import base64
import json
from datetime import datetime

import pytest

import coregw
from coregw import InvalidInput, ProofError, messages
from coregw._core import Cid
from coregw.messages.management import PublishedRecord
from coregw.messages.query import PublicationProof
from coregw.tlog.checkpoint import Checkpoint, Policy, freeze_entry, publication_entry, verify_publication
from coregw.tlog.note import COSIGNATURE, Note, VerifierKey
from coregw.tlog.tree import leaf_hash
from tables import rows
from vector_cases import Case, load, why

CASES = load("publications") + load("notes")


def of(kind: str) -> list[Case]:
    return [case for case in CASES if case["kind"] == kind]


@rows("case", of("vkey"), ids=why)
def test_keys_are_accepted_or_refused(case: Case) -> None:
    if case["valid"]:
        key = VerifierKey.parse(case["vkey"])
        assert (key.name, key.kind == COSIGNATURE, str(key)) == (case["name"], case["is_witness"], case["vkey"])
    else:
        with pytest.raises(InvalidInput):
            VerifierKey.parse(case["vkey"])


@rows("case", of("note"), ids=why)
def test_notes_are_accepted_or_refused(case: Case) -> None:
    for given in (case["note"], case["note"].encode()):
        if case["valid"]:
            assert Note.parse(given).encode() == case["note"]
        else:
            with pytest.raises(InvalidInput):
                Note.parse(given)


@rows("case", of("signed"), ids=why)
def test_signatures_of_known_keys_are_verified(case: Case) -> None:
    note = Note.parse(case["note"])
    keys = [VerifierKey.parse(each) for each in case["vkeys"]]
    if case["times"] is None:
        with pytest.raises(ProofError) as refused:
            [key.verify(note) for key in keys]
        assert refused.value.check == "signature"
    else:
        times = [key.verify(note) for key in keys]
        assert [None if time is None else str(time) for time in times] == case["times"]


@rows("case", of("checkpoint"), ids=why)
def test_checkpoints_are_accepted_or_refused(case: Case) -> None:
    if case["valid"]:
        found = Checkpoint.parse(case["text"])
        assert (found.origin, str(found.size), found.root.hex()) == (case["origin"], case["size"], case["root"])
    else:
        with pytest.raises(InvalidInput):
            Checkpoint.parse(case["text"])


@rows("case", of("policy"), ids=why)
def test_policies_are_accepted_or_refused(case: Case) -> None:
    octets = bytes.fromhex(case["octets"]) if "octets" in case else case["policy"].encode()
    for given in (octets, case.get("policy", octets)):
        if case["valid"]:
            Policy.parse(given)
        else:
            with pytest.raises(InvalidInput, match=r"^policy"):
                Policy.parse(given)


@rows("case", of("verified"), ids=why)
def test_notes_meet_policies_or_do_not(case: Case) -> None:
    policy, note = Policy.parse(case["policy"]), Note.parse(case["note"])
    if case["size"] is None:
        with pytest.raises(ProofError):
            policy.verify(note)
    else:
        assert policy.verify(note).size == case["size"]


@rows("case", of("time"), ids=why)
def test_times_of_records_are_accepted_or_refused(case: Case) -> None:
    """The only leaf of a log is the entry of a record with this time, or with none."""
    root = coregw.Map({}).root
    microseconds = int(case["microseconds"] or 0).to_bytes(8, "big")
    leaf = leaf_hash(bytes.fromhex("0104646f6373046d61696e0127") + bytes(Cid(root)) + b"\0" + microseconds)
    record = {"scope": "docs", "name": "main", "root": root, "revision": 1, "previous_root": None, "frozen": False}
    proof = {"size": 1, "root_hash": base64.b64encode(leaf).decode(), "inclusion": [], "consistency": []}
    answer = json.dumps(proof | {"record": record | {"published_at": case["time"]}}).encode()

    def verify() -> PublishedRecord:
        found = messages.decode(answer, PublicationProof)
        return verify_publication("docs", "main", found, Checkpoint("o", 1, leaf), None, None)

    if case["microseconds"] is None:
        with pytest.raises((InvalidInput, ProofError), match=r"published_at|time"):
            verify()
    else:
        assert verify().revision == 1


def test_entries_and_leaves() -> None:
    for case in of("entry"):
        record = messages.decode(json.dumps(case["record"]).encode(), PublishedRecord)
        previous = None if record.previous_root is None else bytes(Cid(record.previous_root))
        entry = publication_entry(
            record.scope, record.name, record.revision, bytes(Cid(record.root)), previous, record.published_at
        )
        assert (entry.hex(), base64.b64encode(leaf_hash(entry)).decode()) == (case["entry"], case["leaf"])
    (case,) = of("freeze")
    frozen = freeze_entry(case["scope"], case["name"], case["revision"], datetime.fromisoformat(case["frozen_at"]))
    assert (frozen.hex(), base64.b64encode(leaf_hash(frozen)).decode()) == (case["entry"], case["leaf"])


def verified(case: Case) -> PublishedRecord:
    answer = messages.decode(json.dumps(case["answer"]).encode(), PublicationProof)
    assert isinstance(answer.checkpoint, str)
    before = None if case["before"] is None else Checkpoint.parse(Note.parse(case["before"]).text)
    head = Policy.parse(case["policy"]).verify(Note.parse(answer.checkpoint))
    return verify_publication("docs", "main", answer, head, before, None)


def test_proofs_are_accepted() -> None:
    assert len(of("proof")) > 20
    for case in of("proof"):
        assert verified(case).revision == case["answer"]["record"]["revision"]


@rows("case", of("refused"), ids=why)
def test_what_is_wrong_is_refused(case: Case) -> None:
    with pytest.raises(ProofError) as refused:
        verified(case)
    assert refused.value.check == case["check"]
