"""Blocks for IPFS clients: the raw part of the IPFS Trustless Gateway specification, ``/ipfs/{cid}``.

A block is a payload, or the tree node that a root CID names; clients hash it. A request for anything but a raw block is
refused, never guessed at. CAR streams, paths below a CID, IPNS and deserialised responses are not served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from litestar import Request, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw._core import Cid
from coregw.errors import InvalidInput, NotFound
from coregw.gateway.context import Gateway
from coregw.gateway.docs.description import DESCRIPTION, Description, Parameter
from coregw.gateway.http.content import IMMUTABLE, Representation
from coregw.gateway.http.replies import Reply
from coregw.gateway.http.requests import header, query_parameters

__all__ = ["handlers"]

_RAW: Final = "application/vnd.ipld.raw"
_CAR_PARAMETERS: Final = ("dag-scope", "entity-bytes", "car-version", "car-order", "car-dups")
"""Query parameters that concern CAR streams only; clients send them with raw requests too."""

_NOT_IN_QUOTES: Final = re.compile(r'[^\x20-\x7e]|["\\]')
_ZERO_WEIGHT: Final = re.compile(r"q\s*=\s*0(\.0*)?", re.IGNORECASE)
_CODES: Final = ("invalid_cid", "payload_not_found", "root_not_found")
_QUERY: Final[Mapping[str, str | Parameter]] = {
    "format": Parameter(
        "May be left out if Accept names `application/vnd.ipld.raw`.", {"type": "string", "enum": ["raw"]}
    ),
    "filename": "The name in Content-Disposition; `{cid}.bin` if absent.",
    "download": "Ignored: blocks are always attachments.",
    **dict.fromkeys(_CAR_PARAMETERS, "Ignored: it concerns CAR streams."),
}
_HEADERS: Final = {
    "ETag": "The normalised CID and `.raw`, in quotes.",
    "Cache-Control": IMMUTABLE,
    "Content-Disposition": "`attachment` with a file name.",
    "X-Ipfs-Path": "The requested path.",
    "X-Ipfs-Roots": "The requested CID.",
    "Vary": "`Accept`, if the query has no format.",
    "Content-Location": "The same with `format=raw`, if the query has no format.",
}
_CONDITIONS: Final = ("If-None-Match", "Cache-Control")
_OTHERS: Final = {
    304: "If-None-Match names the block, and it is held.",
    412: "The block is not held, and Cache-Control is `only-if-cached`.",
}


@route(
    "/ipfs/{cid:str}",
    http_method=["GET", "HEAD"],
    name="block",
    opt={
        DESCRIPTION: {
            "GET": Description(
                "The block that a CID names: a payload, or the top node of a held root or stored page; hash it before "
                "use.",
                answer=_RAW,
                codes=(*_CODES, "range_not_satisfiable"),
                query=_QUERY,
                request_headers=("Range", "If-Range", *_CONDITIONS),
                headers=_HEADERS | {"Content-Range": "Which bytes these are, with 206."},
                others=_OTHERS | {206: "The requested range of bytes."},
            ),
            "HEAD": Description(
                "Whether a block is held, and how long it is; Range is ignored.",
                codes=_CODES,
                query=_QUERY,
                request_headers=_CONDITIONS,
                headers=_HEADERS,
                others=_OTHERS,
            ),
        }
    },
)
async def block(request: Request[Any, Any, Any], cid: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /ipfs/{cid}``."""
    found = await _find(request, cid)
    if found is None:
        return Reply(status=412)
    if request.method == "HEAD":
        return found.head(request.scope)
    return await found.get(Gateway.of(request), request.scope)


async def _find(request: Request[Any, Any, Any], requested: str) -> Representation | None:
    """Look up the block that a request names; None stands for a 412.

    Raises:
        InvalidInput: If the request is not for a raw block, or `requested` is not a CID.
        NotFound: If the store does not hold the block.
    """
    query = query_parameters(request.scope, *_QUERY)
    if (header(request.scope, b"service-worker") or "").strip().lower() == "script":
        raise InvalidInput("a block cannot be registered as a service worker")
    _check_format(request, query.get("format"))
    cid = Cid(requested)
    try:
        content = await Gateway.of(request).engine.payloads.find_block(cid)
    except NotFound:
        if _only_if_cached(request):
            return None
        raise
    return Representation(content, _RAW, f'"{cid.text}.raw"', _headers(requested, cid.text, query))


def _check_format(request: Request[Any, Any, Any], wanted: str | None) -> None:
    """Check that a request names the raw format, in the ``format`` parameter or else in Accept.

    A wildcard in Accept does not count: a client that chose no format must not get one by accident.

    Raises:
        InvalidInput: If it does not.
    """
    if wanted is not None:
        if wanted != "raw":
            raise InvalidInput(f"query parameter 'format' is {wanted!r:.100}, expected raw")
        return
    for each in (header(request.scope, b"accept") or "").split(","):
        media_type, *parameters = (part.strip() for part in each.split(";"))
        if media_type.lower() == _RAW and not any(_ZERO_WEIGHT.fullmatch(parameter) for parameter in parameters):
            return
    raise InvalidInput(f"no format requested; expected ?format=raw or Accept: {_RAW}")


def _only_if_cached(request: Request[Any, Any, Any]) -> bool:
    directives = (header(request.scope, b"cache-control") or "").split(",")
    return "only-if-cached" in (directive.strip().lower() for directive in directives)


def _headers(requested: str, name: str, query: dict[str, str]) -> dict[str, str]:
    """Return a block's headers besides those for caching. `requested` is a CID, so it is plain ASCII."""
    headers = {
        "Content-Disposition": _attachment(query.get("filename") or f"{name}.bin"),
        "X-Ipfs-Path": f"/ipfs/{requested}",
        "X-Ipfs-Roots": requested,
    }
    if "format" not in query:  # Accept decided, which caches must know
        filename = query.get("filename")
        parameter = f"&filename={quote(filename, safe='')}" if filename else ""
        location = f"/ipfs/{quote(requested, safe='')}?format=raw{parameter}"
        headers |= {"Vary": "Accept", "Content-Location": location}
    return headers


def _attachment(filename: str) -> str:
    """Return a Content-Disposition (RFC 6266): in ASCII, and if that loses something, in UTF-8 as well (RFC 8187)."""
    plain = _NOT_IN_QUOTES.sub("_", filename)
    encoded = "" if plain == filename else f"; filename*=UTF-8''{quote(filename, safe='')}"
    return f'attachment; filename="{plain}"{encoded}'


@route(
    "/ipfs/{cid:str}/{path:path}",
    http_method=["GET", "HEAD"],
    opt={DESCRIPTION: Description("Always refused: raw blocks have no paths below them.", status=400, query=_QUERY)},
)
async def below_block(cid: FromPath[str], path: FromPath[str]) -> None:
    """``GET`` and ``HEAD /ipfs/{cid}/{path}``: a 400, since a 404 would mean that the block is not held."""
    raise InvalidInput(f"path {path!r:.200}: raw blocks have no paths below them; request /ipfs/{cid}")


handlers: Final = (block, below_block)
