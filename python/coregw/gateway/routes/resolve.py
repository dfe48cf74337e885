"""Queries: resolve, read, map-proof, scan, and the two diagnostic verifications.

The extension parses requests and writes results, so their bytes pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from litestar import Request, post

from coregw.gateway.context import Gateway
from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.dispatch import hot_route
from coregw.gateway.http.replies import Reply, json_reply
from coregw.messages import (
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

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive

__all__ = ["handlers", "hot"]

_BODY_CODES: Final = ("too_large", "unsupported_media_type")
_QUERY_CODES: Final = (
    *_BODY_CODES,
    "invalid_cid",
    "invalid_path",
    "unknown_profile",
    "kind_mismatch",
    "root_not_found",
)
_ROLE: Final = {"X-Core-Verification-Role": "Always `diagnostic`: no substitute for verifying locally."}


async def _query(
    gateway: Gateway, scope: HTTPScope, receive: Receive, run: Callable[[bytes], Awaitable[bytes]]
) -> Reply:
    async with gateway.json_body(scope, receive, gateway.settings.json_body_bytes) as body:
        return json_reply(await run(body))


@hot_route(
    "POST",
    "/v1/resolve",
    Description(
        "Resolves a path to its target, with proofs; verify the untrusted result locally.",
        request=ResolveRequest,
        answer=ResolveResult,
        codes=(*_QUERY_CODES, "path_not_found"),
    ),
)
async def resolve(gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
    """``POST /v1/resolve``."""
    return await _query(gateway, scope, receive, gateway.engine.resolve)


@hot_route(
    "POST",
    "/v1/read",
    Description(
        "Reads a key, an element or a range, with its proof; the details of a 404 prove the absence.",
        request=ReadRequest,
        answer=ReadResult,
        structs=(ReadNotFound,),
        codes=(*_QUERY_CODES, "path_not_found"),
    ),
)
async def read(gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
    """``POST /v1/read``."""
    return await _query(gateway, scope, receive, gateway.engine.read)


@hot_route(
    "POST",
    "/v1/map-proof",
    Description(
        "Proves that keys are present in a map, or absent.",
        request=MapProofRequest,
        answer=MapProofResult,
        codes=_QUERY_CODES,
    ),
)
async def map_proof(gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
    """``POST /v1/map-proof``."""
    return await _query(gateway, scope, receive, gateway.engine.map_proof)


@hot_route(
    "POST",
    "/v1/scan",
    Description(
        "Lists all arcs below a prefix, page by page, with a proof that the listing is complete.",
        request=ScanRequest,
        answer=ScanResult,
        codes=_QUERY_CODES,
    ),
)
async def scan(gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
    """``POST /v1/scan``."""
    return await _query(gateway, scope, receive, gateway.engine.scan)


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
    return await _verdict(request, "core.resolve/v0alpha1", Gateway.of(request).engine.verify_resolve)


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
    return await _verdict(request, "core.read/v0alpha1", Gateway.of(request).engine.verify_read)


async def _verdict(
    request: Request[Any, Any, Any],
    profile: Literal["core.resolve/v0alpha1", "core.read/v0alpha1"],
    verify: Callable[[bytes], Awaitable[str | None]],
) -> Reply:
    """Verify the result in an envelope. A malformed envelope or request is a 400, an invalid result a verdict."""
    gateway = Gateway.of(request)
    async with gateway.json_body(request.scope, request.receive, gateway.settings.verify_body_bytes) as body:
        error = await verify(body)
    verdict = Verification(profile=profile, valid=error is None, error=msgspec.UNSET if error is None else error)
    return json_reply(encode(verdict))


hot: Final = (resolve, read, map_proof, scan)
handlers: Final = (verify_resolve, verify_read)
