"""Queries and their proofs: resolve, read, map-proof, scan, diff, publications, and batches of resolves.

Each profile has two spellings, and a result has that of its request.
Whether a result is proven is decided by the verifiers (`coregw.verify`), not by these structs.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from coregw.messages.common import MAX_INTEGER, ErrorBody, Message, Natural, Segments, Size, Suite
from coregw.messages.management import PublishedRecord
from coregw.messages.payloads import _PATHS, _RESULT

__all__ = [
    "MAX_CHECKPOINT_CHARACTERS",
    "MAX_DIFFERENCES",
    "MAX_PROOF_KEYS",
    "MAX_SCAN_LIMIT",
    "DiffEntry",
    "DiffProofs",
    "DiffResult",
    "Link",
    "ListIndexQuery",
    "ListIndexStep",
    "ListRangeQuery",
    "ListRangeStep",
    "MapAbsenceStep",
    "MapKeyQuery",
    "MapKeysStep",
    "MapProofRequest",
    "MapProofResult",
    "MapScanStep",
    "MapStep",
    "PayloadBindingStep",
    "Prooflist",
    "PublicationProof",
    "ReadNotFound",
    "ReadRequest",
    "ReadResult",
    "ResolveBatchRequest",
    "ResolveBatchResult",
    "ResolveOutcome",
    "ResolveRequest",
    "ResolveResult",
    "ScanEntry",
    "ScanRequest",
    "ScanResult",
    "SignedCheckpoint",
    "Step",
    "UnsignedPublication",
    "Verification",
    "VerifyReadRequest",
    "VerifyResolveRequest",
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


MAX_CHECKPOINT_CHARACTERS = 256 << 10
"""The longest signed checkpoint."""

_Size = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]

_Hash = Annotated[str, Meta(max_length=44, description="A SHA-256 hash in base64.")]

_Hashes = Annotated[list[_Hash], Meta(max_length=63)]


class SignedCheckpoint(Message, frozen=True, kw_only=True):
    """The body of ``POST …/checkpoint``: a signed note whose text is a checkpoint of the name's log."""

    checkpoint: Annotated[str, Meta(max_length=MAX_CHECKPOINT_CHARACTERS)]


class PublicationProof(Message, frozen=True, kw_only=True):
    """A revision of a published name, with the proof that a tree of the name's log has it.

    `inclusion` proves leaf ``revision - 1``, `freeze` (if the tree has the freeze) the last leaf, and `consistency`
    that the tree continues the one of the size in the request.
    """

    record: PublishedRecord
    size: _Size
    root_hash: _Hash
    inclusion: _Hashes
    consistency: _Hashes
    freeze: _Hashes | UnsetType = UNSET
    checkpoint: Annotated[str, Meta(max_length=MAX_CHECKPOINT_CHARACTERS)] | UnsetType = UNSET


class UnsignedPublication(Message, frozen=True, kw_only=True):
    """The newest revision of a published name of whose log no checkpoint is signed: nothing proves it.

    `status` tells it from a proof.
    """

    record: PublishedRecord
    status: Literal["unsigned"]


class ResolveBatchRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /v1/resolve/batch``: paths to resolve from one root."""

    root: str
    paths: Annotated[list[list[str]], _PATHS]


class ResolveOutcome(Message, frozen=True, kw_only=True):
    """The answer of ``POST /v1/resolve`` for one path: either a result or an error."""

    result: Annotated[Raw, _RESULT] | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET


class ResolveBatchResult(Message, frozen=True, kw_only=True):
    """The outcome for each path, in order."""

    results: list[ResolveOutcome]
