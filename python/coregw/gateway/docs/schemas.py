"""JSON schemas of the OpenAPI document, in the forms that code generators understand.

Each says exactly what msgspec's own schema says. Where several forms of JSON Schema do, this is one of which common
generators make code that compiles: some fail on a union with null, on a property whose name has no letters, or on
`anyOf` beside a discriminator (docs/clients.md, "Clients in other languages").
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from coregw.messages.prooflist import Link

__all__ = ["NULLABLE", "body_schema", "schemas_of", "struct_reference"]

_SCHEMAS: Final = "#/components/schemas/"
_NULL: Final = {"type": "null"}
NULLABLE: Final = "Nullable"
"""Begins the name of the component that a nullable reference refers to."""

_LINK: Final[Mapping[str, object]] = {
    "additionalProperties": {"type": "string"},
    "propertyNames": {"const": "/"},
    "minProperties": 1,
    "maxProperties": 1,
}
"""``{"/": cid}`` without a property of the name ``/``, of which generators make an empty name."""

_ATTRIBUTES: Final = re.compile(r"\n\nAttributes:\n(.*)\Z", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def struct_reference(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return a reference to the schema of a struct."""
    return {"$ref": f"{_SCHEMAS}{kind.__name__}"}


def body_schema(media_type: str) -> dict[str, str]:
    """Return the schema of a body that is not the JSON of a struct."""
    if media_type == "application/json":
        return {"type": "object"}
    if media_type.startswith("text/"):
        return {"type": "string"}
    return {"type": "string", "format": "binary"}


def schemas_of(structs: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    """Return the schemas of all structs and of what they refer to. ``profile`` is always sent, so it is required."""
    _, found = msgspec.json.schema_components(list(structs), ref_template=f"{_SCHEMAS}{{name}}")
    for schema in found.values():
        if "profile" in schema.get("properties", {}) and "profile" not in schema["required"]:
            schema["required"].insert(0, "profile")
    schemas: dict[str, Any] = {name: _portable(_described(schema)) for name, schema in found.items()}
    if Link.__name__ in schemas:
        schemas[Link.__name__] = {**schemas[Link.__name__], **_LINK}
        del schemas[Link.__name__]["properties"], schemas[Link.__name__]["required"]
    for name in _nullables(schemas.values()):
        about = schemas[name]
        title = f"{NULLABLE}{name}"
        schemas[title] = {**about, "title": title, "type": [about["type"], "null"]}
    return dict(sorted(schemas.items()))


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a struct with the section "Attributes" of its docstring at the members themselves."""
    if "description" not in schema:
        return schema
    about = inspect.cleandoc(schema["description"])
    section = _ATTRIBUTES.search(about)
    texts = _ATTRIBUTE.findall(section[1]) if section else []
    members = {name: re.sub(r"\bNone\b", "null", " ".join(text.split())) for name, text in texts}
    described: dict[str, Any] = {**schema, "description": _ATTRIBUTES.sub("", about)}
    if "properties" in schema:
        described["properties"] = {
            name: {"description": members[name], **each} if name in members else each
            for name, each in schema["properties"].items()
        }
    return described


def _portable(schema: object) -> object:
    """Return a schema, or a part of one, in the form that generators understand."""
    if isinstance(schema, list):
        return [_portable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema == _NULL:  # the target of a proof of absence
        return {**_nullable(struct_reference(Link)), "const": None}
    if "anyOf" in schema:
        return _portable_union(schema)
    if "enum" in schema:
        schema = {"type": "string", **schema}
    return {key: _portable(each) for key, each in schema.items()}


def _portable_union(schema: dict[str, Any]) -> dict[str, Any]:
    rest = {key: each for key, each in schema.items() if key != "anyOf"}
    kinds: list[Any] = [_portable(each) for each in schema["anyOf"] if each != _NULL]
    if _NULL not in schema["anyOf"]:
        return {**rest, "oneOf" if "discriminator" in rest else "anyOf": kinds}
    [kind] = kinds
    return {**rest, **_nullable(kind)}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value or null: another type, or a reference to a component of its own."""
    if "$ref" in schema:
        return {"$ref": f"{_SCHEMAS}{NULLABLE}{schema['$ref'].removeprefix(_SCHEMAS)}"}
    return {**schema, "type": [schema["type"], "null"]}


def _nullables(schemas: Iterable[Any]) -> set[str]:
    """Return the names of the components that some schema refers to as nullable."""
    references = re.findall(rf'"{_SCHEMAS}{NULLABLE}(\w+)"', msgspec.json.encode(list(schemas)).decode())
    return set(references)
