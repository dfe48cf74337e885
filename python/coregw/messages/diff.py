"""The JSON messages of diffs (protocol section 5, *diff*) as msgspec structs.

A diff is asked for by a URL, so there is no request. Leaves out whether a result is proven: `coregw.verify_diff`.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, UnsetType

from coregw.messages.common import Message

__all__ = ["MAX_DIFFERENCES", "DiffEntry", "DiffProofs", "DiffResult"]

MAX_DIFFERENCES: Final = 1000
"""The most differences in one page, and how many there are in a page unless fewer are asked for."""


class DiffEntry(Message, frozen=True, kw_only=True):
    """A path with another target in each map. No `before`: only the second map has it. No `after`: only the first."""

    segments: list[str]
    before: str | UnsetType = UNSET
    after: str | UnsetType = UNSET


class DiffProofs(Message, frozen=True, kw_only=True):
    """A pruned tree of each of the two maps, in canonical base64."""

    a: str
    b: str


class DiffResult(Message, frozen=True, kw_only=True):
    """A page of differences in the order of keys, and whether more follow in the window."""

    entries: list[DiffEntry]
    more: bool
    proofs: DiffProofs
