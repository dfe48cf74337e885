"""Published names: records, history, freezing and signing for operators; verified publications for everybody.

By TCP the routes of operators exist only if a token is configured, and all require it. Publishing changes only the
record: no tree, no other response, and no client's accepted root.

Signing a checkpoint is what makes the history of a name public; of a name that is not signed, everybody may read the
newest record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from litestar import Request, Router, post, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time
from msgspec import UNSET, Struct

from coregw.errors import Conflict, InvalidInput
from coregw.gateway.context import Gateway
from coregw.gateway.description import DESCRIPTION, Description, Parameter
from coregw.gateway.replies import CONDITIONS, UNCACHED, Reply, conditional, json_reply
from coregw.gateway.requests import header, query_integer, query_parameters
from coregw.messages import MAX_INTEGER, decode, encode
from coregw.messages.management import MAX_RECORDS, PublishedRecord, PublishedRecords, PublishRequest, RecordHistory
from coregw.messages.query import PublicationProof, SignedCheckpoint, UnsignedPublication

__all__ = ["TOKEN_VARIABLE", "admin_router", "handlers"]

TOKEN_VARIABLE: Final = "GATEWAY_ADMIN_TOKEN"  # noqa: S105 - the variable's name

_RECORD: Final = "/scopes/{scope_name:str}/roots/{name:str}"

_LIMIT: Final = {"limit": Parameter.integer(f"At most this many records; {MAX_RECORDS} if absent.", 1, MAX_RECORDS)}

_LISTING: Final[Mapping[str, Any]] = {
    "summary": "Lists the published roots of a scope by name; an unknown scope has none.",
    "codes": ("unauthorized",),
    "query": {"after": "Start after this name.", **_LIMIT},
}

_ETAG: Final = "The revision, in quotes; that of a frozen record ends with `.frozen`."

_NEWEST: Final[Mapping[str, Any]] = {
    "summary": "The newest revision of a published root.",
    "codes": ("unauthorized", "record_not_found", "precondition_failed"),
    "headers": {"ETag": _ETAG},
    "request_headers": CONDITIONS,
    "others": {304: "If-None-Match names the newest revision."},
}

_HISTORY: Final[Mapping[str, Any]] = {
    "summary": "Every revision of a published root, oldest first.",
    "codes": ("unauthorized", "record_not_found"),
    "query": {"after": Parameter.integer("Start after this revision.", 0, MAX_INTEGER), **_LIMIT},
}

_PROOF: Final[Mapping[str, Any]] = {
    "summary": "A revision of a published root, with proofs in a tree of the name's log: what is signed.",
    "codes": ("unauthorized", "record_not_found"),
    "query": {
        "old": Parameter.integer("The size of the tree that was signed before; 0 if absent.", 0, MAX_INTEGER),
        "size": Parameter.integer("The size of the tree; the whole log if absent.", 1, MAX_INTEGER),
    },
}

_RECORD_TAG: Final = re.compile(r'"([1-9][0-9]{0,15})(?:\.frozen)?"')


def admin_router() -> Router:
    """Return the administration routes. They check no token: the application does, for every path below theirs."""
    return Router("/admin/v1", route_handlers=[records_of_scope, get_record, history, freeze, prove, sign])


@route(
    "/scopes/{scope_name:str}/roots",
    http_method=["GET", "HEAD", "POST"],
    opt={
        DESCRIPTION: {
            "GET": Description(**_LISTING, answer=PublishedRecords, operation_id="list_records"),
            "HEAD": Description(**_LISTING, operation_id="head_records"),
            "POST": Description(
                "Publishes a root that this gateway holds, as the next revision of a name.",
                request=PublishRequest,
                answer=PublishedRecord,
                request_headers=("If-Match",),
                headers={"ETag": _ETAG},
                codes=(
                    "invalid_cid",
                    "kind_mismatch",
                    "unauthorized",
                    "root_not_found",
                    "revision_mismatch",
                    "record_frozen",
                    "precondition_failed",
                    "too_large",
                    "unsupported_media_type",
                    "storage_full",
                ),
                operation_id="publish",
                writes=True,
            ),
        }
    },
)
async def records_of_scope(request: Request[Any, Any, Any], scope_name: FromPath[str]) -> Reply:
    """``GET``, ``HEAD`` and ``POST /admin/v1/scopes/{scope}/roots``."""
    return await (_publish if request.method == "POST" else _list)(request, scope_name)


async def _list(request: Request[Any, Any, Any], scope: str) -> Reply:
    given = query_parameters(request.scope, "after", "limit")
    records, more = await Gateway.of(request).engine.publications.in_scope(scope, given.get("after"), _limit(given))
    return _reply(PublishedRecords(records=records, next=records[-1].name if more else UNSET))


async def _publish(request: Request[Any, Any, Any], scope: str) -> Reply:
    gateway = Gateway.of(request)
    async with gateway.json_body(request.scope, request.receive, gateway.limits.json_body_bytes) as body:
        wanted = decode(body, PublishRequest)
    expected = None if wanted.expected_revision is UNSET else wanted.expected_revision
    required = _required_revision(request)
    if expected is not None and required not in (None, expected):
        raise InvalidInput(f"expected_revision is {expected}, but a precondition requires revision {required}")
    publications = gateway.engine.publications
    if required is None:
        return _record_reply(await publications.publish(scope, wanted.name, wanted.root, expected))
    try:
        return _record_reply(await publications.publish(scope, wanted.name, wanted.root, required))
    except Conflict as error:
        if error.code == "revision_mismatch":
            raise Conflict(error.message, code="precondition_failed", details=error.details) from None
        raise


def _required_revision(request: Request[Any, Any, Any]) -> int | None:
    """Return the revision that must be the newest by If-Match, 0 by ``If-None-Match: *``; None without a precondition.

    Raises:
        InvalidInput: If a precondition is not of these forms.
    """
    required: int | None = None
    if (match := header(request.scope, b"if-match")) is not None:
        found = _RECORD_TAG.fullmatch(match.strip())
        if found is None:
            raise InvalidInput(f"If-Match is {match!r:.100}, expected one ETag of a record")
        required = int(found[1])
    if (none_match := header(request.scope, b"if-none-match")) is not None:
        if none_match.strip() != "*" or required is not None:
            raise InvalidInput(f"If-None-Match is {none_match!r:.100}, expected *, and no If-Match with it")
        required = 0
    return required


@route(
    _RECORD,
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: {
            "GET": Description(**_NEWEST, answer=PublishedRecord, operation_id="get_record"),
            "HEAD": Description(**_NEWEST, operation_id="head_record"),
        }
    },
)
async def get_record(request: Request[Any, Any, Any], scope_name: FromPath[str], name: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /admin/v1/scopes/{scope}/roots/{name}``."""
    query_parameters(request.scope)
    record = await Gateway.of(request).engine.publications.get(scope_name, name)
    return conditional(request.scope, _etag(record), {"ETag": _etag(record), **UNCACHED}) or _record_reply(record)


