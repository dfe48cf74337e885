"""The OpenAPI documents: routes, schemas, examples.

A route without a `Description` stops the gateway from starting, so the document is complete. Litestar's own generator
is not used: to Litestar, request bodies here are bytes.

The examples are in an order in which they work. ``tests/helpers/documented.py`` sends the requests and records the
responses; a test replays them.

Each schema says exactly what msgspec's own schema says. Where several forms of JSON Schema do, this is one of which
common generators make code that compiles: some fail on a union with null, on a property whose name has no letters, or
on `anyOf` beside a discriminator (docs/clients.md, "Clients in other languages").
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from litestar.routes import HTTPRoute
from msgspec import UNSET, Struct, UnsetType

from coregw._core import __version__
from coregw.errors import ERROR_CODES
from coregw.gateway.description import JSON, JSON_LINES, Body, Description, Parameter, description_of
from coregw.messages import ErrorBody
from coregw.messages.common import MAX_NAME_CHARACTERS, NAME
from coregw.messages.management import Progress
from coregw.messages.query import Link

if TYPE_CHECKING:
    from litestar import Litestar

__all__ = [
    "MANAGEMENT",
    "NULLABLE",
    "Example",
    "Operation",
    "all_examples",
    "body_schema",
    "build_document",
    "operations_of",
    "schemas_of",
    "struct_reference",
]


class Example(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request, and the response that it gets from a new gateway after all earlier examples.

    Attributes:
        operation: The operation's id.
        name: Its name among the operation's examples.
        about: What it shows, in a line.
        parameters: Values of path, query and header parameters.
        body: The JSON body of the request, if any.
        text: The body of the request, if it is not JSON.
        status: The status of the response.
        answer: The JSON body of the response, if any.
        answer_text: The body of the response, if it is not JSON.
    """

    operation: str
    name: str
    about: str
    parameters: dict[str, str | int] = {}
    body: msgspec.Raw | UnsetType = UNSET
    text: str | UnsetType = UNSET
    status: int = 0
    answer: msgspec.Raw | UnsetType = UNSET
    answer_text: str | UnsetType = UNSET

    @property
    def sent(self) -> msgspec.Raw | str | None:
        """The body of the request."""
        return self.body if self.body is not UNSET else self.text if self.text is not UNSET else None

    @property
    def answered(self) -> msgspec.Raw | str | None:
        """The body of the response."""
        return self.answer if self.answer is not UNSET else self.answer_text if self.answer_text is not UNSET else None

    @property
    def code(self) -> str | None:
        """The error code of the response; None for a success."""
        if self.status < 400 or self.answer is UNSET:
            return None
        error: str = msgspec.json.decode(self.answer)["error"]
        return error

    def document(self, value: object) -> dict[str, Any]:
        """Return an example object of OpenAPI."""
        return {"summary": self.about, "value": value}


