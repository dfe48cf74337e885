"""New payloads and roots (protocol section 5): the answers that name them, and the request for a map."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from coregw.messages.common import Message, Suite

__all__ = ["ArcMap", "CasCreated", "RootCreated"]


class CasCreated(Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/cas``."""

    cid: str


class ArcMap(Message, frozen=True, kw_only=True):
    """``POST /v1/roots``: every path (text form) with its target's CID."""

    arcs: dict[str, str]
    suite: Suite | UnsetType = UNSET


class RootCreated(Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/roots``: an untrusted candidate."""

    root: str
