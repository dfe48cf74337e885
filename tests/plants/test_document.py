"""The plant store's OpenAPI document agrees with docs/plant-store.md, and its examples work."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from plant_services import ALONE

Create = Callable[..., httpx2.Response]
ExpectError = Callable[..., str]


@pytest.fixture(scope="session")
def path(command: str) -> str:
    return "/openapi.json" if command == ALONE else "/plants/openapi.json"


@pytest.fixture(scope="session")
def document(client: httpx2.Client, path: str) -> dict[str, Any]:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    return dict(answer.json())


def test_the_interface_description_is_version_1_0_0_and_follows_openapi_3_1_0(document: dict[str, Any]) -> None:
    assert (document["info"]["version"], document["openapi"]) == ("1.0.0", "3.1.0")


def test_the_service_is_published_under_the_mit_license(document: dict[str, Any]) -> None:
    assert document["info"]["license"] == {"name": "MIT", "identifier": "MIT"}


def test_all_operations_use_http_bearer_authentication(document: dict[str, Any]) -> None:
    (scheme,) = document["security"]
    (name,) = scheme
    assert document["components"]["securitySchemes"][name] == {"type": "http", "scheme": "bearer"}
    assert not any("security" in operation for item in document["paths"].values() for operation in item.values())


def test_the_endpoint_is_post_plants(document: dict[str, Any]) -> None:
    assert [(path, list(item)) for path, item in document["paths"].items()] == [("/plants", ["post"])]
    operation = document["paths"]["/plants"]["post"]
    assert operation["requestBody"]["required"] is True
    assert _schema(operation["requestBody"]) == "NewPlant"
    assert _schema(operation["responses"]["200"]) == "Plant"
    failures = {status: answer for status, answer in operation["responses"].items() if status != "200"}
    assert {"400", "401"} <= set(failures)
    assert {_schema(answer) for answer in failures.values()} == {"Error"}
    assert "nexpected error" in failures["400"]["description"]


def _schema(message: dict[str, Any]) -> str:
    return str(message["content"]["application/json"]["schema"]["$ref"]).removeprefix("#/components/schemas/")


@pytest.mark.parametrize(
    ("schema", "fields", "required"),
    [
        ("Plant", {"name": ("string", None), "tag": ("string", None)}, {"name"}),
        (
            "NewPlant",
            {"name": ("string", None), "tag": ("string", None), "id": ("integer", "int64")},
            {"name", "id"},
        ),
        ("Error", {"error": ("integer", "int32"), "message": ("string", None)}, {"error", "message"}),
    ],
)
def test_document_schemas_match_the_service_page(
    document: dict[str, Any], schema: str, fields: dict[str, tuple[str, str | None]], required: set[str]
) -> None:
    told = document["components"]["schemas"][schema]
    assert {name: (each["type"], each.get("format")) for name, each in told["properties"].items()} == fields
    assert set(told["required"]) == required


def test_document_has_no_other_schemas(document: dict[str, Any]) -> None:
    assert set(document["components"]["schemas"]) == {"Plant", "NewPlant", "Error"}


def test_the_examples_work(create: Create, document: dict[str, Any]) -> None:
    operation = document["paths"]["/plants"]["post"]
    answer = create(operation["requestBody"]["content"]["application/json"]["example"])
    assert answer.json() == operation["responses"]["200"]["content"]["application/json"]["example"]


def test_every_status_of_the_route_is_documented(
    create: Create, client: httpx2.Client, document: dict[str, Any]
) -> None:
    answers = [
        create({}),
        client.post("/plants"),
        create(b" " * 70_000),
        create({}, content_type="text/plain"),
    ]
    assert [answer.status_code for answer in answers] == [400, 401, 413, 415]
    documented = set(document["paths"]["/plants"]["post"]["responses"])
    assert documented == {"200", "400", "401", "403", "413", "415", "500", "503", "507"}


def test_the_document_refuses_a_query(client: httpx2.Client, path: str, expect_error: ExpectError) -> None:
    expect_error(client.get(f"{path}?a=b"), 400)


def test_each_service_has_its_own_document_when_served_with_a_gateway(
    command: str, client: httpx2.Client, document: dict[str, Any]
) -> None:
    if command == ALONE:
        assert client.get("/plants/openapi.json").status_code == 404
    else:
        gateway = client.get("/openapi.json").json()
        assert "/plants" not in gateway["paths"]
        assert json.dumps(gateway["info"]) != json.dumps(document["info"])
