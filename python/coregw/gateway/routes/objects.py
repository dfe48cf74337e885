"""Stored pages and held roots by name, immutable: for stores and caches that read through from this gateway.

Unlike answers to queries these bytes prove nothing to a client without an engine: a page is checked against its digest,
and a query is answered from pages. The files of a static tree have the same paths (docs/protocol.md, section 8).
"""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, post, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw.gateway.context import Gateway
from coregw.gateway.description import CAR, DESCRIPTION, OCTETS, Description
from coregw.gateway.limits.peers import peer_of
from coregw.gateway.replies import Reply, Representation, described, gated
from coregw.gateway.requests import query_parameters
from coregw.messages.payloads import GetPagesRequest

__all__ = ["handlers"]

_PAGE_ETAG: Final = "The digest, in quotes."
_ROOT_ETAG: Final = "The normalised root, in quotes."
_KNOWN: Final = "If-None-Match names it, and it is held."
_PAGE_CODES: Final = ("page_not_found", "method_not_allowed")  # the last for /v1/pages/car
_ROOT_CODES: Final = ("invalid_cid", "kind_mismatch", "root_not_found")


@route(
    "/v1/pages/{digest:str}",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: described(
            "A stored page by the digest of its top node, which is checked; check it again before use.",
            "Whether a page is stored, and how long it is; Range is ignored.",
            _PAGE_ETAG,
            _PAGE_CODES,
            _KNOWN,
        )
    },
)
async def get_page(request: Request[Any, Any, Any], digest: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /v1/pages/{digest}``."""
    query_parameters(request.scope)
    gateway = Gateway.of(request)
    page = await gateway.engine.objects.page(digest)
    return await Representation(page, OCTETS, f'"{digest}"').reply(gateway, request.scope)


@route(
    "/v1/roots/{root:str}",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: described(
            "Whether a root is held; if so, the page that begins with its top node. Check it before use.",
            "Whether a root is held, and how long its page is; Range is ignored.",
            _ROOT_ETAG,
            _ROOT_CODES,
            _KNOWN,
        )
    },
)
async def get_root(request: Request[Any, Any, Any], root: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /v1/roots/{root}``."""
    query_parameters(request.scope)
    gateway = Gateway.of(request)
    held = await gateway.engine.objects.root(root)
    return await Representation(held.page, OCTETS, f'"{held.cid}"').reply(gateway, request.scope)


@post(
    "/v1/pages/car",
    opt={
        DESCRIPTION: Description(
            "Up to 1,024 pages as CARv1, in the requested order, without those that are not held.",
            request=GetPagesRequest,
            answer=CAR,
            codes=("too_large", "unknown_profile", "unsupported_media_type"),
            headers={"Cache-Control": "`no-cache`: which pages are held may change.", "Accept-Ranges": "`none`."},
        )
    },
)
async def get_pages(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/pages/car``, streamed. A failure during the stream closes the connection."""
    gateway, peer = Gateway.of(request), peer_of(request.scope)
    async with gateway.json_body(request.scope, request.receive, gateway.limits.json_body_bytes) as body:
        chunks = await gateway.engine.objects.pages(body)
    gateway.payload_streams.make_room(peer)
    parts = gateway.payload_streams.occupy(gated(chunks, gateway.chunk_reads), peer)
    return Reply(parts, media_type=f"{CAR}; version=1", headers={"Cache-Control": "no-cache", "Accept-Ranges": "none"})


handlers: Final = (get_page, get_root, get_pages)
