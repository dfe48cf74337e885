"""Preconditions, ranges and media types: the vectors of `rust/front` through the binding, and on every route."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

import serving
from coregw import InvalidInput
from coregw._core import entity_bytes, is_media_type, negotiate, precondition_status, select_range

Refusal = Callable[[httpx2.Response, int, str], str]

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[3] / "rust/front/tests/vectors/http.json").read_text("utf-8")
)
AUTHORIZATION = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}


def field(vector: dict[str, Any], name: str) -> bytes | None:
    return None if vector.get(name) is None else vector[name].encode()


def test_preconditions_agree_with_the_vectors() -> None:
    for vector in VECTORS["preconditions"]:
        etag, match, none_match = (field(vector, name) for name in ("etag", "if_match", "if_none_match"))
        assert (precondition_status(etag or b"", match, none_match) or 200) == vector["status"], vector


def test_ranges_agree_with_the_vectors() -> None:
    for vector in VECTORS["ranges"]:
        found = select_range(field(vector, "range"), field(vector, "if_range"), b'"a"', vector["size"])
        expected = vector["selected"]
        if expected == "unsatisfiable":
            assert found is not None, vector
            assert found[0] == found[1], vector
        else:
            assert found == (None if expected is None else tuple(expected)), vector


def test_entity_bytes_agree_with_the_vectors() -> None:
    refusals = {"malformed": "expected FROM:TO", "outside": "of which it names none"}
    for vector in VECTORS["entity_bytes"]:
        if vector["found"] in ("malformed", "outside"):
            with pytest.raises(InvalidInput, match=refusals[vector["found"]]):
                entity_bytes(vector["text"], vector["size"])
        else:
            found = entity_bytes(vector["text"], vector["size"])
            assert found == (None if vector["found"] is None else tuple(vector["found"])), vector


def test_media_types_agree_with_the_vectors() -> None:
    for vector in VECTORS["content_types"]:
        assert is_media_type(vector["value"].encode(), vector["offers"]) == vector["is_offered"], vector
    for vector in VECTORS["accept"]:
        assert negotiate(vector["accept"].encode(), vector["offers"]) == vector["chosen"], vector
    with pytest.raises(ValueError, match="not a media type"):
        negotiate(b"*/*", ["text"])


@pytest.fixture(scope="module")
def tagged(client: httpx2.Client) -> list[str]:
    """A path of every kind that has an ETag."""
    payload = client.post("/v1/cas", content=b"payload").json()["cid"]
    root = client.post("/v1/roots", json={"arcs": {"key": payload}}).json()["root"]
    record = "/admin/v1/scopes/conditions/roots"
    client.post(record, json={"name": "name", "root": root}, headers=AUTHORIZATION).raise_for_status()
    page = client.get(f"/v1/read/{root}?path=key").headers["etag"]
    assert page
    return [
        f"/v1/cas/{payload}",
        f"/v1/roots/{root}",
        f"/v1/resolve/{root}?path=key",
        f"/v1/read/{root}?path=key",
        f"/v1/map-proof/{root}?path=key",
        f"/v1/scan/{root}",
        f"/ipfs/{payload}?format=raw",
        f"/ipfs/{payload}?format=car",
        f"{record}/name",
        "/",
        "/docs",
    ]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_preconditions_are_evaluated_wherever_there_is_an_etag(
    client: httpx2.Client, tagged: list[str], expect_refusal: Refusal, method: str
) -> None:
    for path in tagged:

        def ask(path: str = path, **headers: str) -> httpx2.Response:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return client.request(method, path, headers=AUTHORIZATION | named)

        etag = ask().headers["etag"]
        for tags in (etag, "*", f'"other", {etag}'):
            assert ask(if_match=tags).status_code == 200, path
        for tags in ('"other"', f"W/{etag}", "other"):
            for further in ({}, {"range": "bytes=0-0"}, {"range": "bytes=99999-"}, {"if_none_match": etag}):
                answer = ask(if_match=tags, **further)
                assert answer.status_code == 412, (path, further)
                if method == "GET":
                    expect_refusal(answer, 412, "precondition_failed")
        for tags in (etag, "*", f'"other", W/{etag}'):
            known = ask(if_none_match=tags, if_match=etag)
            assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", etag), path
        assert ask(if_none_match='"other"').status_code == 200, path


def test_a_suffix_of_an_empty_payload_is_all_of_it(client: httpx2.Client, expect_refusal: Refusal) -> None:
    path = f"/v1/cas/{client.post('/v1/cas', content=b'').json()['cid']}"
    whole = client.get(path, headers={"range": "bytes=-1"})
    assert (whole.status_code, whole.content) == (200, b"")
    assert "content-range" not in whole.headers
    for given in ("bytes=-0", "bytes=0-"):
        answer = client.get(path, headers={"range": given})
        expect_refusal(answer, 416, "range_not_satisfiable")
        assert answer.headers["content-range"] == "bytes */0"
