"""Failures as the plant store's Error: ``{"error": int32, "message": sentence}``, whatever their status.

`coregw.gateway.http.problems` decides which status an exception becomes, and what of it a client may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from coregw.errors import ERROR_CODES
from coregw.gateway.http.problems import as_response, problem_of
from coregw.gateway.http.replies import Reply, json_reply
from coregw.plants.messages import Error, encode

if TYPE_CHECKING:
    from litestar import Request, Response

__all__ = ["ID_TAKEN", "failure", "handle_exception", "refusal"]

ID_TAKEN: Final = 409
"""The ``error`` of a taken id. Its status is 400 like that of invalid bodies, so clients need the number to tell."""


def failure(status: int, message: str, *, error: int | None = None, headers: Mapping[str, str] | None = None) -> Reply:
    """Create the response for a failure.

    Args:
        status: The HTTP status.
        message: One sentence for a person.
        error: The number in the body; `status` if None.
        headers: Additional headers.
    """
    body = encode(Error(error=status if error is None else error, message=message))
    return json_reply(body, status, headers or {})


def handle_exception(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Create the response for an exception of a route or of the routing."""
    problem = problem_of(request.scope, error)
    return as_response(failure(problem.status, problem.message, headers=problem.all_headers))


def refusal(_: bytes, code: str, message: str) -> bytes:
    """Return an error body of the plant store; a `coregw.gateway.http.connection.Refusal`."""
    return encode(Error(error=ERROR_CODES[code].status, message=message))
