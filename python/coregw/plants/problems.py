"""Failures in the plant store's own shape, ``{"error": int32, "message": sentence}``, whatever their status.

Which status a failure has is the gateway's table (`coregw.gateway.http.problems`), and so is what leaks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from coregw.gateway.http.problems import as_response, problem_of
from coregw.gateway.http.replies import Reply, json_reply
from coregw.plants.messages import Error, encode

if TYPE_CHECKING:
    from litestar import Request, Response

__all__ = ["ID_TAKEN", "failure", "handle_exception", "refusal"]

ID_TAKEN: Final = 409
"""The ``error`` of the one failure that its status, 400, does not name: who repeats a request must know it."""


def failure(status: int, message: str, *, error: int | None = None, headers: Mapping[str, str] | None = None) -> Reply:
    """An answer that says what failed.

    Args:
        status: The HTTP status.
        message: One sentence for a person.
        error: The number in the body; the status if None.
        headers: Further headers.
    """
    body = encode(Error(error=status if error is None else error, message=message))
    return json_reply(body, status, headers or {})


def handle_exception(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The answer for any exception that the route, or the routing, let out."""
    told = problem_of(request.scope, error)
    return as_response(failure(told.status, told.message, headers=told.all_headers))


def refusal(_: bytes, message: str) -> bytes:
    """The body of the 400 for what is no HTTP request, as `coregw.gateway.http.connection.Refusal`."""
    return encode(Error(error=400, message=message))
