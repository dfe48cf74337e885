"""Answers with many payloads that other calls continue after a lost connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, Self

from msgspec.structs import replace

from coregw import _core
from coregw.client.exchange.call import Call, Sink
from coregw.client.query import CidLike
from coregw.client.settings import ClientSettings
from coregw.errors import CoregwError

__all__ = ["Calls", "Continued", "payload_call"]


class Continued(Sink, Protocol):
    """What receives blocks, and knows what it has."""

    @property
    def received(self) -> int:
        """Number of bytes that need not come again."""

    def continued(self) -> tuple[str, int] | None:
        """Return the payload in which the last answer ended, and the byte from which on it is written next."""

    def restart_continued(self) -> None:
        """Forget the part of that payload: its first byte is written next."""


class Calls(ABC):
    """The calls that bring an answer (`coregw.client.exchange.call.Divided`).

    After a truncated answer, the rest of the payload in which it ended is requested by its range, then the blocks that
    have not come.

    Attributes:
        is_single: Whether the last call requests the rest of a single payload.
    """

    def __init__(self, settings: ClientSettings, receiver: Continued) -> None:
        self._settings = settings
        self._continued = receiver
        self.is_single = False

    @property
    def done(self) -> int:
        """Number of bytes that need not come again."""
        return self._continued.received

    def rest(self, _: CoregwError) -> Call | None:
        """Return the call to make after one that has failed; None if nothing is left."""
        if (continued := self._continued.continued()) is None:
            return self.next()
        self.is_single = True
        cid, start = continued
        rest = _Rest(self._continued, start)
        return replace(payload_call(self._settings, cid, None), sink=rest.restarted, partial=rest, divided=self)

    def next(self) -> Call | None:
        """Return the call for all blocks that are not complete; None if there are none."""
        call = self._others()
        self.is_single = False
        return call

    @abstractmethod
    def _others(self) -> Call | None:
        """Return the call for all blocks that are not complete; None if there are none."""


class _Rest:
    """A payload of which a receiver has a part (`coregw.client.exchange.call.Partial`)."""

    def __init__(self, receiver: Continued, size: int) -> None:
        self._receiver = receiver
        self.size = size
        self.senders: set[str] = set()  # the receiver requests all of it if the hash is wrong, whoever sent it

    def restarted(self) -> Self:
        self._receiver.restart_continued()
        self.size = 0
        return self

    def write(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._receiver.write(chunk)


def payload_call(settings: ClientSettings, cid: CidLike, max_bytes: int | None) -> Call:
    """Return the call for a payload of at most `max_bytes`, by default ``max_payload_bytes``."""
    text = _core.Cid(cid).text
    limit = settings.max_payload_bytes if max_bytes is None else max_bytes
    return Call("GET", f"/v1/cas/{text}", limit, f"get {text}")
