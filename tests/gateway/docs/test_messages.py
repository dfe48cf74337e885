"""Message structs: every valid operation of the vectors is decoded and encoded unchanged."""

from __future__ import annotations

import json
from typing import Any

import msgspec  # noqa: TC002 - read at run time
import pytest

from coregw import messages
from coregw.errors import InvalidInput
from tables import rows
from vector_cases import load

_KINDS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "resolve": (messages.ResolveRequest, messages.ResolveResult),
    "read": (messages.ReadRequest, messages.ReadResult, messages.ReadNotFound),
    "map_proof": (messages.MapProofRequest, messages.MapProofResult),
    "scan": (messages.ScanRequest, messages.ScanResult),
}
_VALID = [case for case in load("operations") if case["valid"]]


def test_valid_operations_round_trip_unchanged() -> None:
    assert {case["operation"] for case in _VALID} == set(_KINDS)
    for case in _VALID:
        asks, *answers = _KINDS[case["operation"]]
        assert json.loads(messages.encode(messages.decode(_text(case["request"]), asks))) == case["request"]
        kind = answers[0] if "profile" in case["result"] else answers[1]
        assert json.loads(messages.encode(messages.decode(_text(case["result"]), kind))) == case["result"]


def _text(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    return json.dumps(value).encode()


@rows(
    "text",
    [
        b'{"root": "x", "segments": [], "more": 1}',
        b'{"root": "x"}',
        b'{"root": "x", "segments": "y"}',
        b'{"root": "x", "segments": [1]}',
        b'{"root": "x", "segments": [], "profile": "core.resolve/v1"}',
        b'{"root": "x", "root": "x", "segments": []}',
        b'{"root": "x", "segments": ["\xff"]}',
        b'{"root": "x", "segments": ["\\ud800"]}',
        b'{"root": "x", "segments": []',
        b"[" * 100_000,
        b"",
    ],
)
def test_unknown_members_and_loose_json_are_refused(text: bytes) -> None:
    with pytest.raises(InvalidInput):
        messages.decode(text, messages.ResolveRequest)
