"""Strict JSON on every route with a JSON body: anything else is a 400, never a 500, and never accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tables import rows

Ask = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]

_DEEP = 100_000
_LOOSE = {
    "nothing": b"",
    "white space": b" ",
    "no value": b"nul",
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "invalid UTF-8": b'{"a": "\xff"}',
    "overlong UTF-8": b'{"a": "\xc0\x80"}',
    "a surrogate in UTF-8": b'{"a": "\xed\xa0\x80"}',
    "a lone surrogate": b'{"a": "\\ud800"}',
    "a lone low surrogate": b'{"a": "\\udc00"}',
    "a control character": b'{"a": "\x01"}',
    "an unknown escape": b'{"a": "\\x41"}',
    "deep arrays": b"[" * _DEEP + b"]" * _DEEP,
    "deep arrays without end": b"[" * _DEEP,
    "deep objects": b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    "33 levels": b'{"a":' + b"[" * 32 + b"]" * 32 + b"}",
    "two values": b"{}{}",
    "a trailing comma": b'{"a": 1,}',
    "a comment": b"{} // done",
    "single quotes": b"{'a': 1}",
    "NaN": b'{"a": NaN}',
    "an array": b"[]",
    "a string": b'"a"',
    "null": b"null",
    "no members": b"{}",
    "an unknown member": b'{"colour": "red"}',
    "NUL at the end": b"{}\0",
}


@pytest.fixture(scope="session")
def good(tree: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return a valid body for each route, with all members that have strings and numbers."""
    return {
        "/v1/resolve": {"profile": "core.resolve/v0alpha1", "root": tree["root"], "segments": ["list", "4"]},
        "/v1/read": {
            "profile": "core.read/v0alpha1",
            "root": tree["list"],
            "query": {"kind": "list_range", "start": 0, "end": 9},
        },
        "/v1/scan": {
            "profile": "core.scan/v0alpha1",
            "root": tree["root"],
            "prefix": ["docs"],
            "after": ["docs", "@payload"],
            "limit": 1,
        },
        "/v1/map-proof": {"profile": "core.map-proof/v0alpha1", "root": tree["root"], "key": ["docs"]},
        "/v1/roots": {"arcs": {"a/b": tree["leaf"], "c": tree["list"]}, "suite": "blake3"},
        f"/v1/roots/{tree['nested']}/mutations": {
            "deltas": [
                {"kind": "map", "changes": [{"path": "new", "after": {"target": tree["leaf"], "target_kind": "cas"}}]},
                {"kind": "list", "changes": [{"index": 0, "after": {"target": tree["leaf"], "size": 7}}]},
            ],
            "prove": True,
        },
    }


_ROUTES = ["/v1/resolve", "/v1/read", "/v1/scan", "/v1/map-proof", "/v1/roots", "mutations"]


def _route(good: dict[str, dict[str, Any]], name: str) -> tuple[str, dict[str, Any]]:
    path = next(path for path in good if path == name or path.endswith("/" + name))
    return path, good[path]


@rows("name", _ROUTES)
def test_well_formed_bodies_are_accepted(ask: Ask, good: dict[str, dict[str, Any]], name: str) -> None:
    path, body = _route(good, name)
    answer = ask(path, body)
    assert answer.status_code in (200, 201), answer.text
    json.loads(answer.content)


@rows("name", _ROUTES)
@rows("body", _LOOSE.values(), ids=_LOOSE.keys())
def test_loose_json_is_refused(
    ask: Ask, expect_refusal: Refusal, good: dict[str, dict[str, Any]], name: str, body: bytes
) -> None:
    expect_refusal(ask(_route(good, name)[0], body), 400, "invalid_request")


@rows("name", _ROUTES)
def test_every_member_is_checked_at_every_depth(
    ask: Ask, expect_refusal: Refusal, good: dict[str, dict[str, Any]], name: str
) -> None:
    """Replace objects by arrays, add unknown members, misspell numbers, and change the type of every value."""
    path, body = _route(good, name)
    text = json.dumps(body)
    tried = 0
    for change in _spoiled(text):
        answer = ask(path, change.encode())
        assert answer.status_code == 400, (change, answer.text)
        assert answer.json()["error"] in {
            "invalid_request",
            "invalid_cid",
            "invalid_path",
            "unknown_profile",
            "kind_mismatch",
        }, change
        tried += 1
    assert tried > 10


def _spoiled(text: str) -> list[str]:
    """Yield texts that differ from valid JSON in one place."""
    changes = []
    decoder = json.JSONDecoder()
    for place, character in enumerate(text):
        before, after = text[:place], text[place:]
        if character == "{":
            changes.append(before + '{"colour": 1, ' + after[1:])
            value, length = decoder.raw_decode(after)
            changes.append(before + json.dumps(list(value.values())) + after[length:])
            first, _ = decoder.raw_decode(after[1:])
            changes.append(before + f'{{"{first}": 1, ' + after[1:])
            escaped = "".join(f"\\u{ord(each):04x}" for each in first)
            changes.append(before + f'{{"{escaped}": 1, ' + after[1:])
        if character == ":" and text[place - 1] == '"':
            value, length = decoder.raw_decode(after[2:])
            rest = after[2 + length :]
            others = ["null", "{}", "-1", "1.0", "true", "[[]]"]
            if isinstance(value, int) and not isinstance(value, bool):
                others += [f"{value}.0", f"{value}e0", f"-{value}", "9007199254740992", f"0{value}", "1e400", '"1"']
            good = {json.dumps(value), "{}" if before.endswith('"arcs"') else ""}
            changes += [before + ": " + other + rest for other in others if other not in good]
    return changes


def test_error_names_the_place(ask: Ask, expect_refusal: Refusal, tree: dict[str, str]) -> None:
    arcs = {f"d/{i}": tree["leaf"] for i in range(100)} | {"d/57/": tree["leaf"]}
    assert "d/57/" in expect_refusal(ask("/v1/roots", {"arcs": arcs}), 400, "invalid_path")
    arcs = {f"d/{i}": tree["leaf"] for i in range(100)} | {"d/57": "bogus"}
    assert "d/57" in expect_refusal(ask("/v1/roots", {"arcs": arcs}), 400, "invalid_cid")
