"""Immutable payloads: upload, download, HEAD.

Payloads are stored by multihash, so any codec reads them; what a client gets is named by the CID that it asked for.
Leaves out verification, since clients hash what they get, and conditions and ranges (`downloads`).
"""

from __future__ import annotations

from typing import Final

from litestar import Response, get, head, post
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw.gateway.bodies import check_identity, declared_length, query_parameters
from coregw.gateway.context import Gateway, json_response
from coregw.gateway.downloads import CACHE_FOR_EVER, answer_get, answer_head
from coregw.gateway.openapi import DOC, OCTETS, Doc, Parameter
from coregw.gateway.problems import AnyRequest
from coregw.gateway.streams import Pieces
from coregw.messages import CasCreated, encode
from coregw.store import CHUNK_BYTES

__all__ = ["handlers"]

_HELD_BACK: Final = 2 * CHUNK_BYTES  # what a store may hold of an upload in memory
_SHORT: Final = 64 << 10  # a body of this size or less is taken whole, as hashing it does not hold others up
_GET_HEADERS: Final = {"ETag": "The normalised CID asked for, in quotes.", "Cache-Control": CACHE_FOR_EVER}
_GET_CODES: Final = ("invalid_cid", "payload_not_found", "method_not_allowed")  # the last for /v1/cas/batch
_NOT_MODIFIED: Final = {304: "If-None-Match names the payload, and it is held."}


@post(
    "/v1/cas",
    opt={
        DOC: Doc(
            "Stores a payload, durably, under its CID.",
            status=201,
            request=OCTETS,
            headers={"Location": "Where the payload is."},
            answer=CasCreated,
            codes=("invalid_codec", "too_large", "unsupported_media_type", "storage_full"),
            query={
                "codec": "A multicodec by name or number; `raw` if absent.",
                "hash": Parameter("`sha2-256` if absent.", {"type": "string", "enum": ["sha2-256", "blake3"]}),
            },
        )
    },
)
async def put_payload(request: AnyRequest) -> Response[bytes]:
    """``POST /v1/cas``: streamed, unless short; each piece is hashed and written as it comes."""
    gateway = Gateway.of(request)
    asked = query_parameters(request, "codec", "hash")
    check_identity(request)
    codec, hash_name = asked.get("codec", "raw"), asked.get("hash", "sha2-256")
    limit, declared = gateway.settings.payload_bytes, declared_length(request)
    if declared is not None and declared <= _SHORT:
        cid = await gateway.engine.payloads.put_whole(gateway.bodies.whole(request, limit), codec, hash_name)
    else:
        chunks = gateway.bodies.chunks(request, limit)
        with gateway.bodies.reserved(_HELD_BACK if declared is None else min(declared, _HELD_BACK)):
            cid = await gateway.engine.payloads.put(chunks, codec, hash_name)
    return json_response(encode(CasCreated(cid=cid)), 201, {"Location": f"/v1/cas/{cid}"})


@get(
    "/v1/cas/{cid:str}",
    opt={
        DOC: Doc(
            "The bytes of a payload; hash them and compare with the CID before use.",
            answer=OCTETS,
            codes=(*_GET_CODES, "range_not_satisfiable"),
            request_headers=("Range", "If-Range", "If-None-Match"),
            headers=_GET_HEADERS | {"Content-Range": "Which bytes these are, with 206."},
            others=_NOT_MODIFIED | {206: "The one range of bytes asked for."},
        )
    },
)
async def get_payload(request: AnyRequest, cid: FromPath[str]) -> Response[bytes] | Pieces:
    """``GET /v1/cas/{cid}``."""
    query_parameters(request)
    payload = await Gateway.of(request).engine.payloads.find(cid)
    return await answer_get(request, payload, OCTETS, f'"{payload.cid}"')


@head(
    "/v1/cas/{cid:str}",
    opt={
        DOC: Doc(
            "Whether a payload is held, and how long it is; Range is ignored.",
            codes=_GET_CODES,
            request_headers=("If-None-Match",),
            headers=_GET_HEADERS,
            others=_NOT_MODIFIED,
        )
    },
)
async def head_payload(request: AnyRequest, cid: FromPath[str]) -> Response[None]:
    """``HEAD /v1/cas/{cid}``."""
    query_parameters(request)
    payload = await Gateway.of(request).engine.payloads.find(cid)
    return answer_head(request, payload, OCTETS, f'"{payload.cid}"')


handlers: Final = [put_payload, get_payload, head_payload]
