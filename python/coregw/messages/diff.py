"""Differences between two maps (protocol section 5, *diff*). The request is a URL, so there is no struct for it."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, UnsetType

from coregw.messages.common import Message

__all__ = ["MAX_DIFFERENCES", "DiffEntry", "DiffProofs", "DiffResult"]

MAX_DIFFERENCES: Final = 1000
"""The maximum number of differences in one page, and the default."""


class DiffEntry(Message, frozen=True, kw_only=True):
    """A path whose targets differ. Without `before`, only the second map has it; without `after`, only the first."""

    segments: list[str]
    before: str | UnsetType = UNSET
    after: str | UnsetType = UNSET


class DiffProofs(Message, frozen=True, kw_only=True):
    """The pruned trees of both maps, in canonical base64."""

    a: str
    b: str


class DiffResult(Message, frozen=True, kw_only=True):
    """A page of differences in key order, whether more follow, and their proofs."""

    entries: list[DiffEntry]
    more: bool
    proofs: DiffProofs
