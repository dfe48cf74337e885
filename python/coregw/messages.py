"""The JSON messages of protocol section 5 as msgspec structs, for clients, documentation and tests.

Each struct has exactly the members that the protocol gives it; others are refused when decoding. Leaves out what the
members mean and whether a result is proven: that is `coregw.verify_resolve` and its siblings. Leaves out also what
only the text of a message shows (duplicate members, depth): `decode` asks the extension for that first.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coregw._core import check_json
from coregw.errors import InvalidInput

__all__ = [
    "MAX_INTEGER",
    "MAX_SCAN_LIMIT",
    "PROTOCOL_VERSION",
    "ArcMap",
    "CasCreated",
    "Change",
    "Commit",
    "Delta",
    "DeltaResult",
    "Endpoint",
    "Error",
    "FixedList",
    "Health",
    "Link",
    "ListIndexQuery",
    "ListIndexStep",
    "ListRangeQuery",
    "ListRangeStep",
    "MapAbsenceStep",
    "MapKeyQuery",
    "MapProofRequest",
    "MapProofResult",
    "MapScanStep",
    "MapStep",
    "MutationReceipt",
    "MutationRequest",
    "PayloadBindingStep",
    "Prooflist",
    "ReadNotFound",
    "ReadRequest",
    "ReadResult",
    "ResolveRequest",
    "ResolveResult",
    "RootCreated",
    "ScanEntry",
    "ScanRequest",
    "ScanResult",
    "Step",
    "TransitionRequest",
    "Verification",
    "VerifyReadRequest",
    "VerifyResolveRequest",
    "decode",
    "encode",
]

PROTOCOL_VERSION: Final = "0.0.6"
MAX_INTEGER: Final = 2**53 - 1
MAX_SCAN_LIMIT: Final = 1000

T = TypeVar("T")

Natural = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Size = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
Segments = list[str]
Suite = Literal["sha2-256", "blake3"]


def encode(message: Struct) -> bytes:
    """The JSON text of a message, compact, in O(size)."""
    return msgspec.json.encode(message)


def decode(body: bytes, kind: type[T]) -> T:
    """Reads one message strictly, as protocol section 5 says.

    Args:
        body: The JSON text, UTF-8.
        kind: The struct to read, such as `ResolveResult`.

    Raises:
        InvalidInput: The text is no strict JSON (with the byte offset), or its members are not those of `kind` (with
            the place as a JSON path).
    """
    check_json(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not a {getattr(kind, '__name__', 'message')}: {error}") from None


class _Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all messages share."""


class Link(_Message, frozen=True, kw_only=True, rename={"cid": "/"}):
    """A link inside a prooflist: ``{"/": cid}``."""

    cid: str


# --- prooflists -------------------------------------------------------------------------------------------------------


class _Step(_Message, frozen=True, kw_only=True, tag_field="kind", rename={"from_": "from"}):
    """What every step has. `proof` is base64 (RFC 4648 section 4, padded)."""

    from_: Link
    evidence_kind: Literal["tree"]
    evidence_backend: Suite
    proof: str


class MapStep(_Step, frozen=True, kw_only=True, tag="map_step"):
    """One arc of a map was taken; `path` is the text form of the segments that it consumed."""

    path: str
    target: Link


class PayloadBindingStep(_Step, frozen=True, kw_only=True, tag="payload_binding"):
    """The arc taken is ``@payload`` alone."""

    path: Literal["@payload"]
    target: Link


class MapAbsenceStep(_Step, frozen=True, kw_only=True, tag="map_absence"):
    """The map has no such key."""

    path: str
    target: None


class ListIndexStep(_Step, frozen=True, kw_only=True, tag="list_index"):
    """Element `index` of a list of `length` elements; `target` is null where the list is shorter."""

    index: Natural
    length: Natural
    target: Link | None


class ListRangeStep(_Step, frozen=True, kw_only=True, tag="list_range"):
    """The elements of a list that meet a range of its measure; `target` is the list itself."""

    start: Natural
    end: Natural | UnsetType = UNSET
    length: Natural
    total_size: Natural
    segments: list[Link]
    sizes: list[Size]
    offset: Natural | None
    target: Link


