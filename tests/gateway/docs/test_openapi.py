"""The OpenAPI document: complete, consistent, and with examples that work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

import documented
import serving
from coregw.errors import ERROR_CODES
from openapi_outline import outline

OWN_FILES = re.compile(r"/docs.*|/openapi\.json|/(explorer.*)?")
"""Routes that serve files of the gateway itself, which need no examples."""

CAR = "application/vnd.ipld.car"
"""A media type whose bytes a JSON string cannot hold, so they have no example."""


@pytest.fixture(scope="module")
def document(client: httpx2.Client) -> dict[str, Any]:
    answer = client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    return dict(answer.json())


def test_document_lists_all_routes(document: dict[str, Any]) -> None:
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
        ("GET", "/v1/resolve/{root}"),
        ("HEAD", "/v1/resolve/{root}"),
        ("GET", "/v1/read/{root}"),
        ("HEAD", "/v1/read/{root}"),
        ("GET", "/v1/map-proof/{root}"),
        ("HEAD", "/v1/map-proof/{root}"),
        ("GET", "/v1/scan/{root}"),
        ("HEAD", "/v1/scan/{root}"),
        ("HEAD", "/v1/roots/{first}/diff/{second}"),
        ("HEAD", "/admin/v1/scopes/{scope}/roots"),
        ("HEAD", "/admin/v1/scopes/{scope}/roots/{name}"),
        ("HEAD", "/admin/v1/scopes/{scope}/roots/{name}/history"),
        ("HEAD", "/ipfs/{cid}"),
        ("GET", "/ipfs/{cid}/{path}"),
        ("HEAD", "/ipfs/{cid}/{path}"),
        ("POST", "/v1/cas/car"),
        ("POST", "/v1/cas/has"),
        ("POST", "/v1/resolve/batch"),
        ("POST", "/v1/roots"),
        ("POST", "/v1/roots/{root}/mutations"),
        ("POST", "/v1/roots/{root}/complete"),
        ("GET", "/v1/roots/{first}/diff/{second}"),
        ("GET", "/v1/roots/{root}/car"),
        ("HEAD", "/v1/roots/{root}/car"),
        ("POST", "/v1/car"),
        ("GET", "/v1/pages/{digest}"),
        ("HEAD", "/v1/pages/{digest}"),
        ("POST", "/v1/pages/car"),
        ("GET", "/v1/roots/{root}"),
        ("HEAD", "/v1/roots/{root}"),
        ("GET", "/v1/publications/{scope}/{name}"),
        ("HEAD", "/v1/publications/{scope}/{name}"),
        ("GET", "/v1/publications/{scope}/{name}/entries"),
        ("HEAD", "/v1/publications/{scope}/{name}/entries"),
        ("GET", "/admin/v1/scopes/{scope}/roots/{name}/proof"),
        ("HEAD", "/admin/v1/scopes/{scope}/roots/{name}/proof"),
        ("POST", "/admin/v1/scopes/{scope}/roots/{name}/checkpoint"),
        ("GET", "/admin/v1/scopes/{scope}/roots"),
        ("POST", "/admin/v1/scopes/{scope}/roots"),
        ("GET", "/admin/v1/scopes/{scope}/roots/{name}"),
        ("GET", "/admin/v1/scopes/{scope}/roots/{name}/history"),
        ("POST", "/admin/v1/scopes/{scope}/roots/{name}/freeze"),
        ("GET", "/healthz"),
        ("HEAD", "/healthz"),
        ("GET", "/readyz"),
        ("HEAD", "/readyz"),
        ("GET", "/openapi.json"),
        ("HEAD", "/openapi.json"),
        ("GET", "/"),
        ("HEAD", "/"),
        ("GET", "/explorer-style.css"),
        ("HEAD", "/explorer-style.css"),
        ("GET", "/explorer.js"),
        ("HEAD", "/explorer.js"),
        ("GET", "/docs"),
        ("HEAD", "/docs"),
        ("GET", "/docs/start.js"),
        ("HEAD", "/docs/start.js"),
        ("GET", "/docs/swagger-ui.css"),
        ("HEAD", "/docs/swagger-ui.css"),
        ("GET", "/docs/swagger-ui-bundle.js"),
        ("HEAD", "/docs/swagger-ui-bundle.js"),
    }


def test_document_matches_its_recorded_outline(document: dict[str, Any]) -> None:
    recorded = documented.PINNED.read_text("utf-8")
    assert outline(document) == recorded, "if the change is intended, run: python tests/helpers/documented.py"


def test_every_reference_resolves(document: dict[str, Any]) -> None:
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


def test_codes_of_a_response_have_its_status(document: dict[str, Any]) -> None:
    for item in document["paths"].values():
        for operation in item.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and "content" in answer:
                    codes = re.findall(r"`(\w+)`", answer["description"])
                    assert {ERROR_CODES[code].status for code in codes} == {int(status)}


def test_only_routes_with_401_have_a_security_scheme(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    for path, item in document["paths"].items():
        for operation in item.values():
            writes = "403" in operation["responses"]
            needs_a_token = path.startswith("/admin/")
            assert ("401" in operation["responses"]) == (needs_a_token or writes)
            if needs_a_token:
                assert operation["security"] == [{"bearer": []}]
            else:
                assert operation.get("security") == ([{}, {"bearer": []}] if writes else None)


def test_schemas_have_forms_that_generators_of_clients_understand(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    assert '{"type": "null"}' not in text
    for schema in document["components"]["schemas"].values():
        assert all(re.search("[a-z]", name) for name in schema.get("properties", {}))
        assert "discriminator" not in schema or "oneOf" in schema
    for item in document["paths"].values():
        for operation in item.values():
            contents = [*operation["responses"].values(), operation.get("requestBody", {})]
            assert all("schema" in each for holder in contents for each in holder.get("content", {}).values())


def test_a_nullable_reference_admits_what_it_refers_to_and_null(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    nullable = {name for name in schemas if name.startswith("Nullable")}
    assert nullable == {"NullableLink"}
    link, or_null = schemas["Link"], schemas["NullableLink"]
    assert or_null["type"] == ["object", "null"]
    titles = {"title": "NullableLink", "type": ["object", "null"]}
    assert or_null == link | titles
    assert schemas["MapAbsenceStep"]["properties"]["target"] == {
        "$ref": "#/components/schemas/NullableLink",
        "const": None,
    }


def test_profiles_are_required(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert "profile" in schemas["ResolveRequest"]["required"]
    assert schemas["ListRangeStep"]["properties"]["kind"] == {"type": "string", "enum": ["list_range"]}


def test_every_example_gets_its_recorded_response(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]
) -> None:
    known = documented.operations(document)
    replayed = set()
    for operation, name, answer in fresh_answers(tmp_path_factory, document):
        shown = known[operation].answers(name)
        responses = known[operation].spec["responses"]
        assert str(answer.status_code) in responses, (operation, name, answer.text)
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        if media_type == CAR or not answer.content:
            assert media_type in ("", *responses[str(answer.status_code)].get("content", {media_type: None}))
            assert not shown, (operation, name)
        else:
            ((status, shown_type, body),) = shown
            assert (answer.status_code, media_type) == (status, shown_type), (operation, name)
            told = answer.json() if media_type == "application/json" else answer.text
            assert documented.settled(told) == documented.settled(body), (operation, name)
        replayed.add((operation, name))
    assert replayed == set(all_request_examples(document))


def fresh_answers(
    folders: pytest.TempPathFactory, document: dict[str, Any]
) -> Iterator[tuple[str, str, httpx2.Response]]:
    """Yield the responses of a new gateway to the examples."""
    with (
        serving.process(folders.mktemp("examples") / "data", serving.ADMIN) as running,
        httpx2.Client(base_url=running.url, timeout=60) as client,
    ):
        yield from documented.replay(client, document, serving.ADMIN_TOKEN)


def all_request_examples(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield operation and name of every example of a request. Those of health have no parameters and no body."""
    yield "get_healthz", "healthy"
    yield "get_readyz", "ready"
    for operation, each in documented.operations(document).items():
        bodies = each.spec.get("requestBody", {}).get("content", {}).values()
        for shown in (*each.parameters, *bodies):
            yield from ((operation, name) for name in shown.get("examples", {}))


def test_every_request_and_response_has_an_example(document: dict[str, Any]) -> None:
    for operation, each in documented.operations(document).items():
        if OWN_FILES.fullmatch(each.path):
            continue
        for media_type, body in each.spec.get("requestBody", {}).get("content", {}).items():
            assert body["examples"], (operation, media_type)
        for status, answer in each.spec["responses"].items():
            for media_type, body in answer.get("content", {}).items():
                of_a_car = media_type == CAR or (operation, status) == ("take_car", "201")
                is_alternative = any(other.get("examples") for other in answer["content"].values())
                assert of_a_car or body.get("examples") or is_alternative, (operation, status, media_type)


def test_every_code_of_an_operation_has_an_example(document: dict[str, Any]) -> None:
    general = document["components"]["examples"]
    for operation, each in documented.operations(document).items():
        for status, answer in each.spec["responses"].items():
            for body in answer.get("content", {}).values() if int(status) >= 400 else ():
                shown = [
                    one.get("value") or general[one["$ref"].rpartition("/")[2]]["value"]
                    for one in body["examples"].values()
                ]
                codes = set(re.findall(r"`(\w+)`", answer["description"]))
                assert {one["error"] for one in shown} == codes, (operation, status)
