"""Verification routes, compared with the vectors of whole operations; malformed envelopes and invalid results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tables import rows
from vector_cases import load

Ask = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]
_PROFILES = {"resolve": "core.resolve/v0alpha1", "read": "core.read/v0alpha1"}
# One case of each kind: all run in core/test_vectors.py, and a route only passes on what the verifier says.
_CASES = [
    *{
        (case["operation"], case["valid"], case["why"]): case
        for name in ("operations", "hostile")
        for case in load(name)
        if case["operation"] in _PROFILES
    }.values()
]


def _case(operation: str) -> dict[str, Any]:
    return next(case for case in _CASES if case["operation"] == operation and case["valid"])


def _envelope(case: dict[str, Any]) -> bytes:
    request = case["request_text"] if "request_text" in case else json.dumps(case["request"])
    return f'{{"request": {request}, "result": {json.dumps(case["result"])}}}'.encode()


@pytest.mark.parametrize("operation", ["resolve", "read"])
def test_verdicts_match_the_vectors(ask: Ask, operation: str) -> None:
    verdicts = {200: 0, 400: 0}
    for case in (case for case in _CASES if case["operation"] == operation):
        answer = ask(f"/v1/verify/{operation}", _envelope(case))
        told = answer.json()
        assert answer.headers["x-core-verification-role"] == "diagnostic"
        verdicts[answer.status_code] += 1
        if answer.status_code == 200:
            assert told["profile"] == _PROFILES[operation]
            assert told["valid"] is case["valid"], case["why"]
            assert ("error" in told) is not case["valid"]
        else:
            assert not case["valid"], told
            assert told["error"] in {
                "invalid_request",
                "invalid_cid",
                "invalid_path",
                "unknown_profile",
                "kind_mismatch",
            }
    assert verdicts[200] > 30
    assert verdicts[400] > 0


@rows("operation", ["resolve", "read"])
@rows(
    "result",
    [
        b"null",
        b"1",
        b"[]",
        b"{}",
        b'{"a": 1, "a": 1}',
        b'"\\ud800"',
        b'{"profile": 1e5}',
        b"[" * 33 + b"]" * 33,
    ],
)
def test_any_malformed_result_is_a_verdict(ask: Ask, operation: str, result: bytes) -> None:
    request = json.dumps(_case(operation)["request"]).encode()
    answer = ask(f"/v1/verify/{operation}", b'{"result": ' + result + b', "request": ' + request + b"}")
    assert (answer.status_code, answer.json()["valid"]) == (200, False)
    assert answer.json()["error"]


@pytest.mark.parametrize("operation", ["resolve", "read"])
def test_malformed_request_or_envelope_is_refused(ask: Ask, expect_refusal: Refusal, operation: str) -> None:
    case = _case(operation)
    request, result = json.dumps(case["request"]).encode(), json.dumps(case["result"]).encode()
    bodies = [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"request": ' + request + b"}",
        b'{"result": ' + result + b"}",
        b'{"request": ' + request + b', "result": ' + result + b', "more": 1}',
        b'{"request": ' + request + b', "result": ' + result + b', "result": ' + result + b"}",
        b'{"request": ' + request + b', "request": ' + request + b', "result": ' + result + b"}",
        b'{"request": ' + request + b', "result": 1, "re\\u0073ult": ' + result + b"}",
        b'{"request": ' + request + b', "result": ' + result + b"} {}",
        b'\xef\xbb\xbf{"request": ' + request + b', "result": ' + result + b"}",
        b'{"request": ' + b"[" * 100_000 + b', "result": ' + result + b"}",
        b"[" + request + b", " + result + b"]",
        b'{"request": null, "result": ' + result + b"}",
        b'{"request": {}, "result": ' + result + b"}",
        b'{"request": ' + request.replace(b"{", b'{"more": 1, ', 1) + b', "result": ' + result + b"}",
        b'{"request": ' + request.replace(b"{", b'{"root": "x", ', 1) + b', "result": ' + result + b"}",
    ]
    for body in bodies:
        expect_refusal(ask(f"/v1/verify/{operation}", body), 400, "invalid_request")
    other = b'{"request": ' + request.replace(b"v0alpha1", b"v0alpha2") + b', "result": ' + result + b"}"
    expect_refusal(ask(f"/v1/verify/{operation}", other), 400, "unknown_profile")


def test_members_may_have_any_order_and_spelling(ask: Ask) -> None:
    case = _case("resolve")
    request, result = json.dumps(case["request"]).encode(), json.dumps(case["result"]).encode()
    body = b' {\t"re\\u0073ult" :\r\n' + result + b' , "\\u0072equest": ' + request + b" }\n"
    assert ask("/v1/verify/resolve", body).json() == {"profile": "core.resolve/v0alpha1", "valid": True}


def test_results_of_the_gateway_verify_there(ask: Ask, tree: dict[str, str]) -> None:
    asked = {"profile": "core.read/v0alpha1", "root": tree["list"], "query": {"kind": "list_range", "start": 5}}
    answer = ask("/v1/read", asked)
    body = b'{"request": ' + json.dumps(asked).encode() + b', "result": ' + answer.content + b"}"
    assert ask("/v1/verify/read", body).json() == {"profile": "core.read/v0alpha1", "valid": True}


def test_a_proven_absence_is_valid(ask: Ask, tree: dict[str, str]) -> None:
    for root, query in [
        (tree["root"], {"kind": "map_key", "segments": ["nothing"]}),
        (tree["list"], {"kind": "list_index", "index": 5}),
    ]:
        asked = {"profile": "core.read/v0alpha1", "root": root, "query": query}
        answer = ask("/v1/read", asked)
        assert (answer.status_code, answer.json()["error"]) == (404, "path_not_found")
        verdict = ask("/v1/verify/read", {"request": asked, "result": answer.json()["details"]})
        assert verdict.json() == {"profile": "core.read/v0alpha1", "valid": True}
