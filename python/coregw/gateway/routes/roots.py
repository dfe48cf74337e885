"""Creating roots, and mutating maps and lists. Both return roots that the client has yet to accept.

The extension parses the bodies, so a million arcs never become Python objects. Arcs in one JSON object are read whole;
lines of arcs are streamed, and sorted outside of memory. A response is sent only when the root is durable.
"""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, post
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw.errors import InvalidInput
from coregw.gateway.context import Gateway
from coregw.gateway.docs.description import DESCRIPTION, JSON_LINES, Description, Parameter
from coregw.gateway.http.replies import Reply, json_reply
from coregw.gateway.http.requests import check_content_coding, has_media_type, query_parameters
from coregw.gateway.limits.arrival import arrival_of
from coregw.gateway.limits.peers import peer_of
from coregw.messages import ArcMap, MutationReceipt, MutationRequest, RootCreated
from coregw.messages.complete import Completeness

__all__ = ["handlers"]

_RUNS: Final = 5
"""So many runs of arcs a build has in memory while they arrive, growing and being sorted."""

_MEMORY_FACTOR: Final = 6
"""Bytes of memory for a byte of the shortest lines, until a run is full."""

_QUERY: Final = {
    "suite": Parameter("The suite of a map of lines of arcs.", {"type": "string", "enum": ["sha2-256", "blake3"]})
}
_CODES: Final = ("invalid_cid", "invalid_path", "too_large", "unsupported_media_type", "storage_full")


@post(
    "/v1/roots",
    opt={
        DESCRIPTION: Description(
            "Creates a map of arcs; the client can compute its root as well.",
            status=201,
            request=ArcMap,
            streamed=JSON_LINES,
            query=_QUERY,
            answer=RootCreated,
            codes=_CODES,
            writes=True,
        )
    },
)
async def create_root(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/roots``."""
    gateway = Gateway.of(request)
    if has_media_type(request.scope, f"{JSON_LINES}; charset=utf-8"):
        return json_reply(await _build(gateway, request), 201)
    async with gateway.json_body(request.scope, request.receive, gateway.settings.roots_body_bytes) as body:
        created = await gateway.engine.create_root(body)
    return json_reply(created, 201)


async def _build(gateway: Gateway, request: Request[Any, Any, Any]) -> bytes:
    """Create a map of lines of arcs, however many."""
    settings = gateway.settings
    suite = query_parameters(request.scope, *_QUERY).get("suite", "sha2-256")
    if suite not in ("sha2-256", "blake3"):
        raise InvalidInput(f"query parameter 'suite' is {suite!r:.100}, expected sha2-256 or blake3")
    check_content_coding(request.scope)
    slot = gateway.builds.take(peer_of(request.scope), arrival_of(request.scope))
    try:
        buffered = _RUNS * settings.build_run_bytes
        body = gateway.bodies.streamed(
            request.scope, request.receive, settings.build_body_bytes, buffered=buffered, factor=_MEMORY_FACTOR
        )
        with body as chunks:
            return await gateway.engine.builds.build_root(chunks, suite)
    finally:
        gateway.builds.leave(slot)


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
            writes=True,
        )
    },
)
async def mutate(request: Request[Any, Any, Any], root: FromPath[str]) -> Reply:
    """``POST /v1/roots/{root}/mutations``."""
    gateway = Gateway.of(request)
    async with gateway.json_body(request.scope, request.receive, gateway.settings.mutation_body_bytes) as body:
        receipt = await gateway.engine.mutate(root, body)
    return json_reply(receipt, 201)


@post(
    "/v1/roots/{root:str}/complete",
    status_code=200,
    opt={
        DESCRIPTION: Description(
            "Whether everything below a root is held: all pages, nested roots and payloads. If so, and the request has "
            "the right to write, it stays held as if it had just been stored.",
            answer=Completeness,
            codes=("invalid_cid", "kind_mismatch", "storage_full"),
        )
    },
)
async def check_complete(request: Request[Any, Any, Any], root: FromPath[str]) -> Reply:
    """``POST /v1/roots/{root}/complete``."""
    gateway = Gateway.of(request)
    query_parameters(request.scope)
    renews = gateway.write_access.allows(request.scope)
    return json_reply(await gateway.engine.check_complete(root, renews=renews))


handlers: Final = (create_root, mutate, check_complete)