@cache
def all_examples() -> tuple[Example, ...]:
    """Return all examples in the order in which they work."""
    text = (files("coregw.gateway") / "examples.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Example, ...])


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


_TEXT: Final[Mapping[str, object]] = {"type": "string"}

_NAME: Final[Mapping[str, object]] = {
    "type": "string",
    "pattern": f"^{NAME}$",
    "maxLength": MAX_NAME_CHARACTERS,
}

_BEARER: Final = "bearer"

_CODES_EVERYWHERE: Final = ("invalid_request", "internal", "unavailable")

_PATH_PARAMETERS: Final[Mapping[str, Parameter]] = {
    "cid": Parameter("A CID, in any text form that the protocol allows."),
    "digest": Parameter("The digest of a page's top node.", {"type": "string", "pattern": "^[0-9a-f]{64}$"}),
    "path": Parameter("Segments below a CID."),
    "root": Parameter("The CID of the caller-selected base root."),
    "first": Parameter("The root of the first map."),
    "second": Parameter("The root of the second map, of the same suite."),
    "scope": Parameter("The scope of the name: 1 to 128 of the characters `A-Za-z0-9._-`, not `.` or `..`.", _NAME),
    "name": Parameter(
        "The name of a published root in its scope: 1 to 128 of the characters `A-Za-z0-9._-`, not `.` or `..`.", _NAME
    ),
}

_RENAMED: Final[Mapping[str, str]] = {"scope_name": "scope"}
"""Path parameters whose own names Litestar reserves."""

_REQUEST_HEADERS: Final[Mapping[str, Parameter]] = {
    "Range": Parameter("One range of bytes, such as `bytes=0-99`; several, and other units, get the whole."),
    "If-Range": Parameter("Range is ignored unless this is the ETag."),
    "If-None-Match": Parameter("ETags of what the client has."),
    "If-Match": Parameter('The ETag of what is expected, such as `"7"` for a revision; another is a 412.'),
    "Cache-Control": Parameter("`only-if-cached` requests a 412 `precondition_failed` instead of a 404."),
}

_ERROR_HEADERS: Final[Mapping[str, Mapping[str, str]]] = {
    "unauthorized": {"WWW-Authenticate": "`Bearer`."},
    "internal": {"X-Request-Id": "The id of the request in the gateway's log."},
    "unavailable": {"Retry-After": "Seconds to wait."},
    "method_not_allowed": {"Allow": "The methods of the path."},
    "range_not_satisfiable": {"Content-Range": "`bytes */` and the number of bytes."},
}

_ABOUT: Final = """\
Maps and lists, each under one short root, and queries answered with proofs; payloads under their hashes. The gateway
need not be trusted: clients verify every result against a root that they already hold.

Every error of every route has the body `ErrorBody` and `Cache-Control: no-store`; the 404 of a read by GET that proves
an absence is immutable instead. Every response has `X-Content-Type-Options: nosniff`. An unknown path is a 404
`route_not_found`, a known path with another method a 405 `method_not_allowed`; OPTIONS gets 204 with `Allow`. Malformed
HTTP, or a request head past its limit, is a 400 `invalid_request` on all paths.

The examples work: sent to a new gateway in the order of `x-examples`, each gets the response of the same name."""

MANAGEMENT: Final = """\
The management of a gateway: health, metrics, published roots, and maintenance. On the control socket all routes need
the token in the data directory; by TCP those below `/admin` need that of the administration, or do not exist.

A job responds with JSON lines: `{"progress": {…}}` at least once a second, then `{"result": {…}}` or
`{"error": {…}}`. Closing the connection cancels it. One of each kind runs at a time; another is a 503 `unavailable`.

Every error of every route has the body `ErrorBody` and `Cache-Control: no-store`."""
"""The description of the document of the management addresses."""


class Operation(NamedTuple):
    """One method of one path.

    Attributes:
        method: The HTTP method.
        path: The path, with parameters in braces.
        name: The operation's id.
        description: What it declares about itself.
    """

    method: str
    path: str
    name: str
    description: Description


def operations_of(app: Litestar) -> list[Operation]:
    """Return the operations of all routes, sorted by path and method. OPTIONS is left out.

    Raises:
        KeyError: If a route has no `Description`.
    """
    return sorted(_operations(app), key=lambda each: (each.path, each.method))


def _operations(app: Litestar) -> Iterator[Operation]:
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        path = route.path_format
        for name, shown in _RENAMED.items():
            path = path.replace(f"{{{name}}}", f"{{{shown}}}")
        for method, (handler, _) in route.route_handler_map.items():
            if method == "OPTIONS":
                continue
            description = description_of(handler.opt, method)
            if description is None:
                raise KeyError(f"{method} {path} has no description")
            name = handler.name or handler.handler_name
            if len(handler.http_methods) > 1:
                name = f"{method.lower()}_{name.removeprefix('get_')}"
            yield Operation(method, path, description.operation_id or name, description)


def build_document(app: Litestar, about: str = _ABOUT) -> bytes:
    """Return the document of all routes as JSON; `about` describes it.

    Examples are listed in ``x-examples`` unless it is that of the management addresses: they need the other routes.
    """
    operations = [_DocumentedOperation(each) for each in operations_of(app)]
    paths: dict[str, dict[str, Any]] = {}
    structs: dict[str, type[msgspec.Struct]] = {"Error": ErrorBody}
    tags: dict[str, str] = {}
    for each in operations:
        paths.setdefault(each.operation.path, {})[each.operation.method.lower()] = each.document()
        description = each.operation.description
        streamed = () if description.result is None else (description.result, Progress)
        named = (*_structs_of(description.request), *_structs_of(description.answer), *description.structs, *streamed)
        structs |= {kind.__name__: kind for kind in named}
        tags[each.tag] = each.about_tag
    names = {each.operation.name for each in operations}
    shown = {code for each in operations for code in each.codes_without_examples}
    needs_token = any(each.needs_token for each in operations)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "coregw",
            "version": __version__,
            "description": about,
            "license": {"name": "MIT", "identifier": "MIT"},
            "contact": {"name": "coregw", "url": "https://github.com/coregw/coregw"},
        },
        "servers": [{"url": "/", "description": "The gateway that serves this document."}],
        "security": [],
        "tags": [{"name": name, "description": about} for name, about in sorted(tags.items())],
        "paths": paths,
        "components": {
            "schemas": schemas_of(structs.values()),
            "examples": {
                code: {"value": {"error": code, "message": each.meaning}}
                for code, each in ERROR_CODES.items()
                if code in shown
            },
            **({"securitySchemes": {_BEARER: {"type": "http", "scheme": "bearer"}}} if needs_token else {}),
        },
    }
    if about is not MANAGEMENT:
        document["x-examples"] = [[each.operation, each.name] for each in all_examples() if each.operation in names]
    return msgspec.json.encode(document)


