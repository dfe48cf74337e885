"""Who may write: reading, asking and writing are separate, and a gateway may refuse writes or require a token."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

import serving
from car_files import TYPE
from coregw import Cid, payload_cid
from coregw.engine import Engine
from coregw.gateway.access import AccessToken
from coregw.gateway.app import create_app_over
from coregw.gateway.context import Gateway
from coregw.gateway.openapi import operations_of
from coregw.gateway.settings import Settings
from coregw.store import Stored, Table
from coregw.store.memory import MemoryStore

Refusal = Callable[[httpx2.Response, int, str], str]
TOKEN = "a-token~of+the/writers=="
WRITER = {"authorization": f"Bearer {TOKEN}"}
ADMIN = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}
SCOPE = "/admin/v1/scopes/docs/roots"


def test_only_routes_that_ask_are_left_to_readers() -> None:
    app = create_app_over(Gateway.over(Engine(MemoryStore()), Settings()), AccessToken("GATEWAY_ADMIN_TOKEN", "secret"))
    operations = operations_of(app)
    assert not [each for each in operations if each.method in ("GET", "HEAD") and each.description.writes]
    asking = {each.path for each in operations if each.method == "POST" and not each.description.writes}
    assert asking == {
        "/v1/resolve",
        "/v1/resolve/batch",
        "/v1/read",
        "/v1/map-proof",
        "/v1/scan",
        "/v1/verify/resolve",
        "/v1/verify/read",
        "/v1/cas/has",
        "/v1/cas/car",
        "/v1/pages/car",
        "/v1/roots/{root}/complete",
    }
    asked = {path for path in asking if "{" not in path}
    text = (Path(__file__).parents[3] / "deploy" / "nginx" / "gateways.conf").read_text("utf-8")
    [shown] = re.findall(r"POST:/v1/\((.*)\)", text)
    assert {f"/v1/{path}" for path in shown.split("|")} == asked
    assert re.search(r"/v1/roots/\S+/complete", text)


def writes(client: httpx2.Client, root: str, headers: dict[str, str]) -> list[httpx2.Response]:
    """Send one valid request to each route that writes, but for administration routes."""
    delta = {"kind": "map", "changes": [{"path": "new", "after": {"target": "bafkqaaa"}}]}
    return [
        client.post("/v1/cas", content=b"new", headers=headers),
        client.post("/v1/roots", json={"arcs": {"new": "bafkqaaa"}}, headers=headers),
        client.post(f"/v1/roots/{root}/mutations", json={"deltas": [delta]}, headers=headers),
        client.post("/v1/car", content=client.get(f"/v1/roots/{root}/car").content, headers=TYPE | headers),
    ]


def reads(client: httpx2.Client, root: str) -> list[int]:
    """Read and ask, without a token; return the statuses."""
    has = {"profile": "cas.has-batch/v0alpha1", "cids": ["bafkqaaa"]}
    answers = [
        client.get(f"/v1/roots/{root}"),
        client.get(f"/v1/resolve/{root}", params={"path": "a"}),
        client.post("/v1/scan", json={"profile": "core.scan/v0alpha1", "root": root, "prefix": []}),
        client.post("/v1/cas/has", json=has),
        client.post(f"/v1/roots/{root}/complete"),
        client.options("/v1/cas"),
    ]
    return [answer.status_code for answer in answers]


def test_a_read_only_gateway_refuses_whatever_writes(tmp_path: Path, expect_refusal: Refusal) -> None:
    with serving.process(tmp_path, serving.ADMIN) as running, httpx2.Client(base_url=running.url) as client:
        root = client.post("/v1/roots", json={"arcs": {"a": "bafkqaaa"}}).json()["root"]
    environ = serving.ADMIN | {"GATEWAY_WRITE_TOKEN": TOKEN}
    with (
        serving.process(tmp_path, environ, read_only=True) as running,
        httpx2.Client(base_url=running.url) as client,
        serving.control(tmp_path) as control,
    ):
        published = {"name": "stable", "root": root}
        for answer in (*writes(client, root, WRITER), client.post(SCOPE, json=published, headers=ADMIN)):
            expect_refusal(answer, 403, "read_only")
        assert reads(client, root) == [200] * 5 + [204]
        assert control.post(SCOPE, json=published).status_code == 200  # the operator's
        assert client.get(f"{SCOPE}/stable", headers=ADMIN).json()["root"] == root


def test_a_write_token_is_needed_for_writing_alone(tmp_path: Path, expect_refusal: Refusal) -> None:
    environ = serving.ADMIN | {"GATEWAY_WRITE_TOKEN": TOKEN}
    with (
        serving.process(tmp_path, environ) as running,
        httpx2.Client(base_url=running.url) as client,
    ):
        root = client.post("/v1/roots", json={"arcs": {"a": "bafkqaaa"}}, headers=WRITER).json()["root"]
        for headers in ({}, ADMIN, {"authorization": f"Bearer {TOKEN[:-1]}"}):
            for answer in writes(client, root, headers):
                expect_refusal(answer, 401, "unauthorized")
                assert answer.headers["www-authenticate"] == "Bearer"
        assert [answer.status_code for answer in writes(client, root, WRITER)] == [201] * 4
        assert reads(client, root) == [200] * 5 + [204]
        assert client.post(SCOPE, json={"name": "stable", "root": root}, headers=ADMIN).status_code == 200
        expect_refusal(client.post(SCOPE, json={"name": "stable", "root": root}, headers=WRITER), 401, "unauthorized")


class Renewals(MemoryStore):
    """A store that counts what is dated again, and the rows that are written."""

    count = 0

    async def renew(self, kind: Stored, keys: Sequence[bytes], below_held: bool = False) -> list[int | None]:
        self.count += 1
        return await super().renew(kind, keys, below_held)

    async def compare_and_set(self, table: Table, key: bytes, *arguments: Any, **options: Any) -> bool:  # noqa: ANN401
        self.count += 1
        return await super().compare_and_set(table, key, *arguments, **options)


@pytest.mark.anyio
async def test_only_who_may_write_keeps_what_is_held_from_garbage_collection() -> None:
    """Strangers who ask again and again would keep garbage for ever; they are answered the same."""
    store = Renewals()
    engine = Engine(store)
    token = AccessToken("GATEWAY_WRITE_TOKEN", TOKEN)
    readable, writable = (
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(
                create_app_over(Gateway.over(engine, settings), None, token),
            ),
            base_url="http://localhost",
        )
        for settings in (Settings(read_only=True), Settings())
    )
    payload = (await writable.post("/v1/cas", content=b"held", headers=WRITER)).json()["cid"]
    create = {"arcs": {"a": payload, "b": "bafkqaaa"}}
    inner = (await writable.post("/v1/roots", json=create, headers=WRITER)).json()["root"]
    lacking = {"arcs": {"nested": inner, "absent": payload_cid(b"absent")}}
    root = (await writable.post("/v1/roots", json=lacking, headers=WRITER)).json()["root"]
    asked = {"profile": "cas.has-batch/v0alpha1", "cids": [payload, payload_cid(b"absent")]}

    async def answers(client: httpx2.AsyncClient, headers: dict[str, str]) -> list[object]:
        return [
            (await client.post("/v1/cas/has", json=asked, headers=headers)).json()["results"],
            (await client.post("/v1/cas/has", content=bytes(Cid(payload)), headers=headers)).content,
            (await client.post(f"/v1/roots/{inner}/complete", headers=headers)).json(),
            (await client.post(f"/v1/roots/{root}/complete", headers=headers)).json(),
        ]

    strangers = [(readable, {}), (readable, WRITER), (writable, {}), (writable, {"authorization": "Bearer x"})]
    expected = None
    for _ in range(2):
        store.count = 0
        found = [await answers(client, headers) for client, headers in strangers]
        assert store.count == 0
        assert await answers(writable, WRITER) == (expected := expected or found[0])
        assert found == [expected] * len(strangers)
        assert store.count >= 4
    await engine.close()


@pytest.mark.parametrize("content_type", ["multipart/form-data; boundary=x", "Multipart/mixed"])
def test_parts_of_a_form_are_no_payload(client: httpx2.Client, expect_refusal: Refusal, content_type: str) -> None:
    for path in ("/v1/cas", "/v1/cas/has"):
        answer = client.post(path, content=b"--x\r\n", headers={"content-type": content_type})
        assert "not as a part of a form" in expect_refusal(answer, 415, "unsupported_media_type")
    plain = {"content-type": "application/x-www-form-urlencoded"}  # what curl says of --data-binary
    assert client.post("/v1/cas", content=b"x", headers=plain).status_code == 201


def test_preconditions_of_publications_are_headers_too(tmp_path: Path, expect_refusal: Refusal) -> None:
    with (
        serving.process(tmp_path, serving.ADMIN) as running,
        httpx2.Client(base_url=running.url, headers=ADMIN) as client,
    ):
        root = client.post("/v1/roots", json={"arcs": {"a": "bafkqaaa"}}).json()["root"]

        def publish(expected: int | None = None, **headers: str) -> httpx2.Response:
            body = {"name": "stable", "root": root} | ({} if expected is None else {"expected_revision": expected})
            return client.post(SCOPE, json=body, headers={key.replace("_", "-"): each for key, each in headers.items()})

        first = publish(if_none_match="*")
        assert (first.status_code, first.headers["etag"]) == (200, '"1"')
        assert publish(if_match=first.headers["etag"]).headers["etag"] == '"2"'
        assert publish(2, if_match='"2"').headers["etag"] == '"3"'
        assert client.get(f"{SCOPE}/stable").headers["etag"] == '"3"'
        assert client.head(f"{SCOPE}/stable").headers["etag"] == '"3"'
        for stale in ({"if_match": '"2"'}, {"if_none_match": "*"}):
            answer = publish(**stale)
            expect_refusal(answer, 412, "precondition_failed")
            assert answer.json()["details"] == {"revision": 3}
        for malformed in ("*", "3", 'W/"3"', '"3", "4"', '"0"', '"x"'):
            expect_refusal(publish(if_match=malformed), 400, "invalid_request")
        for headers in ({"if_none_match": '"3"'}, {"if_none_match": "*", "if_match": '"3"'}):
            expect_refusal(publish(**headers), 400, "invalid_request")
        expect_refusal(publish(2, if_match='"3"'), 400, "invalid_request")
        assert client.post(f"{SCOPE}/stable/freeze").headers["etag"] == '"3.frozen"'
        expect_refusal(publish(if_match='"3.frozen"'), 409, "record_frozen")
