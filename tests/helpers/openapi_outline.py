"""An OpenAPI document as text: one line for each operation, parameter, response, and member of a schema.

Nothing is left out but the values of examples, which `coregw/gateway/examples.json` has: members that have no
place of their own are shown as JSON at the end of their line.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

JsonObject = dict[str, Any]


def outline(document: JsonObject) -> str:
    """Return the text of a document of any version."""
    rest = copy.deepcopy(document)
    rest["info"].pop("version")
    components = rest.pop("components")
    lines = [f"openapi {rest.pop('openapi')}", *_info(rest.pop("info"))]
    lines += [f"tag {tag.pop('name')}: {tag.pop('description')}{_left(tag)}" for tag in rest.pop("tags")]
    for path, methods in rest.pop("paths").items():
        for method, operation in methods.items():
            lines += ["", *_operation(method.upper(), path, operation)]
    for name, schema in components.pop("schemas").items():
        lines += ["", *_schema(name, schema)]
    lines.append("")
    for code, example in components.pop("examples").items():
        lines.append(f"error {code}: {example['value']['message']}")
    lines += ["", *(f"example {operation} {name}" for operation, name in rest.pop("x-examples", []))]
    lines += ["", f"components:{_left(components)}", f"document:{_left(rest)}"]
    return "\n".join(lines) + "\n"


def _info(info: JsonObject) -> Iterator[str]:
    for line in info.pop("description").splitlines():
        yield f"  {line}".rstrip()
    yield f"info:{_left(info)}"


def _operation(method: str, path: str, operation: JsonObject) -> Iterator[str]:
    name, tags, summary, about = (operation.pop(key) for key in ("operationId", "tags", "summary", "description"))
    parameters, body, responses = (operation.pop(key, []) for key in ("parameters", "requestBody", "responses"))
    yield f"{method} {path} {name} [{', '.join(tags)}] {summary}{_left(operation)}"
    if more := about.removeprefix(summary).strip():
        yield f"  {more}"
    for each in parameters:
        place, parameter, about = (each.pop(key) for key in ("in", "name", "description"))
        examples = _names(each)
        yield f"  {place} {parameter}: {about}{_left(each)}{examples}"
    if body:
        contents = body.pop("content")
        yield f"  body{_left(body)}"
        yield from _contents(contents)
    for status, response in responses.items():
        about, headers, contents = (response.pop(key, {}) for key in ("description", "headers", "content"))
        yield f"  {status} {about}{_left(response)}"
        for header, each in headers.items():
            yield f"    header {header}: {each.pop('description')}{_left(each)}"
        yield from _contents(contents)


def _contents(contents: JsonObject) -> Iterator[str]:
    for media_type, content in contents.items():
        examples = _names(content)
        yield f"    {media_type}{_left(content)}{examples}"


def _schema(name: str, schema: JsonObject) -> Iterator[str]:
    schema.pop("title")
    members, required = schema.pop("properties", {}), schema.pop("required", [])
    yield f"schema {name}{_left(schema)}"
    for member, each in members.items():
        yield f"  {member}{'' if member in required else '?'}{_left(each)}"
    assert set(required) <= set(members), name


def _names(holder: JsonObject) -> str:
    """The names of the examples, which are taken out."""
    names = [
        f"error {each['$ref'].rpartition('/')[2]}" if "$ref" in each else name
        for name, each in holder.pop("examples", {}).items()
    ]
    return f" (examples: {', '.join(names)})" if names else ""


def _left(holder: JsonObject) -> str:
    """What is left of an object: its schema in short, and JSON."""
    schema = _short(holder.pop("schema")) if "schema" in holder else ""
    rest = json.dumps(holder, ensure_ascii=False).replace("#/components/schemas/", "#") if holder else ""
    return "".join(f" {each}" for each in (schema, rest) if each)


def _short(schema: JsonObject) -> str:
    """A schema as the name of its type or struct, if that says everything, else as JSON."""
    match schema:
        case {"type": name, **others} if not others:
            return str(name)
        case {"$ref": reference, **others} if not others:
            return str(reference).rpartition("/")[2]
        case {"oneOf": choices, **others} if not others:
            return " | ".join(map(_short, choices))
    return json.dumps(schema, ensure_ascii=False)
