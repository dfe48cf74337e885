"""Failures of the plant store: an Error body whatever the status, which leaks nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence

import httpx2
import pytest

import serving
from coregw.errors import StorageFull, StoreDamaged, Unavailable
from coregw.gateway.settings import Settings
from coregw.gateway.tokens import AccessToken
from coregw.plants.service import alone, beside_gateway
from coregw.plants.settings import PlantSettings, body_limit
from coregw.store import Table
from coregw.store.memory import MemoryStore
from plant_services import ALONE, TOKEN

Create = Callable[..., httpx2.Response]
Fresh = Callable[[], int]
ExpectError = Callable[..., str]

_CARRIED = {"authorization": f"Bearer {TOKEN}"}
_SERVICES = {"alone": alone, "beside": beside_gateway}


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/plants/1", "/plants/a/b", "/plants/%ff", "/plants/openapi.yaml"])
def test_404_for_unknown_routes(client: httpx2.Client, expect_error: ExpectError, method: str, path: str) -> None:
    expect_error(client.request(method, path), 404)


@pytest.mark.parametrize("path", ["/", "/pets", "/plantsx", "/v1/resolve", "/v1/cas"])
def test_404_for_routes_that_only_a_gateway_has(
    command: str, client: httpx2.Client, expect_error: ExpectError, path: str
) -> None:
    answer = client.get(path, headers={"accept": "application/json"})
    if command == ALONE:
        expect_error(answer, 404)
    else:
        assert answer.status_code in (200, 404, 405)
        assert type(answer.json().get("error", "")) is str  # the gateway's own shape


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "TRACE"])
def test_405_for_other_methods(client: httpx2.Client, expect_error: ExpectError, method: str) -> None:
    answer = client.request(method, "/plants")
    expect_error(answer, 405)
    assert set(answer.headers["allow"].split(", ")) == {"POST", "OPTIONS"}


def test_a_failed_head_has_no_body(client: httpx2.Client) -> None:
    assert (client.head("/plants").status_code, client.head("/plants").content) == (405, b"")


def test_400_for_a_query(client: httpx2.Client, expect_error: ExpectError, fresh: Fresh) -> None:
    answer = client.post("/plants?colour=red", json={"name": "fern", "id": fresh()}, headers=_CARRIED)
    assert "colour" in expect_error(answer, 400)


@pytest.mark.parametrize("size", [(64 << 10) + 1, 1 << 20])
@pytest.mark.parametrize("chunked", [False, True])
def test_413_for_a_body_that_is_too_large(
    client: httpx2.Client, expect_error: ExpectError, size: int, chunked: bool
) -> None:
    body = b" " * size
    content = iter([body[: size // 2], body[size // 2 :]]) if chunked else body
    answer = client.post("/plants", content=content, headers=_CARRIED)
    assert "65536" in expect_error(answer, 413)


def test_the_largest_body_is_accepted(create: Create, fresh: Fresh) -> None:
    body = json.dumps({"name": "fern", "id": fresh()}).encode()
    assert create(body + b" " * ((64 << 10) - len(body))).status_code == 200


@pytest.mark.parametrize("given", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=x"])
def test_415_for_other_media_types(create: Create, expect_error: ExpectError, fresh: Fresh, given: str) -> None:
    expect_error(create({"name": "fern", "id": fresh()}, content_type=given), 415)


def test_415_for_a_compressed_body(create: Create, expect_error: ExpectError, fresh: Fresh) -> None:
    expect_error(create({"name": "fern", "id": fresh()}, content_encoding="gzip"), 415)


def test_a_body_without_a_content_type_is_json(client: httpx2.Client, fresh: Fresh) -> None:
    body = json.dumps({"name": "fern", "id": fresh()}).encode()
    answer = client.post("/plants", content=body, headers=_CARRIED)
    assert "content-type" not in answer.request.headers
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "head",
    [
        "POST /plants HTTP/1.1\r\n\r\n",
        "POST /plants?a=b HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST /plants HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        "POST /plants HTTP/1.1\r\nHost: a\r\nX: " + "x" * 40_000 + "\r\n\r\n",
        "POST /plants/1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
    ids=["no Host", "two Hosts", "no length", "long head", "another coding"],
)
def test_400_for_a_malformed_http_request(client: httpx2.Client, head: str) -> None:
    with serving.connect(str(client.base_url).rstrip("/")) as connection:
        connection.sendall(head.encode())
        answer = serving.everything(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert error["error"] == 400
    assert set(error) == {"error", "message"}


@pytest.mark.parametrize("rubbish", [b"\0\r\n\r\n", b"PLANTS\r\n\r\n"])
def test_a_request_without_a_target_gets_an_error_of_the_service(
    command: str, client: httpx2.Client, rubbish: bytes
) -> None:
    with serving.connect(str(client.base_url).rstrip("/")) as connection:
        connection.sendall(rubbish)
        answer = serving.everything(connection)
    error = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert error["error"] == (400 if command == ALONE else "invalid_request")


class _BrokenStore(MemoryStore):
    """A store whose conditional writes fail."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
    ) -> bool:
        raise self._error


@pytest.mark.parametrize("service", _SERVICES)
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StoreDamaged("the row at /secret is broken"), 500),
        (ZeroDivisionError("at /secret"), 500),
        (Unavailable("the store is busy"), 503),
        (StorageFull("the disk is full"), 507),
    ],
)
def test_store_error_becomes_a_status_and_leaks_no_details(
    expect_error: ExpectError, caplog: pytest.LogCaptureFixture, service: str, error: Exception, status: int
) -> None:
    served = _SERVICES[service](AccessToken("PLANTS_ACCESS_TOKEN", TOKEN))
    with caplog.at_level(logging.ERROR), serving.thread(_BrokenStore(error), service=served) as url:
        answer = httpx2.post(f"{url}/plants", json={"name": "fern", "id": 1}, headers=_CARRIED)
    assert "secret" not in expect_error(answer, status)
    assert ("retry-after" in answer.headers) == (status == 503)
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    if isinstance(error, StoreDamaged):  # in a line, as each read of what is damaged fails again
        assert [record.getMessage() for record in logged] == ["POST '/plants' failed: the row at /secret is broken"]
    else:
        assert [record.exc_info and record.exc_info[1] for record in logged] == ([error] if status == 500 else [])


@pytest.mark.parametrize("service", _SERVICES)
def test_503_when_all_bodies_together_are_too_large(expect_error: ExpectError, service: str) -> None:
    served = _SERVICES[service](AccessToken("PLANTS_ACCESS_TOKEN", TOKEN))
    limits = {"buffered_bytes": 1 << 20, "plant_body_bytes": 4 << 20}
    with serving.thread(MemoryStore(), served, PlantSettings, **limits) as url:
        answer = httpx2.post(f"{url}/plants", content=b" " * (2 << 20), headers=_CARRIED)
        expect_error(answer, 503)
        after = httpx2.post(f"{url}/plants", json={"name": "fern", "id": 1}, headers=_CARRIED)
        assert after.status_code == 200


def test_the_default_limit_of_bodies_is_64_kib() -> None:
    assert PlantSettings().plant_body_bytes == body_limit(Settings()) == 64 << 10
