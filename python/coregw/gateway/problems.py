"""Exceptions into answers: one table of statuses, one shape for every failure (protocol section 5, *error*).

What the table does not name is a 500 ``internal`` that tells a client nothing and an operator everything (a log line).
Leaves out raising: routes and the engine raise `coregw.errors` classes and never think of statuses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from litestar import Request, Response
from litestar.datastructures import State
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from msgspec import UNSET

from coregw.errors import ERROR_CODES, CoregwError, InvalidInput
from coregw.messages import Error, encode

__all__ = ["AnyRequest", "ClientGone", "Problem", "handle_exception", "judge", "problem"]

logger = logging.getLogger("coregw.gateway")

_HEADERS_BY_CODE: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {"unavailable": {"Retry-After": "1"}, "unauthorized": {"WWW-Authenticate": "Bearer"}}
)

_INTERNAL: Final = "something went wrong in the gateway; its log says what"

AnyRequest = Request[object, object, State]


class ClientGone(InvalidInput):
    """The client left before its request was whole; nobody reads the answer."""


def problem(
    code: str, message: str, *, details: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Response[bytes]:
    """The answer for an error code of the table.

    Args:
        code: A key of `coregw.errors.ERROR_CODES`.
        message: One sentence for a person.
        details: JSON text of the ``details`` member, or None.
        headers: Further headers.
    """
    told = Problem(code, message, details, headers or {})
    raw = UNSET if details is None else msgspec.Raw(details)
    return Response(
        encode(Error(error=code, message=message, details=raw)),
        status_code=told.status,
        media_type="application/json",
        headers=told.all_headers,
    )


class Problem(NamedTuple):
    """A failure as clients are told of it, in no shape yet: a code of the table, a sentence, details, headers."""

    code: str
    message: str
    details: bytes | None = None
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return ERROR_CODES[self.code].status

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers of this failure, and those that its code always has."""
        return {**_HEADERS_BY_CODE.get(self.code, {}), **self.headers}


def handle_exception(request: AnyRequest, error: Exception) -> Response[bytes]:
    """The answer for any exception that a route, or the routing, let out."""
    told = judge(request, error)
    return problem(told.code, told.message, details=told.details, headers=told.headers)


def judge(request: AnyRequest, error: Exception) -> Problem:
    """What a client is told of any exception. What is nobody's business but the operator's goes to the log."""
    if isinstance(error, CoregwError) and error.code in ERROR_CODES and ERROR_CODES[error.code].status != 500:
        return Problem(error.code, error.message, error.details)
    method, path = request.scope["method"], request.scope["path"]
    if isinstance(error, NotFoundException):
        return Problem("route_not_found", f"there is nothing at {path!r}")
    if isinstance(error, MethodNotAllowedException):
        allowed = ", ".join(sorted((error.headers or {}).get("allow", "").split(", ")))
        return Problem("method_not_allowed", f"{method} is not one of {allowed}", headers={"Allow": allowed})
    if isinstance(error, HTTPException) and error.status_code == 400:
        return Problem("invalid_request", error.detail)
    logger.error("%s %s failed", method, path, exc_info=error)
    return Problem("internal", _INTERNAL)
