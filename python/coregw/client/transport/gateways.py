"""The gateways of a client: which one is asked next, and which ones have failed. Sans-I/O, for both drivers.

```
in use ──► no answer, or unavailable ──► rests 10 s, or as long as it asked for ──► may be used again
       └─► an answer that is not proven ──► rests 10 min; the call has failed
```

A client stays with the gateway that works. If all rest, the one whose rest ends first is next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from coregw.client.connection import ConnectionOptions
from coregw.client.exchange.answers import is_retryable
from coregw.client.settings import ClientSettings
from coregw.client.transport.address import Address
from coregw.client.transport.log import warn
from coregw.client.transport.options import handle_options, request_headers
from coregw.errors import CoregwError, InvalidInput, ProofError, Unavailable

__all__ = ["REFUSED_REST_SECONDS", "REST_SECONDS", "Gateways", "Target", "parse_addresses"]

REST_SECONDS: Final = 10.0
REFUSED_REST_SECONDS: Final = 600.0

_MAX_ASKED_SECONDS: Final = 3600.0
"""A gateway that asks to be left alone for longer, by mistake or not, is tried again after this time."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A gateway as requests are sent to it.

    Attributes:
        number: Its index in the client's list.
        address: Its address.
        options: Options of libcurl.
        headers: Additional request headers, with lower-case names.
    """

    number: int
    address: Address
    options: Sequence[tuple[int, object]] = field(repr=False)
    headers: dict[str, str] = field(repr=False)


class Gateways:
    """The gateways of a client, at least one. Safe to share between threads.

    Args:
        addresses: Their addresses, the preferred one first.
        settings: The client's settings.
        connection: How they are reached.
        clock: Returns the time in seconds.

    Attributes:
        current: The one to ask.
        switches: How often another one became the current one.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        settings: ClientSettings,
        connection: ConnectionOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._all = [
            Target(number, each, handle_options(each, settings, connection), request_headers(each, connection))
            for number, each in enumerate(addresses)
        ]
        self._clock = clock
        self._rests_until = [0.0] * len(self._all)
        self._asked_until = [0.0] * len(self._all)  # by Retry-After
        self._announced_until = 0.0
        self.current = self._all[0]
        self.switches = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def preferred(self) -> str:
        """The address of the first one, without credentials. It stays the same when another one is asked."""
        return self._all[0].address.shown

    def asked_seconds(self) -> float:
        """Return how long the current gateway asked to be left alone."""
        return max(0.0, self._asked_until[self.current.number] - self._clock())

    def is_announced(self, seconds: float) -> bool:
        """Whether a call has said that the client waits. If not, the caller says it for all within `seconds`."""
        now = self._clock()
        if now < self._announced_until:
            return True
        self._announced_until = now + seconds
        return False

    def failed(self, target: Target, error: CoregwError) -> None:
        """Note an error of an exchange, and take the next gateway if this one was unavailable or is refused."""
        if isinstance(error, ProofError):
            self.refused(error, target.address.shown)
            return
        self._name(error, target)
        if isinstance(error, Unavailable) and is_retryable(error):
            asked = min(error.retry_after or 0.0, _MAX_ASKED_SECONDS)
            self._asked_until[target.number] = self._clock() + asked
            self._rest(target, max(REST_SECONDS, asked))

    def refused(self, error: ProofError, gateway: str | None) -> None:
        """Note that an answer was not proven: the caller learns of it, and further calls go to the next gateway.

        Args:
            error: The error, to which the gateway's address is added.
            gateway: The address of the gateway that answered; unknown ones are ignored.
        """
        target = next((each for each in self._all if each.address.shown == gateway), None)
        if target is None or error.gateway is not None:  # noted already
            return
        self._name(error, target)
        if len(self._all) > 1:
            warn("gateway %s is set aside: %s", target.address.shown, error.message)
            self._rest(target, REFUSED_REST_SECONDS)

    def _rest(self, target: Target, seconds: float) -> None:
        now = self._clock()
        self._rests_until[target.number] = now + seconds
        if len(self._all) == 1 or self.current is not target:  # another task or thread was faster
            return
        following = self._all[target.number + 1 :] + self._all[: target.number + 1]
        self.current = min(following, key=lambda each: self._left(each, now))
        if self.current is not target:
            self.switches += 1

    def _left(self, target: Target, now: float) -> tuple[float, float]:
        asked, rests = self._asked_until[target.number], self._rests_until[target.number]
        return max(0.0, asked - now), max(0.0, rests - now)

    def _name(self, error: CoregwError, target: Target) -> None:
        """Say which gateway an error is of, in its message where there are several."""
        shown = error.gateway = target.address.shown
        if len(self._all) > 1 and shown not in error.message:
            error.message = f"{error.message} (gateway {shown})"


def parse_addresses(given: str | Sequence[str]) -> tuple[Address, ...]:
    """Parse the address of a gateway or a static tree, or those of several gateways.

    Raises:
        InvalidInput: There is none, one is not an address or is given twice, or one of several is a static tree.
    """
    addresses = tuple(map(Address.parse, [given] if isinstance(given, str) else given))
    if not addresses:
        raise InvalidInput("gateway address: expected at least one")
    if len({each.shown for each in addresses}) < len(addresses):
        raise InvalidInput(f"gateway addresses: {', '.join(each.shown for each in addresses)}: one is given twice")
    for each in addresses:
        if each.is_static and len(addresses) > 1:
            raise InvalidInput(f"gateway address {each.shown}: a static tree can't be one of several")
    return addresses
