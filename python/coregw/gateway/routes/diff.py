"""Differences between two maps, page by page, with a proof. Paths are in text form, since URLs have no arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from litestar import Request, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw.errors import InvalidInput
from coregw.gateway.context import Gateway
from coregw.gateway.docs.description import DESCRIPTION, Description, Parameter
from coregw.gateway.http.replies import Reply, json_reply
from coregw.gateway.http.requests import query_parameters
from coregw.messages.diff import MAX_DIFFERENCES, DiffResult

__all__ = ["handlers"]

_DESCRIBED: Final[Mapping[str, Any]] = {
    "summary": "Lists all differences between two maps of a suite, page by page, with a pruned tree of each as proof.",
    "codes": ("invalid_cid", "invalid_path", "kind_mismatch", "root_not_found"),
    "query": {
        "prefix": "Only this path and paths below it, in text form; the whole maps if absent or empty.",
        "after": "Start after this path, in text form; it is the prefix or below it.",
        "limit": Parameter.integer(f"At most this many differences; {MAX_DIFFERENCES} if absent.", 1, MAX_DIFFERENCES),
    },
}
_LIMIT: Final = re.compile("[1-9][0-9]{0,3}")


@route(
    "/v1/roots/{first:str}/diff/{second:str}",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: {
            "GET": Description(**_DESCRIBED, answer=DiffResult, operation_id="diff"),
            "HEAD": Description(**_DESCRIBED, operation_id="head_diff"),
        }
    },
)
async def diff(request: Request[Any, Any, Any], first: FromPath[str], second: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /v1/roots/{first}/diff/{second}``."""
    given = query_parameters(request.scope, "prefix", "after", "limit")
    engine = Gateway.of(request).engine
    return json_reply(await engine.diff(first, second, given.get("prefix", ""), given.get("after"), _limit(given)))


def _limit(given: dict[str, str]) -> int:
    """Return the ``limit`` parameter. Raises `InvalidInput` unless it is 1 to 1,000."""
    text = given.get("limit", str(MAX_DIFFERENCES))
    if _LIMIT.fullmatch(text) is None or int(text) > MAX_DIFFERENCES:
        raise InvalidInput(f"query parameter 'limit' is {text!r:.100}, expected 1 to {MAX_DIFFERENCES}")
    return int(text)


handlers: Final = (diff,)
