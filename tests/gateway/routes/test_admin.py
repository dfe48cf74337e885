"""Published roots as docs/gateway.md describes them: routes, token, records, listings, freezing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

import coregw
import serving
from admin_support import AUTHORIZATION, Scope
from coregw.errors import InvalidInput
from coregw.gateway.access import AccessToken
from tables import rows

Ask = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]
Cid = Callable[..., str]

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"
ROUTES = [
    ("GET", "/admin/v1/scopes/s/roots"),
    ("POST", "/admin/v1/scopes/s/roots"),
    ("GET", "/admin/v1/scopes/s/roots/n"),
    ("GET", "/admin/v1/scopes/s/roots/n/history"),
    ("POST", "/admin/v1/scopes/s/roots/n/freeze"),
    ("GET", "/admin/v1/scopes/s/roots/n/proof"),
    ("POST", "/admin/v1/scopes/s/roots/n/checkpoint"),
]


# --- authentication ---------------------------------------------------------------------------------------------------


@rows(("method", "path"), ROUTES)
@rows(
    "given",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer wrong"],
        [f"Bearer {serving.ADMIN_TOKEN}x"],
        [f"Bearer {serving.ADMIN_TOKEN[:-1]}"],
        [f"Basic {serving.ADMIN_TOKEN}"],
        [serving.ADMIN_TOKEN],
        [f"Bearer {serving.ADMIN_TOKEN} x"],
        [f"Bearer {serving.ADMIN_TOKEN}", "Bearer wrong"],
    ],
)
def test_a_missing_or_wrong_token_is_401(
    client: httpx2.Client, expect_refusal: Refusal, method: str, path: str, given: list[str]
) -> None:
    """Before anything else of the request is checked."""
    headers = [("authorization", value) for value in given]
    answer = client.request(method, path, headers=headers, content=b"{" if method == "POST" else None)
    message = expect_refusal(answer, 401, "unauthorized")
    assert serving.ADMIN_TOKEN not in message
    assert answer.headers["www-authenticate"] == "Bearer"


@rows("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
@rows("path", ["/admin/v1/scopes/s/roots/n", "/admin/v1/nothing", "/admin", "/admin//v1/scopes/s/roots/n/freeze/"])
def test_without_a_token_no_method_or_path_can_be_told_from_another(
    client: httpx2.Client, method: str, path: str
) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "allow" not in answer.headers
    assert answer.content == b"" if method == "HEAD" else answer.json()["error"] == "unauthorized"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_bearer_scheme_is_case_insensitive(client: httpx2.Client, scheme: str) -> None:
    headers = {"authorization": f"{scheme} {serving.ADMIN_TOKEN}"}
    assert client.get("/admin/v1/scopes/s/roots", headers=headers).status_code == 200


def test_options_names_every_method(client: httpx2.Client) -> None:
    for method, path in ROUTES:
        allowed = {other for other, each in ROUTES if each == path} | {"OPTIONS"}
        allowed |= {"HEAD"} if "GET" in allowed else set()
        answer = client.options(path, headers=AUTHORIZATION)
        assert (answer.status_code, answer.content) == (204, b"")
        assert method in set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize("environ", [None, {"GATEWAY_ADMIN_TOKEN": ""}])
def test_admin_routes_exist_only_when_the_token_is_configured(
    tmp_path: Path, expect_refusal: Refusal, environ: dict[str, str] | None
) -> None:
    with serving.process(tmp_path, environ) as running:
        for method, path in ROUTES:
            for authorization in ("Bearer", "Bearer x", AUTHORIZATION["authorization"]):
                answer = httpx2.request(method, running.url + path, headers={"authorization": authorization})
                expect_refusal(answer, 404, "route_not_found")
        assert not any(path.startswith("/admin") for path in httpx2.get(f"{running.url}/openapi.json").json()["paths"])


@rows("value", [" ", "a b", "line\n", "\ttab", "umläut", "\x7f"])
def test_token_unfit_for_a_header_is_refused_and_not_shown(value: str) -> None:
    with pytest.raises(InvalidInput, match="GATEWAY_ADMIN_TOKEN") as refused:
        AccessToken.from_environment("GATEWAY_ADMIN_TOKEN", {"GATEWAY_ADMIN_TOKEN": value})
    assert value.strip() == "" or value.strip() not in str(refused.value)


# --- publishing -------------------------------------------------------------------------------------------------------


def test_each_record_carries_revision_previous_root_timestamp_and_frozen_state(scope: Scope, roots: list[str]) -> None:
    answers = [scope.publish("main", root) for root in (roots[0], roots[1], roots[1])]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert all(answer.headers["cache-control"] == "no-store" for answer in answers)
    records = [answer.json() for answer in answers]
    times = [record.pop("published_at") for record in records]
    assert all(re.fullmatch(TIME, time) for time in times)
    assert [(r["revision"], r["root"], r["previous_root"]) for r in records] == [
        (1, roots[0], None),
        (2, roots[1], roots[0]),
        (3, roots[1], roots[1]),
    ]
    name = scope.path.split("/")[4]
    assert all(
        r == {"scope": name, "name": "main", "frozen": False} | {k: r[k] for k in ("root", "revision", "previous_root")}
        for r in records
    )
    assert scope.get("main").json() == records[2] | {"published_at": times[2]}


def test_list_roots_and_other_spellings_of_roots_are_published(scope: Scope, ask: Ask, tree: dict[str, str]) -> None:
    empty = ask("/v1/roots", {"arcs": {}, "suite": "blake3"}).json()["root"]
    assert scope.publish("list", tree["list"]).json()["root"] == tree["list"]
    assert scope.publish("empty", "f" + bytes(coregw.Cid(empty)).hex()).json()["root"] == empty


def test_expected_revision_makes_a_publication_conditional(
    scope: Scope, roots: list[str], expect_refusal: Refusal
) -> None:
    expect_refusal(scope.publish("n", roots[0], expected_revision=1), 409, "revision_mismatch")
    assert scope.get("n").status_code == 404
    assert scope.publish("n", roots[0], expected_revision=0).json()["revision"] == 1
    answer = scope.publish("n", roots[1], expected_revision=0)
    expect_refusal(answer, 409, "revision_mismatch")
    assert answer.json()["details"] == {"revision": 1}
    assert scope.publish("n", roots[1], expected_revision=1).json()["revision"] == 2
    assert scope.get("n").json()["root"] == roots[1]


def test_a_root_that_is_not_held_is_not_published(scope: Scope, cid_of: Cid, expect_refusal: Refusal) -> None:
    unknown = coregw.Map({"never": cid_of(b"stored")}).root
    assert unknown in expect_refusal(scope.publish("n", unknown), 404, "root_not_found")
    expect_refusal(scope.get("n"), 404, "record_not_found")


def test_only_roots_are_published(
    scope: Scope, ask: Ask, client: httpx2.Client, cid_of: Cid, expect_refusal: Refusal
) -> None:
    client.post("/v1/cas", content=b"held")
    expect_refusal(scope.publish("n", cid_of(b"held")), 400, "kind_mismatch")
    for bad in ("", "x", cid_of(b"held")[:-1], cid_of(b"x", 0x303310)):
        expect_refusal(scope.publish("n", bad), 400, "invalid_cid")
    expect_refusal(scope.get("n"), 404, "record_not_found")


@pytest.mark.parametrize("bad", ["", ".", "..", "a b", "a/b", "é", "n" * 129, "a\n", "%20"])
def test_malformed_scopes_and_names_are_refused(
    client: httpx2.Client, scope: Scope, roots: list[str], expect_refusal: Refusal, bad: str
) -> None:
    expect_refusal(scope.publish(bad, roots[0]), 400, "invalid_request")
    quoted = "".join(f"%{byte:02x}" for byte in bad.encode())
    if bad and "/" not in bad:
        expect_refusal(scope.get(quoted), 400, "invalid_request")
        expect_refusal(scope.history(quoted), 400, "invalid_request")
        expect_refusal(scope.freeze(quoted), 400, "invalid_request")
        expect_refusal(scope.listing(f"?after={quoted}"), 400, "invalid_request")
        path = f"/admin/v1/scopes/{quoted}/roots"
        expect_refusal(client.get(path, headers=AUTHORIZATION), 400, "invalid_request")
        body = {"name": "n", "root": roots[0]}
        expect_refusal(client.post(path, headers=AUTHORIZATION, json=body), 400, "invalid_request")


@pytest.mark.parametrize("name", ["n" * 128, "A-Za.z0_9", "...", ".a", "..a", "a..", "freeze", "history"])
def test_well_formed_scopes_and_names_are_accepted(scope: Scope, roots: list[str], name: str) -> None:
    assert scope.publish(name, roots[0]).json()["name"] == name
    assert scope.get(name).json()["revision"] == 1
    assert scope.history(name).json()["records"] == [scope.get(name).json()]


@rows(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"name": "n"}',
        b'{"root": "ROOT"}',
        b'{"name": "n", "root": "ROOT", "revision": 1}',
        b'{"name": "n", "name": "n", "root": "ROOT"}',
        b'{"name": "n", "n\\u0061me": "n", "root": "ROOT"}',
        b'{"name": 1, "root": "ROOT"}',
        b'{"name": "n", "root": {"/": "ROOT"}}',
        b'{"name": "n", "root": "ROOT", "expected_revision": null}',
        b'{"name": "n", "root": "ROOT", "expected_revision": "1"}',
        b'{"name": "n", "root": "ROOT", "expected_revision": -1}',
        b'{"name": "n", "root": "ROOT", "expected_revision": 0.0}',
        b'{"name": "n", "root": "ROOT", "expected_revision": 9007199254740992}',
        b'{"name": "n", "root": "ROOT"} x',
        b'{"name": "\xff", "root": "ROOT"}',
        b'{"name": "\\ud800", "root": "ROOT"}',
    ],
)
def test_a_publish_request_is_strict(scope: Scope, roots: list[str], expect_refusal: Refusal, body: bytes) -> None:
    expect_refusal(scope.post(body.replace(b"ROOT", roots[0].encode())), 400, "invalid_request")
    assert scope.listing().json() == {"records": []}


def test_publish_request_of_another_media_type_is_refused(
    scope: Scope, roots: list[str], expect_refusal: Refusal
) -> None:
    body = json.dumps({"name": "n", "root": roots[0]}).encode()
    expect_refusal(scope.post(body, **{"content-type": "text/plain"}), 415, "unsupported_media_type")
    expect_refusal(scope.post(bytes(2 << 20)), 413, "too_large")


# --- listings and histories -------------------------------------------------------------------------------------------


def test_published_roots_of_the_scope_are_listed_in_pages(scope: Scope, roots: list[str], gateway: str) -> None:
    names = ["B", "a", "a-1", "a.1", "b"]
    for name in reversed(names):
        scope.publish(name, roots[0])
        scope.publish(name, roots[1])
    whole = scope.listing().json()
    assert set(whole) == {"records"}
    in_order = [record["name"] for record in whole["records"]]
    assert in_order == sorted(names)
    assert {(r["revision"], r["root"]) for r in whole["records"]} == {(2, roots[1])}
    found: list[dict[str, Any]] = []
    query = "?limit=2"
    while query:
        page = scope.listing(query).json()
        assert len(page["records"]) <= 2
        found += page["records"]
        query = f"?limit=2&after={page['next']}" if "next" in page else ""
    assert found == whole["records"]
    assert scope.listing("?limit=5").json() == whole
    assert [r["name"] for r in scope.listing("?after=a-0").json()["records"]] == in_order[2:]
    other = Scope(gateway, "a-scope-that-nobody-uses")
    assert other.listing().json() == {"records": []}
    other.close()


def test_history_lists_every_revision_in_pages(scope: Scope, roots: list[str], expect_refusal: Refusal) -> None:
    published = [scope.publish("n", roots[i % 2]).json() for i in range(5)]
    assert scope.history("n").json() == {"records": published}
    assert scope.history("n", "?limit=2").json() == {"records": published[:2], "next": 2}
    assert scope.history("n", "?limit=2&after=2").json() == {"records": published[2:4], "next": 4}
    assert scope.history("n", "?limit=2&after=4").json() == {"records": published[4:]}
    assert scope.history("n", "?after=5").json() == {"records": []}
    assert scope.history("n", f"?after={2**53 - 1}").json() == {"records": []}
    frozen = scope.freeze("n").json()
    assert scope.history("n").json() == {"records": [*published[:4], frozen]}
    expect_refusal(scope.history("m"), 404, "record_not_found")


@pytest.mark.parametrize("query", ["?limit=0", "?limit=1001", "?limit=x", "?limit=", "?limit=01", "?limit=-1", "?x=1"])
def test_page_limit_is_1_to_1000_records(scope: Scope, roots: list[str], expect_refusal: Refusal, query: str) -> None:
    scope.publish("n", roots[0])
    expect_refusal(scope.listing(query), 400, "invalid_request")
    expect_refusal(scope.history("n", query), 400, "invalid_request")


@pytest.mark.parametrize("after", ["x", "-1", "1.0", "", str(2**53), "9" * 30])
def test_history_continues_after_a_revision(
    scope: Scope, roots: list[str], expect_refusal: Refusal, after: str
) -> None:
    scope.publish("n", roots[0])
    expect_refusal(scope.history("n", f"?after={after}"), 400, "invalid_request")


# --- freezing ---------------------------------------------------------------------------------------------------------


def test_freezing_is_irreversible_and_idempotent(scope: Scope, roots: list[str], expect_refusal: Refusal) -> None:
    published = scope.publish("n", roots[0]).json()
    frozen = scope.freeze("n")
    assert frozen.status_code == 200
    when = frozen.json()["frozen_at"]
    assert re.fullmatch(TIME, when)
    assert frozen.json() == published | {"frozen": True, "frozen_at": when}
    assert scope.freeze("n").json() == frozen.json()
    for more in ({}, {"expected_revision": 0}, {"expected_revision": 1}, {"expected_revision": 2}):
        answer = scope.publish("n", roots[0], **more)
        expect_refusal(answer, 409, "record_frozen")
        assert answer.json()["details"] == {"revision": 1}
    assert scope.get("n").json() == frozen.json()
    assert scope.publish("another", roots[0]).json()["frozen"] is False


def test_freezing_an_unpublished_name_is_not_found(scope: Scope, roots: list[str], expect_refusal: Refusal) -> None:
    expect_refusal(scope.freeze("n"), 404, "record_not_found")
    assert scope.publish("n", roots[0]).json()["frozen"] is False


def test_freeze_with_a_body_is_refused(scope: Scope, roots: list[str], expect_refusal: Refusal) -> None:
    scope.publish("n", roots[0])
    expect_refusal(scope.freeze("n", b'{"expected_revision": 7}'), 400, "invalid_request")
    assert scope.get("n").json()["frozen"] is False
