"""Stored pages and held roots by name, immutable: for stores and caches that read through from this gateway.

Unlike answers to queries these bytes prove nothing to a client without an engine: a page is checked against its digest,
and a query is answered from pages. The files of a static tree have the same paths (docs/protocol.md, section 8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coregw.gateway.context import Gateway
from coregw.gateway.description import CAR, OCTETS, Description
from coregw.gateway.http.content import Representation, described_get, described_head, gated
from coregw.gateway.http.dispatch import hot_route
from coregw.gateway.http.replies import Reply
from coregw.gateway.http.requests import query_parameters
from coregw.gateway.limits.peers import peer_of
from coregw.messages.payloads import GetPagesRequest

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive

__all__ = ["hot"]

_PAGE_ETAG: Final = "The digest, in quotes."
_ROOT_ETAG: Final = "The normalised root, in quotes."
_KNOWN: Final = "If-None-Match names it, and it is held."
_PAGE_CODES: Final = ("page_not_found", "method_not_allowed")  # the last for /v1/pages/car
_ROOT_CODES: Final = ("invalid_cid", "kind_mismatch", "root_not_found")


@hot_route(
    "GET",
    "/v1/pages/{digest}",
    described_get(
        "A stored page by the digest of its top node, which is checked; check it again before use.",
        _PAGE_ETAG,
        _PAGE_CODES,
        _KNOWN,
    ),
)
async def get_page(gateway: Gateway, scope: HTTPScope, _: Receive) -> Reply:
    """``GET /v1/pages/{digest}``."""
    return await (await _page(gateway, scope)).get(gateway, scope)


@hot_route(
    "HEAD",
    "/v1/pages/{digest}",
    described_head(
        "Whether a page is stored, and how long it is; Range is ignored.",
        _PAGE_ETAG,
        _PAGE_CODES,
        _KNOWN,
    ),
)
async def head_page(gateway: Gateway, scope: HTTPScope, _: Receive) -> Reply:
    """``HEAD /v1/pages/{digest}``."""
    return (await _page(gateway, scope)).head(scope)


@hot_route(
    "GET",
    "/v1/roots/{root}",
    described_get(
        "Whether a root is held; if so, the page that begins with its top node. Check it before use.",
        _ROOT_ETAG,
        _ROOT_CODES,
        _KNOWN,
    ),
)
async def get_root(gateway: Gateway, scope: HTTPScope, _: Receive) -> Reply:
    """``GET /v1/roots/{root}``."""
    return await (await _root(gateway, scope)).get(gateway, scope)


@hot_route(
    "HEAD",
    "/v1/roots/{root}",
    described_head(
        "Whether a root is held, and how long its page is; Range is ignored.",
        _ROOT_ETAG,
        _ROOT_CODES,
        _KNOWN,
    ),
)
async def head_root(gateway: Gateway, scope: HTTPScope, _: Receive) -> Reply:
    """``HEAD /v1/roots/{root}``."""
    return (await _root(gateway, scope)).head(scope)


@hot_route(
    "POST",
    "/v1/pages/car",
    Description(
        "Up to 1,024 pages as CARv1, in the requested order, without those that are not held.",
        request=GetPagesRequest,
        answer=CAR,
        codes=("too_large", "unknown_profile", "unsupported_media_type"),
        headers={"Cache-Control": "`no-cache`: which pages are held may change.", "Accept-Ranges": "`none`."},
    ),
)
async def get_pages(gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
    """``POST /v1/pages/car``, streamed. A failure during the stream closes the connection."""
    peer = peer_of(scope)
    async with gateway.json_body(scope, receive, gateway.settings.json_body_bytes) as body:
        chunks = await gateway.engine.objects.pages(body)
    gateway.payload_streams.make_room(peer)
    parts = gateway.payload_streams.occupy(gated(chunks, gateway.chunk_reads), peer)
    return Reply(parts, media_type=f"{CAR}; version=1", headers={"Cache-Control": "no-cache", "Accept-Ranges": "none"})


async def _page(gateway: Gateway, scope: HTTPScope) -> Representation:
    query_parameters(scope)
    digest = scope["path_params"]["digest"]
    return Representation(await gateway.engine.objects.page(digest), OCTETS, f'"{digest}"')


async def _root(gateway: Gateway, scope: HTTPScope) -> Representation:
    query_parameters(scope)
    held = await gateway.engine.objects.root(scope["path_params"]["root"])
    return Representation(held.page, OCTETS, f'"{held.cid}"')


hot: Final = (get_page, head_page, get_root, head_root, get_pages)
