"""Error responses: exceptions become a status, a code and a message (protocol section 5, *Errors*).

An exception that has no code in `coregw.errors.ERROR_CODES` is a 500 ``internal``, which shows a client nothing and
logs everything. Routes and the engine raise `coregw.errors` classes and know nothing of statuses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from msgspec import UNSET

from coregw.errors import ERROR_CODES, CoregwError, StoreDamaged
from coregw.gateway.http.replies import Reply, json_reply
from coregw.gateway.logs import REQUEST_ID_HEADER, loggable_path, request_id
from coregw.gateway.metrics import REFUSALS
from coregw.messages import ErrorBody, encode
from coregw.text import without_surrogates

if TYPE_CHECKING:
    from litestar.types import HTTPScope

__all__ = ["UNCACHED", "Problem", "handle_exception", "log_failure", "method_not_allowed", "problem_of"]

logger = logging.getLogger("coregw.gateway")

UNCACHED: Final[Mapping[str, str]] = MappingProxyType({"Cache-Control": "no-store"})
"""The header of all errors but proven absences. Without it, caches may keep a 404 or 405 (RFC 9111 section 4.2.2)."""

_HEADERS_BY_CODE: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {"unavailable": {"Retry-After": "1"}, "unauthorized": {"WWW-Authenticate": "Bearer"}}
)


class Problem(NamedTuple):
    """A failure as a client learns of it.

    Attributes:
        code: A key of `coregw.errors.ERROR_CODES`.
        message: One sentence for a person.
        details: The ``details`` member as JSON text, or None.
        headers: Headers besides those that all responses with this code have, or instead of them.
    """

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
        """The headers of the response besides its Content-Type and length."""
        return {**UNCACHED, **_HEADERS_BY_CODE.get(self.code, {}), **self.headers}

    def reply(self) -> Reply:
        """Return the response, and count it for metrics."""
        REFUSALS[self.code] += 1
        details = UNSET if self.details is None else msgspec.Raw(self.details)
        body = encode(ErrorBody(error=self.code, message=without_surrogates(self.message), details=details))
        return json_reply(body, self.status, self.all_headers)


def handle_exception(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the response to an exception, as Litestar's exception handlers do."""
    reply = problem_of(request.scope, error).reply()
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reply.headers}
    del headers["content-length"]  # Litestar adds it
    return Response(
        cast("bytes", reply.body), status_code=reply.status, media_type=headers.pop("content-type"), headers=headers
    )


def problem_of(scope: HTTPScope, error: Exception) -> Problem:
    """Return what a client may know of an exception. Logs those that are the gateway's own fault."""
    if isinstance(error, CoregwError) and error.code in ERROR_CODES and error.code != "internal":
        return Problem(error.code, error.message, error.details)
    if isinstance(error, NotFoundException):
        return Problem("route_not_found", f"no route has the path {scope['path']!r:.200}")
    if isinstance(error, MethodNotAllowedException):
        return method_not_allowed(scope, (error.headers or {}).get("allow", "").split(", "))
    if isinstance(error, HTTPException) and error.status_code == 400:
        return Problem("invalid_request", error.detail)
    log_failure(scope, error)
    headers = {REQUEST_ID_HEADER: request_id(scope)}
    return Problem("internal", ERROR_CODES["internal"].meaning, headers=headers)


def log_failure(scope: HTTPScope, error: Exception) -> None:
    """Log a failure of the gateway; damage without a traceback, as each read of what is damaged fails again."""
    method, path = scope["method"], loggable_path(scope["path"])
    if isinstance(error, StoreDamaged):
        logger.error("%s '%s' failed: %s", method, path, " ".join(error.message.split()))
    else:
        logger.error("%s '%s' failed", method, path, exc_info=error)


def method_not_allowed(scope: HTTPScope, allowed: list[str]) -> Problem:
    """Return the failure of a request whose path has a route, but not for its method."""
    methods = ", ".join(sorted(allowed))
    return Problem("method_not_allowed", f"{scope['method']} is not one of {methods}", headers={"Allow": methods})
