"""Roots as CAR files: a held root out, with or without its payloads, and any CAR of roots in.

What a CAR holds beside its root's own tree depends on what the store holds at the time, so there is no entity tag and
no caching. A failure once the stream has begun cuts the connection, so that no client takes a part for the whole.
Leaves out the format and the checks (the engine).
"""

from __future__ import annotations

import re
from typing import Final

from litestar import Response, post, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw._core import Cid
from coregw.errors import InvalidInput
from coregw.gateway.bodies import check_identity, query_parameters
from coregw.gateway.context import Gateway, json_response
from coregw.gateway.openapi import DOC, Doc, Parameter
from coregw.gateway.problems import AnyRequest
from coregw.gateway.settings import MIB
from coregw.gateway.streams import Pieces
from coregw.messages import encode
from coregw.messages.car import CarTaken

__all__ = ["handlers"]

_CAR: Final = "application/vnd.ipld.car"
_TYPE: Final = f"{_CAR}; version=1"
_TYPE_TAKEN: Final = re.compile(rf'\s*{re.escape(_CAR)}\s*(;\s*version\s*=\s*(1|"1")\s*)?;?\s*', re.IGNORECASE)
_HELD_BACK: Final = 4 * MIB  # what is gathered of an upload, joined, and written
_CODES: Final = ("invalid_cid", "kind_mismatch", "root_not_found")
_QUERY: Final = {
    "payloads": Parameter(
        "`true` adds the payloads that leaves name, as far as they are held; `false` if absent.",
        {"type": "string", "enum": ["true", "false"]},
    )
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
        DOC: Doc(
            "A held root as CARv1: the nodes of its tree from the top, then those of the held roots nested in it.",
            answer=_CAR,
            codes=_CODES,
            query=_QUERY,
            headers=_HEADERS,
        )
    },
)
async def get_car(request: AnyRequest, root: FromPath[str]) -> Pieces:
    """``GET`` and ``HEAD /v1/roots/{root}/car``: streamed; a failure under way cuts the connection."""
    asked = query_parameters(request, *_QUERY)
    parts = await Gateway.of(request).engine.cars.export(root, payloads=_with_payloads(asked))
    if request.method == "HEAD":  # whose length nobody knows before the whole is written
        await parts.aclose()
    return Pieces(parts, media_type=_TYPE, headers=_headers(root))


@post(
    "/v1/car",
    opt={
        DOC: Doc(
            "Takes in the roots of a CARv1, and its payloads: all of it, checked, or nothing.",
            status=201,
            request=_CAR,
            answer=CarTaken,
            codes=("too_large", "unsupported_media_type", "storage_full"),
        )
    },
)
async def take_car(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/car``."""
    gateway = Gateway.of(request)
    query_parameters(request)
    _check_type(request)
    chunks = gateway.bodies.chunks(request, gateway.settings.car_bytes)
    with gateway.bodies.reserved(_HELD_BACK):
        taken = await gateway.engine.cars.take_in(chunks)
    return json_response(encode(CarTaken(roots=taken.roots, blocks=taken.blocks, bytes=taken.bytes)), 201)


def _with_payloads(asked: dict[str, str]) -> bool:
    """The ``payloads`` parameter. Raises `InvalidInput` if it is neither ``true`` nor ``false``."""
    given = asked.get("payloads", "false")
    if given not in ("true", "false"):
        raise InvalidInput(f"payloads is {given!r}; it is true or false")
    return given == "true"


def _headers(root: str) -> dict[str, str]:
    """What a CAR goes with. `root` is a CID, so its text form needs no quoting."""
    disposition = f'attachment; filename="{Cid(root).text}.car"'
    return {"Content-Disposition": disposition, "Cache-Control": "no-cache", "Accept-Ranges": "none"}


def _check_type(request: AnyRequest) -> None:
    """Takes CARv1 only. Raises `InvalidInput` (code ``unsupported_media_type``) for all else."""
    given = ", ".join(request.headers.getall("content-type", []))
    if _TYPE_TAKEN.fullmatch(given) is None:
        shown = f"as {given!r}" if given else "with no Content-Type"
        message = f"the body comes {shown}; send a CAR with Content-Type: {_TYPE}"
        raise InvalidInput(message, code="unsupported_media_type")
    check_identity(request)


handlers: Final = [get_car, take_car]
