"""The OpenAPI 3.1 document: what each route says of itself, put together from the routes that there are.

Every route carries a `Doc`; one without it stops the gateway from starting, so the document can't leave a route out.
Litestar's own generator is not used: bodies here are bytes to Litestar, and its router answers in other shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from litestar import Litestar, Response, get
from litestar.routes import HTTPRoute

from coregw._core import __version__
from coregw.gateway import problems
from coregw.gateway.bodies import query_parameters
from coregw.gateway.context import json_response
from coregw.messages import Error

if TYPE_CHECKING:
    from litestar.types import Method

__all__ = ["DOC", "OCTETS", "Doc", "build_document", "openapi_document"]

DOC: Final = "coregw_doc"
"""The key of a handler's `Doc` in its ``opt``."""

OCTETS: Final = "application/octet-stream"

_BEARER: Final = "bearer"
_EVERYWHERE: Final = ("invalid_request", "internal", "unavailable")
_PARAMETERS: Final[Mapping[str, str]] = {
    "cid": "A CID, in any text form that the protocol takes.",
    "path": "Segments below a CID.",
    "root": "The CID of the caller-selected base root.",
    "a": "The root of the first map.",
    "b": "The root of the second map, of the same suite.",
    "scope": "What names are grouped by: 1 to 128 of the characters `A-Za-z0-9._-`.",
    "name": "The name of a published root in its scope: 1 to 128 of the characters `A-Za-z0-9._-`.",
}
_SHOWN_AS: Final[Mapping[str, str]] = {"scope_name": "scope"}
"""Path parameters that Litestar does not take by their own name."""

_Body = type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | str


@dataclass(frozen=True, slots=True)
class Doc:
    """What a route says of itself.

    Attributes:
        summary: A line.
        status: The status of a success.
        request: The struct of the JSON body (several: one of them), a media type, or None for no body.
        answer: The struct of the JSON answer (several: one of them), a media type, or None for an empty one.
        structs: Further structs that `request` or `answer` refer to by name.
        codes: Error codes beside those that every route has.
        query: Query parameters and what they mean.
        headers: Headers of a success and what they mean.
        others: Further statuses without an error body, and what they mean.
    """

    summary: str
    status: int = 200
    request: _Body | None = None
    answer: _Body | None = None
    structs: tuple[type[msgspec.Struct], ...] = ()
    codes: tuple[str, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[int, str] = field(default_factory=dict)


@get("/openapi.json", opt={DOC: Doc("This document.", answer="application/json")})
async def openapi_document(request: problems.AnyRequest) -> Response[bytes]:
    """Serves the document that `build_document` made when the gateway started."""
    query_parameters(request)
    return json_response(request.app.state["openapi"])


def build_document(app: Litestar) -> bytes:
    """The document of all routes as JSON. Raises `KeyError` for a route without a `Doc`."""
    paths: dict[str, dict[str, Any]] = {}
    structs: dict[str, type[msgspec.Struct]] = {"Error": Error}
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        for method, (handler, _) in route.route_handler_map.items():
            if method == "OPTIONS":
                continue
            doc: Doc = handler.opt[DOC]
            named = (*_structs_of(doc.request), *_structs_of(doc.answer), *doc.structs)
            structs |= {kind.__name__: kind for kind in named}
            path, parameters = _shown_path(route)
            paths.setdefault(path, {})[method.lower()] = _operation(doc, method, handler.handler_name, parameters)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "coregw", "version": __version__, "license": {"name": "MIT", "identifier": "MIT"}},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": _schemas(list(structs.values())),
            "securitySchemes": {_BEARER: {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(document)


def _shown_path(route: HTTPRoute) -> tuple[str, list[str]]:
    """A path as the document shows it, and its parameters."""
    path, names = route.path_format, []
    for part in route.path_components:
        if not isinstance(part, str):
            names.append(_SHOWN_AS.get(part.name, part.name))
            path = path.replace(f"{{{part.name}}}", f"{{{names[-1]}}}")
    return path, names


def _operation(doc: Doc, method: Method, name: str, path_parameters: list[str]) -> dict[str, Any]:
    """One method of one path."""
    text = {"type": "string"}
    in_path = [
        {"name": each, "in": "path", "required": True, "description": _PARAMETERS[each], "schema": text}
        for each in path_parameters
    ]
    in_query = [
        {"name": each, "in": "query", "description": about, "schema": text} for each, about in doc.query.items()
    ]
    success: dict[str, Any] = {"description": HTTPStatus(doc.status).phrase}
    if doc.answer is not None:
        success["content"] = _content(doc.answer)
    if doc.headers:
        success["headers"] = {each: {"description": about, "schema": text} for each, about in doc.headers.items()}
    others = {str(status): {"description": about} for status, about in doc.others.items()}
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}_{name}",
        "summary": doc.summary,
        "responses": {str(doc.status): success, **others, **_failures(doc)},
    }
    if in_path or in_query:
        operation["parameters"] = in_path + in_query
    if "unauthorized" in doc.codes:
        operation["security"] = [{_BEARER: []}]
    if doc.request is not None:
        operation["requestBody"] = {"required": True, "content": _content(doc.request)}
    return operation


def _structs_of(body: _Body | None) -> tuple[type[msgspec.Struct], ...]:
    return body if isinstance(body, tuple) else (body,) if isinstance(body, type) else ()


def _content(body: _Body) -> dict[str, Any]:
    """The content of a body: a struct as JSON, or any bytes of a media type."""
    if isinstance(body, str):
        return {body: {}}
    refs = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in _structs_of(body)]
    return {"application/json": {"schema": refs[0] if len(refs) == 1 else {"oneOf": refs}}}


def _failures(doc: Doc) -> dict[str, Any]:
    """The failures of a route by status, naming their codes."""
    by_status: dict[int, list[str]] = {}
    for code in (*_EVERYWHERE, *doc.codes):
        by_status.setdefault(problems.STATUS_BY_CODE[code], []).append(f"`{code}`")
    return {
        str(status): {"description": " or ".join(codes), "content": _content(Error)}
        for status, codes in sorted(by_status.items())
    }


def _schemas(structs: list[type[msgspec.Struct]]) -> dict[str, Any]:
    """The schemas of all structs and what they refer to. ``profile`` is always sent, so it is required."""
    _, schemas = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    for schema in schemas.values():
        if "profile" in schema.get("properties", {}) and "profile" not in schema["required"]:
            schema["required"].insert(0, "profile")
    return dict(sorted(schemas.items()))
