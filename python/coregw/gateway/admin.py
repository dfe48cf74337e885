"""Published roots: what an operator recommends under a scope and a name, its history, and freezing it for good.

The routes exist only where a token is configured, and all of them want it. Publication changes nothing but the record:
no tree, no other answer, no client's accepted root. Leaves out the rules of revisions (the store's).
"""

from __future__ import annotations

import re
from typing import Final

from litestar import Response, Router, get, post, route
from litestar.connection import ASGIConnection  # noqa: TC002 - Litestar reads annotations at run time
from litestar.handlers import BaseRouteHandler  # noqa: TC002
from litestar.params import FromPath  # noqa: TC002
from msgspec import UNSET, Struct

from coregw.errors import InvalidInput
from coregw.gateway.bodies import check_json_type, query_parameters
from coregw.gateway.context import Gateway, json_response
from coregw.gateway.openapi import DOC, Doc, Parameter
from coregw.gateway.problems import AnyRequest
from coregw.gateway.tokens import AccessToken
from coregw.messages import MAX_INTEGER, decode, encode
from coregw.messages.record import MAX_RECORDS, PublishedRecord, PublishedRecords, PublishRequest, RecordHistory

__all__ = ["TOKEN_VARIABLE", "admin_router"]

TOKEN_VARIABLE: Final = "GATEWAY_ADMIN_TOKEN"  # noqa: S105 - the variable's name, no token

_RECORD: Final = "/scopes/{scope_name:str}/roots/{name:str}"
_LIMIT: Final = {"limit": Parameter.whole(f"The most records to return; {MAX_RECORDS} if absent.", 1, MAX_RECORDS)}
_WHOLE: Final = re.compile("0|[1-9][0-9]{0,15}")


def admin_router(token: AccessToken) -> Router:
    """The administration routes, behind `token`."""

    def guard(connection: ASGIConnection, _: BaseRouteHandler) -> None:  # type: ignore[type-arg]  # any state, any user
        token.check(connection)

    # OPTIONS comes first: once a path has another method, Litestar adds an OPTIONS that knows only that one.
    handlers = [options_of_records, list_records, publish, get_record, history, freeze]
    return Router("/admin/v1", route_handlers=handlers, guards=[guard])


@get(
    "/scopes/{scope_name:str}/roots",
    opt={
        DOC: Doc(
            "The published roots of a scope, by name; an unknown scope has none.",
            answer=PublishedRecords,
            codes=("unauthorized",),
            query={"after": "Start behind this name.", **_LIMIT},
        )
    },
)
async def list_records(request: AnyRequest, scope_name: FromPath[str]) -> Response[bytes]:
    """``GET /admin/v1/scopes/{scope}/roots``."""
    asked = query_parameters(request, "after", "limit")
    publications = Gateway.of(request).engine.publications
    records, more = await publications.in_scope(scope_name, asked.get("after"), _limit(asked))
    return _answer(PublishedRecords(records=records, next=records[-1].name if more else UNSET))


@post(
    "/scopes/{scope_name:str}/roots",
    status_code=200,
    opt={
        DOC: Doc(
            "Publishes a root that this gateway holds, as the next revision of a name.",
            request=PublishRequest,
            answer=PublishedRecord,
            codes=(
                "invalid_cid",
                "kind_mismatch",
                "unauthorized",
                "root_not_found",
                "revision_mismatch",
                "record_frozen",
                "too_large",
                "unsupported_media_type",
                "storage_full",
            ),
        )
    },
)
async def publish(request: AnyRequest, scope_name: FromPath[str]) -> Response[bytes]:
    """``POST /admin/v1/scopes/{scope}/roots``."""
    gateway = Gateway.of(request)
    query_parameters(request)
    check_json_type(request)
    async with gateway.bodies.whole(request, gateway.settings.json_body_bytes) as body:
        wanted = decode(body, PublishRequest)
    expected = None if wanted.expected_revision is UNSET else wanted.expected_revision
    return _answer(await gateway.engine.publications.publish(scope_name, wanted.name, wanted.root, expected))


@route("/scopes/{scope_name:str}/roots", http_method="OPTIONS", status_code=204)
async def options_of_records() -> Response[None]:
    """``OPTIONS /admin/v1/scopes/{scope}/roots``: the methods that there are."""
    return Response(None, media_type="text/plain", headers={"Allow": "GET, OPTIONS, POST"})


@get(
    _RECORD,
    opt={
        DOC: Doc(
            "The newest revision of a published root.",
            answer=PublishedRecord,
            codes=("unauthorized", "record_not_found"),
        )
    },
)
async def get_record(request: AnyRequest, scope_name: FromPath[str], name: FromPath[str]) -> Response[bytes]:
    """``GET /admin/v1/scopes/{scope}/roots/{name}``."""
    query_parameters(request)
    return _answer(await Gateway.of(request).engine.publications.get(scope_name, name))


@get(
    f"{_RECORD}/history",
    opt={
        DOC: Doc(
            "Every revision of a published root, oldest first.",
            answer=RecordHistory,
            codes=("unauthorized", "record_not_found"),
            query={"after": Parameter.whole("Start behind this revision.", 0, MAX_INTEGER), **_LIMIT},
        )
    },
)
async def history(request: AnyRequest, scope_name: FromPath[str], name: FromPath[str]) -> Response[bytes]:
    """``GET /admin/v1/scopes/{scope}/roots/{name}/history``."""
    asked = query_parameters(request, "after", "limit")
    after = _whole("after", asked.get("after", "0"), 0, MAX_INTEGER)
    records, more = await Gateway.of(request).engine.publications.history(scope_name, name, after, _limit(asked))
    return _answer(RecordHistory(records=records, next=records[-1].revision if more else UNSET))


@post(
    f"{_RECORD}/freeze",
    status_code=200,
    opt={
        DOC: Doc(
            "Freezes a published root for good; frozen again, it stays as it was. The request has no body.",
            answer=PublishedRecord,
            codes=("unauthorized", "record_not_found", "too_large", "storage_full"),
        )
    },
)
async def freeze(request: AnyRequest, scope_name: FromPath[str], name: FromPath[str]) -> Response[bytes]:
    """``POST /admin/v1/scopes/{scope}/roots/{name}/freeze``. A body would be a condition that nobody checks: 400."""
    gateway = Gateway.of(request)
    query_parameters(request)
    async with gateway.bodies.whole(request, gateway.settings.json_body_bytes) as body:
        if body:
            raise InvalidInput("a freeze takes no body; nothing was frozen")
    return _answer(await gateway.engine.publications.freeze(scope_name, name))


def _answer(message: Struct) -> Response[bytes]:
    """Records change, so no cache may keep one."""
    return json_response(encode(message), headers={"Cache-Control": "no-store"})


def _limit(asked: dict[str, str]) -> int:
    return _whole("limit", asked.get("limit", str(MAX_RECORDS)), 1, MAX_RECORDS)


def _whole(name: str, text: str, least: int, most: int) -> int:
    """A query parameter that is a whole number within bounds."""
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise InvalidInput(f"query parameter {name!r} is {text!r:.100}, must be a whole number from {least} to {most}")
    return int(text)
