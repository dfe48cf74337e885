"""Each path has one route, in all of its spellings, which answers every method."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

import serving
from coregw.engine import Engine
from coregw.gateway.access import AccessToken
from coregw.gateway.app import create_app_over
from coregw.gateway.context import Gateway
from coregw.gateway.openapi import Operation, operations_of
from coregw.gateway.settings import Settings
from coregw.store.memory import MemoryStore
from tables import rows

if TYPE_CHECKING:
    import httpx2
    from litestar import Litestar

AUTHORIZATION = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}


@pytest.fixture(scope="module")
def litestar() -> Litestar:
    return create_app_over(
        Gateway.over(Engine(MemoryStore()), Settings()), AccessToken("GATEWAY_ADMIN_TOKEN", "secret")
    )


@pytest.fixture(scope="module")
def operations(litestar: Litestar) -> list[Operation]:
    return operations_of(litestar)


def test_each_path_has_one_handler(litestar: Litestar) -> None:
    """Litestar's OPTIONS response knows only the methods of a path's first handler."""
    handlers = defaultdict(set)
    for each in operations_of(litestar):
        for route in litestar.routes:
            if route.path_format.replace("scope_name", "scope") == each.path:
                handlers[each.path] |= {id(handler) for handler in route.route_handlers}  # type: ignore[union-attr]
    assert {len(each) for each in handlers.values()} == {2}  # one and Litestar's own for OPTIONS


def test_options_and_405_name_the_methods_of_every_path(client: httpx2.Client, operations: list[Operation]) -> None:
    methods = defaultdict(set)
    for each in operations:
        methods[each.path].add(each.method)
    for path, known in methods.items():
        target = re.sub(r"\{\w+\}", "x", path)
        options = client.options(target, headers=AUTHORIZATION)
        assert (options.status_code, options.content) == (204, b"")
        assert set(options.headers["allow"].split(", ")) == known | {"OPTIONS"}, path
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - known:
            refused = client.request(method, target, headers=AUTHORIZATION)
            assert refused.status_code == 405, (method, path)
            assert refused.headers["allow"] == options.headers["allow"]
            assert method == "HEAD" or refused.json()["error"] == "method_not_allowed"


def test_every_operation_is_reachable(client: httpx2.Client, operations: list[Operation]) -> None:
    for each in operations:
        answer = client.request(each.method, re.sub(r"\{\w+\}", "x", each.path), headers=AUTHORIZATION, content=b"")
        assert answer.status_code != 405, each
        assert answer.status_code != 404 or each.method == "HEAD" or answer.json()["error"] != "route_not_found", each


@rows(
    ("method", "path", "spellings"),
    [
        ("POST", "/v1/resolve", ["/v1/resolve/", "//v1//resolve", "/v1/%72esolve", "/v1/resolve%2F", "/v1/resolve///"]),
        ("POST", "/v1/cas/has", ["/v1/cas/has/", "/v1//cas/has"]),
        ("GET", "/v1/cas/x", ["/v1/cas/x/", "//v1/cas//x", "/v1/cas/%78"]),
        ("POST", "/v1/verify/read", ["/v1/verify/read/", "/v1//verify/read"]),
        ("GET", "/healthz", ["/healthz/", "//healthz"]),
    ],
)
def test_other_spellings_of_a_path_get_the_same_response(
    client: httpx2.Client, method: str, path: str, spellings: list[str]
) -> None:
    def ask(target: str) -> tuple[int, bytes, list[tuple[str, str]]]:
        answer = client.request(method, f"{str(client.base_url).rstrip('/')}{target}")
        return answer.status_code, answer.content, [each for each in answer.headers.multi_items() if each[0] != "date"]

    expected = ask(path)
    assert b"route_not_found" not in expected[1]
    for spelling in spellings:
        assert ask(spelling) == expected, spelling


@rows("path", ["/v1/cas/a%2Fb", "/v1/cas/a/b", "/v1/resolve/x/y", "/V1/resolve"])
def test_a_parameter_is_one_segment(client: httpx2.Client, path: str) -> None:
    assert client.get(path).json()["error"] == "route_not_found"


def test_the_name_of_a_route_is_not_a_cid(client: httpx2.Client) -> None:
    assert client.get("/v1/cas/has").json()["error"] == "method_not_allowed"


def test_there_is_a_head_wherever_there_is_a_get(operations: list[Operation]) -> None:
    methods = defaultdict[str, set[str]](set)
    for operation in operations:
        methods[operation.path].add(operation.method)
    assert [path for path, found in methods.items() if "GET" in found and "HEAD" not in found] == []
