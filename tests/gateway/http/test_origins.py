"""Hosts and origins: no web page reads or writes a gateway on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2
import pytest

import serving
from coregw.errors import InvalidInput
from coregw.gateway.settings import Settings
from coregw.store.memory import MemoryStore
from tables import rows

Refusal = Callable[[httpx2.Response, int, str], str]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving.thread(MemoryStore()) as running:
        yield running


def test_a_malformed_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="hosts"):
        Settings.load({"COREGW_HOSTS": "https://example.org"})


@rows(("method", "path"), [("GET", "/healthz"), ("GET", "/v1/cas/x"), ("POST", "/v1/resolve"), ("POST", "/v1/cas")])
def test_another_host_is_421_on_every_route(url: str, expect_refusal: Refusal, method: str, path: str) -> None:
    with httpx2.Client(base_url=url) as client:
        for _ in range(2):  # the connection stays usable
            answer = client.request(method, path, headers={"host": "rebound.example.org"}, content=bytes(100_000))
            assert "rebound.example.org" in expect_refusal(answer, 421, "misdirected_request")
        assert client.get("/healthz").status_code == 200


def test_http_1_0_without_a_host_is_accepted(url: str) -> None:
    with serving.connect(url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert serving.everything(connection).startswith(b"HTTP/1.1 200 ")


OWN = "http://127.0.0.1:1"
WRITES = [
    ({}, True),
    ({"origin": "https://example.org"}, False),
    ({"origin": "null"}, False),
    ({"origin": OWN}, True),
    ({"origin": "http://127.0.0.1:2"}, False),
    ({"origin": OWN, "sec-fetch-site": "cross-site"}, False),
    ({"origin": "https://example.org", "sec-fetch-site": "same-origin"}, True),  # behind a proxy that changes Host
    ({"sec-fetch-site": "none"}, True),
    ({"sec-fetch-site": "same-site"}, False),
    ({"sec-fetch-site": "cross-site"}, False),
]


@rows(("headers", "allowed"), WRITES)
@rows("kind", ["text/plain", "application/octet-stream", None])
def test_pages_of_other_origins_cannot_write(
    url: str, expect_refusal: Refusal, kind: str | None, headers: dict[str, str], allowed: bool
) -> None:
    sent = headers | {"host": "127.0.0.1:1"} | ({} if kind is None else {"content-type": kind})
    answer = httpx2.post(f"{url}/v1/cas", content=b"payload", headers=sent)
    if allowed:
        assert answer.status_code == 201
    else:
        expect_refusal(answer, 403, "forbidden_origin")
    assert httpx2.get(f"{url}/healthz", headers=sent).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_json_in_a_type_of_simple_requests_is_415(url: str, expect_refusal: Refusal, kind: str) -> None:
    answer = httpx2.post(f"{url}/v1/roots", content=b'{"arcs":{}}', headers={"content-type": kind})
    expect_refusal(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize("allowed", ["*", "https://example.org"])
def test_pages_of_the_allowed_origin_can_write(allowed: str) -> None:
    with serving.thread(MemoryStore(), allow_origin=allowed) as url:
        headers = {"origin": "https://example.org", "sec-fetch-site": "cross-site"}
        assert httpx2.post(f"{url}/v1/cas", content=b"payload", headers=headers).status_code == 201
        other = httpx2.post(f"{url}/v1/cas", content=b"payload", headers=headers | {"origin": "https://example.com"})
        assert other.status_code == (201 if allowed == "*" else 403)


@rows(
    ("target", "host", "status"),
    [
        ("http://127.0.0.1/healthz", "rebound.example.org", 200),
        ("http://rebound.example.org/healthz", "127.0.0.1", 421),
        ("HTTPS://rebound.example.org:80/healthz", "127.0.0.1", 421),
        ("http://localhost:1/healthz?", "127.0.0.1", 200),
        ("http://user@localhost/healthz", "127.0.0.1", 400),
        ("/healthz?at=http://rebound.example.org/", "127.0.0.1", 400),
    ],
)
def test_the_authority_of_an_absolute_target_counts_instead_of_host(
    url: str, target: str, host: str, status: int
) -> None:
    with serving.connect(url) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert serving.everything(connection).startswith(b"HTTP/1.1 %d " % status)


def test_a_page_of_the_host_in_an_absolute_target_can_write(url: str) -> None:
    for origin, status in (("http://localhost:1", 201), ("http://localhost:2", 403)):
        with serving.connect(url) as connection:
            head = f"POST http://localhost:1/v1/cas HTTP/1.1\r\nHost: localhost:2\r\nOrigin: {origin}\r\n"
            connection.sendall(f"{head}Connection: close\r\nContent-Length: 0\r\n\r\n".encode())
            assert serving.everything(connection).startswith(b"HTTP/1.1 %d " % status)