@route(
    f"{_RECORD}/history",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: {
            "GET": Description(**_HISTORY, answer=RecordHistory, operation_id="history"),
            "HEAD": Description(**_HISTORY, operation_id="head_history"),
        }
    },
)
async def history(request: Request[Any, Any, Any], scope_name: FromPath[str], name: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /admin/v1/scopes/{scope}/roots/{name}/history``."""
    given = query_parameters(request.scope, "after", "limit")
    after = query_integer("after", given.get("after", "0"), 0, MAX_INTEGER)
    records, more = await Gateway.of(request).engine.publications.history(scope_name, name, after, _limit(given))
    return _reply(RecordHistory(records=records, next=records[-1].revision if more else UNSET))


@post(
    f"{_RECORD}/freeze",
    opt={
        DESCRIPTION: Description(
            "Freezes a published root permanently; freezing it again changes nothing. The request has no body.",
            answer=PublishedRecord,
            codes=("unauthorized", "record_not_found", "too_large", "storage_full"),
            headers={"ETag": _ETAG},
            writes=True,
        )
    },
)
async def freeze(request: Request[Any, Any, Any], scope_name: FromPath[str], name: FromPath[str]) -> Reply:
    """``POST /admin/v1/scopes/{scope}/roots/{name}/freeze``.

    A body is a 400: it might state a condition, which would not be checked.
    """
    gateway = Gateway.of(request)
    query_parameters(request.scope)
    async with gateway.bodies.whole(request.scope, request.receive, gateway.limits.json_body_bytes) as body:
        if body:
            raise InvalidInput("a freeze request has no body; nothing was frozen")
    return _record_reply(await gateway.engine.publications.freeze(scope_name, name))


@route(
    f"{_RECORD}/proof",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: {
            "GET": Description(**_PROOF, answer=PublicationProof, operation_id="prove_record"),
            "HEAD": Description(**_PROOF, operation_id="head_proof"),
        }
    },
)
async def prove(request: Request[Any, Any, Any], scope_name: FromPath[str], name: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /admin/v1/scopes/{scope}/roots/{name}/proof``."""
    given = query_parameters(request.scope, "old", "size")
    old = query_integer("old", given.get("old", "0"), 0, MAX_INTEGER)
    size = query_integer("size", given["size"], 1, MAX_INTEGER) if "size" in given else None
    return _reply(await Gateway.of(request).engine.publications.prove(scope_name, name, old, None, size))


@post(
    f"{_RECORD}/checkpoint",
    opt={
        DESCRIPTION: Description(
            "Publishes a signed checkpoint of the name's log. From then on everybody may read the name.",
            request=SignedCheckpoint,
            answer=PublicationProof,
            codes=(
                "unauthorized",
                "record_not_found",
                "checkpoint_mismatch",
                "too_large",
                "unsupported_media_type",
                "storage_full",
            ),
            operation_id="sign_record",
            writes=True,
        )
    },
)
async def sign(request: Request[Any, Any, Any], scope_name: FromPath[str], name: FromPath[str]) -> Reply:
    """``POST /admin/v1/scopes/{scope}/roots/{name}/checkpoint``."""
    gateway = Gateway.of(request)
    async with gateway.json_body(request.scope, request.receive, gateway.limits.json_body_bytes) as body:
        signed = decode(body, SignedCheckpoint)
    return _reply(await gateway.engine.publications.sign(scope_name, name, signed.checkpoint))


def _etag(record: PublishedRecord) -> str:
    """Return a record's entity tag: freezing changes a record, but not its revision."""
    return f'"{record.revision}{".frozen" if record.frozen else ""}"'


def _record_reply(record: PublishedRecord) -> Reply:
    """Return a response with one record."""
    return _reply(record, {"ETag": _etag(record)})


def _reply(message: Struct, headers: Mapping[str, str] = {}) -> Reply:
    """Return a response that is not cached, since records change."""
    return json_reply(encode(message), headers={**UNCACHED, **headers})


def _limit(given: dict[str, str]) -> int:
    return query_integer("limit", given.get("limit", str(MAX_RECORDS)), 1, MAX_RECORDS)


_NAME: Final = "/v1/publications/{scope_name:str}/{name:str}"

_HEADERS: Final = {"Cache-Control": "no-store"}

_PUBLICATION: Final[Mapping[str, Any]] = {
    "summary": "A revision of a published name, with the signed checkpoint and proofs that its tree has the revision "
    "and continues an older tree; or the newest revision alone, if no checkpoint is signed.",
    "codes": ("record_not_found",),
    "query": {
        "old": Parameter.integer("The size of the older tree; 0 if absent.", 0, MAX_INTEGER),
        "revision": Parameter.integer("The revision; the newest one of the tree if absent.", 1, MAX_INTEGER),
    },
}

_ENTRIES: Final[Mapping[str, Any]] = {
    "summary": "The revisions of a published name up to the signed checkpoint, oldest first: what the leaves are made "
    "of.",
    "codes": ("record_not_found",),
    "query": {
        "after": Parameter.integer("Start after this revision.", 0, MAX_INTEGER),
        "limit": Parameter.integer(f"At most this many; {MAX_RECORDS} if absent.", 1, MAX_RECORDS),
    },
}


@route(
    _NAME,
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: {
            "GET": Description(
                **_PUBLICATION, answer=(PublicationProof, UnsignedPublication), operation_id="get_publication"
            ),
            "HEAD": Description(**_PUBLICATION, operation_id="head_publication"),
        }
    },
)
async def publication(request: Request[Any, Any, Any], scope_name: FromPath[str], name: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /v1/publications/{scope}/{name}``."""
    given = query_parameters(request.scope, "old", "revision")
    old = query_integer("old", given.get("old", "0"), 0, MAX_INTEGER)
    revision = query_integer("revision", given["revision"], 1, MAX_INTEGER) if "revision" in given else None
    found = await Gateway.of(request).engine.publications.public(scope_name, name, old, revision)
    return json_reply(encode(found), headers=_HEADERS)


@route(
    f"{_NAME}/entries",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: {
            "GET": Description(**_ENTRIES, answer=RecordHistory, operation_id="list_publications"),
            "HEAD": Description(**_ENTRIES, operation_id="head_publications"),
        }
    },
)
async def entries(request: Request[Any, Any, Any], scope_name: FromPath[str], name: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /v1/publications/{scope}/{name}/entries``."""
    given = query_parameters(request.scope, "after", "limit")
    after = query_integer("after", given.get("after", "0"), 0, MAX_INTEGER)
    limit = query_integer("limit", given.get("limit", str(MAX_RECORDS)), 1, MAX_RECORDS)
    records, more = await Gateway.of(request).engine.publications.entries(scope_name, name, after, limit)
    page = RecordHistory(records=records, next=records[-1].revision if more else UNSET)
    return json_reply(encode(page), headers=_HEADERS)


handlers: Final = (publication, entries)
