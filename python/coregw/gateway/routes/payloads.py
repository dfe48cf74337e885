"""Immutable payloads: upload, download one by one or many at once, HEAD, and which of many are held.

Payloads are stored by multihash, so a CID of any codec reads them; an identity CID contains its payload, which is
always held. The gateway does not hash what it sends, since clients do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coregw.gateway.context import Gateway
from coregw.gateway.description import CAR, JSON, OCTETS, Description, Parameter
from coregw.gateway.http.content import Representation, described_get, described_head, gated
from coregw.gateway.http.dispatch import hot_route
from coregw.gateway.http.replies import Reply, json_reply
from coregw.gateway.http.requests import check_payload_type, declared_length, has_media_type, query_parameters
from coregw.gateway.limits.peers import peer_of
from coregw.messages import CasCreated, encode
from coregw.messages.payloads import GetBatchRequest, HasBatchRequest, HasBatchResult
from coregw.store import CHUNK_BYTES

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive

__all__ = ["hot"]

_MAX_BUFFERED_BYTES: Final = 2 * CHUNK_BYTES  # what a store may hold of a streamed upload in memory
_MAX_SHORT_BYTES: Final = 64 << 10  # hashing as much as this does not delay other requests noticeably
_HASHES: Final = ("sha2-256", "sha2-512", "sha3-256", "blake2b-256", "blake3", "identity")
_ETAG: Final = "The requested CID in normalised form, in quotes."
_GET_CODES: Final = ("invalid_cid", "payload_not_found", "method_not_allowed")  # the last for /v1/cas/has and others
_KNOWN: Final = "If-None-Match names the payload, and it is held."


@hot_route(
    "POST",
    "/v1/cas",
    Description(
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
                "`sha2-256` if absent. `identity` is for at most 128 bytes, which the CID contains and nobody stores.",
                {"type": "string", "enum": _HASHES},
            ),
        },
    ),
)
async def put_payload(gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
    """``POST /v1/cas``. Short bodies are hashed and stored in one step, others chunk by chunk as they arrive."""
    parameters = query_parameters(scope, "codec", "hash")
    check_payload_type(scope)
    codec, hash_name = parameters.get("codec", "raw"), parameters.get("hash", "sha2-256")
    limit, length = gateway.settings.payload_bytes, declared_length(scope)
    payloads = gateway.engine.payloads
    if length is not None and length <= _MAX_SHORT_BYTES:
        cid = await payloads.put_whole(gateway.bodies.whole(scope, receive, limit), codec, hash_name)
    else:
        with gateway.bodies.streamed(scope, receive, limit, buffered=_MAX_BUFFERED_BYTES) as chunks:
            cid = await payloads.put(chunks, codec, hash_name)
    return json_reply(encode(CasCreated(cid=cid)), 201, {"Location": f"/v1/cas/{cid}"})


@hot_route(
    "POST",
    "/v1/cas/car",
    Description(
        "The bytes of up to 4,096 payloads as CARv1, in the requested order, without those that are not held.",
        request=GetBatchRequest,
        answer=CAR,
        codes=("invalid_cid", "kind_mismatch", "too_large", "unknown_profile", "unsupported_media_type"),
        headers={"Cache-Control": "`no-cache`: which payloads are held may change.", "Accept-Ranges": "`none`."},
    ),
)
async def get_payloads(gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
    """``POST /v1/cas/car``, streamed. A failure during the stream closes the connection."""
    peer = peer_of(scope)
    async with gateway.json_body(scope, receive, gateway.settings.json_body_bytes) as body:
        chunks = await gateway.engine.cars.export_payloads(body)
    gateway.payload_streams.make_room(peer)
    parts = gateway.payload_streams.occupy(gated(chunks, gateway.chunk_reads), peer)
    return Reply(parts, media_type=f"{CAR}; version=1", headers={"Cache-Control": "no-cache", "Accept-Ranges": "none"})


@hot_route(
    "POST",
    "/v1/cas/has",
    Description(
        "Which of up to 16,384 payloads are held: their binary CIDs, answered by a bit for each; or JSON, up to 4,096. "
        "They stay held as if they had just been stored, if the request has the right to write.",
        request=HasBatchRequest,
        streamed=OCTETS,
        answer=(HasBatchResult, OCTETS),
        codes=("invalid_cid", "too_large", "unknown_profile", "unsupported_media_type", "storage_full"),
    ),
)
async def has_payloads(gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
    """``POST /v1/cas/has``, which never stores anything. Any body that is not declared as JSON is binary."""
    limit, renews = gateway.settings.json_body_bytes, gateway.write_access.allows(scope)
    if has_media_type(scope, f"{JSON}; charset=utf-8"):
        async with gateway.json_body(scope, receive, limit) as body:
            return json_reply(await gateway.engine.payloads.batch_held(body, renews=renews))
    query_parameters(scope)
    check_payload_type(scope)
    async with gateway.bodies.whole(scope, receive, limit) as body:
        return Reply(await gateway.engine.payloads.held(body, renews=renews), media_type=OCTETS)


@hot_route(
    "GET",
    "/v1/cas/{cid}",
    described_get("The bytes of a payload; hash them and compare with the CID before use.", _ETAG, _GET_CODES, _KNOWN),
)
async def get_payload(gateway: Gateway, scope: HTTPScope, _: Receive) -> Reply:
    """``GET /v1/cas/{cid}``."""
    return await (await _find(gateway, scope)).get(gateway, scope)


@hot_route(
    "HEAD",
    "/v1/cas/{cid}",
    described_head("Whether a payload is held, and how long it is; Range is ignored.", _ETAG, _GET_CODES, _KNOWN),
)
async def head_payload(gateway: Gateway, scope: HTTPScope, _: Receive) -> Reply:
    """``HEAD /v1/cas/{cid}``."""
    return (await _find(gateway, scope)).head(scope)


async def _find(gateway: Gateway, scope: HTTPScope) -> Representation:
    query_parameters(scope)
    payload = await gateway.engine.payloads.find(scope["path_params"]["cid"])
    return Representation(payload, OCTETS, f'"{payload.cid}"')


hot: Final = (put_payload, get_payloads, has_payloads, get_payload, head_payload)
