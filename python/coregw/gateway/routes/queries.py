"""Queries with proofs (``/v1/resolve``, ``/v1/read``, ``/v1/map-proof``, ``/v1/scan``, ``/v1/diff``), one and many.

The extension parses requests and writes results, so their bytes pass through unchanged. By GET, a query is a URL, with
paths in text form. An answer that is valid for a root is valid forever, so caches may keep it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from litestar import Request, post, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time
from msgspec import Struct

from coregw._core import Cid
from coregw.engine import Engine
from coregw.errors import InvalidInput, NotFound
from coregw.gateway.context import Gateway
from coregw.gateway.description import DESCRIPTION, JSON, OCTETS, Description, Parameter
from coregw.gateway.replies import CONDITIONS, IMMUTABLE, Problem, Reply, conditional, json_reply
from coregw.gateway.requests import preferred, query_parameters
from coregw.messages import (
    MAX_INTEGER,
    ListIndexQuery,
    ListRangeQuery,
    MapKeyQuery,
    MapProofRequest,
    MapProofResult,
    ReadNotFound,
    ReadRequest,
    ReadResult,
    ResolveRequest,
    ResolveResult,
    ScanRequest,
    ScanResult,
    Verification,
    VerifyReadRequest,
    VerifyResolveRequest,
    encode,
)
from coregw.messages.query import MAX_DIFFERENCES, MAX_SCAN_LIMIT, DiffResult, ResolveBatchRequest, ResolveBatchResult

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

__all__ = ["handlers"]

_BODY_CODES: Final = ("too_large", "unsupported_media_type")

_QUERY_CODES: Final = (
    *_BODY_CODES,
    "invalid_cid",
    "invalid_path",
    "unknown_profile",
    "kind_mismatch",
    "root_not_found",
)

_CODES_OF_GET: Final = tuple(code for code in _QUERY_CODES if code not in (*_BODY_CODES, "unknown_profile"))

_INTEGER: Final = re.compile("0|[1-9][0-9]{0,15}")

_Ask = Callable[[Engine, str, Mapping[str, str]], "_UrlQuery"]

_ReadQuery = MapKeyQuery | ListIndexQuery | ListRangeQuery

_VARY: Final = {"Vary": "Accept"}

_ROLE: Final = {"X-Core-Verification-Role": "Always `diagnostic`: no substitute for verifying locally."}


async def _query(request: Request[Any, Any, Any], run: Callable[[bytes], Awaitable[bytes]]) -> Reply:
    gateway = Gateway.of(request)
    async with gateway.json_body(request.scope, request.receive, gateway.limits.json_body_bytes) as body:
        return json_reply(await run(body))


@post(
    "/v1/resolve",
    opt={
        DESCRIPTION: Description(
            "Resolves a path to its target, with proofs; verify the untrusted result locally.",
            request=ResolveRequest,
            answer=ResolveResult,
            codes=(*_QUERY_CODES, "path_not_found"),
        )
    },
)
async def resolve(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/resolve``."""
    return await _query(request, Gateway.of(request).engine.resolve)


