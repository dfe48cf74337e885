"""Map proofs as the bytes of the proof alone, and which ``Accept`` asks for them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

import coregw
import serving
from coregw.store.memory import MemoryStore
from tables import rows

Ask = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]

OCTETS = "application/octet-stream"
JSON = "application/json"


def proving(root: str, **members: object) -> dict[str, Any]:
    return {"profile": "core.map-proof/v0alpha1", "root": root, **members}


@pytest.mark.parametrize("members", [{"keys": [["nothing"], ["docs"]]}, {"key": ["docs"]}, {"key": ["nothing"]}])
def test_a_bare_proof_is_that_of_the_result(ask: Ask, tree: dict[str, str], members: dict[str, Any]) -> None:
    asked = proving(tree["root"], **members)
    result, bare = ask("/v1/map-proof", asked), ask("/v1/map-proof", asked, accept=OCTETS)
    assert [answer.headers["content-type"] for answer in (result, bare)] == [JSON, OCTETS]
    assert [answer.headers["vary"] for answer in (result, bare)] == ["Accept", "Accept"]
    assert int(bare.headers["content-length"]) == len(bare.content)
    assert bare.content == base64.b64decode(result.json()["prooflist"]["steps"][0]["proof"])
    keys = members.get("keys") or [members["key"]]
    targets = {"nothing": None, "docs": tree["nested"]}
    assert coregw.verify_keys(tree["root"], keys, bare.content) == [targets[name] for [name] in keys]


@rows(
    ("accept", "media_type"),
    [
        ("*/*", JSON),
        ("application/*", JSON),
        ("text/html", JSON),
        ("", JSON),
        (JSON, JSON),
        (OCTETS, OCTETS),
        ("Application/Octet-Stream ; charset=x", OCTETS),
        (f"{OCTETS}, */*;q=0.5", OCTETS),
        (f"{OCTETS}, {JSON}", OCTETS),
        (f"{JSON}, {OCTETS}", JSON),
        (f"{OCTETS};q=0.5, {JSON}", JSON),
        (f"{OCTETS};q=0.5, */*", JSON),
        (f"{JSON};q=0.5, {OCTETS};q=0.8, */*", OCTETS),
        (f"{JSON};q=0, */*, {OCTETS}", OCTETS),
        (f"{OCTETS};q=0", JSON),
        (f"{OCTETS};q=0, */*", JSON),
        (f"{OCTETS};q=0, {JSON};q=0", JSON),
        (f"{OCTETS};Q=0.7,{JSON};q=0.6", OCTETS),
        (f"{OCTETS};q=nonsense", OCTETS),
        (f"{JSON}, {OCTETS};q=1.5", JSON),  # a malformed weight counts as 1
        (f"{JSON};q=0.5, {OCTETS};q=0.1234", OCTETS),
        (f"{JSON};q=0.5, {OCTETS};q = 0.1", OCTETS),
        (f"{JSON};q=0.999, {OCTETS};q=1.000", OCTETS),
        (f";;,=,{OCTETS}/x,q=1", JSON),
        ("x/" + OCTETS, JSON),
    ],
)
def test_accept_decides_between_the_proof_and_the_result(
    ask: Ask, tree: dict[str, str], accept: str, media_type: str
) -> None:
    answer = ask("/v1/map-proof", proving(tree["root"], key=["docs"]), accept=accept)
    assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
    assert answer.content.startswith(b"{") is (media_type == JSON)


def test_lines_of_accept_count_as_one(client: httpx2.Client, tree: dict[str, str]) -> None:
    for lines, media_type in (([JSON, OCTETS], JSON), ([f"{JSON};q=0.1", OCTETS], OCTETS)):
        headers = [("accept", line) for line in lines]
        answer = client.post("/v1/map-proof", json=proving(tree["root"], key=["docs"]), headers=headers)
        assert answer.headers["content-type"] == media_type


def test_errors_are_json_whatever_is_accepted(ask: Ask, expect_refusal: Refusal, tree: dict[str, str]) -> None:
    other = coregw.Map({"never": tree["leaf"]}).root
    for body, status, code in (
        (proving(other, key=["docs"]), 404, "root_not_found"),
        (proving(tree["list"], key=["docs"]), 400, "kind_mismatch"),
        (proving(tree["root"], keys=[]), 400, "invalid_request"),
        (b"{", 400, "invalid_request"),
        (b" " * (2 << 20), 413, "too_large"),
    ):
        expect_refusal(ask("/v1/map-proof", body, accept=OCTETS), status, code)


def test_other_methods_and_queries_know_no_bare_proofs(client: httpx2.Client, ask: Ask, tree: dict[str, str]) -> None:
    headers = {"accept": OCTETS}
    assert client.head("/v1/map-proof", headers=headers).status_code == 405
    path = f"/v1/map-proof/{tree['root']}?path=docs"
    assert client.get(path, headers=headers).content == client.get(path).content
    asked = {"profile": "core.read/v0alpha1", "root": tree["root"], "query": {"kind": "map_key", "segments": ["docs"]}}
    assert ask("/v1/read", asked, accept=OCTETS).headers["content-type"] == JSON


def test_a_bare_proof_of_too_many_nodes_is_refused(expect_refusal: Refusal, tree: dict[str, str]) -> None:
    with serving.thread(MemoryStore(), max_nodes=300) as url:
        arcs = {f"{number:03}": tree["leaf"] for number in range(400)}
        root = httpx2.post(f"{url}/v1/roots", json={"arcs": arcs}).json()["root"]
        for count in (50, 400):
            asked = proving(root, keys=[[path] for path in list(arcs)[:count]])
            answer = httpx2.post(f"{url}/v1/map-proof", json=asked, headers={"accept": OCTETS})
            if count == 400:
                assert "300 tree nodes" in expect_refusal(answer, 413, "too_large")
            else:
                assert coregw.verify_keys(root, asked["keys"], answer.content) == [tree["leaf"]] * count