_TAGS: Final = {
    "cars": (
        re.compile(r"/v1/car|/v1/roots/[^/]+/car"),
        "Roots as CAR files: export of a held root, with or without its payloads, and import of any CAR of roots.",
    ),
    "cas": (
        re.compile(r"/v1/cas"),
        "Immutable payloads: upload, download one by one or many at once, HEAD, and which of many are held.",
    ),
    "diff": (
        re.compile(r"/v1/roots/[^/]+/diff"),
        "Differences between two maps, page by page, with a proof. Paths are in text form, since URLs have no arrays.",
    ),
    "objects": (
        re.compile(r"/v1/pages|/v1/roots/\{root\}$"),
        "Stored pages and held roots by name, immutable: for stores and caches that read through from this gateway.",
    ),
    "roots": (
        re.compile(r"/v1/roots"),
        "Creating roots, and mutating maps and lists. Both return roots that the client has yet to accept.",
    ),
    "publications": (
        re.compile(r"/v1/publications"),
        "Publications for everybody: the newest signed checkpoint of a name's log with proofs, or a bare record.",
    ),
    "resolve": (
        re.compile(r"/v1"),
        "Queries: resolve (also many paths at once), read, map-proof, scan, and the two diagnostic verifications.",
    ),
    "ipfs": (
        re.compile(r"/ipfs"),
        "Blocks for IPFS clients: raw blocks, and CARs of one block, of the IPFS Trustless Gateway specification.",
    ),
    "health": (
        re.compile(r"/healthz|/readyz"),
        "Whether the gateway and its store work (`/healthz`), and whether to send it requests (`/readyz`).",
    ),
    "metrics": (
        re.compile(r"/metrics"),
        "`GET /metrics`: what the gateway has counted, in Prometheus' text format.",
    ),
    "openapi": (
        re.compile(r"/openapi.json"),
        "The OpenAPI 3.1 document, built from what routes declare about themselves.",
    ),
    "gc": (
        re.compile(r"/admin/v1/maintenance/(gc|pins)"),
        "Garbage collection on a running gateway, on request and on a schedule, and pins.",
    ),
    "backup": (
        re.compile(r"/admin/v1/maintenance/backup"),
        "Backing up the store of a running gateway to a directory of its machine.",
    ),
    "flush": (
        re.compile(r"/admin/v1/maintenance/flush"),
        "Flushing the memtables, so that everything is in SST files and the next start replays no log.",
    ),
    "fsck": (re.compile(r"/admin/v1/maintenance/fsck"), "Checking the whole store while the gateway runs."),
    "heal": (
        re.compile(r"/admin/v1/maintenance/heal"),
        "Restoring what the store has lost, from files that `coregw heal` has put into the data directory.",
    ),
    "status": (
        re.compile(r"/admin/v1/maintenance/status"),
        "Status of the gateway: its process, its store, and the jobs in progress.",
    ),
    "admin": (
        re.compile(r"/admin"),
        "Published roots: an operator's recommendations under a scope and a name, with history, and freezing.",
    ),
    "docs": (
        re.compile(r"/"),
        "Pages of the gateway: a viewer of the OpenAPI document at the same level, and the explorer at `/`.",
    ),
}
"""Tags of operations: the paths that each is of, of which the first that matches counts, and what it says."""


