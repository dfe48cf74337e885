"""Batches: many payloads to store or look up, or many paths of one root to resolve, in one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coregw.gateway.context import Gateway
from coregw.gateway.docs.description import Description
from coregw.gateway.http.dispatch import hot_route
from coregw.gateway.http.replies import Reply, json_reply
from coregw.messages import ResolveResult
from coregw.messages.batch import (
    HasBatchRequest,
    HasBatchResult,
    PutBatchRequest,
    PutBatchResult,
    ResolveBatchRequest,
    ResolveBatchResult,
)

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive

__all__ = ["hot"]

_CODES: Final = ("invalid_cid", "too_large", "unsupported_media_type")


@hot_route(
    "POST",
    "/v1/cas/batch",
    Description(
        "Stores up to 4,096 payloads of together up to 64 MiB, durably, or reports which of up to 4,096 are held.",
        request=(PutBatchRequest, HasBatchRequest),
        answer=(PutBatchResult, HasBatchResult),
        codes=(*_CODES, "invalid_codec", "unknown_profile", "storage_full"),
        writes=True,
    ),
)
async def cas_batch(gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
    """``POST /v1/cas/batch``."""
    async with gateway.json_body(scope, receive, gateway.settings.batch_body_bytes) as body:
        return json_reply(await gateway.engine.payloads.batch(body, gateway.settings.payload_bytes))


@hot_route(
    "POST",
    "/v1/resolve/batch",
    Description(
        "Resolves up to 1,000 paths of one root, each to a resolve result or an error.",
        request=ResolveBatchRequest,
        answer=ResolveBatchResult,
        structs=(ResolveResult,),
        codes=(*_CODES, "invalid_path", "kind_mismatch"),
    ),
)
async def resolve_batch(gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
    """``POST /v1/resolve/batch``."""
    async with gateway.json_body(scope, receive, gateway.settings.resolve_batch_body_bytes) as body:
        return json_reply(await gateway.engine.resolve_batch(body))


hot: Final = (cas_batch, resolve_batch)
