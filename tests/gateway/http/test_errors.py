"""Errors: one format, statuses from one table, and no internal details."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx2
import pytest

import serving
from admin_support import AUTHORIZATION
from coregw import payload_cid
from coregw.errors import ERROR_CODES, Conflict, StorageFull, StoreDamaged, Unavailable
from coregw.gateway.replies import problem_of
from coregw.store import Table
from coregw.store.memory import MemoryStore
from tables import rows

if TYPE_CHECKING:
    from litestar.types import HTTPScope

Refusal = Callable[[httpx2.Response, int, str], str]
ABSENT = payload_cid(b"stored by no test")


def test_error_table_matches_the_protocol() -> None:
    text = """
    400 invalid_request invalid_cid invalid_path invalid_codec unknown_profile kind_mismatch
    401 unauthorized
    403 forbidden_origin read_only
    404 root_not_found path_not_found page_not_found payload_not_found record_not_found route_not_found
    405 method_not_allowed
    409 before_mismatch expected_root_mismatch revision_mismatch checkpoint_mismatch record_frozen invalid_change
    412 precondition_failed
    413 too_large
    415 unsupported_media_type
    416 range_not_satisfiable
    421 misdirected_request
    500 internal
    503 unavailable
    507 storage_full
    """
    rows = [line.split() for line in text.splitlines() if line.strip()]
    assert {code: int(status) for status, *codes in rows for code in codes} == {
        code: each.status for code, each in ERROR_CODES.items()
    }


@rows("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
@rows("path", ["/nothing", "/v1", "/v1/nothing", "/admin/v1", "/admin/v1/scopes/a", "/v1/cas/a/b", "/%ff", "/schema"])
def test_unknown_path_is_404(client: httpx2.Client, expect_refusal: Refusal, method: str, path: str) -> None:
    answer = client.request(method, path, headers=AUTHORIZATION)
    if method == "HEAD":
        assert (answer.status_code, answer.content) == (404, b"")
    else:
        expect_refusal(answer, 404, "route_not_found")


@rows(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/resolve", {"POST"}),
        ("DELETE", "/v1/cas/x", {"GET", "HEAD"}),
        ("POST", "/v1/cas/x", {"GET", "HEAD"}),
        ("PUT", "/v1/cas", {"POST"}),
        ("GET", "/v1/roots", {"POST"}),
        ("POST", "/healthz", {"GET", "HEAD"}),
        ("TRACE", "/healthz", {"GET", "HEAD"}),
        ("PUT", "/v1/verify/read", {"POST"}),
    ],
)
def test_other_method_is_405(
    client: httpx2.Client, expect_refusal: Refusal, method: str, path: str, allowed: set[str]
) -> None:
    answer = client.request(method, path)
    expect_refusal(answer, 405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == allowed | {"OPTIONS"}


@pytest.mark.parametrize("path", ["/v1/verify/resolve", "/v1/verify/read"])
def test_errors_of_verification_routes_have_the_role_header(client: httpx2.Client, path: str) -> None:
    answers = [
        client.get(path),
        client.post(path, content=b"{"),
        client.post(path, content=b"{}", headers={"content-type": "text/plain"}),
        client.post(path + "?a=b", content=b"{}"),
        client.post(path + "/", content=b"{}"),
    ]
    assert [answer.status_code for answer in answers] == [405, 400, 415, 400, 400]
    assert {answer.headers["x-core-verification-role"] for answer in answers} == {"diagnostic"}
    assert "x-core-verification-role" not in client.post("/v1/resolve", content=b"{").headers


@rows(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        "application/json;;",
        "application/json; charset=utf-8; charset=utf-8",
        "json",
        "a",
    ],
)
@rows("path", ["/v1/resolve", "/v1/read", "/v1/scan", "/v1/map-proof", "/v1/roots", "/v1/roots/x/mutations"])
def test_other_media_type_is_415(client: httpx2.Client, expect_refusal: Refusal, path: str, content_type: str) -> None:
    answer = client.post(path, content=b"{}", headers={"content-type": content_type})
    expect_refusal(answer, 415, "unsupported_media_type")


@rows(
    "headers",
    [
        {},
        {"content-type": "application/json"},
        {"content-type": "application/json;"},
        {"content-type": 'Application/JSON ; charset="UTF-8"'},
        {"content-type": "application/json;charset = utf-8 ;"},
    ],
)
def test_json_is_accepted_with_and_without_content_type(client: httpx2.Client, headers: dict[str, str]) -> None:
    answer = client.post("/v1/roots", content=b'{"arcs": {}}', headers=headers)
    assert answer.status_code == 201


@rows(("path", "media_type"), [("/v1/resolve", "application/json"), ("/v1/car", "application/vnd.ipld.car")])
@rows("filler", [" ", ";", "= ", "; charset"])
def test_long_content_type_is_refused_quickly(path: str, media_type: str, filler: str) -> None:
    given = (media_type + filler * 31_000)[:31_000] + "x"
    with serving.thread(MemoryStore()) as url:
        began = time.process_time()
        assert httpx2.post(url + path, content=b"{}", headers={"content-type": given}).status_code == 415
        assert time.process_time() - began < 1


def test_compressed_request_is_refused(client: httpx2.Client, expect_refusal: Refusal) -> None:
    answer = client.post("/v1/roots", content=b'{"arcs": {}}', headers={"content-encoding": "gzip"})
    expect_refusal(answer, 415, "unsupported_media_type")


@rows("path", ["/v1/resolve", "/v1/roots", "/v1/roots/x/mutations", "/healthz", "/openapi.json"])
def test_unknown_query_parameter_is_refused(client: httpx2.Client, expect_refusal: Refusal, path: str) -> None:
    method = "GET" if path in ("/healthz", "/openapi.json") else "POST"
    message = expect_refusal(client.request(method, path, params={"colour": "red"}), 400, "invalid_request")
    assert "colour" in message


class _BrokenStore(MemoryStore):
    """A store whose methods raise a given exception."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        raise self._error

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        raise self._error

    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]:
        raise self._error

    async def healthy(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreDamaged("page 1234 of /secret is broken"), 500, "internal"),
        (ZeroDivisionError("at /secret"), 500, "internal"),
        (KeyError("/secret"), 500, "internal"),
        (Conflict("/secret", code="a_code_that_is_not_in_the_table"), 500, "internal"),
        (Unavailable("the store is busy"), 503, "unavailable"),
        (StorageFull("the disk is full"), 507, "storage_full"),
    ],
)
def test_store_exceptions_become_statuses_and_leak_nothing(
    expect_refusal: Refusal,
    cid_of: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    status: int,
    code: str,
) -> None:
    with caplog.at_level(logging.ERROR), serving.thread(_BrokenStore(error)) as url:
        answers = [httpx2.post(f"{url}/v1/roots", content=b'{"arcs": {}}')]
        if not isinstance(error, StorageFull):  # which no read raises
            answers.append(httpx2.get(f"{url}/v1/cas/{cid_of(b'x')}"))
        for answer in answers:
            expect_refusal(answer, status, code)
            assert "secret" not in answer.text
            assert ("retry-after" in answer.headers) == (status == 503)
    logged = [record for record in caplog.records if record.name == "coregw.gateway"]
    assert len(logged) == (2 if status == 500 else 0)
    if isinstance(error, StoreDamaged):  # each read of what is damaged fails again
        assert all("page 1234" in record.getMessage() and record.exc_info is None for record in logged)
    else:
        assert all(record.exc_info is not None and record.exc_info[1] is error for record in logged)


