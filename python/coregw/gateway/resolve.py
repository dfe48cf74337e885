"""Questions: resolve, read, map-proof, scan, and the two diagnostic verifications.

The extension reads requests and writes results, so their bytes pass through here untouched. Leaves out the header of
the verification routes, which errors must have too (`app`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal

import msgspec
from litestar import Response, post

from coregw._core import split_envelope
from coregw.gateway.bodies import check_json_type, query_parameters
from coregw.gateway.context import Gateway, json_response
from coregw.gateway.openapi import DOC, Doc
from coregw.gateway.problems import AnyRequest
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
_ROLE: Final = {"X-Core-Verification-Role": "Always `diagnostic`: no substitute for verifying locally."}


async def _answer(request: AnyRequest, ask: Callable[[bytes], Awaitable[bytes]]) -> Response[bytes]:
    """Hands the body to the engine, and its answer back."""
    gateway = Gateway.of(request)
    query_parameters(request)
    check_json_type(request)
    async with gateway.bodies.whole(request, gateway.settings.json_body_bytes) as body:
        return json_response(await ask(body))


@post(
    "/v1/resolve",
    status_code=200,
    opt={
        DOC: Doc(
            "What a path leads to, with proofs; an untrusted answer to verify locally.",
            request=ResolveRequest,
            answer=ResolveResult,
            codes=(*_QUERY_CODES, "path_not_found"),
        )
    },
)
async def resolve(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/resolve``."""
    return await _answer(request, Gateway.of(request).engine.resolve)


@post(
    "/v1/read",
    status_code=200,
    opt={
        DOC: Doc(
            "One key, element or range, with its proof; a 404 carries the proof of the absence as its details.",
            request=ReadRequest,
            answer=ReadResult,
            structs=(ReadNotFound,),
            codes=(*_QUERY_CODES, "path_not_found"),
        )
    },
)
async def read(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/read``."""
    return await _answer(request, Gateway.of(request).engine.read)


@post(
    "/v1/map-proof",
    status_code=200,
    opt={
        DOC: Doc(
            "Membership of a key in a map, or its absence, with the proof.",
            request=MapProofRequest,
            answer=MapProofResult,
            codes=_QUERY_CODES,
        )
    },
)
async def map_proof(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/map-proof``."""
    return await _answer(request, Gateway.of(request).engine.map_proof)


@post(
    "/v1/scan",
    status_code=200,
    opt={
        DOC: Doc(
            "A complete listing of the arcs below a prefix, page by page, with the proof.",
            request=ScanRequest,
            answer=ScanResult,
            codes=_QUERY_CODES,
        )
    },
)
async def scan(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/scan``."""
    return await _answer(request, Gateway.of(request).engine.scan)


@post(
    "/v1/verify/resolve",
    status_code=200,
    opt={
        DOC: Doc(
            "Diagnostic: whether a resolve result proves what it says.",
            request=VerifyResolveRequest,
            answer=Verification,
            structs=(ResolveRequest, ResolveResult),
            codes=(*_BODY_CODES, "invalid_cid", "invalid_path", "unknown_profile"),
            headers=_ROLE,
        )
    },
)
async def verify_resolve(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/verify/resolve``."""
    return await _verdict(request, "core.resolve/v0alpha1", Gateway.of(request).engine.verify_resolve)


@post(
    "/v1/verify/read",
    status_code=200,
    opt={
        DOC: Doc(
            "Diagnostic: whether a read result, or the details of a read's 404, proves what it says.",
            request=VerifyReadRequest,
            answer=Verification,
            structs=(ReadRequest, ReadResult, ReadNotFound),
            codes=(*_BODY_CODES, "invalid_cid", "invalid_path", "unknown_profile", "kind_mismatch"),
            headers=_ROLE,
        )
    },
)
async def verify_read(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/verify/read``."""
    return await _verdict(request, "core.read/v0alpha1", Gateway.of(request).engine.verify_read)


async def _verdict(
    request: AnyRequest,
    profile: Literal["core.resolve/v0alpha1", "core.read/v0alpha1"],
    verify: Callable[[bytes, bytes], Awaitable[str | None]],
) -> Response[bytes]:
    """Takes the envelope apart and says what the verifier says of each half: a 400 for one, a verdict for the other."""
    gateway = Gateway.of(request)
    query_parameters(request)
    check_json_type(request)
    async with gateway.bodies.whole(request, gateway.settings.verify_body_bytes) as body:
        error = await verify(*split_envelope(body))
    verdict = Verification(profile=profile, valid=error is None, error=msgspec.UNSET if error is None else error)
    return json_response(encode(verdict))


handlers: Final = [resolve, read, map_proof, scan, verify_resolve, verify_read]
