"""Queries and their results: resolve, read, map proof, scan (protocol section 5).

Each profile has two spellings, and a result has that of its request.
Whether a result is proven is decided by the verifiers (`coregw.verify`), not by these structs.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coregw.messages.common import Message, Natural, Segments
from coregw.messages.prooflist import MAX_PROOF_KEYS, MAX_SCAN_LIMIT, Prooflist

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
    """The body of ``POST /v1/resolve``."""

    profile: Literal["core.resolve/v0alpha1", "malt.resolve/v0alpha1"] = "core.resolve/v0alpha1"
    root: str
    segments: Segments


class ResolveResult(Message, frozen=True, kw_only=True):
    """The target of a resolved path, with its proofs."""

    profile: Literal["core.resolve/v0alpha1", "malt.resolve/v0alpha1"]
    target: str
    prooflist: Prooflist


class MapKeyQuery(Message, frozen=True, kw_only=True, tag_field="kind", tag="map_key"):
    """Selects one key of a map."""

    segments: Segments


class ListIndexQuery(Message, frozen=True, kw_only=True, tag_field="kind", tag="list_index"):
    """Selects one element of a list."""

    index: Natural


class ListRangeQuery(Message, frozen=True, kw_only=True, tag_field="kind", tag="list_range"):
    """Selects the elements that intersect `start` to `end` (exclusive, by default the total) in the list's measure."""

    start: Natural
    end: Natural | UnsetType = UNSET


class ReadRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /v1/read``."""

    profile: Literal["core.read/v0alpha1", "malt.read/v0alpha1"] = "core.read/v0alpha1"
    root: str
    query: MapKeyQuery | ListIndexQuery | ListRangeQuery


class ReadResult(Message, frozen=True, kw_only=True):
    """The target of a read, with its proofs. Ranges, and only they, have `range_segments`."""

    profile: Literal["core.read/v0alpha1", "malt.read/v0alpha1"]
    target: str
    range_segments: list[str] | UnsetType = UNSET
    prooflist: Prooflist


class ReadNotFound(Message, frozen=True, kw_only=True):
    """The ``details`` of a read's 404: the proof that the key or index is absent."""

    prooflist: Prooflist


class MapProofRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /v1/map-proof``: exactly one of `key` and `keys`."""

    profile: Literal["core.map-proof/v0alpha1", "malt.map-proof/v0alpha1"] = "core.map-proof/v0alpha1"
    root: str
    key: Segments | UnsetType = UNSET
    keys: Annotated[list[Segments], Meta(min_length=1, max_length=MAX_PROOF_KEYS)] | UnsetType = UNSET


class MapProofResult(Message, frozen=True, kw_only=True):
    """An inclusion or absence proof of `key`, or a multiproof of `keys` with the target of each in their order."""

    profile: Literal["core.map-proof/v0alpha1", "malt.map-proof/v0alpha1"]
    present: bool | UnsetType = UNSET
    target: str | UnsetType = UNSET
    targets: list[str | None] | UnsetType = UNSET
    prooflist: Prooflist


class ScanRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /v1/scan``: at most `limit` arcs at and below `prefix`, after `after`, in key order."""

    profile: Literal["core.scan/v0alpha1", "malt.scan/v0alpha1"] = "core.scan/v0alpha1"
    root: str
    prefix: Segments
    after: Segments | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_SCAN_LIMIT)] | UnsetType = UNSET


class ScanEntry(Message, frozen=True, kw_only=True):
    """An arc of a listing; `segments` is its whole path."""

    segments: Segments
    target: str


class ScanResult(Message, frozen=True, kw_only=True):
    """A page of a listing, whether more arcs follow, and its proofs."""

    profile: Literal["core.scan/v0alpha1", "malt.scan/v0alpha1"]
    entries: list[ScanEntry]
    more: bool
    prooflist: Prooflist


def _refs(*names: str) -> Meta:
    """Return the JSON schema of raw text that must be one of these structs."""
    refs: list[dict[str, object]] = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    return Meta(extra_json_schema=refs[0] if len(refs) == 1 else {"oneOf": refs})


class VerifyResolveRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /v1/verify/resolve``: a request and its claimed result, both byte for byte."""

    request: Annotated[msgspec.Raw, _refs("ResolveRequest")]
    result: Annotated[msgspec.Raw, _refs("ResolveResult")]


class VerifyReadRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /v1/verify/read``: a request and its claimed result, both byte for byte."""

    request: Annotated[msgspec.Raw, _refs("ReadRequest")]
    result: Annotated[msgspec.Raw, _refs("ReadResult", "ReadNotFound")]


class Verification(Message, frozen=True, kw_only=True):
    """A diagnostic verdict; `error` is the reason if the result is not valid."""

    profile: str
    valid: bool
    error: str | UnsetType = UNSET
