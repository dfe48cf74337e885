"""Failures in the plant store's own shape, ``{"error": int32, "message": sentence}``, whatever their status.

Which status a failure has is the gateway's table (`coregw.gateway.problems`), and so is what leaks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from litestar import Response

from coregw.gateway.problems import AnyRequest, judge
from coregw.plants.messages import Error, encode

__all__ = ["ID_TAKEN", "failure", "handle_exception", "refusal"]

ID_TAKEN: Final = 409
"""The ``error`` of the one failure that its status, 400, does not name: who repeats a request must know it."""


def failure(
    status: int, message: str, *, error: int | None = None, headers: Mapping[str, str] | None = None
) -> Response[bytes]:
    """An answer that says what failed.

    Args:
        status: The HTTP status.
        message: One sentence for a person.
        error: The number in the body; the status if None.
        headers: Further headers.
    """
    body = encode(Error(error=status if error is None else error, message=message))
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def handle_exception(request: AnyRequest, error: Exception) -> Response[bytes]:
    """The answer for any exception that the route, or the routing, let out."""
    told = judge(request, error)
    return failure(told.status, told.message, headers=told.all_headers)


def refusal(_: bytes, message: str) -> bytes:
    """The body of the 400 for what is no HTTP request, as `coregw.gateway.wire.Refusal`."""
    return encode(Error(error=400, message=message))
