"""New payloads and maps (protocol section 5)."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from coregw.messages.common import Message, Suite

__all__ = ["ArcMap", "CasCreated", "RootCreated"]


class CasCreated(Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/cas``: the CID of the stored payload."""

    cid: str


class ArcMap(Message, frozen=True, kw_only=True):
    """The body of ``POST /v1/roots``: each path (text form) with the CID of its target, and the suite."""

    arcs: dict[str, str]
    suite: Suite | UnsetType = UNSET


class RootCreated(Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/roots``: the map's root, an untrusted candidate."""

    root: str
