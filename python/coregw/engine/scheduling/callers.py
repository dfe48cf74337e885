"""Who waits for what the engine does. Work for a caller that has left is dropped: nobody reads its answer."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol

from coregw.errors import InvalidInput

__all__ = ["CALLER", "Caller", "ClientDisconnected", "require_caller"]


class ClientDisconnected(InvalidInput):
    """A client that disconnected before its request was complete, or answered. Nobody reads the response."""


class Caller(Protocol):
    """Who waits for an answer."""

    def has_left(self) -> bool:
        """Whether nobody can read the answer any more. O(1)."""


CALLER: Final[ContextVar[Caller | None]] = ContextVar("CALLER", default=None)
"""Who waits for the answer of the current task; None if its work is to be done in any case."""


def require_caller() -> None:
    """Raise `ClientDisconnected` if nobody waits for the answer of the current task. O(1)."""
    caller = CALLER.get()
    if caller is not None and caller.has_left():
        raise ClientDisconnected("the client disconnected before its request was answered")
