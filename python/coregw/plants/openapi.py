"""The plant store's OpenAPI 3.1.0 document, written by hand; tests compare it with the service."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from coregw.plants.messages import Error, NewPlant, Plant

__all__ = ["VERSION", "document"]

VERSION: Final = "1.0.0"
"""The version of the interface description, independent of coregw's."""

_FAILURES: Final = {
    400: "Unexpected error: the body is invalid (`error` is 400), or the id is taken (`error` is 409).",
    401: "The bearer token is missing or wrong.",
    403: "The gateway accepts no writes.",
    413: "The body is too large.",
    415: "The body is not sent as `application/json`.",
    500: "The service failed.",
    503: "The service is unavailable at the moment; try again later.",
    507: "The store has no room for the plant.",
}
_HEADERS: Final = {401: ("WWW-Authenticate", "`Bearer`."), 503: ("Retry-After", "Seconds to wait.")}


def document() -> bytes:
    """Encode the document as JSON."""
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
