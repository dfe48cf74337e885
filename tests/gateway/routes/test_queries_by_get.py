"""Queries by GET: the answers of POST, immutable for caches; and requests in the shapes of MALT clients."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from coregw import verify_read, verify_resolve
from coregw.gateway.replies import IMMUTABLE
from tables import rows

Refusal = Callable[[httpx2.Response, int, str], str]
EMPTY = "bafkqaaa"


@pytest.fixture(scope="module")
def root(client: httpx2.Client) -> str:
    arcs = {f"docs/{i}": EMPTY for i in range(5)} | {"docs/é a": EMPTY}
    return str(client.post("/v1/roots", json={"arcs": arcs}).json()["root"])


@pytest.fixture(scope="module")
def chunks(client: httpx2.Client, root: str) -> str:
    changes = [{"index": i, "after": {"target": EMPTY, "size": 10}} for i in range(4)]
    deltas = [{"kind": "list", "changes": changes}]
    return str(client.post(f"/v1/roots/{root}/mutations", json={"deltas": deltas}).json()["new_root"])


def post(client: httpx2.Client, name: str, root: str, profile: str = "core", **request: object) -> httpx2.Response:
    return client.post(f"/v1/{name}", json={"profile": f"{profile}.{name}/v0alpha1", "root": root, **request})


def test_queries_by_get_have_the_answers_of_post_and_are_immutable(
    client: httpx2.Client, root: str, chunks: str
) -> None:
    key, range_ = {"kind": "map_key", "segments": ["docs", "1"]}, {"kind": "list_range", "start": 5}
    for name, of, params, request in (
        ("resolve", root, {"path": "docs/é a"}, {"segments": ["docs", "é a"]}),
        ("resolve", root, {}, {"segments": []}),
        ("resolve", EMPTY, {"path": ""}, {"segments": []}),
        ("read", root, {"path": "docs/1"}, {"query": key}),
        ("read", chunks, {"index": "3"}, {"query": {"kind": "list_index", "index": 3}}),
        ("read", chunks, {"start": "5"}, {"query": range_}),
        ("read", chunks, {"start": "5", "end": "25"}, {"query": range_ | {"end": 25}}),
        ("map-proof", root, {"path": "docs/none"}, {"key": ["docs", "none"]}),
        ("scan", root, {}, {"prefix": []}),
        (
            "scan",
            root,
            {"prefix": "docs", "after": "docs/1", "limit": "2"},
            {"prefix": ["docs"], "after": ["docs", "1"], "limit": 2},
        ),
    ):
        url = f"/v1/{name}/{of}"
        answer = client.get(url, params=params)
        assert (answer.status_code, answer.content) == (200, post(client, name, of, **request).content), url
        assert (answer.headers["cache-control"], answer.headers["content-type"]) == (IMMUTABLE, "application/json")
        head = client.head(url, params=params)
        same = ("etag", "cache-control", "content-type", "content-length")
        assert [head.headers[each] for each in same] == [answer.headers[each] for each in same]
        for ask in (client.get, client.head):
            known = ask(url, params=params, headers={"if-none-match": f'"other", {answer.headers["etag"]}'})
            assert (known.status_code, known.content, known.headers["cache-control"]) == (304, b"", IMMUTABLE)


@rows(
    ("path", "code"),
    [
        ("resolve/hello?path=a", "invalid_cid"),
        ("resolve/{root}?path=a//b", "invalid_path"),
        ("resolve/{root}?prefix=a", "invalid_request"),
        ("resolve/bafkqaaa?path=a", "kind_mismatch"),
        ("read/{root}", "invalid_request"),
        ("read/{root}?path=a&index=1", "invalid_request"),
        ("read/{root}?path=", "invalid_path"),
        ("read/{root}?index=01", "invalid_request"),
        ("read/{root}?index=9999999999999999", "invalid_request"),
        ("read/{root}?index=1", "kind_mismatch"),
        ("read/{root}?end=1", "invalid_request"),
        ("map-proof/{root}", "invalid_path"),
        ("scan/{root}?limit=1001", "invalid_request"),
        ("scan/{root}?limit=-1", "invalid_request"),
        ("scan/{root}?prefix=docs&after=other", "invalid_path"),
    ],
)
def test_malformed_queries_by_get_are_refused(
    client: httpx2.Client, root: str, expect_refusal: Refusal, path: str, code: str
) -> None:
    answer = client.get(f"/v1/{path.format(root=root)}")
    expect_refusal(answer, 400, code)


def test_what_is_absent_may_be_there_later_and_is_not_cached(
    client: httpx2.Client, root: str, expect_refusal: Refusal
) -> None:
    absent = root[:-8] + "aaaaaaaa"
    for path, code in (
        (f"resolve/{root}?path=x", "path_not_found"),
        (f"scan/{absent}", "root_not_found"),
        (f"read/{absent}?path=x", "root_not_found"),
    ):
        expect_refusal(client.get(f"/v1/{path}"), 404, code)
        assert client.head(f"/v1/{path}").headers["cache-control"] == "no-store"


def test_a_proven_absence_is_immutable(
    client: httpx2.Client, root: str, chunks: str, expect_refusal: Callable[..., str]
) -> None:
    for path, by_post in (
        (f"{root}?path=x", post(client, "read", root, query={"kind": "map_key", "segments": ["x"]})),
        (f"{chunks}?index=99", post(client, "read", chunks, query={"kind": "list_index", "index": 99})),
    ):
        answer = client.get(f"/v1/read/{path}")
        expect_refusal(answer, 404, "path_not_found", IMMUTABLE)
        assert "prooflist" in answer.json()["details"]
        assert answer.content == by_post.content
        assert client.head(f"/v1/read/{path}").headers["cache-control"] == IMMUTABLE
        expect_refusal(by_post, 404, "path_not_found")  # what a POST gets, no cache keeps
    expect_refusal(client.get("/v1/resolve/batch"), 405, "method_not_allowed")


def without_members_of_ranges(result: dict[str, Any]) -> dict[str, Any]:
    """A result as malt-client encodes it again: steps without sizes and offset, and without empty arrays."""
    step = result["prooflist"]["steps"][0]
    kept = {name: each for name, each in step.items() if name not in ("sizes", "offset") and each != []}
    prooflist = result["prooflist"] | {"steps": [kept]}
    return {name: each for name, each in result.items() if each != []} | {"prooflist": prooflist}


def test_requests_of_malt_clients_are_answered_in_kind(
    client: httpx2.Client, root: str, chunks: str, expect_refusal: Refusal
) -> None:
    segments = ["docs", "1"]
    resolved = post(client, "resolve", root, "malt", segments=segments).json()
    assert (resolved["profile"], resolved["target"]) == ("malt.resolve/v0alpha1", EMPTY)
    request: dict[str, Any] = {"profile": "malt.resolve/v0alpha1", "root": root, "segments": segments}
    assert verify_resolve(request, resolved) == EMPTY
    verdict = client.post("/v1/verify/resolve", json={"request": request, "result": resolved}).json()
    assert verdict == {"profile": "malt.resolve/v0alpha1", "valid": True}
    core = request | {"profile": "core.resolve/v0alpha1"}
    verdict = client.post("/v1/verify/resolve", json={"request": core, "result": resolved}).json()
    assert (verdict["profile"], verdict["valid"]) == ("core.resolve/v0alpha1", False)
    for name, query in (("map-proof", {"key": segments}), ("scan", {"prefix": ["docs"]})):
        assert post(client, name, root, "malt", **query).json()["profile"] == f"malt.{name}/v0alpha1"
    for start in (5, 40):  # some elements, and none
        query = {"kind": "list_range", "start": start}
        read = post(client, "read", chunks, "malt", query=query).json()
        request = {"profile": "malt.read/v0alpha1", "root": chunks, "query": query}
        encoded = without_members_of_ranges(read)
        assert encoded != read
        assert verify_read(request, encoded) == verify_read(request, read)
        verdict = client.post("/v1/verify/read", json={"request": request, "result": encoded}).json()
        assert verdict == {"profile": "malt.read/v0alpha1", "valid": True}
        forged = json.loads(json.dumps(encoded))
        forged["prooflist"]["steps"][0]["sizes"] = [1]
        assert not client.post("/v1/verify/read", json={"request": request, "result": forged}).json()["valid"]
    expect_refusal(post(client, "resolve", root, "other", segments=segments), 400, "unknown_profile")
