"""Rules of docs/gateway.md that no other test covers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

import coregw
import serving

Ask = Callable[..., httpx2.Response]

PAGE = {
    ("POST", "/v1/resolve"): 200,
    ("POST", "/v1/read"): 200,
    ("POST", "/v1/verify/resolve"): 200,
    ("POST", "/v1/verify/read"): 200,
    ("POST", "/v1/cas"): 201,
    ("GET", "/v1/cas/{cid}"): 200,
    ("HEAD", "/v1/cas/{cid}"): 200,
    ("POST", "/v1/roots"): 201,
    ("POST", "/v1/roots/{root}/mutations"): 201,
    ("GET", "/admin/v1/scopes/{scope}/roots"): 200,
    ("POST", "/admin/v1/scopes/{scope}/roots"): 200,
    ("GET", "/admin/v1/scopes/{scope}/roots/{name}"): 200,
    ("POST", "/admin/v1/scopes/{scope}/roots/{name}/freeze"): 200,
}
"""Endpoints of docs/gateway.md and their success statuses. `test_openapi` sends an example to each of them."""


@pytest.fixture(scope="module")
def document(client: httpx2.Client) -> dict[str, Any]:
    return dict(client.get("/openapi.json").json())


def test_document_has_the_success_statuses_of_the_page(document: dict[str, Any]) -> None:
    for (method, path), status in PAGE.items():
        answers = document["paths"][path][method.lower()]["responses"]
        assert [each for each in answers if each.startswith("2") and each != "206"] == [str(status)]


def test_all_bodies_are_json_except_payload_bytes(document: dict[str, Any]) -> None:
    for method, path in PAGE:
        operation = document["paths"][path][method.lower()]
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        kinds = {kind for body in bodies for kind in body.get("content", {})}
        assert kinds <= {"application/json", "application/octet-stream", "application/x-ndjson"}
        assert ("application/x-ndjson" in kinds) == ((method, path) == ("POST", "/v1/roots"))
        assert ("application/octet-stream" in kinds) == (path.startswith("/v1/cas") and method != "HEAD")


def test_non_admin_routes_ignore_authorization(ask: Ask, client: httpx2.Client, tree: dict[str, str]) -> None:
    request = {"profile": "core.resolve/v0alpha1", "root": tree["root"], "segments": ["docs", "readme"]}
    answers = [ask("/v1/resolve", request), ask("/v1/resolve", request, authorization="Bearer of-nobody")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert client.post("/v1/cas", content=b"x", headers={"authorization": "Basic eDp5"}).status_code == 201


def test_the_key_payload_binds_a_payload(ask: Ask, tree: dict[str, str]) -> None:
    for segments, kinds in [(["@payload"], ["payload_binding"]), (["docs", "@payload"], ["map_step"])]:
        request = {"profile": "core.resolve/v0alpha1", "root": tree["root"], "segments": segments}
        answer = ask("/v1/resolve", request)
        assert [step["kind"] for step in answer.json()["prooflist"]["steps"]] == kinds
        assert coregw.verify_resolve(json.dumps(request), answer.content) == tree["leaf"]


def test_a_new_root_stays_a_candidate(
    ask: Ask, client: httpx2.Client, tree: dict[str, str], cid_of: Callable[..., str]
) -> None:
    records = "/admin/v1/scopes/candidates/roots"
    operator = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}
    assert ask(records, {"name": "main", "root": tree["root"]}, **operator).status_code == 200
    published = client.get(records, headers=operator).content
    changes = [{"path": "docs/readme", "before": {"target": tree["leaf"]}, "after": {"target": cid_of(b"another")}}]
    new = ask(f"/v1/roots/{tree['root']}/mutations", {"deltas": [{"kind": "map", "changes": changes}]}).json()[
        "new_root"
    ]
    assert new != tree["root"]
    for root, target in [(tree["root"], tree["leaf"]), (new, cid_of(b"another"))]:
        request = {"profile": "core.resolve/v0alpha1", "root": root, "segments": ["docs", "readme"]}
        assert ask("/v1/resolve", request).json()["target"] == target
    assert client.get(records, headers=operator).content == published