class MapScanStep(_Step, frozen=True, kw_only=True, tag="map_scan"):
    """A complete listing of a window of a map; `target` is the map itself."""

    prefix: Segments
    after: Segments | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_SCAN_LIMIT)]
    more: bool
    target: Link


Step = MapStep | PayloadBindingStep | MapAbsenceStep | ListIndexStep | ListRangeStep | MapScanStep


class Prooflist(_Message, frozen=True, kw_only=True):
    """The proofs of one answer: steps that chain from the root to the target."""

    root: Link
    query: str | UnsetType = UNSET
    steps: list[Step]


# --- questions and answers --------------------------------------------------------------------------------------------


class ResolveRequest(_Message, frozen=True, kw_only=True):
    """``POST /v1/resolve``."""

    profile: Literal["core.resolve/v0alpha1"] = "core.resolve/v0alpha1"
    root: str
    segments: Segments


class ResolveResult(_Message, frozen=True, kw_only=True):
    """What the path leads to, and the derivation."""

    profile: Literal["core.resolve/v0alpha1"]
    target: str
    prooflist: Prooflist


class MapKeyQuery(_Message, frozen=True, kw_only=True, tag_field="kind", tag="map_key"):
    """One key of a map."""

    segments: Segments


class ListIndexQuery(_Message, frozen=True, kw_only=True, tag_field="kind", tag="list_index"):
    """One element of a list."""

    index: Natural


class ListRangeQuery(_Message, frozen=True, kw_only=True, tag_field="kind", tag="list_range"):
    """The elements that meet `start` to `end` (exclusive), in the list's measure; no `end` means its total."""

    start: Natural
    end: Natural | UnsetType = UNSET


class ReadRequest(_Message, frozen=True, kw_only=True):
    """``POST /v1/read``."""

    profile: Literal["core.read/v0alpha1"] = "core.read/v0alpha1"
    root: str
    query: MapKeyQuery | ListIndexQuery | ListRangeQuery


class ReadResult(_Message, frozen=True, kw_only=True):
    """The target read; `range_segments` for ranges, then always."""

    profile: Literal["core.read/v0alpha1"]
    target: str
    range_segments: list[str] | UnsetType = UNSET
    prooflist: Prooflist


class ReadNotFound(_Message, frozen=True, kw_only=True):
    """The ``details`` of a read's 404: the proof that there is nothing."""

    prooflist: Prooflist


class MapProofRequest(_Message, frozen=True, kw_only=True):
    """``POST /v1/map-proof``."""

    profile: Literal["core.map-proof/v0alpha1"] = "core.map-proof/v0alpha1"
    root: str
    key: Segments


class MapProofResult(_Message, frozen=True, kw_only=True):
    """Membership, with the target, or absence."""

    profile: Literal["core.map-proof/v0alpha1"]
    present: bool
    target: str | UnsetType = UNSET
    prooflist: Prooflist


class ScanRequest(_Message, frozen=True, kw_only=True):
    """``POST /v1/scan``: the arcs below `prefix` and behind `after`, in key order, at most `limit` (1000)."""

    profile: Literal["core.scan/v0alpha1"] = "core.scan/v0alpha1"
    root: str
    prefix: Segments
    after: Segments | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_SCAN_LIMIT)] | UnsetType = UNSET


class ScanEntry(_Message, frozen=True, kw_only=True):
    """One arc of a listing; `segments` is its whole path."""

    segments: Segments
    target: str


class ScanResult(_Message, frozen=True, kw_only=True):
    """A page of a listing, and whether more follows in the window."""

    profile: Literal["core.scan/v0alpha1"]
    entries: list[ScanEntry]
    more: bool
    prooflist: Prooflist


def _refs(*names: str) -> Meta:
    """Says in the JSON schema which structs the raw text may be."""
    refs: list[dict[str, object]] = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    return Meta(extra_json_schema=refs[0] if len(refs) == 1 else {"oneOf": refs})


