"""Making and changing roots: arcs, mutations and their receipts, CARs, completeness.

Whether a receipt is right is decided by `coregw.verify_transition`, not by these structs.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import UNSET, UnsetType

from coregw.messages.common import Message, Natural, Size, Suite

__all__ = [
    "CAR_V2_START",
    "MAX_WHOLE_CAR_BYTES",
    "ArcMap",
    "CarTaken",
    "CasCreated",
    "Change",
    "Commit",
    "Completeness",
    "Delta",
    "DeltaResult",
    "Endpoint",
    "FixedList",
    "MutationReceipt",
    "MutationRequest",
    "RootCreated",
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


CAR_V2_START: Final = b"\x0a\xa1gversion\x02"
"""The first bytes of a CARv2. Imports take one; in an answer, where offsets are those of a CARv1, it is refused."""

MAX_WHOLE_CAR_BYTES: Final = 16 << 20
"""A CAR of at most this size, if Content-Length tells it, is imported from memory: it needs no place among imports."""


class CarTaken(Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/car``: the roots of the CAR's header, and its number of blocks and bytes, all stored."""

    roots: list[str]
    blocks: Natural
    bytes: Natural
