"""Immutable payloads: upload, download one by one or many at once, HEAD, and which of many are held.

Payloads are stored by multihash, so a CID of any codec reads them; an identity CID contains its payload, which is
always held. The gateway does not hash what it sends, since clients do.
"""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, post, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw.gateway.access import WRITE, Access
from coregw.gateway.context import Gateway
from coregw.gateway.description import CAR, DESCRIPTION, JSON, OCTETS, Description, Parameter
from coregw.gateway.limits.peers import peer_of
from coregw.gateway.replies import Reply, Representation, described, gated, json_reply
from coregw.gateway.requests import check_payload_type, declared_length, has_media_type, query_parameters
from coregw.messages import CasCreated, encode
from coregw.messages.payloads import GetBatchRequest, HasBatchRequest, HasBatchResult
from coregw.store import CHUNK_BYTES

__all__ = ["handlers"]

_MAX_BUFFERED_BYTES: Final = 2 * CHUNK_BYTES  # what a store may hold of a streamed upload in memory
_MAX_SHORT_BYTES: Final = 64 << 10  # hashing as much as this does not delay other requests noticeably
_HASHES: Final = ("sha2-256", "sha2-512", "sha3-256", "blake2b-256", "blake3", "identity")
_ETAG: Final = "The requested CID in normalised form, in quotes."
_GET_CODES: Final = ("invalid_cid", "payload_not_found", "method_not_allowed")  # the last for /v1/cas/has and others
_KNOWN: Final = "If-None-Match names the payload, and it is held."


@post(
    "/v1/cas",
    opt={
        DESCRIPTION: Description(
            "Stores a payload, durably, under its CID.",
            status=201,
            request=OCTETS,
            headers={"Location": "Where the payload is."},
            answer=CasCreated,
            codes=("invalid_codec", "too_large", "unsupported_media_type", "storage_full"),
            writes=True,
            query={
                "codec": "A multicodec by name or number; `raw` if absent.",
                "hash": Parameter(
                    "`sha2-256` if absent. `identity` is for at most 128 bytes, which the CID contains and nobody "
                    "stores.",
                    {"type": "string", "enum": _HASHES},
                ),
            },
        )
    },
)
async def put_payload(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/cas``. Short bodies are hashed and stored in one step, others chunk by chunk as they arrive."""
    gateway, scope = Gateway.of(request), request.scope
    parameters = query_parameters(scope, "codec", "hash")
    check_payload_type(scope)
    codec, hash_name = parameters.get("codec", "raw"), parameters.get("hash", "sha2-256")
    limit, length = gateway.limits.payload_bytes, declared_length(scope)
    payloads = gateway.engine.payloads
    if length is not None and length <= _MAX_SHORT_BYTES:
        cid = await payloads.put_whole(gateway.bodies.whole(scope, request.receive, limit), codec, hash_name)
    else:
        with gateway.bodies.streamed(scope, request.receive, limit, buffered=_MAX_BUFFERED_BYTES) as chunks:
            cid = await payloads.put(chunks, codec, hash_name)
    return json_reply(encode(CasCreated(cid=cid)), 201, {"Location": f"/v1/cas/{cid}"})


@post(
    "/v1/cas/car",
    opt={
        DESCRIPTION: Description(
            "The bytes of up to 4,096 payloads as CARv1, in the requested order, without those that are not held.",
            request=GetBatchRequest,
            answer=CAR,
            codes=("invalid_cid", "kind_mismatch", "too_large", "unknown_profile", "unsupported_media_type"),
            headers={"Cache-Control": "`no-cache`: which payloads are held may change.", "Accept-Ranges": "`none`."},
        )
    },
)
async def get_payloads(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/cas/car``, streamed. A failure during the stream closes the connection."""
    gateway, peer = Gateway.of(request), peer_of(request.scope)
    async with gateway.json_body(request.scope, request.receive, gateway.limits.json_body_bytes) as body:
        chunks = await gateway.engine.cars.export_payloads(body)
    gateway.payload_streams.make_room(peer)
    parts = gateway.payload_streams.occupy(gated(chunks, gateway.chunk_reads), peer)
    return Reply(parts, media_type=f"{CAR}; version=1", headers={"Cache-Control": "no-cache", "Accept-Ranges": "none"})


@post(
    "/v1/cas/has",
    opt={
        DESCRIPTION: Description(
            "Which of up to 16,384 payloads are held: their binary CIDs, answered by a bit for each; or JSON, up to "
            "4,096. They stay held as if they had just been stored, if the request has the right to write.",
            request=HasBatchRequest,
            streamed=OCTETS,
            answer=(HasBatchResult, OCTETS),
            codes=("invalid_cid", "too_large", "unknown_profile", "unsupported_media_type", "storage_full"),
        )
    },
)
async def has_payloads(request: Request[Any, Any, Any]) -> Reply:
    """``POST /v1/cas/has``, which never stores anything. Any body that is not declared as JSON is binary."""
    gateway, scope = Gateway.of(request), request.scope
    limit, renews = gateway.limits.json_body_bytes, await Access.of(request).allows(scope, WRITE)
    if has_media_type(scope, f"{JSON}; charset=utf-8"):
        async with gateway.json_body(scope, request.receive, limit) as body:
            return json_reply(await gateway.engine.payloads.batch_held(body, renews=renews))
    query_parameters(scope)
    check_payload_type(scope)
    async with gateway.bodies.whole(scope, request.receive, limit) as body:
        return Reply(await gateway.engine.payloads.held(body, renews=renews), media_type=OCTETS)


@route(
    "/v1/cas/{cid:str}",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: described(
            "The bytes of a payload; hash them and compare with the CID before use.",
            "Whether a payload is held, and how long it is; Range is ignored.",
            _ETAG,
            _GET_CODES,
            _KNOWN,
        )
    },
)
async def get_payload(request: Request[Any, Any, Any], cid: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /v1/cas/{cid}``."""
    query_parameters(request.scope)
    gateway = Gateway.of(request)
    payload = await gateway.engine.payloads.find(cid)
    return await Representation(payload, OCTETS, f'"{payload.cid}"').reply(gateway, request.scope)


handlers: Final = (put_payload, get_payloads, has_payloads, get_payload)
