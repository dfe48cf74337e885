"""Bearer tokens (RFC 6750) from the environment.

A token is a secret, so it is not a setting: it comes from a variable of its own, is never shown, and is compared in
constant time.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from coregw.errors import InvalidInput, Unauthorized

if TYPE_CHECKING:
    from litestar.types import Scope

__all__ = ["AccessToken"]


class AccessToken:
    """A token that requests carry as ``Authorization: Bearer <token>``.

    Args:
        variable: The environment variable that it comes from, for error messages.
        value: The token: visible ASCII characters, since it is sent in a header.

    Raises:
        InvalidInput: If the token cannot be sent in a header. The message does not show it.
    """

    def __init__(self, variable: str, value: str) -> None:
        if not value or not all("!" <= character <= "~" for character in value):
            raise InvalidInput(f"{variable} has characters that are not allowed in bearer tokens, such as spaces")
        self._expected = value.encode("ascii")

    @classmethod
    def from_environment(cls, variable: str, environ: Mapping[str, str] | None = None) -> Self | None:
        """Return the token in a variable, or None if it is unset or empty. Raises `InvalidInput` as the class does."""
        value = (os.environ if environ is None else environ).get(variable)
        return cls(variable, value) if value else None

    def check(self, scope: Scope) -> None:
        """Raise `Unauthorized` unless the request has exactly one Authorization header, with this token."""
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if not given:
            raise Unauthorized("this route requires a bearer token")
        scheme, _, token = given[0].partition(b" ")
        same = hmac.compare_digest(token.strip(b" "), self._expected)
        if len(given) != 1 or scheme.lower() != b"bearer" or not same:
            raise Unauthorized("the bearer token is wrong")
