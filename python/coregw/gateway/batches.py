"""Many small requests in one: payloads to store or to ask about, and paths of one root to resolve.

Leaves out reading and working on them (`coregw.engine`).
"""

from __future__ import annotations

from typing import Final

from litestar import Response, post

from coregw.gateway.bodies import check_json_type, query_parameters
from coregw.gateway.context import Gateway, json_response
from coregw.gateway.openapi import DOC, Doc
from coregw.gateway.problems import AnyRequest
from coregw.messages import ResolveResult
from coregw.messages.batch import (
    HasBatchRequest,
    HasBatchResult,
    PutBatchRequest,
    PutBatchResult,
    ResolveBatchRequest,
    ResolveBatchResult,
)

__all__ = ["handlers"]

_CODES: Final = ("invalid_cid", "too_large", "unsupported_media_type")


@post(
    "/v1/cas/batch",
    status_code=200,
    opt={
        DOC: Doc(
            "Stores up to 4,096 payloads and 64 MiB, durably, or says which of up to 4,096 are held.",
            request=(PutBatchRequest, HasBatchRequest),
            answer=(PutBatchResult, HasBatchResult),
            codes=(*_CODES, "invalid_codec", "unknown_profile", "storage_full"),
        )
    },
)
async def cas_batch(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/cas/batch``."""
    gateway = Gateway.of(request)
    query_parameters(request)
    check_json_type(request)
    async with gateway.bodies.whole(request, gateway.settings.batch_body_bytes) as body:
        return json_response(await gateway.engine.payloads.batch(body, gateway.settings.payload_bytes))


@post(
    "/v1/resolve/batch",
    status_code=200,
    opt={
        DOC: Doc(
            "What up to 1,000 paths of one root lead to: for each the result of a resolve, or its error.",
            request=ResolveBatchRequest,
            answer=ResolveBatchResult,
            structs=(ResolveResult,),
            codes=(*_CODES, "invalid_path", "kind_mismatch"),
        )
    },
)
async def resolve_batch(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/resolve/batch``."""
    gateway = Gateway.of(request)
    query_parameters(request)
    check_json_type(request)
    async with gateway.bodies.whole(request, gateway.settings.resolve_batch_body_bytes) as body:
        return json_response(await gateway.engine.resolve_batch(body))


handlers: Final = [cas_batch, resolve_batch]
