"""Bearer tokens (RFC 6750) from the environment: whether one is set, and whether a request carries it.

A token is a secret, so it is no setting: it is read from its own variable, never shown, and compared in constant time.
Leaves out which routes a token opens (`admin`).
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from coregw.errors import InvalidInput, Unauthorized

if TYPE_CHECKING:
    from litestar.connection import ASGIConnection

__all__ = ["AccessToken"]


class AccessToken:
    """One token that a request must carry as ``Authorization: Bearer <token>``.

    Args:
        variable: The environment variable that it comes from, for messages.
        value: The token: visible ASCII characters, since it travels in a header.

    Raises:
        InvalidInput: The token can't travel in a header. The message does not show it.
    """

    def __init__(self, variable: str, value: str) -> None:
        if not value or not all("!" <= character <= "~" for character in value):
            raise InvalidInput(f"{variable} has a character that no bearer token may have, such as a space")
        self._expected = value.encode("ascii")

    @classmethod
    def from_environment(cls, variable: str, environ: Mapping[str, str] | None = None) -> Self | None:
        """The token that a variable holds, None if it is not set or empty. Raises `InvalidInput` as the class."""
        value = (os.environ if environ is None else environ).get(variable)
        return cls(variable, value) if value else None

    def check(self, request: ASGIConnection) -> None:  # type: ignore[type-arg]  # of any state and user
        """Raises `Unauthorized` unless the request carries this token, and no other, in its Authorization header."""
        given = [value for name, value in request.scope["headers"] if name.lower() == b"authorization"]
        if not given:
            raise Unauthorized("this route needs a bearer token")
        scheme, _, token = given[0].partition(b" ")
        same = hmac.compare_digest(token.strip(b" "), self._expected)
        if len(given) != 1 or scheme.lower() != b"bearer" or not same:
            raise Unauthorized("the bearer token is not the one that opens this route")
