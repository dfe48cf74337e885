"""Resolve, read, map-proof and scan on RocksDB; every result is verified as a client would."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

import coregw
from coregw import _core
from tables import rows

Ask = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]


def resolving(root: str, *segments: str) -> dict[str, Any]:
    return {"profile": "core.resolve/v0alpha1", "root": root, "segments": list(segments)}


def reading(root: str, **query: object) -> dict[str, Any]:
    return {"profile": "core.read/v0alpha1", "root": root, "query": query}


@rows(
    ("segments", "target", "steps"),
    [
        (["docs", "readme"], "leaf", 1),
        (["docs"], "nested", 1),
        (["docs", "inner"], "leaf", 2),
        (["docs", "deep", "er"], "leaf", 2),
        (["@payload"], "leaf", 1),
        (["docs", "@payload"], "leaf", 1),
        (["list"], "list", 1),
        ([], "root", 0),
    ],
)
def test_paths_are_resolved_with_proofs(
    ask: Ask, tree: dict[str, str], segments: list[str], target: str, steps: int
) -> None:
    asked = resolving(tree["root"], *segments)
    answer = ask("/v1/resolve", asked)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["target"] == tree[target]
    assert len(answer.json()["prooflist"]["steps"]) == steps
    assert coregw.verify_resolve(json.dumps(asked), answer.content) == tree[target]


def test_a_list_is_resolved_by_index(ask: Ask, tree: dict[str, str], cid_of: Callable[..., str]) -> None:
    for index in range(5):
        asked = resolving(tree["root"], "list", str(index))
        answer = ask("/v1/resolve", asked)
        assert coregw.verify_resolve(json.dumps(asked), answer.content) == cid_of(bytes([index]))


@rows("segments", [["nothing"], ["docs", "nothing"], ["list", "5"], ["list", "01"], ["@payload", "x"]])
def test_unresolvable_path_is_not_found(
    ask: Ask, expect_refusal: Refusal, tree: dict[str, str], segments: list[str]
) -> None:
    expect_refusal(ask("/v1/resolve", resolving(tree["root"], *segments)), 404, "path_not_found")


def test_empty_path_resolves_to_any_cid_itself(ask: Ask, tree: dict[str, str], cid_of: Callable[..., str]) -> None:
    for root in (tree["root"], cid_of(b"never stored"), coregw.Map({"not": tree["leaf"], "held": tree["leaf"]}).root):
        answer = ask("/v1/resolve", resolving(root))
        assert (answer.status_code, answer.json()["target"]) == (200, root)


def test_a_root_that_is_not_held_is_not_found(ask: Ask, expect_refusal: Refusal, tree: dict[str, str]) -> None:
    elsewhere = coregw.Map({"only": tree["leaf"], "built": tree["leaf"], "here": tree["leaf"]}).root
    expect_refusal(ask("/v1/resolve", resolving(elsewhere, "only")), 404, "root_not_found")
    query = reading(elsewhere, kind="map_key", segments=["only"])
    expect_refusal(ask("/v1/read", query), 404, "root_not_found")


def test_a_nested_root_that_is_not_held_fails_its_branch_only(
    ask: Ask, expect_refusal: Refusal, tree: dict[str, str]
) -> None:
    elsewhere = coregw.Map({"x": tree["leaf"], "elsewhere": tree["leaf"]}).root
    root = ask("/v1/roots", {"arcs": {"a": tree["nested"], "a/b": elsewhere}}).json()["root"]
    assert ask("/v1/resolve", resolving(root, "a", "b")).json()["target"] == elsewhere
    expect_refusal(ask("/v1/resolve", resolving(root, "a", "b", "x")), 404, "path_not_found")
    both = ask("/v1/roots", {"arcs": {"a": tree["nested"], "a/inner": tree["leaf"]}}).json()["root"]
    assert ask("/v1/resolve", resolving(both, "a", "deep", "er")).json()["target"] == tree["leaf"]


@rows(
    ("change", "code"),
    [
        ({"root": "x"}, "invalid_cid"),
        ({"root": ""}, "invalid_cid"),
        ({"segments": [""]}, "invalid_path"),
        ({"segments": ["a/b"]}, "invalid_path"),
        ({"segments": ["a" * 5000]}, "invalid_path"),
        ({"profile": "core.resolve/v0alpha2"}, "unknown_profile"),
        ({"profile": ""}, "unknown_profile"),
    ],
)
def test_malformed_queries_have_their_codes(
    ask: Ask, expect_refusal: Refusal, tree: dict[str, str], change: dict[str, Any], code: str
) -> None:
    expect_refusal(ask("/v1/resolve", resolving(tree["root"], "docs") | change), 400, code)


def test_resolving_below_a_payload_is_a_kind_mismatch(ask: Ask, expect_refusal: Refusal, tree: dict[str, str]) -> None:
    expect_refusal(ask("/v1/resolve", resolving(tree["leaf"], "a")), 400, "kind_mismatch")


def test_reads_have_one_step_each(ask: Ask, tree: dict[str, str], cid_of: Callable[..., str]) -> None:
    elements = [cid_of(bytes([index])) for index in range(5)]
    cases: list[tuple[str, dict[str, Any], str, list[str] | None]] = [
        ("root", {"kind": "map_key", "segments": ["docs", "readme"]}, tree["leaf"], None),
        ("list", {"kind": "list_index", "index": 3}, elements[3], None),
        ("list", {"kind": "list_range", "start": 0}, tree["list"], elements),
        ("list", {"kind": "list_range", "start": 15, "end": 31}, tree["list"], elements[1:4]),
        ("list", {"kind": "list_range", "start": 49, "end": 5000}, tree["list"], elements[4:]),
        ("list", {"kind": "list_range", "start": 50, "end": 51}, tree["list"], []),
        ("list", {"kind": "list_range", "start": 7, "end": 7}, tree["list"], []),
    ]
    for root, query, target, segments in cases:
        asked = reading(tree[root], **query)
        answer = ask("/v1/read", asked)
        told = answer.json()
        assert (told["target"], told.get("range_segments")) == (target, segments)
        assert len(told["prooflist"]["steps"]) == 1
        outcome = coregw.verify_read(json.dumps(asked), answer.content)
        assert (outcome.present, outcome.target, outcome.segments) == (True, target, segments)


@pytest.mark.parametrize(
    ("root", "query"),
    [("list", {"kind": "map_key", "segments": ["a"]}), ("root", {"kind": "list_index", "index": 0})],
)
def test_query_of_the_wrong_kind_is_refused(
    ask: Ask, expect_refusal: Refusal, tree: dict[str, str], root: str, query: dict[str, Any]
) -> None:
    expect_refusal(ask("/v1/read", reading(tree[root], **query)), 400, "kind_mismatch")


def test_absent_key_comes_with_an_absence_proof(ask: Ask, tree: dict[str, str]) -> None:
    asked = reading(tree["root"], kind="map_key", segments=["nothing"])
    answer = ask("/v1/read", asked)
    assert answer.status_code == 404
    outcome = coregw.verify_read(json.dumps(asked), json.dumps(answer.json()["details"]))
    assert (outcome.present, outcome.target) == (False, None)


def test_map_proof_proves_presence_and_absence(ask: Ask, tree: dict[str, str]) -> None:
    for key, target in [(["docs"], tree["nested"]), (["nothing"], None)]:
        asked = {"profile": "core.map-proof/v0alpha1", "root": tree["root"], "key": key}
        answer = ask("/v1/map-proof", asked)
        assert (answer.json()["present"], answer.json().get("target")) == (target is not None, target)
        assert coregw.verify_map_proof(json.dumps(asked), answer.content) == target


def test_one_map_proof_proves_many_keys(ask: Ask, tree: dict[str, str]) -> None:
    asked = {"profile": "core.map-proof/v0alpha1", "root": tree["root"], "keys": [["nothing"], ["docs"], ["list", "x"]]}
    answer = ask("/v1/map-proof", asked)
    assert answer.json()["targets"] == [None, tree["nested"], None]
    [step] = answer.json()["prooflist"]["steps"]
    assert (step["kind"], step["keys"]) == ("map_keys", ["nothing", "docs", "list/x"])
    assert answer.json()["prooflist"]["query"] == "keys:3"
    assert coregw.verify_map_proof(json.dumps(asked), answer.content) == [None, tree["nested"], None]
    proof = base64.b64decode(step["proof"])
    assert coregw.verify_keys(tree["root"], asked["keys"], proof) == [None, tree["nested"], None]
    for keys in (asked["keys"][:2], [*asked["keys"], ["other"]], asked["keys"][::-1]):
        with pytest.raises(coregw.ProofError):
            coregw.verify_map_proof(json.dumps({**asked, "keys": keys}), answer.content)


@rows(
    ("members", "place"),
    [
        ({"keys": []}, "keys"),
        ({"keys": [["a"], ["b"], ["a"]]}, r"keys\[2\]"),
        ({"keys": [["a"], []]}, r"keys\[1\]"),
        ({"keys": [["a"]], "key": ["a"]}, "exactly one"),
        ({}, "exactly one"),
        ({"keys": None, "key": ["a"]}, "null"),
        ({"keys": [[str(number)] for number in range(10_001)]}, "10000"),
    ],
)
def test_malformed_keys_of_a_map_proof_are_refused(
    ask: Ask, expect_refusal: Refusal, tree: dict[str, str], members: dict[str, Any], place: str
) -> None:
    answer = ask("/v1/map-proof", {"profile": "core.map-proof/v0alpha1", "root": tree["root"], **members})
    expect_refusal(answer, 400, "invalid_path" if members.get("keys") == [["a"], []] else "invalid_request")
    assert re.search(place, answer.json()["message"])


def test_a_scan_lists_page_by_page(ask: Ask, tree: dict[str, str]) -> None:
    keys = [["@payload"], ["docs"], ["docs", "@payload"], ["docs", "readme"], ["list"]]
    for limit in (1, 2, 5, 1000):
        found: list[list[str]] = []
        more = True
        while more:
            asked = {"profile": "core.scan/v0alpha1", "root": tree["root"], "prefix": [], "limit": limit}
            if found:
                asked["after"] = found[-1]
            answer = ask("/v1/scan", asked)
            scanned = coregw.verify_scan_result(json.dumps(asked), answer.content)
            assert [[e["segments"], e["target"]] for e in answer.json()["entries"]] == [
                list(e) for e in scanned.entries
            ]
            found += [segments for segments, _ in scanned.entries]
            more = answer.json()["more"]
            assert more is scanned.more
        assert found == keys


def test_scan_stays_within_its_prefix(ask: Ask, tree: dict[str, str]) -> None:
    asked = {"profile": "core.scan/v0alpha1", "root": tree["root"], "prefix": ["docs"]}
    entries = ask("/v1/scan", asked).json()["entries"]
    assert [entry["segments"] for entry in entries] == [["docs"], ["docs", "@payload"], ["docs", "readme"]]


@rows("change", [{"limit": 0}, {"limit": 1001}, {"after": ["list"]}, {"after": []}])
def test_a_scan_outside_its_bounds_is_refused(ask: Ask, tree: dict[str, str], change: dict[str, Any]) -> None:
    asked = {"profile": "core.scan/v0alpha1", "root": tree["root"], "prefix": ["docs"]} | change
    answer = ask("/v1/scan", asked)
    assert answer.status_code == 400
    assert answer.json()["error"] in ("invalid_request", "invalid_path")


def test_concurrent_clients_get_their_own_results(gateway: str, ask: Ask, tree: dict[str, str]) -> None:
    arcs = {f"d{i % 50}/f{i}": tree["nested"] if i % 7 == 0 else tree["leaf"] for i in range(5000)}
    root = ask("/v1/roots", {"arcs": arcs}).json()["root"]

    def worker(first: int) -> int:
        with httpx2.Client(base_url=gateway) as client:
            for i in range(first, 5000, 80):
                asked = resolving(root, f"d{i % 50}", f"f{i}")
                answer = client.post("/v1/resolve", json=asked)
                wanted = tree["nested"] if i % 7 == 0 else tree["leaf"]
                assert coregw.verify_resolve(json.dumps(asked), answer.content) == wanted
        return first

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(worker, range(8))) == list(range(8))


def test_a_range_of_too_many_segments_is_too_large(ask: Ask, expect_refusal: Refusal, tree: dict[str, str]) -> None:
    changes = [{"index": i, "after": {"target": tree["leaf"]}} for i in range(10_001)]
    body = {"deltas": [{"kind": "list", "changes": changes}]}
    root = ask(f"/v1/roots/{tree['nested']}/mutations", body).json()["new_root"]
    expect_refusal(ask("/v1/read", reading(root, kind="list_range", start=0)), 413, "too_large")
    assert (
        len(ask("/v1/read", reading(root, kind="list_range", start=0, end=10_000)).json()["range_segments"]) == 10_000
    )


def test_the_extension_is_the_one_that_the_stub_describes() -> None:
    assert set(dir(_core.Operation)) >= {"resolve", "read", "map_proof", "scan", "poll", "supply_pages", "supply_roots"}
