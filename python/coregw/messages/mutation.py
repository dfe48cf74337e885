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
    """The target of a path or index, before or after a change. `size` is the measure of a list element."""

    target: str
    target_kind: Literal["cas", "map", "list", "unknown"] | UnsetType = UNSET
    size: Size | UnsetType = UNSET


class Change(Message, frozen=True, kw_only=True):
    """A change of a map's `path` or a list's `index`. No `before`: it must be absent. No `after`: it is removed."""

    path: str | UnsetType = UNSET
    index: Natural | UnsetType = UNSET
    before: Endpoint | UnsetType = UNSET
    after: Endpoint | UnsetType = UNSET


class FixedList(Message, frozen=True, kw_only=True):
    """The shape of a list of equally sized chunks, of which only the last may be shorter."""

    total_size: Natural
    chunk_size: Size


class Commit(Message, frozen=True, kw_only=True):
    """The shape that the resulting list must have."""

    fixed_list: FixedList


class Delta(Message, frozen=True, kw_only=True):
    """Changes of one map or list: `object`, by default the base root. `expected_root` is the root that must result."""

    kind: Literal["map", "list"]
    object: str | UnsetType = UNSET
    changes: list[Change]
    expected_root: str | UnsetType = UNSET
    commit: Commit | UnsetType = UNSET


class MutationRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /v1/roots/{root}/mutations``: deltas, and whether to return transition proofs."""

    deltas: list[Delta]
    prove: bool | UnsetType = UNSET


class TransitionRequest(Message, frozen=True, kw_only=True):
    """A mutation request with its base root, as `coregw.verify_transition` takes it."""

    root: str
    deltas: list[Delta]
    prove: bool | UnsetType = UNSET


class DeltaResult(Message, frozen=True, kw_only=True):
    """The result of one delta: the root before and after it, and, if requested, the transition proof in base64."""

    object: str
    result: str
    proof: str | UnsetType = UNSET


class MutationReceipt(Message, frozen=True, kw_only=True):
    """The answer to a mutation. `new_root` is an untrusted candidate until `coregw.verify_transition` derives it."""

    base_root: str
    new_root: str
    delta_count: Natural
    arc_count: Natural
    deltas: list[DeltaResult]
