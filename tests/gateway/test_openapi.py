"""The OpenAPI document: every route and status is in it, and everything it refers to."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from coregw.gateway.problems import STATUS_BY_CODE

if TYPE_CHECKING:
    import httpx2


@pytest.fixture(scope="module")
def document(client: httpx2.Client) -> dict[str, Any]:
    answer = client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    return dict(answer.json())


def test_the_routes_are_those_of_the_service(document: dict[str, Any]) -> None:
    routes = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert routes == {
        ("POST", "/v1/resolve"),
        ("POST", "/v1/read"),
        ("POST", "/v1/map-proof"),
        ("POST", "/v1/scan"),
        ("POST", "/v1/verify/resolve"),
        ("POST", "/v1/verify/read"),
        ("POST", "/v1/cas"),
        ("GET", "/v1/cas/{cid}"),
        ("HEAD", "/v1/cas/{cid}"),
        ("GET", "/ipfs/{cid}"),
        ("HEAD", "/ipfs/{cid}"),
        ("GET", "/ipfs/{cid}/{path}"),
        ("HEAD", "/ipfs/{cid}/{path}"),
        ("POST", "/v1/cas/batch"),
        ("POST", "/v1/resolve/batch"),
        ("POST", "/v1/roots"),
        ("POST", "/v1/roots/{root}/mutations"),
        ("GET", "/v1/roots/{a}/diff/{b}"),
        ("GET", "/admin/v1/scopes/{scope}/roots"),
        ("POST", "/admin/v1/scopes/{scope}/roots"),
        ("GET", "/admin/v1/scopes/{scope}/roots/{name}"),
        ("GET", "/admin/v1/scopes/{scope}/roots/{name}/history"),
        ("POST", "/admin/v1/scopes/{scope}/roots/{name}/freeze"),
        ("GET", "/healthz"),
        ("GET", "/openapi.json"),
    }


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found = set(re.findall(r'"\$ref":"#/components/schemas/(\w+)"', json.dumps(document, separators=(",", ":"))))
    assert found
    assert found <= set(document["components"]["schemas"])


def test_path_parameters_are_declared(document: dict[str, Any]) -> None:
    for path, item in document["paths"].items():
        for operation in item.values():
            declared = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
            assert declared == set(re.findall(r"\{(\w+)\}", path))


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))


def test_the_codes_of_a_status_are_of_that_status(document: dict[str, Any]) -> None:
    for item in document["paths"].values():
        for operation in item.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and "content" in answer:
                    codes = re.findall(r"`(\w+)`", answer["description"])
                    assert {STATUS_BY_CODE[code] for code in codes} == {int(status)}


def test_what_may_answer_401_names_the_scheme_and_nothing_else_does(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    for path, item in document["paths"].items():
        for operation in item.values():
            behind_a_token = path.startswith("/admin/")
            assert ("401" in operation["responses"]) == behind_a_token
            assert operation.get("security") == ([{"bearer": []}] if behind_a_token else None)


def test_profiles_are_required(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert "profile" in schemas["ResolveRequest"]["required"]
    assert schemas["ListRangeStep"]["properties"]["kind"] == {"enum": ["list_range"]}