class _DocumentedOperation:
    """An operation's part of the document."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._description = operation.description
        self.tag, self.about_tag = next(
            (tag, about) for tag, (paths, about) in _TAGS.items() if paths.match(operation.path)
        )
        self._examples: list[Example] = [each for each in all_examples() if each.operation == operation.name]
        self._path_parameters = re.findall(r"\{(\w+)\}", operation.path)
        self.needs_token = operation.description.is_administration or operation.description.writes
        # A path parameter never contains a slash, except `path`, which is the rest of the URL.
        may_miss = self._path_parameters and "path" not in self._path_parameters
        refusals = ("unauthorized", "read_only") if self._description.writes else ()
        codes = (*_CODES_EVERYWHERE, *self._description.codes, *refusals, *(("route_not_found",) if may_miss else ()))
        self._codes = tuple(dict.fromkeys(codes))

    @property
    def codes_without_examples(self) -> set[str]:
        """The error codes whose responses have a body, but no example of the operation's own."""
        has_bodies = self.operation.method != "HEAD"
        return {*self._codes} - {each.code for each in self._examples} if has_bodies else set()

    def document(self) -> dict[str, Any]:
        """Return the operation object."""
        documented: dict[str, Any] = {
            "operationId": self.operation.name,
            "tags": [self.tag],
            "summary": self._description.summary,
            "description": self._about(),
            "responses": {**self._successes(), **self._errors()},
        }
        if parameters := self._parameters():
            documented["parameters"] = parameters
        if self.needs_token:
            documented["security"] = [] if self._description.is_administration else [{}]  # {}: also without a token
            documented["security"].append({_BEARER: []})
        if self._description.request is not None:
            content = self._request_content(self._description.request)
            documented["requestBody"] = {"required": self._description.is_body_required, "content": content}
        return documented

    def _about(self) -> str:
        """Return the summary, and the error codes that are the operation's own."""
        codes = ", ".join(f"`{code}` ({ERROR_CODES[code].status})" for code in self._description.codes)
        return f"{self._description.summary}\n\nErrors of its own: {codes}." if codes else self._description.summary

    def _request_content(self, body: Body) -> dict[str, Any]:
        """Return the content of the request body. In another media type than JSON, an example is text."""
        streamed = self._description.streamed
        sent = {each.name: each.document(each.sent) for each in self._examples if each.sent is not None}
        lines = {name: each for name, each in sent.items() if streamed and isinstance(each["value"], str)}
        content = _content(body, {name: each for name, each in sent.items() if name not in lines})
        return content | (_content(streamed, lines) if streamed else {})

    def _parameters(self) -> list[dict[str, Any]]:
        query = {
            name: Parameter(each) if isinstance(each, str) else each for name, each in self._description.query.items()
        }
        places = {
            "path": {name: _PATH_PARAMETERS[name] for name in self._path_parameters},
            "query": query,
            "header": {name: _REQUEST_HEADERS[name] for name in self._description.request_headers},
        }
        return [
            self._parameter(place, name, each)
            for place, parameters in places.items()
            for name, each in parameters.items()
        ]

    def _parameter(self, place: str, name: str, parameter: Parameter) -> dict[str, Any]:
        documented: dict[str, Any] = {
            "name": name,
            "in": place,
            "description": parameter.about,
            "schema": parameter.schema,
        }
        if place == "path":
            documented["required"] = True
        given = {each.name: {"value": each.parameters[name]} for each in self._examples if name in each.parameters}
        if given:
            documented["examples"] = given
        return documented

    def _successes(self) -> dict[str, Any]:
        """Return the responses without an error body: successes, and the `others` of the description."""
        description = self._description
        documented: dict[str, Any] = {}
        for status, about in {description.status: HTTPStatus(description.status).phrase, **description.others}.items():
            documented[str(status)] = {"description": about}
            if description.headers and status < 400:
                documented[str(status)]["headers"] = _headers(description.headers)
            if description.answer is not None and status < 300 and self.operation.method != "HEAD":
                documented[str(status)]["content"] = _content(description.answer, self._answers(status))
            if description.result is not None and status < 300:
                documented[str(status)]["content"] = {JSON_LINES: {"schema": _lines(description.result)}}
        return documented

    def _errors(self) -> dict[str, Any]:
        """Return the error responses by status, with the codes of each."""
        by_status: dict[int, list[str]] = {}
        for code in self._codes:
            by_status.setdefault(ERROR_CODES[code].status, []).append(code)
        return {str(status): self._error(status, codes) for status, codes in sorted(by_status.items())}

    def _error(self, status: int, codes: list[str]) -> dict[str, Any]:
        documented: dict[str, Any] = {"description": " or ".join(f"`{code}`" for code in codes)}
        headers = {name: about for code in codes for name, about in _ERROR_HEADERS.get(code, {}).items()}
        if headers:
            documented["headers"] = _headers(headers)
        if self.operation.method != "HEAD":
            shown = self._answers(status)
            unshown = self.codes_without_examples
            general = {code: {"$ref": f"#/components/examples/{code}"} for code in codes if code in unshown}
            documented["content"] = _content(ErrorBody, shown | general)
        return documented

    def _answers(self, status: int) -> dict[str, Any]:
        """Return the examples of responses with this status."""
        return {
            each.name: each.document(each.answered)
            for each in self._examples
            if each.status == status and each.answered is not None
        }


