"""The answer to the question whether a root is held completely."""

from __future__ import annotations

from coregw.messages.common import Message

__all__ = ["Completeness"]


class Completeness(Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/roots/{root}/complete``.

    Attributes:
        root: The root.
        complete: Whether all pages, nested roots and payloads below it are held.
        missing: The CID of a root or payload that is not held completely; null if nothing is, or the gateway did not
            find out what.
    """

    root: str
    complete: bool
    missing: str | None
