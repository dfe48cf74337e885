"""Queries and their results: resolve, read, map proof, scan (protocol section 5).

Whether a result is proven is decided by the verifiers (`coregw.verify`), not by these structs.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coregw.messages.common import Message, Natural, Segments
from coregw.messages.prooflist import MAX_SCAN_LIMIT, Prooflist

__all__ = [
    "ListIndexQuery",
    "ListRangeQuery",
    "MapKeyQuery",
    "MapProofRequest",
    "MapProofResult",
    "ReadNotFound",
    "ReadRequest",
    "ReadResult",
    "ResolveRequest",
    "ResolveResult",
    "ScanEntry",
    "ScanRequest",
    "ScanResult",
    "Verification",
    "VerifyReadRequest",
    "VerifyResolveRequest",
]


class ResolveRequest(Message, frozen=True, kw_only=True):
    """``POST /v1/resolve``."""

    profile: Literal["core.resolve/v0alpha1"] = "core.resolve/v0alpha1"
    root: str
    segments: Segments


class ResolveResult(Message, frozen=True, kw_only=True):
    """What the path leads to, and the derivation."""

    profile: Literal["core.resolve/v0alpha1"]
    target: str
    prooflist: Prooflist


class MapKeyQuery(Message, frozen=True, kw_only=True, tag_field="kind", tag="map_key"):
    """One key of a map."""

    segments: Segments


class ListIndexQuery(Message, frozen=True, kw_only=True, tag_field="kind", tag="list_index"):
    """One element of a list."""

    index: Natural


class ListRangeQuery(Message, frozen=True, kw_only=True, tag_field="kind", tag="list_range"):
    """The elements that meet `start` to `end` (exclusive), in the list's measure; no `end` means its total."""

    start: Natural
    end: Natural | UnsetType = UNSET


class ReadRequest(Message, frozen=True, kw_only=True):
    """``POST /v1/read``."""

    profile: Literal["core.read/v0alpha1"] = "core.read/v0alpha1"
    root: str
    query: MapKeyQuery | ListIndexQuery | ListRangeQuery


class ReadResult(Message, frozen=True, kw_only=True):
    """The target read; `range_segments` for ranges, then always."""

    profile: Literal["core.read/v0alpha1"]
    target: str
    range_segments: list[str] | UnsetType = UNSET
    prooflist: Prooflist


class ReadNotFound(Message, frozen=True, kw_only=True):
    """The ``details`` of a read's 404: the proof that there is nothing."""

    prooflist: Prooflist


class MapProofRequest(Message, frozen=True, kw_only=True):
    """``POST /v1/map-proof``."""

    profile: Literal["core.map-proof/v0alpha1"] = "core.map-proof/v0alpha1"
    root: str
    key: Segments


class MapProofResult(Message, frozen=True, kw_only=True):
    """Membership, with the target, or absence."""

    profile: Literal["core.map-proof/v0alpha1"]
    present: bool
    target: str | UnsetType = UNSET
    prooflist: Prooflist


class ScanRequest(Message, frozen=True, kw_only=True):
    """``POST /v1/scan``: the arcs below `prefix` and behind `after`, in key order, at most `limit` (1000)."""

    profile: Literal["core.scan/v0alpha1"] = "core.scan/v0alpha1"
    root: str
    prefix: Segments
    after: Segments | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_SCAN_LIMIT)] | UnsetType = UNSET


class ScanEntry(Message, frozen=True, kw_only=True):
    """One arc of a listing; `segments` is its whole path."""

    segments: Segments
    target: str


class ScanResult(Message, frozen=True, kw_only=True):
    """A page of a listing, and whether more follows in the window."""

    profile: Literal["core.scan/v0alpha1"]
    entries: list[ScanEntry]
    more: bool
    prooflist: Prooflist


def _refs(*names: str) -> Meta:
    """Says in the JSON schema which structs the raw text may be."""
    refs: list[dict[str, object]] = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    return Meta(extra_json_schema=refs[0] if len(refs) == 1 else {"oneOf": refs})


class VerifyResolveRequest(Message, frozen=True, kw_only=True):
    """``POST /v1/verify/resolve``: a request and what is claimed to answer it, each as it was written."""

    request: Annotated[msgspec.Raw, _refs("ResolveRequest")]
    result: Annotated[msgspec.Raw, _refs("ResolveResult")]


class VerifyReadRequest(Message, frozen=True, kw_only=True):
    """``POST /v1/verify/read``: a request and what is claimed to answer it, each as it was written."""

    request: Annotated[msgspec.Raw, _refs("ReadRequest")]
    result: Annotated[msgspec.Raw, _refs("ReadResult", "ReadNotFound")]


class Verification(Message, frozen=True, kw_only=True):
    """A diagnostic verdict; `error` says why a result is not valid."""

    profile: Literal["core.resolve/v0alpha1", "core.read/v0alpha1"]
    valid: bool
    error: str | UnsetType = UNSET