def _headers(headers: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"description": about, "schema": _TEXT} for name, about in headers.items()}


def _structs_of(body: Body | None) -> tuple[type[msgspec.Struct], ...]:
    alternatives = body if isinstance(body, tuple) else (body,)
    return tuple(each for each in alternatives if isinstance(each, type))


def _content(body: Body, examples: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of a body: JSON of structs, or bytes of media types, whose examples are text."""
    alternatives = body if isinstance(body, tuple) else (body,)
    media_types = [each for each in alternatives if isinstance(each, str)]
    refs = [struct_reference(kind) for kind in _structs_of(body)]
    if not refs or not media_types:
        json_schema: dict[str, Any] = refs[0] if len(refs) == 1 else {"oneOf": refs}
        schemas = {each: body_schema(each) for each in media_types} or {JSON: json_schema}
        content: dict[str, Any] = {each: {"schema": schema} for each, schema in schemas.items()}
        if examples:
            content[next(iter(content))]["examples"] = examples
        return content
    text = {name: each for name, each in examples.items() if isinstance(each["value"], str)}
    json = {name: each for name, each in examples.items() if name not in text}
    return _content(_structs_of(body), json) | _content(tuple(media_types), text)


def _lines(result: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a line of a job's response."""
    members: dict[str, type[msgspec.Struct]] = {"progress": Progress, "result": result, "error": ErrorBody}
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {name: struct_reference(kind)},
                "required": [name],
            }
            for name, kind in members.items()
        ]
    }
