"""A request body that is still arriving: its deadlines, and why its reader has to give up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from coregw.errors import InvalidInput
from coregw.gateway.limits.pace import Pace, Rate

if TYPE_CHECKING:
    from litestar.types import HTTPScope

__all__ = ["Arrival", "arrival_of"]

_STATE: Final = "coregw.arrival"
_STALLED_SECONDS: Final = 1.0
"""A body that has been too slow for this long is stalled, and refused first if memory is short."""


class Arrival:
    """The body of one request, from its head until its last byte.

    The connection knows when bytes arrive, the application reads the body; both have this. Bodies that arrive with
    their heads, as most do, have none.

    Attributes:
        failure: What the reader of the body raises; None if nothing is wrong.
    """

    __slots__ = ("_clock", "_end", "_has_to_wait", "_left", "_pace", "_whole_deadline", "failure")

    def __init__(
        self,
        rate: Rate,
        seconds: float,
        left: int,
        clock: Callable[[], float],
        has_to_wait: Callable[[], bool],
        end: Callable[[], None],
    ) -> None:
        """Begin to wait for a body.

        Args:
            rate: The pace at which it has to arrive.
            seconds: Time for all of it.
            left: A counter of its bytes, which decreases; see `move`.
            clock: Returns the event loop's time.
            has_to_wait: Returns whether the client has to wait for the gateway, which does not read at the moment.
            end: Wakes the reader of the body, so that it finds `failure`.
        """
        now = clock()
        self._clock = clock
        self._has_to_wait: Callable[[], bool] | None = has_to_wait
        self._end: Callable[[], None] | None = end
        self._left = left
        self._pace = Pace(rate, now)
        self._whole_deadline = now + seconds
        self.failure: Exception | None = None

    def bind(self, state: dict[str, Any]) -> None:
        """Make `arrival_of` return this for the request whose scope has this ``state``."""
        state[_STATE] = self

    def forget(self) -> None:
        """Note that the body is complete, or the connection closed: this no longer refers to the connection."""
        self._has_to_wait = self._end = None

    def move(self, left: int) -> None:
        """Note that bytes have arrived; `left` is the counter's new value. O(1)."""
        self._pace.move(self._left - left, self._clock())
        self._left = left

    def seconds_left(self) -> float:
        """Return the time until the next deadline; at most 0 if the body is overdue."""
        now = self._clock()
        if self._has_to_wait is not None and self._has_to_wait():
            self._pace.restart(now)
        return min(self._pace.deadline, self._whole_deadline) - now

    def idle_since(self) -> float | None:
        """Return since when it has been too slow, by the event loop's clock; None if the client has to wait."""
        return None if self._has_to_wait is None or self._has_to_wait() else self._pace.since

    def is_stalled(self) -> bool:
        """Whether the client has been too slow for some time, although the gateway waits for it."""
        since = self.idle_since()
        return since is not None and self._clock() - since >= _STALLED_SECONDS

    def refuse(self, error: Exception) -> None:
        """End it: the reader of the body raises `error`, and the connection is closed after the response."""
        if self._end is not None:
            self.failure = error
            self._end()

    def give_up(self) -> None:
        """End it because it is overdue."""
        self.refuse(InvalidInput("the request body did not arrive in time"))


def arrival_of(scope: HTTPScope) -> Arrival | None:
    """Return what is known of a request's body; None if it arrived with its head."""
    state: dict[str, Any] | None = scope.get("state")
    found = None if state is None else state.get(_STATE)
    return found if isinstance(found, Arrival) else None
