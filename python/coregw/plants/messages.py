"""The plant store's JSON messages, and the OpenAPI 3.1.0 document that describes them.

They are as strict as the gateway's, except that ids may be any int64. Tests compare the document with the service.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coregw._core import check_json
from coregw.errors import InvalidInput

__all__ = ["VERSION", "Error", "NewPlant", "Plant", "decode_plant", "document", "encode"]

VERSION: Final = "1.0.0"
"""The version of the interface description, independent of coregw's."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, extra_json_schema={"format": "int32"})]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, extra_json_schema={"format": "int64"})]
Name = Annotated[str, Meta(description="Name of the plant.")]
Tag = Annotated[str, Meta(description="Tag that specifies the type.")]


class Plant(Struct, frozen=True, kw_only=True):
    """A plant in a response."""

    name: Name
    tag: Tag | UnsetType = UNSET


class NewPlant(Plant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plant to be created."""

    id: Annotated[Int64, Meta(description="Identification number of the plant.")]


class Error(Struct, frozen=True, kw_only=True):
    """Any failure."""

    error: Annotated[Int32, Meta(description="The status of the failure, except 409 (with status 400) for a taken id.")]
    message: Annotated[str, Meta(description="One sentence for a person.")]


_NEW_PLANT: Final = msgspec.json.Decoder(NewPlant)

_FAILURES: Final = {
    400: "Unexpected error: the body is invalid (`error` is 400), or the id is taken (`error` is 409).",
    401: "The bearer token is missing or wrong.",
    413: "The body is too large.",
    415: "The body is not sent as `application/json`.",
    500: "The service failed.",
    503: "The service is unavailable at the moment; try again later.",
    507: "The store has no room for the plant.",
}
_HEADERS: Final = {401: ("WWW-Authenticate", "`Bearer`."), 503: ("Retry-After", "Seconds to wait.")}


def decode_plant(body: bytes) -> NewPlant:
    """Decode a `NewPlant`, strictly (protocol section 5), except that integers may be any int64. O(size).

    Raises:
        InvalidInput: The body is not strict JSON (the message has line and column), or not a `NewPlant` (the message
            has a JSON path).
    """
    check_json(body, int64=True)
    try:
        return _NEW_PLANT.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the body is not a NewPlant: {error}") from None


def encode(message: Struct) -> bytes:
    """Encode a message as compact JSON. O(size)."""
    return msgspec.json.encode(message)


@cache
def document() -> bytes:
    """Return the OpenAPI document as JSON."""
    _, schemas = msgspec.json.schema_components([Error, NewPlant, Plant], ref_template="#/components/schemas/{name}")
    operation = {
        "operationId": "createPlant",
        "summary": "Creates a plant in the store.",
        "description": "Stores a plant under its identification number, durably. An id is taken forever.",
        "tags": ["plants"],
        "requestBody": {"required": True, "content": _content("NewPlant", {"id": 1, "name": "fern", "tag": "shade"})},
        "responses": {
            "200": {"description": "The plant.", "content": _content("Plant", {"name": "fern", "tag": "shade"})},
            **{str(status): _failure(status, about) for status, about in _FAILURES.items()},
        },
    }
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Plant Store",
                "description": "A sample service that stores plants under their identification numbers.",
                "version": VERSION,
                "license": {"name": "MIT", "identifier": "MIT"},
                "contact": {"name": "coregw", "url": "https://github.com/coregw/coregw"},
            },
            "tags": [{"name": "plants", "description": "The plants of the store."}],
            "servers": [{"url": "/", "description": "The service that serves this document."}],
            "security": [{"bearer": []}],
            "paths": {"/plants": {"post": operation}},
            "components": {
                "schemas": schemas,
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _content(schema: str, example: object) -> dict[str, Any]:
    """The content of a message: JSON of a schema, with an example."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}, "example": example}}


def _failure(status: int, about: str) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": about,
        "content": _content("Error", {"error": status, "message": "A sentence that says why."}),
    }
    if status in _HEADERS:
        name, meaning = _HEADERS[status]
        answer["headers"] = {name: {"description": meaning, "schema": {"type": "string"}}}
    return answer
