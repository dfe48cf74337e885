"""Prooflists: the proofs of one answer as a chain of steps (protocol section 5)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from coregw.messages.common import Message, Natural, Segments, Size, Suite

__all__ = [
    "MAX_PROOF_KEYS",
    "MAX_SCAN_LIMIT",
    "Link",
    "ListIndexStep",
    "ListRangeStep",
    "MapAbsenceStep",
    "MapKeysStep",
    "MapScanStep",
    "MapStep",
    "PayloadBindingStep",
    "Prooflist",
    "Step",
]

MAX_SCAN_LIMIT: Final = 1000
"""The maximum number of entries in one page of a scan, and the default."""


MAX_PROOF_KEYS: Final = 10_000
"""The maximum number of keys in one multiproof."""


class Link(Message, frozen=True, kw_only=True, rename={"cid": "/"}):
    """A link inside a prooflist: ``{"/": cid}``."""

    cid: str


class _Step(Message, frozen=True, kw_only=True, tag_field="kind", rename={"from_": "from"}):
    """The members of every step. `proof` is base64 (RFC 4648 section 4, padded)."""

    from_: Link
    evidence_kind: Literal["tree"]
    evidence_backend: Suite
    proof: str


class MapStep(_Step, frozen=True, kw_only=True, tag="map_step"):
    """An arc of a map was followed; `path` is the text form of the segments that it consumes."""

    path: str
    target: Link


class PayloadBindingStep(_Step, frozen=True, kw_only=True, tag="payload_binding"):
    """The arc ``@payload`` of a map was followed."""

    path: Literal["@payload"]
    target: Link


class MapAbsenceStep(_Step, frozen=True, kw_only=True, tag="map_absence"):
    """The map does not have the key `path`."""

    path: str
    target: None


class MapKeysStep(_Step, frozen=True, kw_only=True, tag="map_keys"):
    """The targets of several keys of a map, null for an absent one; `target` is the map itself."""

    keys: Annotated[list[str], Meta(min_length=1, max_length=MAX_PROOF_KEYS)]
    targets: list[Link | None]
    target: Link


class ListIndexStep(_Step, frozen=True, kw_only=True, tag="list_index"):
    """Element `index` of a list of `length` elements; `target` is null if the list is too short."""

    index: Natural
    length: Natural
    target: Link | None


class ListRangeStep(_Step, frozen=True, kw_only=True, tag="list_range"):
    """The elements of a list that intersect a range of its measure; `target` is the list itself.

    A gateway sends all members; the last three before `target` may be missing in a result of other software.
    """

    start: Natural
    end: Natural | UnsetType = UNSET
    length: Natural
    total_size: Natural
    segments: list[Link] | UnsetType = UNSET
    sizes: list[Size] | UnsetType = UNSET
    offset: Natural | UnsetType | None = UNSET
    target: Link


class MapScanStep(_Step, frozen=True, kw_only=True, tag="map_scan"):
    """A listing of a window of a map, without gaps; `target` is the map itself."""

    prefix: Segments
    after: Segments | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_SCAN_LIMIT)]
    more: bool
    target: Link


Step = MapStep | PayloadBindingStep | MapAbsenceStep | MapKeysStep | ListIndexStep | ListRangeStep | MapScanStep


class Prooflist(Message, frozen=True, kw_only=True):
    """The proofs of one answer: a chain of steps from the root to the target."""

    root: Link
    query: str | UnsetType = UNSET
    steps: list[Step]
