"""The pages of the reference about HTTP, from the OpenAPI documents that a gateway serves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from coregw.engine import Engine
from coregw.gateway.access import AccessToken
from coregw.gateway.app import create_app_over
from coregw.gateway.context import Gateway
from coregw.gateway.description import JSON
from coregw.gateway.maintenance import Management
from coregw.gateway.management import create_management_app
from coregw.gateway.openapi import NULLABLE
from coregw.gateway.settings import Settings
from coregw.store.memory import MemoryStore
from website.reference import table

if TYPE_CHECKING:
    from litestar.types import ASGIApp

__all__ = ["Json", "gateway_document", "management_document", "page"]

Json = dict[str, Any]

_UNUSED: Final = AccessToken("GATEWAY_ADMIN_TOKEN", "unused")

_MAX_SHOWN: Final = 1_200
"""Characters of an example that is shown; longer ones are cut, which proofs often are."""


def gateway_document() -> Json:
    """Return the OpenAPI document of a gateway with administration routes."""
    return asyncio.run(_served(lambda gateway: create_app_over(gateway, _UNUSED)))


def management_document() -> Json:
    """Return the OpenAPI document of the management addresses of a gateway with administration routes."""
    return asyncio.run(_served(lambda gateway: create_management_app(Management(gateway), _UNUSED)))


async def _served(create: Callable[[Gateway], ASGIApp]) -> Json:
    """Return what an application over an empty store serves at /openapi.json."""
    engine = Engine(MemoryStore())
    try:
        app = create(Gateway.over(engine, Settings()))
        parts: list[bytes] = []

        async def receive() -> Any:  # noqa: ANN401 - ASGI's type
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:  # noqa: ANN401 - ASGI's type
            parts.append(message.get("body", b""))

        scope: Any = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/openapi.json",
            "raw_path": b"/openapi.json",
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
        }
        await app(scope, receive, send)
        return dict(json.loads(b"".join(parts)))
    finally:
        await engine.close()


def page(title: str, about: str, document: Json) -> str:
    """Return the page of an OpenAPI document: routes by tag, then the schemas of the messages."""
    parts = [f"# {title}\n\n{about}\n\n{document['info']['description']}\n"]
    for tag in document["tags"]:
        routes = list(_routes(document, tag["name"]))
        if routes:
            parts.append(f"## {tag['name']}\n\n{tag['description']}\n")
            parts += [_route(document, *route) for route in routes]
    parts.append("## Messages\n")
    schemas = document["components"]["schemas"]
    parts += [_schema(name, schema) for name, schema in schemas.items() if _not_null(name) not in schemas]
    return "\n".join(parts)


def _routes(document: Json, tag: str) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if tag in operation["tags"]:
                yield method.upper(), path, operation


def _route(document: Json, method: str, path: str, operation: Json) -> str:
    more = operation["description"].removeprefix(operation["summary"]).strip()
    lines = [f"### {method} {path}\n", f"{operation['summary']}\n"]
    lines += [f"{more}\n"] if more else []
    if operation.get("security"):
        lines.append("Needs a bearer token.\n")
    if operation.get("parameters"):
        rows = [
            (f"`{each['name']}`", each["in"], _type(each.get("schema", {})), each.get("description", ""))
            for each in operation["parameters"]
        ]
        lines.append(table(("parameter", "in", "type", "meaning"), rows))
    for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
        lines.append(f"Body: `{media_type}`, {_type(body.get('schema', {}))}\n")
    answers = [(status, _types(answer), answer["description"]) for status, answer in operation["responses"].items()]
    lines.append(table(("status", "body", "meaning"), answers))
    lines += _example(operation)
    return "\n".join(lines)


def _types(answer: Json) -> str:
    contents = answer.get("content", {})
    return ", ".join(
        _type(body["schema"])
        if media_type == JSON
        else f"`{media_type}`" + (f", lines: {_type(body['schema'])}" if "oneOf" in body["schema"] else "")
        for media_type, body in contents.items()
    )


def _example(operation: Json) -> Iterator[str]:
    """Yield the first example of a JSON body with its response, which a test sends to a gateway."""
    examples = operation.get("requestBody", {}).get("content", {}).get(JSON, {}).get("examples", {})
    for name, example in examples.items():
        for status, answer in operation["responses"].items():
            value = answer.get("content", {}).get(JSON, {}).get("examples", {}).get(name, {}).get("value")
            if value is not None and status.startswith("2"):
                yield f'??? example "{example["summary"]}"\n\n{_json(example["value"])}\n\n{_json(value)}\n'
                return


def _json(value: object) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if len(text) > _MAX_SHOWN:
        text = text[:_MAX_SHOWN] + " …"
    lines = "\n".join(f"    {line}" for line in text.splitlines())
    return f"    ```json\n{lines}\n    ```"


def _type(schema: Json) -> str:
    """Return a schema in words, with a link to a message."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if kind := _not_null(name):
            return f"[{kind}](#{kind.lower()}) or null"
        return f"[{name}](#{name.lower()})"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_type(each) for each in schema[word])
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    return _type_of_value(schema)


def _type_of_value(schema: Json) -> str:
    kind = schema.get("type", "any")
    if kind == "object" and "properties" in schema:
        return "{" + ", ".join(f"`{name}`: {_type(each)}" for name, each in schema["properties"].items()) + "}"
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _not_null(name: str) -> str | None:
    """Return the name of the message that a component is, or null; None if it is never null."""
    return name.removeprefix(NULLABLE) if name.startswith(NULLABLE) else None


def _schema(name: str, schema: Json) -> str:
    lines = [f"### {name}\n"]
    if schema.get("description"):
        lines.append(f"{schema['description']}\n")
    if "properties" in schema:
        required = schema.get("required", [])
        rows = [
            (f"`{member}`", _type(each), "yes" if member in required else "", each.get("description", ""))
            for member, each in schema["properties"].items()
        ]
        columns = 4 if any(meaning for *_, meaning in rows) else 3  # where the description says it all
        lines.append(table(("member", "type", "required", "meaning")[:columns], [row[:columns] for row in rows]))
    else:
        lines.append(f"{_type(schema)}\n")
    return "\n".join(lines)