@post(
    "/v1/resolve/batch",
    opt={
        DESCRIPTION: Description(
            "Resolves up to 1,000 paths of one root, each to a resolve result or an error.",
            request=ResolveBatchRequest,
            answer=ResolveBatchResult,
            structs=(ResolveResult,),
            codes=(*_BODY_CODES, "invalid_cid", "invalid_path", "kind_mismatch"),
        )
    },
)
async def resolve_batch(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/resolve/batch``."""
    gateway = Gateway.of(request)
    async with gateway.json_body(request.scope, request.receive, gateway.limits.resolve_batch_body_bytes) as body:
        return json_reply(await gateway.engine.resolve_batch(body))


@post(
    "/v1/read",
    opt={
        DESCRIPTION: Description(
            "Reads a key, an element or a range, with its proof; the details of a 404 prove the absence.",
            request=ReadRequest,
            answer=ReadResult,
            structs=(ReadNotFound,),
            codes=(*_QUERY_CODES, "path_not_found"),
        )
    },
)
async def read(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/read``."""
    return await _query(request, Gateway.of(request).engine.read)


@post(
    "/v1/map-proof",
    opt={
        DESCRIPTION: Description(
            "Proves that keys are present in a map, or absent; answers with the proof alone if Accept prefers it.",
            request=MapProofRequest,
            answer=(MapProofResult, OCTETS),
            codes=_QUERY_CODES,
            headers={"Vary": "`Accept`."},
        )
    },
)
async def map_proof(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/map-proof``."""
    gateway, is_bare = Gateway.of(request), preferred(request.scope, JSON, OCTETS) == 1
    async with gateway.json_body(request.scope, request.receive, gateway.limits.json_body_bytes) as body:
        answer = await gateway.engine.map_proof(body, bare=is_bare)
    return Reply(answer, media_type=OCTETS if is_bare else JSON, headers=_VARY)


@post(
    "/v1/scan",
    opt={
        DESCRIPTION: Description(
            "Lists all arcs below a prefix, page by page, with a proof that the listing is complete.",
            request=ScanRequest,
            answer=ScanResult,
            codes=_QUERY_CODES,
        )
    },
)
async def scan(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/scan``."""
    return await _query(request, Gateway.of(request).engine.scan)


@post(
    "/v1/verify/resolve",
    opt={
        DESCRIPTION: Description(
            "Diagnostic: verifies a resolve result.",
            request=VerifyResolveRequest,
            answer=Verification,
            structs=(ResolveRequest, ResolveResult),
            codes=(*_BODY_CODES, "invalid_cid", "invalid_path", "unknown_profile"),
            headers=_ROLE,
        )
    },
)
async def verify_resolve(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/verify/resolve``."""
    return await _verdict(request, Gateway.of(request).engine.verify_resolve)


@post(
    "/v1/verify/read",
    opt={
        DESCRIPTION: Description(
            "Diagnostic: verifies a read result, or the details of a read's 404.",
            request=VerifyReadRequest,
            answer=Verification,
            structs=(ReadRequest, ReadResult, ReadNotFound),
            codes=(*_BODY_CODES, "invalid_cid", "invalid_path", "unknown_profile", "kind_mismatch"),
            headers=_ROLE,
        )
    },
)
async def verify_read(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/verify/read``."""
    return await _verdict(request, Gateway.of(request).engine.verify_read)


async def _verdict(request: Request[Any, Any, Any], verify: Callable[[bytes], Awaitable[bytes]]) -> Reply:
    """Verify the result in an envelope. A malformed envelope or request is a 400, an invalid result a verdict."""
    gateway = Gateway.of(request)
    async with gateway.json_body(request.scope, request.receive, gateway.limits.verify_body_bytes) as body:
        return json_reply(await verify(body))


# --- queries by GET ---------------------------------------------------------------------------------------------------


class _UrlQuery(NamedTuple):
    """A query that a URL asks: the request as of a POST, and what answers it."""

    request: Struct
    run: Callable[[bytes], Awaitable[bytes]]


def _get_form(
    name: str, about: str, answer: type[Struct], query: Mapping[str, str | Parameter], ask: _Ask
) -> HTTPRouteHandler:
    """Return the route ``GET`` and ``HEAD /v1/{name}/{root}``.

    Args:
        name: The name of the query.
        about: What it does.
        answer: Its result.
        query: The query parameters.
        ask: Makes the query from the engine, the root and the query parameters.
    """
    codes = (*_CODES_OF_GET, "precondition_failed")
    if name in ("resolve", "read"):
        codes = (*codes, "path_not_found")
    described = Description(
        about,
        codes=(*codes, "method_not_allowed") if name == "resolve" else codes,  # for /v1/resolve/batch
        query=query,
        request_headers=CONDITIONS,
        headers={"ETag": "A hash of the answer, in quotes.", "Cache-Control": IMMUTABLE},
        others={304: "If-None-Match names the answer."},
        operation_id=f"head_{name.replace('-', '_')}",
    )
    by_get = replace(described, answer=answer, operation_id=f"get_{name.replace('-', '_')}")

    @route(
        f"/v1/{name}/{{root:str}}",
        http_method=["GET", "HEAD"],
        name=f"{name}_by_url",
        opt={DESCRIPTION: {"GET": by_get, "HEAD": described}},
    )
    async def answer_by_get(request: Request[Any, Any, Any], root: FromPath[str]) -> Reply:
        given = query_parameters(request.scope, *query)
        asked = ask(Gateway.of(request).engine, Cid(root).text, given)
        try:
            body = await asked.run(encode(asked.request))
        except NotFound as error:
            if name != "read" or error.code != "path_not_found" or error.details is None:
                raise
            # The details prove the absence to whoever has the root, for ever.
            return Problem(error.code, error.message, error.details, {"Cache-Control": IMMUTABLE}).reply()
        etag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
        headers = {"ETag": etag, "Cache-Control": IMMUTABLE}
        if (unmet := conditional(request.scope, etag, headers)) is not None:
            return unmet
        headers["Content-Length"] = str(len(body))
        return Reply(b"" if request.method == "HEAD" else body, 200, JSON, headers)

    return answer_by_get


def _segments(text: str) -> list[str]:
    """Return the segments of a path in text form, whose validity the extension checks; none for the empty text."""
    return text.split("/") if text else []


def _integer(name: str, text: str) -> int:
    """Return a query parameter that is an integer, whose bounds the extension checks."""
    if _INTEGER.fullmatch(text) is None:
        raise InvalidInput(f"query parameter {name!r} is {text!r:.100}, expected an integer from 0 to 2^53 - 1")
    return int(text)


def _ask_resolve(engine: Engine, root: str, given: Mapping[str, str]) -> _UrlQuery:
    return _UrlQuery(ResolveRequest(root=root, segments=_segments(given.get("path", ""))), engine.resolve)


def _ask_read(engine: Engine, root: str, given: Mapping[str, str]) -> _UrlQuery:
    match sorted(given):
        case ["path"]:
            query: _ReadQuery = MapKeyQuery(segments=_segments(given["path"]))
        case ["index"]:
            query = ListIndexQuery(index=_integer("index", given["index"]))
        case ["start"] | ["end", "start"]:
            end = _integer("end", given["end"]) if "end" in given else msgspec.UNSET
            query = ListRangeQuery(start=_integer("start", given["start"]), end=end)
        case _:
            raise InvalidInput("query parameters: expected path, or index, or start with or without end")
    return _UrlQuery(ReadRequest(root=root, query=query), engine.read)


def _ask_map_proof(engine: Engine, root: str, given: Mapping[str, str]) -> _UrlQuery:
    return _UrlQuery(MapProofRequest(root=root, key=_segments(given.get("path", ""))), engine.map_proof)


def _ask_scan(engine: Engine, root: str, given: Mapping[str, str]) -> _UrlQuery:
    request = ScanRequest(
        root=root,
        prefix=_segments(given.get("prefix", "")),
        after=_segments(given["after"]) if "after" in given else msgspec.UNSET,
        limit=_integer("limit", given["limit"]) if "limit" in given else msgspec.UNSET,
    )
    return _UrlQuery(request, engine.scan)


_PATH: Final = {"path": "The path in text form: segments joined by `/`."}

_OFFSET: Final = Parameter.integer("An offset in the list's measure.", 0, MAX_INTEGER)

_by_get: Final = (
    _get_form(
        "resolve",
        "Resolves a path to its target, with proofs, for caches.",
        ResolveResult,
        {"path": f"{_PATH['path']} The root itself if absent or empty."},
        _ask_resolve,
    ),
    _get_form(
        "read",
        "Reads a key by `path`, an element by `index`, or a range by `start` and `end`, with its proof, for caches.",
        ReadResult,
        {
            **_PATH,
            "index": Parameter.integer("The index of an element, from 0.", 0, MAX_INTEGER),
            "start": _OFFSET,
            "end": _OFFSET,
        },
        _ask_read,
    ),
    _get_form(
        "map-proof",
        "Proves that a key is present in a map, or absent, for caches.",
        MapProofResult,
        _PATH,
        _ask_map_proof,
    ),
    _get_form(
        "scan",
        "Lists all arcs below a prefix, page by page, with a proof that the listing is complete, for caches.",
        ScanResult,
        {
            "prefix": "Only this path and paths below it, in text form; the whole map if absent or empty.",
            "after": "Start after this path, in text form.",
            "limit": Parameter.integer(f"At most this many arcs; {MAX_SCAN_LIMIT} if absent.", 1, MAX_SCAN_LIMIT),
        },
        _ask_scan,
    ),
)

_DESCRIBED: Final[Mapping[str, Any]] = {
    "summary": "Lists all differences between two maps of a suite, page by page, with a pruned tree of each as proof.",
    "codes": ("invalid_cid", "invalid_path", "kind_mismatch", "root_not_found"),
    "query": {
        "prefix": "Only this path and paths below it, in text form; the whole maps if absent or empty.",
        "after": "Start after this path, in text form; it is the prefix or below it.",
        "limit": Parameter.integer(f"At most this many differences; {MAX_DIFFERENCES} if absent.", 1, MAX_DIFFERENCES),
    },
}

_LIMIT: Final = re.compile("[1-9][0-9]{0,3}")


@route(
    "/v1/roots/{first:str}/diff/{second:str}",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: {
            "GET": Description(**_DESCRIBED, answer=DiffResult, operation_id="diff"),
            "HEAD": Description(**_DESCRIBED, operation_id="head_diff"),
        }
    },
)
async def diff(request: Request[Any, Any, Any], first: FromPath[str], second: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /v1/roots/{first}/diff/{second}``."""
    given = query_parameters(request.scope, "prefix", "after", "limit")
    engine = Gateway.of(request).engine
    return json_reply(await engine.diff(first, second, given.get("prefix", ""), given.get("after"), _limit(given)))


def _limit(given: dict[str, str]) -> int:
    """Return the ``limit`` parameter. Raises `InvalidInput` unless it is 1 to 1,000."""
    text = given.get("limit", str(MAX_DIFFERENCES))
    if _LIMIT.fullmatch(text) is None or int(text) > MAX_DIFFERENCES:
        raise InvalidInput(f"query parameter 'limit' is {text!r:.100}, expected 1 to {MAX_DIFFERENCES}")
    return int(text)


handlers: Final = (resolve, resolve_batch, read, map_proof, scan, *_by_get, verify_resolve, verify_read, diff)
