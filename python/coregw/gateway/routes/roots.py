"""Creating roots, and mutating maps and lists. Both return roots that the client has yet to accept.

The extension parses the bodies, so a million arcs never become Python objects. A response is sent only when the root
is durable.
"""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, post
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw.gateway.context import Gateway
from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.replies import Reply, json_reply
from coregw.messages import ArcMap, MutationReceipt, MutationRequest, RootCreated

__all__ = ["handlers"]

_CODES: Final = ("invalid_cid", "invalid_path", "too_large", "unsupported_media_type", "storage_full")


@post(
    "/v1/roots",
    opt={
        DESCRIPTION: Description(
            "Creates a map of arcs; the client can compute its root as well.",
            status=201,
            request=ArcMap,
            answer=RootCreated,
            codes=_CODES,
        )
    },
)
async def create_root(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/roots``."""
    gateway = Gateway.of(request)
    async with gateway.json_body(request.scope, request.receive, gateway.settings.roots_body_bytes) as body:
        created = await gateway.engine.create_root(body)
    return json_reply(created, 201)


@post(
    "/v1/roots/{root:str}/mutations",
    opt={
        DESCRIPTION: Description(
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
async def mutate(request: Request[Any, Any, Any], root: FromPath[str]) -> Reply:
    """``POST /v1/roots/{root}/mutations``."""
    gateway = Gateway.of(request)
    async with gateway.json_body(request.scope, request.receive, gateway.settings.mutation_body_bytes) as body:
        receipt = await gateway.engine.mutate(root, body)
    return json_reply(receipt, 201)


handlers: Final = (create_root, mutate)