class VerifyResolveRequest(_Message, frozen=True, kw_only=True):
    """``POST /v1/verify/resolve``: a request and what is claimed to answer it, each as it was written."""

    request: Annotated[msgspec.Raw, _refs("ResolveRequest")]
    result: Annotated[msgspec.Raw, _refs("ResolveResult")]


class VerifyReadRequest(_Message, frozen=True, kw_only=True):
    """``POST /v1/verify/read``: a request and what is claimed to answer it, each as it was written."""

    request: Annotated[msgspec.Raw, _refs("ReadRequest")]
    result: Annotated[msgspec.Raw, _refs("ReadResult", "ReadNotFound")]


class Verification(_Message, frozen=True, kw_only=True):
    """A diagnostic verdict; `error` says why a result is not valid."""

    profile: Literal["core.resolve/v0alpha1", "core.read/v0alpha1"]
    valid: bool
    error: str | UnsetType = UNSET


# --- writing ----------------------------------------------------------------------------------------------------------


class CasCreated(_Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/cas``."""

    cid: str


class ArcMap(_Message, frozen=True, kw_only=True):
    """``POST /v1/roots``: every path (text form) with its target's CID."""

    arcs: dict[str, str]
    suite: Suite | UnsetType = UNSET


class RootCreated(_Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/roots``: an untrusted candidate."""

    root: str


class Endpoint(_Message, frozen=True, kw_only=True):
    """What a coordinate leads to, before or after a change."""

    target: str
    target_kind: Literal["cas", "map", "list", "unknown"] | UnsetType = UNSET
    size: Size | UnsetType = UNSET


class Change(_Message, frozen=True, kw_only=True):
    """One coordinate: a map's `path` or a list's `index`. No `before`: absent now. No `after`: remove."""

    path: str | UnsetType = UNSET
    index: Natural | UnsetType = UNSET
    before: Endpoint | UnsetType = UNSET
    after: Endpoint | UnsetType = UNSET


class FixedList(_Message, frozen=True, kw_only=True):
    """A list of chunks of one size, the last one shorter."""

    total_size: Natural
    chunk_size: Size


class Commit(_Message, frozen=True, kw_only=True):
    """What the resulting list must look like."""

    fixed_list: FixedList


class Delta(_Message, frozen=True, kw_only=True):
    """Changes to one map or list."""

    kind: Literal["map", "list"]
    object: str | UnsetType = UNSET
    changes: list[Change]
    expected_root: str | UnsetType = UNSET
    commit: Commit | UnsetType = UNSET


class MutationRequest(_Message, frozen=True, kw_only=True):
    """``POST /v1/roots/{root}/mutations``."""

    deltas: list[Delta]
    prove: bool | UnsetType = UNSET


class TransitionRequest(_Message, frozen=True, kw_only=True):
    """A mutation with the base root that the caller chose, as `coregw.verify_transition` takes it."""

    root: str
    deltas: list[Delta]
    prove: bool | UnsetType = UNSET


class DeltaResult(_Message, frozen=True, kw_only=True):
    """What one delta made of its object; `proof` is base64, there if asked for."""

    object: str
    result: str
    proof: str | UnsetType = UNSET


class MutationReceipt(_Message, frozen=True, kw_only=True):
    """The answer to a mutation; `new_root` is an untrusted candidate."""

    base_root: str
    new_root: str
    delta_count: Natural
    arc_count: Natural
    deltas: list[DeltaResult]


# --- the rest ---------------------------------------------------------------------------------------------------------


class Error(_Message, frozen=True, kw_only=True):
    """Every failure: a code of the protocol's table, a sentence, and details where a client can use them."""

    error: str
    message: str
    details: msgspec.Raw | UnsetType = UNSET


class Health(_Message, frozen=True, kw_only=True):
    """``GET /healthz``."""

    status: Literal["ok"]
    version: str
    protocol: str = PROTOCOL_VERSION
