"""Publications for everybody: the newest signed checkpoint of a name's log with proofs in its tree, or a bare record.

Signing a checkpoint is what makes the history of a name public; of a name that is not signed, everybody may read the
newest record. Routes for publishing and signing are those of ``admin``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar import Request, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time
from msgspec import UNSET

from coregw.gateway.context import Gateway
from coregw.gateway.docs.description import DESCRIPTION, Description, Parameter
from coregw.gateway.http.replies import Reply, json_reply
from coregw.gateway.http.requests import query_integer, query_parameters
from coregw.messages import MAX_INTEGER, encode
from coregw.messages.publication import PublicationProof, UnsignedPublication
from coregw.messages.record import MAX_RECORDS, RecordHistory

__all__ = ["handlers"]

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
