"""The OpenAPI 3.1 document: what each route says of itself, put together from the routes that there are.

Every route carries a `Doc`; one without it stops the gateway from starting, so the document can't leave a route out.
Litestar's own generator is not used: bodies here are bytes to Litestar, and its router answers in other shapes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec
from litestar import Litestar, Response, route
from litestar.routes import HTTPRoute

from coregw._core import __version__
from coregw.errors import ERROR_CODES
from coregw.gateway import problems
from coregw.gateway.bodies import query_parameters
from coregw.gateway.context import json_response
from coregw.gateway.examples import all_examples
from coregw.messages import Error

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

__all__ = ["DOC", "OCTETS", "Doc", "Parameter", "build_document", "openapi_document"]

DOC: Final = "coregw_doc"
"""The key of a handler's `Doc` in its ``opt``."""

OCTETS: Final = "application/octet-stream"

_TEXT: Final[Mapping[str, object]] = {"type": "string"}
_NAME: Final[Mapping[str, object]] = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"}


class Parameter(NamedTuple):
    """A parameter of a query, a path or a head.

    Attributes:
        about: What it means.
        schema: The JSON schema of its value.
    """

    about: str
    schema: Mapping[str, object] = _TEXT

    @classmethod
    def whole(cls, about: str, least: int, most: int) -> Self:
        """A whole number within bounds."""
        return cls(about, {"type": "integer", "minimum": least, "maximum": most})


_BEARER: Final = "bearer"
_EVERYWHERE: Final = ("invalid_request", "internal", "unavailable")
_IN_PATH: Final[Mapping[str, Parameter]] = {
    "cid": Parameter("A CID, in any text form that the protocol takes."),
    "path": Parameter("Segments below a CID."),
    "root": Parameter("The CID of the caller-selected base root."),
    "a": Parameter("The root of the first map."),
    "b": Parameter("The root of the second map, of the same suite."),
    "scope": Parameter("What names are grouped by: 1 to 128 of the characters `A-Za-z0-9._-`.", _NAME),
    "name": Parameter("The name of a published root in its scope: 1 to 128 of the characters `A-Za-z0-9._-`.", _NAME),
}
_SHOWN_AS: Final[Mapping[str, str]] = {"scope_name": "scope"}
"""Path parameters that Litestar does not take by their own name."""

_IN_HEAD: Final[Mapping[str, Parameter]] = {
    "Range": Parameter("One range of bytes, such as `bytes=0-99`; several, and other units, get the whole."),
    "If-Range": Parameter("The range counts only if this is the ETag."),
    "If-None-Match": Parameter("ETags of what the client has."),
    "Cache-Control": Parameter("`only-if-cached` asks for a 412 where the block is not held."),
}
_OF_CODE: Final[Mapping[str, Mapping[str, str]]] = {
    "unauthorized": {"WWW-Authenticate": "`Bearer`."},
    "unavailable": {"Retry-After": "Seconds to wait."},
    "method_not_allowed": {"Allow": "The methods that there are."},
    "range_not_satisfiable": {"Content-Range": "`bytes */` and how many bytes there are."},
}
"""Headers of failures."""

