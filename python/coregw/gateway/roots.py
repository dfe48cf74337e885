"""Making roots: from a map of arcs, and by mutations of a base root. Both answer with untrusted candidates.

The extension reads the bodies, so a million arcs never become Python objects. Nothing is acknowledged before it is
durable. Leaves out publication, which is operator policy.
"""

from __future__ import annotations

from typing import Final

from litestar import Response, post
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw.gateway.bodies import check_json_type, query_parameters
from coregw.gateway.context import Gateway, json_response
from coregw.gateway.openapi import DOC, Doc
from coregw.gateway.problems import AnyRequest
from coregw.messages import ArcMap, MutationReceipt, MutationRequest, RootCreated, encode

__all__ = ["handlers"]

_CODES: Final = ("invalid_cid", "invalid_path", "too_large", "unsupported_media_type", "storage_full")


@post(
    "/v1/roots",
    opt={
        DOC: Doc(
            "Makes a map of arcs; its root is a candidate that the caller may compute as well.",
            status=201,
            request=ArcMap,
            answer=RootCreated,
            codes=_CODES,
        )
    },
)
async def create_root(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/roots``."""
    gateway = Gateway.of(request)
    query_parameters(request)
    check_json_type(request)
    async with gateway.bodies.whole(request, gateway.settings.roots_body_bytes) as body:
        root = await gateway.engine.create_root(body)
    return json_response(encode(RootCreated(root=root)), 201)


@post(
    "/v1/roots/{root:str}/mutations",
    opt={
        DOC: Doc(
            "Applies deltas to maps and lists, all or nothing; the new root is a candidate.",
            status=201,
            request=MutationRequest,
            answer=MutationReceipt,
            codes=(
                *_CODES,
                "kind_mismatch",
                "root_not_found",
                "before_mismatch",
                "expected_root_mismatch",
                "invalid_change",
            ),
        )
    },
)
async def mutate(request: AnyRequest, root: FromPath[str]) -> Response[bytes]:
    """``POST /v1/roots/{root}/mutations``."""
    gateway = Gateway.of(request)
    query_parameters(request)
    check_json_type(request)
    async with gateway.bodies.whole(request, gateway.settings.mutation_body_bytes) as body:
        receipt = await gateway.engine.mutate(root, body)
    return json_response(receipt, 201)


handlers: Final = [create_root, mutate]
