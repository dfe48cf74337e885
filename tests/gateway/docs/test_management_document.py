"""The OpenAPI document of the management addresses: complete, and true of the responses of its routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import documented
import serving
from openapi_outline import outline

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
MAINTENANCE = "/admin/v1/maintenance/"
KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("management") / "data"


@pytest.fixture(scope="module")
def running(data: Path) -> Iterator[serving.Process]:
    with serving.process(data, serving.ADMIN, management_address="127.0.0.1:0") as process:
        yield process


@pytest.fixture(scope="module")
def control(running: serving.Process, data: Path) -> Iterator[httpx2.Client]:
    with serving.control(data) as client:
        yield client


@pytest.fixture(scope="module")
def document(control: httpx2.Client) -> dict[str, Any]:
    return dict(control.get("/openapi.json").json())


def fits(value: object, schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Whether a JSON value has a schema, as far as these schemas use the language."""
    if "$ref" in schema:
        return fits(value, schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return any(fits(value, each, schemas) for each in schema[several])
    if isinstance(schema.get("type"), list):
        return any(fits(value, {**schema, "type": each}, schemas) for each in schema["type"])
    kind = KINDS[schema["type"]] if "type" in schema else object
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        return False
    if isinstance(value, dict):
        members, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        return set(schema.get("required", ())) <= set(value) and all(
            fits(each, members[name], schemas) if name in members else more is not False for name, each in value.items()
        )
    return not isinstance(value, list) or all(fits(each, schema.get("items", {}), schemas) for each in value)


def test_the_document_is_as_recorded(document: dict[str, Any]) -> None:
    recorded = documented.PINNED_MANAGEMENT.read_text("utf-8")
    assert outline(document) == recorded, "if the change is intended, run: python tests/helpers/documented.py"


def test_by_tcp_it_is_public_and_the_same(control: httpx2.Client, document: dict[str, Any]) -> None:
    address = control.get(f"{MAINTENANCE}status").json()["addresses"][0]
    assert httpx2.get(f"{address}/openapi.json").json() == document


def test_a_gateway_without_a_token_describes_what_tcp_has(tmp_path: Path) -> None:
    with serving.process(tmp_path, management_address="127.0.0.1:0"), serving.control(tmp_path) as control:
        address = control.get(f"{MAINTENANCE}status").json()["addresses"][0]
        assert set(httpx2.get(f"{address}/openapi.json").json()["paths"]) == {
            "/healthz",
            "/readyz",
            "/metrics",
            "/openapi.json",
            "/v1/publications/{scope}/{name}",
            "/v1/publications/{scope}/{name}/entries",
        }


def test_the_operators_manual_has_all_maintenance_routes(document: dict[str, Any]) -> None:
    described = {
        (method, path)
        for methods, path in re.findall(
            r"^\| ((?:`?[A-Z]+`?(?:, )?)+) ?`?(/admin/v1/maintenance/[a-z/]+)`",
            OPERATIONS.read_text("utf-8"),
            re.MULTILINE,
        )
        for method in re.findall(r"[A-Z]+", methods)
    }
    routes = {
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method in item
        if path.startswith(MAINTENANCE)
    }
    assert described == routes


def test_responses_are_as_described(
    running: serving.Process, control: httpx2.Client, document: dict[str, Any], tmp_path: Path, data: Path
) -> None:
    root = httpx2.post(f"{running.url}/v1/roots", json={"arcs": {}}).json()["root"]
    (data / "healing-1").mkdir()
    bodies: dict[str, object] = {
        "pin": {"root": root, "name": "kept"},
        "unpin": {"name": "kept"},
        "backup": {"destination": str(tmp_path / "repository")},
        "gc": {"dry_run": True},
        "fsck": {"bytes_per_second": 1 << 30},
        "heal": {"directory": "healing-1"},
    }
    order = ["get_status", "pin", "get_pins", "flush", "gc", "fsck", "backup", "heal", "unpin"]
    known = documented.operations(document)
    maintenance = {name: each for name, each in known.items() if each.path.startswith(MAINTENANCE)}
    assert set(order) == {name for name, each in maintenance.items() if each.method != "HEAD"}
    schemas = document["components"]["schemas"]
    for name in order:
        operation = known[name]
        assert ("requestBody" in operation.spec) == (name in bodies), name
        if name in bodies:
            ((_, sent),) = operation.spec["requestBody"]["content"].items()
            assert fits(bodies[name], sent["schema"], schemas), name
        answer = control.request(operation.method, operation.path, json=bodies.get(name))
        ((media_type, body),) = operation.spec["responses"][str(answer.status_code)]["content"].items()
        assert answer.headers["content-type"].partition(";")[0] == media_type, name
        lines = answer.text.splitlines() if media_type == documented.JSON_LINES else [answer.text]
        for line in lines:
            assert fits(json.loads(line), body["schema"], schemas), (name, line)
        assert media_type != documented.JSON_LINES or "result" in json.loads(lines[-1]), (name, lines[-1])


def test_errors_are_as_described(control: httpx2.Client, document: dict[str, Any]) -> None:
    known = documented.operations(document)
    refused = {
        "pin": {"root": "x"},
        "unpin": {"name": "no-such-name"},
        "backup": {"destination": "not/absolute"},
        "heal": {"directory": "../x"},
        "gc": {"grace_seconds": -1},
    }
    for name, body in refused.items():
        answer = control.request(known[name].method, known[name].path, json=body)
        assert 400 <= answer.status_code < 500
        responses = known[name].spec["responses"]
        assert answer.json()["error"] in responses[str(answer.status_code)]["description"], (name, answer.text)
        assert control.request(known[name].method, known[name].path, content=b"{").status_code == 400
