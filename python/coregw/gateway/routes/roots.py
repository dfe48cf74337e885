"""Roots: created, changed, checked, and taken and given as CARs.

The extension parses the bodies, so a million arcs never become Python objects. Arcs in one JSON object are read whole;
lines of arcs are streamed, and sorted outside of memory. A response is sent only when the root is durable.

Besides the root's own tree, an export contains what the store holds at the time, so it has no entity tag and is not
cached. A failure during the stream closes the connection, so that no client takes a truncated CAR for a complete one.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

from litestar import Request, post, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw._core import Cid
from coregw.errors import InvalidInput
from coregw.gateway.access import WRITE, Access
from coregw.gateway.context import Gateway
from coregw.gateway.description import CAR, DESCRIPTION, JSON_LINES, Description, Parameter
from coregw.gateway.limits.arrival import arrival_of
from coregw.gateway.limits.peers import peer_of
from coregw.gateway.replies import Reply, json_reply
from coregw.gateway.requests import (
    check_content_coding,
    declared_length,
    has_media_type,
    header,
    query_integer,
    query_parameters,
)
from coregw.gateway.settings import MIB
from coregw.messages import ArcMap, MutationReceipt, MutationRequest, RootCreated
from coregw.messages.roots import MAX_WHOLE_CAR_BYTES, CarTaken, Completeness

__all__ = [
    "handlers",
]

_RUNS: Final = 5
"""So many runs of arcs a build has in memory while they arrive, growing and being sorted."""

_ARCS_MEMORY_FACTOR: Final = 6
"""Bytes of memory for a byte of the shortest lines, until a run is full."""

_ROOT_QUERY: Final = {
    "suite": Parameter("The suite of a map of lines of arcs.", {"type": "string", "enum": ["sha2-256", "blake3"]})
}

_ROOT_CODES: Final = ("invalid_cid", "invalid_path", "too_large", "unsupported_media_type", "storage_full")


@post(
    "/v1/roots",
    opt={
        DESCRIPTION: Description(
            "Creates a map of arcs; the client can compute its root as well.",
            status=201,
            request=ArcMap,
            streamed=JSON_LINES,
            query=_ROOT_QUERY,
            answer=RootCreated,
            codes=_ROOT_CODES,
            writes=True,
        )
    },
)
async def create_root(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/roots``."""
    gateway = Gateway.of(request)
    if has_media_type(request.scope, f"{JSON_LINES}; charset=utf-8"):
        return json_reply(await _build(gateway, request), 201)
    async with gateway.json_body(request.scope, request.receive, gateway.limits.roots_body_bytes) as body:
        created = await gateway.engine.create_root(body)
    return json_reply(created, 201)


