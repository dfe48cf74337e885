"""Mutations of maps and lists, and their receipts (protocol section 5).

Whether a receipt is right is decided by `coregw.verify_transition`, not by these structs.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from coregw.messages.common import Message, Natural, Size

__all__ = [
    "Change",
    "Commit",
    "Delta",
    "DeltaResult",
    "Endpoint",
    "FixedList",
    "MutationReceipt",
    "MutationRequest",
    "TransitionRequest",
]


class Endpoint(Message, frozen=True, kw_only=True):
    """What a coordinate leads to, before or after a change."""

    target: str
    target_kind: Literal["cas", "map", "list", "unknown"] | UnsetType = UNSET
    size: Size | UnsetType = UNSET


class Change(Message, frozen=True, kw_only=True):
    """One coordinate: a map's `path` or a list's `index`. No `before`: absent now. No `after`: remove."""

    path: str | UnsetType = UNSET
    index: Natural | UnsetType = UNSET
    before: Endpoint | UnsetType = UNSET
    after: Endpoint | UnsetType = UNSET


class FixedList(Message, frozen=True, kw_only=True):
    """A list of chunks of one size, the last one shorter."""

    total_size: Natural
    chunk_size: Size


class Commit(Message, frozen=True, kw_only=True):
    """What the resulting list must look like."""

    fixed_list: FixedList


class Delta(Message, frozen=True, kw_only=True):
    """Changes to one map or list."""

    kind: Literal["map", "list"]
    object: str | UnsetType = UNSET
    changes: list[Change]
    expected_root: str | UnsetType = UNSET
    commit: Commit | UnsetType = UNSET


class MutationRequest(Message, frozen=True, kw_only=True):
    """``POST /v1/roots/{root}/mutations``."""

    deltas: list[Delta]
    prove: bool | UnsetType = UNSET


class TransitionRequest(Message, frozen=True, kw_only=True):
    """A mutation with the base root that the caller chose, as `coregw.verify_transition` takes it."""

    root: str
    deltas: list[Delta]
    prove: bool | UnsetType = UNSET


class DeltaResult(Message, frozen=True, kw_only=True):
    """What one delta made of its object; `proof` is base64, there if asked for."""

    object: str
    result: str
    proof: str | UnsetType = UNSET


class MutationReceipt(Message, frozen=True, kw_only=True):
    """The answer to a mutation; `new_root` is an untrusted candidate."""

    base_root: str
    new_root: str
    delta_count: Natural
    arc_count: Natural
    deltas: list[DeltaResult]
