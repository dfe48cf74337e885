"""CORS: no origin, one, or all may read responses, and never those of administration routes."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

import serving
from coregw.errors import InvalidInput
from coregw.gateway.settings import Settings
from coregw.store.memory import MemoryStore
from tables import rows

PAGE = {"origin": "https://app.example.org"}
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}


def cors(answer: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


def test_without_an_allowed_origin_there_are_no_cors_headers(client: httpx2.Client) -> None:
    for answer in (
        client.get("/healthz", headers=PAGE),
        client.options("/v1/resolve", headers=PAGE | ASKED),
        client.get("/v1/nothing", headers=PAGE),
    ):
        assert cors(answer) == {}


@pytest.mark.parametrize("allowed", ["*", "https://app.example.org", "http://localhost:3000"])
def test_every_response_names_the_allowed_origin(allowed: str) -> None:
    with serving.thread(MemoryStore(), allow_origin=allowed) as url, httpx2.Client(base_url=url) as client:
        cid = client.post("/v1/cas", content=b"x").json()["cid"]
        for answer in (
            client.get(f"/v1/cas/{cid}", headers=PAGE),
            client.get(f"/v1/cas/{cid}"),  # a cached response must work for web pages too
            client.head(f"/v1/cas/{cid}", headers=PAGE),
            client.get("/v1/cas/x", headers=PAGE),
            client.get("/v1/nothing", headers=PAGE),
            client.post("/v1/verify/read", content=b"{}", headers=PAGE if allowed == "*" else {"origin": allowed}),
            client.options("/v1/resolve", headers=PAGE | ASKED),
        ):
            assert cors(answer)["access-control-allow-origin"] == allowed
            assert {"*", "X-Ipfs-Roots"} < set(cors(answer)["access-control-expose-headers"].split(", "))
            assert set(cors(answer)["access-control-allow-methods"].split(", ")) == {"GET", "HEAD", "OPTIONS", "POST"}
        preflight = client.options("/v1/resolve", headers=PAGE | ASKED)
        allowed_headers = preflight.headers["access-control-allow-headers"].split(", ")
        assert (preflight.status_code, allowed_headers[:2]) == (204, ["*", "Authorization"])


def test_administration_has_no_cors_headers(tmp_path: Path) -> None:
    with serving.process(tmp_path, serving.ADMIN, allow_origin="*") as running:
        path = f"{running.url}/admin/v1/scopes/docs/roots"
        token = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}
        answers = [httpx2.get(path, headers=PAGE), httpx2.get(path, headers=token), httpx2.options(path, headers=PAGE)]
        assert [answer.status_code for answer in answers] == [401, 200, 401]
        assert [cors(answer) for answer in answers] == [{}, {}, {}]
        for other in ("//admin/v1/scopes/docs/roots", "/%2Fadmin//v1/scopes/docs/roots/"):  # routed like `path`
            answer = httpx2.get(running.url + other, headers=PAGE | token)
            assert (answer.status_code, cors(answer)) == (200, {})
        assert cors(httpx2.get(f"{running.url}/healthz"))["access-control-allow-origin"] == "*"


@rows(
    "text", ["example.org", "https://*", "https://a, https://b", "https://a/", "https://a\r\nx: y", "https://A", "**"]
)
def test_malformed_origin_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="allow_origin"):
        Settings.load({"COREGW_ALLOW_ORIGIN": text})
