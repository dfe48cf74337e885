"""Roots as CAR files: export of a held root, with or without its payloads, and import of any CAR of roots.

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
from coregw.gateway.context import Gateway
from coregw.gateway.docs.description import CAR, DESCRIPTION, Description, Parameter
from coregw.gateway.http.replies import Reply, json_reply
from coregw.gateway.http.requests import (
    check_content_coding,
    declared_length,
    has_media_type,
    header,
    query_integer,
    query_parameters,
)
from coregw.gateway.limits.arrival import arrival_of
from coregw.gateway.limits.peers import peer_of
from coregw.gateway.settings import MIB
from coregw.messages.car import MAX_WHOLE_CAR_BYTES, CarTaken

__all__ = ["handlers"]

_TYPE: Final = f"{CAR}; version=1"
_TYPES: Final = {
    version: [f"{CAR}; version={version}; order={order}; dups={dups}" for order in ("dfs", "unk") for dups in "yn"]
    for version in (1, 2)
}
"""The media types of a body, by the version that it may have. Its order and repeated blocks do not matter."""

_MAX_BUFFERED_BYTES: Final = 4 * MIB  # of an upload that is being spooled
_MEMORY_FACTOR: Final = 12  # the shortest block has 5 bytes, and takes 60 of memory
_CODES: Final = ("invalid_cid", "kind_mismatch", "root_not_found")
_MAX_OCCURRENCE: Final = 2**32 - 1
_QUERY: Final = {
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
            codes=_CODES,
            query=_QUERY,
            headers=_HEADERS,
        )
    },
)
async def get_car(request: Request[Any, Any, Any], root: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /v1/roots/{root}/car``, streamed."""
    gateway, peer = Gateway.of(request), peer_of(request.scope)
    given = query_parameters(request.scope, *_QUERY)
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
        async with gateway.bodies.whole(request.scope, request.receive, gateway.settings.car_bytes) as whole:
            return json_reply(await gateway.engine.cars.import_whole(whole, version=version), 201)
    slot = gateway.imports.take(peer_of(request.scope), arrival_of(request.scope))
    try:
        body = gateway.bodies.streamed(
            request.scope,
            request.receive,
            gateway.settings.car_bytes,
            buffered=_MAX_BUFFERED_BYTES,
            factor=_MEMORY_FACTOR,
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


handlers: Final = (get_car, take_car)
