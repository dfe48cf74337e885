"""The short way to handlers answers as Litestar's own way does, and leaves to Litestar what is not a handler's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coregw.gateway.app import create_app
from coregw.gateway.settings import Settings
from coregw.gateway.tokens import AccessToken

if TYPE_CHECKING:
    import httpx2

BODIES = {
    "a question that is none": ("/v1/resolve", b"{}"),
    "a root that is not held": ("/v1/read", b'{"profile":"core.read/v0alpha1","root":"bafkqaaa","query":{}}'),
    "a verdict": ("/v1/verify/read", b'{"request":{},"result":{}}'),
    "an empty body": ("/v1/map-proof", b""),
}


def told(answer: httpx2.Response) -> tuple[int, bytes, list[tuple[str, str]]]:
    headers = [(name, value) for name, value in answer.headers.items() if name != "date"]
    return answer.status_code, answer.content, sorted(headers)


@pytest.mark.parametrize(("path", "body"), BODIES.values(), ids=BODIES.keys())
def test_both_ways_give_the_same_answer(client: httpx2.Client, path: str, body: bytes) -> None:
    # A slash at the end is one of the spellings that only Litestar knows.
    assert told(client.post(path, content=body)) == told(client.post(f"{path}/", content=body))


def test_a_payload_comes_by_both_ways(client: httpx2.Client) -> None:
    cid = client.post("/v1/cas", content=b"some bytes").json()["cid"]
    answer = client.get(f"/v1/cas/{cid}")
    assert answer.content == b"some bytes"
    assert told(answer) == told(client.get(f"/v1/cas/{cid}/"))
    known = {"If-None-Match": answer.headers["etag"]}
    assert told(client.get(f"/v1/cas/{cid}", headers=known)) == told(client.get(f"/v1/cas/{cid}/", headers=known))


def test_a_path_of_its_own_is_no_parameter_of_another(client: httpx2.Client) -> None:
    assert client.get("/v1/cas/batch").status_code == 405


@pytest.mark.parametrize("path", ["/v1/cas/a%2Fb", "/v1/cas/a/b", "/v1/cas", "/v1/cas/"])
def test_a_parameter_is_one_segment(client: httpx2.Client, path: str) -> None:
    assert client.get(path).status_code in {404, 405}


def test_what_wants_a_token_has_no_short_way() -> None:
    short = create_app(Settings(), admin_token=AccessToken("GATEWAY_ADMIN_TOKEN", "secret")).short_ways
    assert {("POST", "/v1/resolve"), ("POST", "/v1/resolve/batch"), ("GET", "/v1/cas/")} <= short
    assert not [path for _, path in short if path.startswith("/admin")]