_ABOUT: Final = """\
Maps and lists under one short root each, answered with proofs; payloads by their hashes. Nothing here needs to be
trusted: clients verify what they get against the root that they hold.

Every failure of every route has the one body `Error`. Every answer has `X-Content-Type-Options: nosniff`. A path that
is none is a 404 `route_not_found`, another method of one that there is a 405 `method_not_allowed`; OPTIONS answers 204
with `Allow`. What is no HTTP request, or has too long a head, is a 400 `invalid_request` before a route is chosen.

The examples work: sent to a new gateway in the order of `x-examples`, each gets the answer of its own name."""

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
        query: Query parameters: what they mean, or a `Parameter` where they are no plain text.
        request_headers: Headers of the request that count, of those that this module knows.
        headers: Headers of a success and what they mean.
        others: Further statuses without an error body, and what they mean.
    """

    summary: str
    status: int = 200
    request: _Body | None = None
    answer: _Body | None = None
    structs: tuple[type[msgspec.Struct], ...] = ()
    codes: tuple[str, ...] = ()
    query: Mapping[str, str | Parameter] = field(default_factory=dict)
    request_headers: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[int, str] = field(default_factory=dict)


@route("/openapi.json", http_method=["GET", "HEAD"], opt={DOC: Doc("This document.", answer="application/json")})
async def openapi_document(request: problems.AnyRequest) -> Response[bytes]:
    """Serves the document that `build_document` made when the gateway started."""
    query_parameters(request)
    return json_response(request.app.state["openapi"])


def build_document(app: Litestar) -> bytes:
    """The document of all routes as JSON. Raises `KeyError` for a route without a `Doc`."""
    operations = [
        _Operation(route, method, handler)
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for method, (handler, _) in sorted(route.route_handler_map.items())
        if method != "OPTIONS"
    ]
    paths: dict[str, dict[str, Any]] = {}
    structs: dict[str, type[msgspec.Struct]] = {"Error": Error}
    groups: dict[str, str] = {}
    for each in sorted(operations, key=lambda operation: operation.path):
        paths.setdefault(each.path, {})[each.method.lower()] = each.document()
        named = (*_structs_of(each.doc.request), *_structs_of(each.doc.answer), *each.doc.structs)
        structs |= {kind.__name__: kind for kind in named}
        groups[each.group] = each.about_group
    ids = {each.operation_id for each in operations}
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "coregw",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "tags": [{"name": name, "description": about} for name, about in sorted(groups.items())],
        "paths": paths,
        "components": {
            "schemas": _schemas(list(structs.values())),
            "examples": {
                code: {"value": {"error": code, "message": each.meaning}} for code, each in ERROR_CODES.items()
            },
            "securitySchemes": {_BEARER: {"type": "http", "scheme": "bearer"}},
        },
        "x-examples": [[each.operation, each.name] for each in all_examples() if each.operation in ids],
    }
    return msgspec.json.encode(document)


class _Operation:
    """One method of one path, and its part of the document."""

    def __init__(self, route: HTTPRoute, method: str, handler: HTTPRouteHandler) -> None:
        self.doc: Doc = handler.opt[DOC]
        self.method = method
        name = handler.name or handler.handler_name
        self.operation_id = name if len(handler.http_methods) == 1 else f"{method.lower()}_{name}"
        module = sys.modules[handler.fn.__module__]
        self.group = module.__name__.rpartition(".")[2]
        self.about_group = (module.__doc__ or "").partition("\n")[0].replace("``", "`")
        self._examples = [each for each in all_examples() if each.operation == self.operation_id]
        self.path, self._in_path = route.path_format, []
        for part in route.path_components:
            if not isinstance(part, str):
                self._in_path.append(_SHOWN_AS.get(part.name, part.name))
                self.path = self.path.replace(f"{{{part.name}}}", f"{{{self._in_path[-1]}}}")

    def document(self) -> dict[str, Any]:
        """What the document says of the operation."""
        said: dict[str, Any] = {
            "operationId": self.operation_id,
            "tags": [self.group],
            "summary": self.doc.summary,
            "responses": {**self._successes(), **self._failures()},
        }
        if parameters := self._parameters():
            said["parameters"] = parameters
        if "unauthorized" in self.doc.codes:
            said["security"] = [{_BEARER: []}]
        if self.doc.request is not None:
            sent = {each.name: each.document(each.sent) for each in self._examples if each.sent is not None}
            said["requestBody"] = {"required": True, "content": _content(self.doc.request, sent)}
        return said

    def _parameters(self) -> list[dict[str, Any]]:
        in_path = {name: _IN_PATH[name] for name in self._in_path}
        in_head = {name: _IN_HEAD[name] for name in self.doc.request_headers}
        in_query = {name: Parameter(each) if isinstance(each, str) else each for name, each in self.doc.query.items()}
        return [
            self._parameter(place, name, each)
            for place, parameters in (("path", in_path), ("query", in_query), ("header", in_head))
            for name, each in parameters.items()
        ]

    def _parameter(self, place: str, name: str, parameter: Parameter) -> dict[str, Any]:
        said: dict[str, Any] = {"name": name, "in": place, "description": parameter.about, "schema": parameter.schema}
        if place == "path":
            said["required"] = True
        given = {each.name: {"value": each.parameters[name]} for each in self._examples if name in each.parameters}
        if given:
            said["examples"] = given
        return said

    def _successes(self) -> dict[str, Any]:
        """The answers that are no failures, and those failures that have no error body."""
        headers = {name: {"description": about, "schema": _TEXT} for name, about in self.doc.headers.items()}
        said: dict[str, Any] = {}
        for status, about in {self.doc.status: HTTPStatus(self.doc.status).phrase, **self.doc.others}.items():
            said[str(status)] = {"description": about}
            if headers and status < 400:
                said[str(status)]["headers"] = headers
            if self.doc.answer is not None and status < 300 and self.method != "HEAD":
                said[str(status)]["content"] = _content(self.doc.answer, self._answers(status))
        return said

    def _failures(self) -> dict[str, Any]:
        """The failures by status, naming their codes."""
        by_status: dict[int, list[str]] = {}
        may_miss = self._in_path and "path" not in self._in_path  # `path` takes whatever is left
        of_path = ("route_not_found",) if may_miss else ()
        for code in dict.fromkeys((*_EVERYWHERE, *self.doc.codes, *of_path)):
            by_status.setdefault(ERROR_CODES[code].status, []).append(code)
        return {str(status): self._failure(status, codes) for status, codes in sorted(by_status.items())}

    def _failure(self, status: int, codes: list[str]) -> dict[str, Any]:
        said: dict[str, Any] = {"description": " or ".join(f"`{code}`" for code in codes)}
        headers = {name: about for code in codes for name, about in _OF_CODE.get(code, {}).items()}
        if headers:
            said["headers"] = {name: {"description": about, "schema": _TEXT} for name, about in headers.items()}
        if self.method != "HEAD":
            shown = self._answers(status)
            shown_codes = {each.code for each in self._examples}
            general = {code: {"$ref": f"#/components/examples/{code}"} for code in codes if code not in shown_codes}
            said["content"] = _content(Error, shown | general)
        return said

    def _answers(self, status: int) -> dict[str, Any]:
        """The examples that are answered with this status."""
        return {
            each.name: each.document(each.answered)
            for each in self._examples
            if each.status == status and each.answered is not None
        }


def _structs_of(body: _Body | None) -> tuple[type[msgspec.Struct], ...]:
    return body if isinstance(body, tuple) else (body,) if isinstance(body, type) else ()


def _content(body: _Body, examples: Mapping[str, object]) -> dict[str, Any]:
    """The content of a body: a struct as JSON, or any bytes of a media type."""
    shown = {"examples": examples} if examples else {}
    if isinstance(body, str):
        return {body: {**shown}}
    refs = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in _structs_of(body)]
    return {"application/json": {"schema": refs[0] if len(refs) == 1 else {"oneOf": refs}, **shown}}


def _schemas(structs: list[type[msgspec.Struct]]) -> dict[str, Any]:
    """The schemas of all structs and what they refer to. ``profile`` is always sent, so it is required."""
    _, schemas = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    for schema in schemas.values():
        if "profile" in schema.get("properties", {}) and "profile" not in schema["required"]:
            schema["required"].insert(0, "profile")
    return dict(sorted(schemas.items()))
