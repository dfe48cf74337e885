"""One gateway on RocksDB for all tests that need no limits of their own, and clients of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator

import httpx2
import pytest

import serving
from admin_support import Scope

Ask = Callable[..., httpx2.Response]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving.process(tmp_path_factory.mktemp("gateway") / "data", serving.ADMIN) as running:
        yield running.url


@pytest.fixture(scope="session")
def client(gateway: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=gateway, timeout=60) as session:
        yield session


def raw_cid(data: bytes, codec: int = 0x55) -> str:
    """Compute the CID of a payload without coregw."""
    binary = bytes([1]) + _varint(codec) + b"\x12\x20" + hashlib.sha256(data).digest()
    return "b" + base64.b32encode(binary).decode().rstrip("=").lower()


def _varint(number: int) -> bytes:
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


@pytest.fixture(scope="session")
def cid_of() -> Callable[..., str]:
    return raw_cid


@pytest.fixture(scope="session")
def ask(client: httpx2.Client) -> Ask:
    """Post JSON to a path: an object, or bytes as they are."""

    def post(path: str, body: object, **headers: str) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.post(path, content=content, headers={"content-type": "application/json"} | named)

    return post


@pytest.fixture(scope="session")
def tree(ask: Ask) -> dict[str, str]:
    """Roots that the gateway holds: a map, a nested map and a list; and the CID of a payload."""
    leaf = raw_cid(b"a leaf")
    nested = ask("/v1/roots", {"arcs": {"inner": leaf, "deep/er": leaf}}).json()["root"]
    changes = [{"index": i, "after": {"target": raw_cid(bytes([i])), "size": 10}} for i in range(5)]
    receipt = ask(f"/v1/roots/{nested}/mutations", {"deltas": [{"kind": "list", "changes": changes}]}).json()
    elements = receipt["new_root"]
    arcs = {"docs/readme": leaf, "docs": nested, "docs/@payload": leaf, "@payload": leaf, "list": elements}
    root = ask("/v1/roots", {"arcs": arcs}).json()["root"]
    return {"root": root, "nested": nested, "list": elements, "leaf": leaf}


def refused(response: httpx2.Response, status: int, code: str, cached: str = "no-store") -> str:
    """Check that a response is a well-formed error, and return its message."""
    assert (response.status_code, response.json()["error"]) == (status, code), response.text
    assert set(response.json()) <= {"error", "message", "details"}
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers.get_list("cache-control") == [cached]
    message = response.json()["message"]
    assert isinstance(message, str)
    assert message
    return message


@pytest.fixture(scope="session")
def expect_refusal() -> Callable[..., str]:
    return refused


@pytest.fixture
def scope(gateway: str, request: pytest.FixtureRequest) -> Iterator[Scope]:
    """A scope that no other test uses."""
    opened = Scope(gateway, re.sub(r"\W+", ".", request.node.name)[:100])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def roots(ask: Ask, cid_of: Callable[..., str]) -> list[str]:
    """Roots that the gateway holds."""
    return [ask("/v1/roots", {"arcs": {"n": cid_of(bytes([i]))}}).json()["root"] for i in range(3)]
