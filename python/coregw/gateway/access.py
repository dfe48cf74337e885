"""Access: who sends a request (its principal), what the request does (its action), and whether it may.

Each address has one `Access`, which asks its policy. `TokenPolicy` is that of bearer tokens (RFC 6750) from the
environment. A token is a secret, so it is not a setting: it comes from a variable of its own, is never shown, and is
compared in constant time.

```
request -> principal  (of its credentials: Access, from its cache or from the policy)
route   -> action     (of its Description: action_of)
                         principal x action -> None, or why it is refused   (AccessPolicy.decide)
```
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, Self, cast

from coregw._core import is_loopback
from coregw.errors import CoregwError, InvalidInput, Unauthorized
from coregw.gateway.description import Description

if TYPE_CHECKING:
    from litestar.connection import ASGIConnection
    from litestar.types import Scope

    from coregw.gateway.settings import Settings

__all__ = [
    "CONTROL",
    "OPERATE",
    "READ",
    "WRITE",
    "WRITE_TOKEN_VARIABLE",
    "Access",
    "AccessPolicy",
    "AccessToken",
    "Action",
    "Principal",
    "TokenPolicy",
    "Verb",
    "action_of",
    "warn_of_open_writes",
]

WRITE_TOKEN_VARIABLE: Final = "GATEWAY_WRITE_TOKEN"  # noqa: S105 - the variable's name

_VERDICT_SECONDS: Final = 60.0
"""How long a policy's answer is used. One that knows earlier that a token is void changes its generation."""

_MAX_VERDICTS: Final = 1024
"""Wrong tokens take places too; each takes some 200 bytes."""


class Principal(enum.Flag):
    """Who sends a request, as far as its credentials prove it. Two tokens may be the same: their holder is both."""

    NOBODY = 0
    STRANGER = enum.auto()
    """With credentials that prove nothing."""
    WRITER = enum.auto()
    """Holds the write token."""
    ADMINISTRATOR = enum.auto()
    """Holds the admin token."""
    CONTROL = enum.auto()
    """Holds the token of the control socket, which only who owns the data can read."""


class Verb(enum.Enum):
    """What a request does."""

    READ = enum.auto()
    """Reads or asks, without a change that anybody sees."""
    WRITE = enum.auto()
    """Changes what the gateway holds."""
    PUBLISH = enum.auto()
    """Changes what is published in a scope."""
    OPERATE = enum.auto()
    """Everything else that is the operator's: records of all scopes, and maintenance."""
    CONTROL = enum.auto()
    """Uses the rights of the gateway's own user: it writes where the request says."""


class Action(NamedTuple):
    """What a request does, and where.

    Attributes:
        verb: What it does.
        scope: The scope of names in which it publishes; empty if it does not.
    """

    verb: Verb
    scope: str = ""


READ: Final = Action(Verb.READ)
WRITE: Final = Action(Verb.WRITE)
OPERATE: Final = Action(Verb.OPERATE)
CONTROL: Final = Action(Verb.CONTROL)


def action_of(description: Description | None, parameters: Mapping[str, Any]) -> Action:
    """Return the action of a route's requests.

    Args:
        description: The route's; None for the names of its methods.
        parameters: The path parameters of the request.
    """
    if description is None:
        return READ
    if description.is_controlled:
        return CONTROL
    if not description.is_administration:
        return WRITE if description.writes else READ
    return Action(Verb.PUBLISH, parameters["scope_name"]) if description.writes else OPERATE


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

    @property
    def digest(self) -> bytes:
        """Its SHA-256 digest, by which others know it without seeing it."""
        return hashlib.sha256(self._expected).digest()

    def matches(self, given: bytes) -> bool:
        """Whether the token of a request is this one, in a time that depends on lengths only."""
        return hmac.compare_digest(given, self._expected)


