"""Bearer tokens (RFC 6750) from the environment, and who may write.

A token is a secret, so it is not a setting: it comes from a variable of its own, is never shown, and is compared in
constant time.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from coregw._core import is_loopback
from coregw.errors import InvalidInput, Unauthorized
from coregw.gateway.description import Description

if TYPE_CHECKING:
    from litestar.types import Scope

    from coregw.gateway.settings import Settings

__all__ = ["WRITE_TOKEN_VARIABLE", "AccessToken", "WriteAccess", "warn_of_open_writes"]

WRITE_TOKEN_VARIABLE: Final = "GATEWAY_WRITE_TOKEN"  # noqa: S105 - the variable's name


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


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """Who may use the routes that write.

    Attributes:
        is_read_only: Nobody may, whatever the token.
        token: What requests must carry, except those to administration routes, which have a token of their own; None
            if anybody may write.
    """

    is_read_only: bool = False
    token: AccessToken | None = None

    def check_not_read_only(self) -> None:
        """Raise `InvalidInput` (code ``read_only``) if nobody may write."""
        if self.is_read_only:
            raise InvalidInput("this gateway accepts no writes", code="read_only")

    def allows(self, scope: Scope) -> bool:
        """Whether a request has the right to write, wherever it goes."""
        if self.is_read_only:
            return False
        try:
            if self.token is not None:
                self.token.check(scope)
        except Unauthorized:
            return False
        return True

    def check(self, description: Description, scope: Scope) -> None:
        """Check that a request may use a route; any may that does not write.

        Raises:
            InvalidInput: If it writes and the gateway accepts no writes (code ``read_only``).
            Unauthorized: If it writes, and lacks the token.
        """
        if not description.writes:
            return
        self.check_not_read_only()
        if self.token is not None and not description.is_administration:
            self.token.check(scope)


def warn_of_open_writes(settings: Settings) -> None:
    """Log a warning if whoever reaches the gateway from another machine may write."""
    if not settings.read_only and not os.environ.get(WRITE_TOKEN_VARIABLE) and not is_loopback(settings.host):
        logging.getLogger("coregw.gateway").warning(
            "everybody who reaches %s may write: set %s, or read_only, or leave only reading to others by a proxy",
            settings.host,
            WRITE_TOKEN_VARIABLE,
        )
