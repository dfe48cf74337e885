"""Entries, proofs and signed checkpoints of section 9 of the protocol, made by an independent model."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from coregw import ProofError, messages
from coregw._core import Cid
from coregw.messages.publication import PublicationProof
from coregw.messages.record import PublishedRecord
from coregw.tlog.checkpoint import Checkpoint
from coregw.tlog.entry import freeze_entry, publication_entry
from coregw.tlog.note import Note
from coregw.tlog.policy import Policy
from coregw.tlog.proof import verify_publication
from coregw.tlog.tree import leaf_hash

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "publications.json").read_text())[
    "cases"
]


def of(kind: str) -> list[dict[str, Any]]:
    return [case for case in CASES if case["kind"] == kind]


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


def verified(case: dict[str, Any]) -> PublishedRecord:
    answer = messages.decode(json.dumps(case["answer"]).encode(), PublicationProof)
    assert isinstance(answer.checkpoint, str)
    before = None if case["before"] is None else Checkpoint.parse(Note.parse(case["before"]).text)
    head = Policy.parse(case["policy"]).verify(Note.parse(answer.checkpoint))
    return verify_publication("docs", "main", answer, head, before, None)


def test_proofs_are_accepted() -> None:
    assert len(of("proof")) > 20
    for case in of("proof"):
        assert verified(case).revision == case["answer"]["record"]["revision"]


@pytest.mark.parametrize("case", of("refused"), ids=lambda case: case["why"])
def test_what_is_wrong_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ProofError) as refused:
        verified(case)
    assert refused.value.check == case["check"]