class AccessPolicy(Protocol):
    """Who holds a token, and what principals may do."""

    @property
    def generation(self) -> int:
        """A number that changes whenever earlier answers of `identify` are void."""

    @property
    def has_operators(self) -> bool:
        """Whether anybody may operate. Otherwise the routes for it do not exist."""

    async def identify(self, token: bytes) -> Principal:
        """Return who holds a bearer token, `Principal.STRANGER` if nobody known does. It may take long."""

    def decide(self, principal: Principal, action: Action) -> CoregwError | None:
        """Return why a principal may not do something; None if it may. Whatever nobody may do, everybody may.

        Returns:
            None, `Unauthorized`, or `InvalidInput`, whose code is ``read_only`` if nobody may write.
        """


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """The policy of an address whose principals are the holders of fixed tokens.

    Attributes:
        is_read_only: Nobody but who uses the control socket may write or publish, whatever the token.
        write_token: The token of writers; None if anybody may write.
        admin_token: The token of administrators; None if there are none.
        control_token: The token of the control socket, without which nothing may be done there; None elsewhere.
    """

    is_read_only: bool = False
    write_token: AccessToken | None = None
    admin_token: AccessToken | None = None
    control_token: AccessToken | None = None

    generation: ClassVar[int] = 0  # tokens change only with a restart

    @property
    def has_operators(self) -> bool:
        """As `AccessPolicy.has_operators`."""
        return self.admin_token is not None or self.control_token is not None

    async def identify(self, token: bytes) -> Principal:
        """As `AccessPolicy.identify`. All tokens are compared, so that the time does not depend on which one it is."""
        principal = Principal.NOBODY
        for expected, holder in (
            (self.write_token, Principal.WRITER),
            (self.admin_token, Principal.ADMINISTRATOR),
            (self.control_token, Principal.CONTROL),
        ):
            if expected is not None and expected.matches(token):
                principal |= holder
        return principal or Principal.STRANGER

    def decide(self, principal: Principal, action: Action) -> CoregwError | None:
        """As `AccessPolicy.decide`.

        Everybody may learn that a gateway accepts no writes, but only an administrator that it publishes nothing. Who
        holds the control token has the rights of the gateway's user anyway; an administrator need not.
        """
        if Principal.CONTROL in principal:
            return None
        if self._needed(action.verb) not in principal:
            is_missing = principal is Principal.NOBODY
            return Unauthorized("this route requires a bearer token" if is_missing else "the bearer token is wrong")
        if action.verb is Verb.CONTROL:
            return InvalidInput("this needs the control socket of the gateway")
        if self.is_read_only and action.verb in (Verb.WRITE, Verb.PUBLISH):
            return InvalidInput("this gateway accepts no writes", code="read_only")
        return None

    def _needed(self, verb: Verb) -> Principal:
        """Return which principal has to be proven for an action; `Principal.NOBODY` if none has to."""
        if self.control_token is not None:
            return Principal.CONTROL
        if verb in (Verb.PUBLISH, Verb.OPERATE, Verb.CONTROL):
            return Principal.ADMINISTRATOR
        is_open = verb is Verb.READ or self.write_token is None or self.is_read_only
        return Principal.NOBODY if is_open else Principal.WRITER


class _Verdict(NamedTuple):
    principal: Principal
    expires: float


class Access:
    """Whether requests to one address may do what they ask for.

    What the policy says of a token is kept under its SHA-256 digest, for a limited time, and only while the policy has
    the same generation: so a policy may take long, and no token stays in memory. It belongs to one event loop.

    Args:
        policy: Decides.
        clock: Returns the time in seconds.
        capacity: The number of tokens of which verdicts are kept; the least recently used make room.
    """

    def __init__(
        self, policy: AccessPolicy, *, clock: Callable[[], float] = time.monotonic, capacity: int = _MAX_VERDICTS
    ) -> None:
        self.policy = policy
        self._clock = clock
        self._capacity = capacity
        self._generation = policy.generation
        self._verdicts: OrderedDict[bytes, _Verdict] = OrderedDict()

    @classmethod
    def of(cls, connection: ASGIConnection[Any, Any, Any, Any]) -> Self:
        """Return the access of the application to which Litestar's request was sent."""
        return cast("Self", connection.app.state["access"])

    async def refusal(self, request: Scope, action: Action) -> CoregwError | None:
        """Return why a request may not do something, as `AccessPolicy.decide`; None if it may.

        Its credentials are looked at only if not everybody may.
        """
        refused = self.policy.decide(Principal.NOBODY, action)
        return refused and self.policy.decide(await self._principal(request), action)

    async def check(self, request: Scope, action: Action) -> None:
        """Raise what `refusal` returns."""
        refused = await self.refusal(request, action)
        if refused is not None:
            raise refused

    async def allows(self, request: Scope, action: Action) -> bool:
        """Whether a request may do something, whatever its route does."""
        return await self.refusal(request, action) is None

    async def _principal(self, request: Scope) -> Principal:
        """Return who sends a request; a stranger unless it has exactly one Authorization header, with a token."""
        given = [value for name, value in request["headers"] if name.lower() == b"authorization"]
        if not given:
            return Principal.NOBODY
        scheme, _, token = given[0].partition(b" ")
        if len(given) != 1 or scheme.lower() != b"bearer":
            return Principal.STRANGER
        return await self._holder(token.strip(b" "))

    async def _holder(self, token: bytes) -> Principal:
        """Return who holds a token. O(1) in the number of verdicts."""
        generation = self.policy.generation
        if generation != self._generation:
            self._generation = generation
            self._verdicts.clear()
        digest, now = hashlib.sha256(token).digest(), self._clock()
        known = self._verdicts.get(digest)
        if known is not None and now < known.expires:
            self._verdicts.move_to_end(digest)
            return known.principal
        principal = await self.policy.identify(token)
        if self.policy.generation == generation:  # otherwise the answer may be void already
            self._verdicts[digest] = _Verdict(principal, now + _VERDICT_SECONDS)
            self._verdicts.move_to_end(digest)
            if len(self._verdicts) > self._capacity:
                self._verdicts.popitem(last=False)
        return principal


def warn_of_open_writes(settings: Settings) -> None:
    """Log a warning if whoever reaches the gateway from another machine may write."""
    if not settings.read_only and not os.environ.get(WRITE_TOKEN_VARIABLE) and not is_loopback(settings.host):
        logging.getLogger("coregw.gateway").warning(
            "everybody who reaches %s may write: set %s, or read_only, or leave only reading to others by a proxy",
            settings.host,
            WRITE_TOKEN_VARIABLE,
        )