def test_a_path_cannot_forge_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    path = "/v1/roots/\nCRITICAL store: damaged\r\n/mutations"
    scope = cast("HTTPScope", {"method": "POST", "path": path, "headers": []})
    assert problem_of(scope, KeyError()).status == 500
    [record] = caplog.records
    assert "damaged" in record.getMessage()
    assert len(record.getMessage().splitlines()) == 1


def test_healthz_is_503_if_the_store_fails(expect_refusal: Refusal) -> None:
    with serving.thread(_BrokenStore(RuntimeError())) as url:
        expect_refusal(httpx2.get(f"{url}/healthz"), 503, "unavailable")


def test_failure_during_a_download_closes_the_connection(tmp_path: Path) -> None:
    class Torn(MemoryStore):
        async def _torn(self, start: int) -> object:
            if start > 0:
                raise StoreDamaged("the second chunk is missing")
            yield bytes(1 << 20)

        def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> object:  # type: ignore[override]
            return self._torn(start)

    with serving.thread(Torn()) as url:
        cid = httpx2.post(f"{url}/v1/cas", content=bytes(3 << 20)).json()["cid"]
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            httpx2.get(f"{url}/v1/cas/{cid}")
        assert httpx2.get(f"{url}/healthz").status_code == 200


@rows("method", ["GET", "HEAD"])
@rows(
    ("path", "headers", "status"),
    [
        pytest.param("/v1/cas/bafkqaaa", {"host": "rebound.example.org"}, 421, id="before routing"),
        pytest.param("/v1/cas/bafkqaaa", {"x": "a" * 40_000}, 431, id="a head past its limit"),
        pytest.param("/nothing", {}, 404, id="no route"),
        pytest.param("/v1/resolve", {}, 405, id="hot, another method"),
        pytest.param("/v1/roots", {}, 405, id="Litestar, another method"),
        pytest.param("/v1/cas/hello", {}, 400, id="hot, malformed"),
        pytest.param(f"/v1/cas/{ABSENT}", {}, 404, id="not held"),
        pytest.param("/v1/roots/bafkqaaa/car", {}, 400, id="Litestar, malformed"),
        pytest.param(f"/ipfs/{ABSENT}?format=raw", {}, 404, id="block"),
        pytest.param("/admin/v1/scopes/docs/roots", {}, 401, id="no token"),
        pytest.param("/admin/v1/scopes/docs/roots/none", AUTHORIZATION, 404, id="no record"),
        pytest.param("/v1/publications/docs/none/checkpoint", {}, 404, id="not signed"),
        pytest.param("/docs/nothing", {}, 404, id="no file"),
    ],
)
def test_no_cache_keeps_an_error(
    client: httpx2.Client, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    """`expect_refusal` checks this, too, in all tests; `test_a_proven_absence_is_immutable` has the exception."""
    answer = client.request(method, path, headers=headers)
    assert (answer.status_code, answer.headers.get_list("cache-control")) == (status, ["no-store"])


def test_no_cache_keeps_an_error_of_the_management(tmp_path: Path) -> None:
    with (
        serving.process(tmp_path / "data", serving.ADMIN) as running,
        serving.control(tmp_path / "data") as control,
    ):
        assert running.popen.poll() is None
        for path, headers, status in (
            ("/healthz", {"authorization": ""}, 401),
            ("/nothing", {}, 404),
            ("/admin/v1/maintenance/gc", {}, 405),
        ):
            answer = control.get(path, headers=headers)
            assert (answer.status_code, answer.headers.get_list("cache-control")) == (status, ["no-store"])
