"""Blocks for IPFS clients: the raw part of the IPFS Trustless Gateway specification, ``/ipfs/{cid}``.

A block is a payload, or the tree node that a root CID names. Clients hash it. What is not asked for as a raw block is
refused and never guessed. Leaves out CAR streams, paths below a CID, IPNS, and everything deserialised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

from litestar import Response, get, head, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw._core import Cid
from coregw.errors import InvalidInput, NotFound
from coregw.gateway.bodies import query_parameters
from coregw.gateway.context import Gateway
from coregw.gateway.downloads import CACHE_FOR_EVER, Content, answer_get, answer_head
from coregw.gateway.openapi import DOC, Doc, Parameter
from coregw.gateway.problems import AnyRequest
from coregw.gateway.streams import Pieces

__all__ = ["handlers"]

_RAW: Final = "application/vnd.ipld.raw"
_PROBE: Final = "bafkqaaa"
"""The identity CID of no bytes, by which clients find out that this is such a gateway. No other identity CID is one."""

_OF_CAR: Final = ("dag-scope", "entity-bytes", "car-version", "car-order", "car-dups")
"""Query parameters that mean something for CAR streams only; clients send them along with raw requests."""

_NOT_IN_QUOTES: Final = re.compile(r'[^\x20-\x7e]|["\\]')
_ZERO_WEIGHT: Final = re.compile(r"q\s*=\s*0(\.0*)?", re.IGNORECASE)
_CODES: Final = ("invalid_cid", "payload_not_found", "root_not_found")
_QUERY: Final[Mapping[str, str | Parameter]] = {
    "format": Parameter(
        "It may be left out where Accept names `application/vnd.ipld.raw`.", {"type": "string", "enum": ["raw"]}
    ),
    "filename": "The name in Content-Disposition; `{cid}.bin` if absent.",
    "download": "Ignored: blocks are always attachments.",
    **dict.fromkeys(_OF_CAR, "Ignored: it is for CAR streams."),
}
_HEADERS: Final = {
    "ETag": "The normalised CID and `.raw`, in quotes.",
    "Cache-Control": CACHE_FOR_EVER,
    "Content-Disposition": "`attachment` with a file name.",
    "X-Ipfs-Path": "The path asked for.",
    "X-Ipfs-Roots": "The CID asked for.",
    "Vary": "`Accept`, where the query says no format.",
    "Content-Location": "The same with `format=raw`, where the query says no format.",
}
_CONDITIONS: Final = ("If-None-Match", "Cache-Control")
_OTHERS: Final = {
    304: "If-None-Match names the block, and it is held.",
    412: "The block is not held, and Cache-Control is `only-if-cached`.",
}


class _Found(NamedTuple):
    """A block that was asked for, with its entity tag and the headers that it goes with."""

    content: Content
    etag: str
    headers: dict[str, str]


@get(
    "/ipfs/{cid:str}",
    opt={
        DOC: Doc(
            "The block that a CID names: a payload, or the top node of a held root or stored page; hash it before use.",
            answer=_RAW,
            codes=(*_CODES, "range_not_satisfiable"),
            query=_QUERY,
            request_headers=("Range", "If-Range", *_CONDITIONS),
            headers=_HEADERS | {"Content-Range": "Which bytes these are, with 206."},
            others=_OTHERS | {206: "The one range of bytes asked for."},
        )
    },
)
async def get_block(request: AnyRequest, cid: FromPath[str]) -> Response[bytes] | Pieces:
    """``GET /ipfs/{cid}``."""
    found = await _find(request, cid)
    if found is None:
        return Response(b"", status_code=412, media_type="text/plain")
    return await answer_get(request, found.content, _RAW, found.etag, found.headers)


@head(
    "/ipfs/{cid:str}",
    opt={
        DOC: Doc(
            "Whether a block is held, and how long it is; Range is ignored.",
            codes=_CODES,
            query=_QUERY,
            request_headers=_CONDITIONS,
            headers=_HEADERS,
            others=_OTHERS,
        )
    },
)
async def head_block(request: AnyRequest, cid: FromPath[str]) -> Response[None]:
    """``HEAD /ipfs/{cid}``."""
    found = await _find(request, cid)
    if found is None:
        return Response(None, status_code=412, media_type="text/plain")
    return answer_head(request, found.content, _RAW, found.etag, found.headers)


async def _find(request: AnyRequest, asked: str) -> _Found | None:
    """The block that a request asks for; None for a 412.

    Raises:
        InvalidInput: It is not a raw block that is asked for, or `asked` is no CID.
        NotFound: The store does not have the block.
    """
    query = query_parameters(request, *_QUERY)
    if request.headers.get("service-worker", "").strip().lower() == "script":
        raise InvalidInput("no service worker may be registered for what a CID names")
    _check_format(request, query.get("format"))
    name = asked
    content: Content = b""
    if asked != _PROBE:
        cid = Cid(asked)
        name = cid.text
        try:
            content = await Gateway.of(request).engine.payloads.find_block(cid)
        except NotFound:
            if _only_if_cached(request):
                return None
            raise
    return _Found(content, f'"{name}.raw"', _headers(asked, name, query))


def _check_format(request: AnyRequest, wanted: str | None) -> None:
    """Takes what asks for a raw block by name; ``format`` goes before Accept. Raises `InvalidInput` for all else.

    A wildcard names nothing: what any client sends that did not choose must not look like a choice.
    """
    if wanted is not None:
        if wanted != "raw":
            raise InvalidInput(f"format {wanted!r} is not served here; ask for format=raw")
        return
    accepted = ", ".join(request.headers.getall("accept", []))
    for each in accepted.split(","):
        media_type, *parameters = (part.strip() for part in each.split(";"))
        if media_type.lower() == _RAW and not any(_ZERO_WEIGHT.fullmatch(parameter) for parameter in parameters):
            return
    raise InvalidInput(f"ask for a raw block, with ?format=raw or Accept: {_RAW}; nothing else is served here")


def _only_if_cached(request: AnyRequest) -> bool:
    directives = ", ".join(request.headers.getall("cache-control", [])).split(",")
    return "only-if-cached" in (directive.strip().lower() for directive in directives)


def _headers(asked: str, name: str, query: dict[str, str]) -> dict[str, str]:
    """What a block goes with beside its caching headers. `asked` is a CID, so it is ASCII without surprises."""
    headers = {
        "Content-Disposition": _attachment(query.get("filename") or f"{name}.bin"),
        "X-Ipfs-Path": f"/ipfs/{asked}",
        "X-Ipfs-Roots": asked,
    }
    if "format" not in query:  # then Accept decided, and caches are to know
        filename = query.get("filename")
        named = f"&filename={quote(filename, safe='')}" if filename else ""
        headers |= {"Vary": "Accept", "Content-Location": f"/ipfs/{quote(asked, safe='')}?format=raw{named}"}
    return headers


def _attachment(filename: str) -> str:
    """Content-Disposition (RFC 6266) for any name: in ASCII, and where that lost something, in UTF-8 too (RFC 8187)."""
    plain = _NOT_IN_QUOTES.sub("_", filename)
    encoded = "" if plain == filename else f"; filename*=UTF-8''{quote(filename, safe='')}"
    return f'attachment; filename="{plain}"{encoded}'


@route(
    "/ipfs/{cid:str}/{path:path}",
    http_method=["GET", "HEAD"],
    opt={DOC: Doc("Nothing: raw blocks are asked for by CID alone.", status=400, query=_QUERY)},
)
async def below_block(cid: FromPath[str], path: FromPath[str]) -> None:
    """``GET`` and ``HEAD /ipfs/{cid}/{path}``: refused, and not as if it were not held."""
    raise InvalidInput(f"a raw block has no path {path!r} below it; ask for /ipfs/{cid}")


handlers: Final = [get_block, head_block, below_block]