async def _build(gateway: Gateway, request: Request[Any, Any, Any]) -> bytes:
    """Create a map of lines of arcs, however many."""
    limits = gateway.limits
    suite = query_parameters(request.scope, *_ROOT_QUERY).get("suite", "sha2-256")
    if suite not in ("sha2-256", "blake3"):
        raise InvalidInput(f"query parameter 'suite' is {suite!r:.100}, expected sha2-256 or blake3")
    check_content_coding(request.scope)
    slot = gateway.builds.take(peer_of(request.scope), arrival_of(request.scope))
    try:
        buffered = _RUNS * limits.build_run_bytes
        body = gateway.bodies.streamed(
            request.scope, request.receive, limits.build_body_bytes, buffered=buffered, factor=_ARCS_MEMORY_FACTOR
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
                *_ROOT_CODES,
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
    async with gateway.json_body(request.scope, request.receive, gateway.limits.mutation_body_bytes) as body:
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
    renews = await Access.of(request).allows(request.scope, WRITE)
    return json_reply(await gateway.engine.check_complete(root, renews=renews))


_TYPE: Final = f"{CAR}; version=1"

_TYPES: Final = {
    version: [f"{CAR}; version={version}; order={order}; dups={dups}" for order in ("dfs", "unk") for dups in "yn"]
    for version in (1, 2)
}
"""The media types of a body, by the version that it may have. Its order and repeated blocks do not matter."""

_MAX_BUFFERED_BYTES: Final = 4 * MIB  # of an upload that is being spooled

_CAR_MEMORY_FACTOR: Final = 12  # the shortest block has 5 bytes, and takes 60 of memory

_CAR_CODES: Final = ("invalid_cid", "kind_mismatch", "root_not_found")

_MAX_OCCURRENCE: Final = 2**32 - 1

_CAR_QUERY: Final = {
    "payloads": Parameter(
        "`true` adds the payloads that leaves name, as far as they are held; `false` if absent.",
        {"type": "string", "enum": ["true", "false"]},
    ),
    "after": Parameter(
        "The CID of a block: the header is followed by the blocks that come after this one. So an export that was cut "
        "off continues after its last whole block.",
        {"type": "string"},
    ),
    "occurrence": Parameter.integer(
        "Which of the blocks with the CID `after` it is; 1, the first one, if absent.", 1, _MAX_OCCURRENCE
    ),
}

_HEADERS: Final = {
    "Content-Disposition": "`attachment` with a file name.",
    "Cache-Control": "`no-cache`: which nested roots and payloads are held may change.",
    "Accept-Ranges": "`none`.",
}


@route(
    "/v1/roots/{root:str}/car",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: Description(
            "A held root as CARv1: the nodes of its tree in preorder, then those of held roots nested in it.",
            answer=CAR,
            codes=_CAR_CODES,
            query=_CAR_QUERY,
            headers=_HEADERS,
        )
    },
)
async def get_car(request: Request[Any, Any, Any], root: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /v1/roots/{root}/car``, streamed."""
    gateway, peer = Gateway.of(request), peer_of(request.scope)
    given = query_parameters(request.scope, *_CAR_QUERY)
    payloads, after = _with_payloads(given), given.get("after")
    if after is None and "occurrence" in given:
        raise InvalidInput("query parameter 'occurrence' needs 'after', the block whose occurrence it is")
    occurrence = query_integer("occurrence", given.get("occurrence", "1"), 1, _MAX_OCCURRENCE)
    # To find a block, the tree is visited up to there.
    with gateway.exports.held(peer) if after is not None else nullcontext():
        chunks = await gateway.engine.cars.export_car(root, payloads=payloads, after=after, occurrence=occurrence)
    if request.method == "GET":
        gateway.exports.make_room(peer)
    headers = {
        "Content-Disposition": f'attachment; filename="{Cid(root).text}.car"',
        "Cache-Control": "no-cache",
        "Accept-Ranges": "none",
    }
    return Reply(gateway.exports.occupy(chunks, peer), media_type=_TYPE, headers=headers)


@post(
    "/v1/car",
    opt={
        DESCRIPTION: Description(
            "Imports the trees and payloads of a CARv1 or CARv2: all of it, checked, or nothing.",
            status=201,
            request=CAR,
            answer=CarTaken,
            codes=("too_large", "unsupported_media_type", "storage_full"),
            writes=True,
        )
    },
)
async def take_car(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/car``. A short CAR is kept in memory, any other is spooled."""
    gateway = Gateway.of(request)
    query_parameters(request.scope)
    version = _declared_version(request)
    length = declared_length(request.scope)
    if length is not None and length <= MAX_WHOLE_CAR_BYTES:
        async with gateway.bodies.whole(request.scope, request.receive, gateway.limits.car_bytes) as whole:
            return json_reply(await gateway.engine.cars.import_whole(whole, version=version), 201)
    slot = gateway.imports.take(peer_of(request.scope), arrival_of(request.scope))
    try:
        body = gateway.bodies.streamed(
            request.scope,
            request.receive,
            gateway.limits.car_bytes,
            buffered=_MAX_BUFFERED_BYTES,
            factor=_CAR_MEMORY_FACTOR,
        )
        with body as chunks:
            imported = await gateway.engine.cars.import_car(chunks, version=version)
    finally:
        gateway.imports.leave(slot)
    return json_reply(imported, 201)


def _with_payloads(given: dict[str, str]) -> bool:
    """Return the ``payloads`` parameter. Raises `InvalidInput` unless it is ``true`` or ``false``."""
    value = given.get("payloads", "false")
    if value not in ("true", "false"):
        raise InvalidInput(f"query parameter 'payloads' is {value!r:.100}, expected true or false")
    return value == "true"


def _declared_version(request: Request[Any, Any, Any]) -> int | None:
    """Return the version of the body, 1 or 2, that Content-Type says; None if it says none.

    Raises:
        InvalidInput: If the body is no CARv1 or CARv2, or is compressed (code ``unsupported_media_type``).
    """
    versions = [version for version, types in _TYPES.items() if has_media_type(request.scope, *types)]
    if not versions:
        given = header(request.scope, b"content-type")
        found = f"Content-Type is {given!r:.200}" if given else "no Content-Type"
        message = f"{found}, expected {_TYPE}"
        raise InvalidInput(message, code="unsupported_media_type")
    check_content_coding(request.scope)
    return versions[0] if len(versions) == 1 else None


handlers: Final = (create_root, mutate, check_complete, get_car, take_car)
