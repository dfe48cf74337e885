"""What differs between two maps, page by page, with the proof.

Leaves out finding it (the engine): here are only the URL's parts. Paths come in text form, since a URL has no arrays.
"""

from __future__ import annotations

import re
from typing import Final

from litestar import Response, get
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw.errors import InvalidInput
from coregw.gateway.bodies import query_parameters
from coregw.gateway.context import Gateway, json_response
from coregw.gateway.openapi import DOC, Doc, Parameter
from coregw.gateway.problems import AnyRequest
from coregw.messages.diff import MAX_DIFFERENCES, DiffResult

__all__ = ["handlers"]

_LIMIT: Final = re.compile("[1-9][0-9]{0,3}")


@get(
    "/v1/roots/{a:str}/diff/{b:str}",
    opt={
        DOC: Doc(
            "All differences between two maps of one suite, page by page, with a pruned tree of each as the proof.",
            answer=DiffResult,
            codes=("invalid_cid", "invalid_path", "kind_mismatch", "root_not_found"),
            query={
                "prefix": "Only this path and those below it, in text form; the whole maps if absent or empty.",
                "after": "Start behind this path, in text form; it is the prefix or below it.",
                "limit": Parameter.whole(
                    f"The most differences to return; {MAX_DIFFERENCES} if absent.", 1, MAX_DIFFERENCES
                ),
            },
        )
    },
)
async def diff(request: AnyRequest, a: FromPath[str], b: FromPath[str]) -> Response[bytes]:
    """``GET /v1/roots/{a}/diff/{b}``."""
    asked = query_parameters(request, "prefix", "after", "limit")
    engine = Gateway.of(request).engine
    return json_response(await engine.diff(a, b, asked.get("prefix", ""), asked.get("after"), _limit(asked)))


def _limit(asked: dict[str, str]) -> int:
    """The ``limit`` parameter. Raises `InvalidInput` if it is not 1 to 1,000."""
    text = asked.get("limit", str(MAX_DIFFERENCES))
    if _LIMIT.fullmatch(text) is None or int(text) > MAX_DIFFERENCES:
        raise InvalidInput(f"limit is {text!r}; it is 1 to {MAX_DIFFERENCES}")
    return int(text)


handlers: Final = [diff]
