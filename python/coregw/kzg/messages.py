"""The JSON messages of malt-core's operations, and of the proofs in them, as msgspec structs."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal, TypeVar

from msgspec import UNSET, Meta, UnsetType

from coregw.errors import InvalidInput, ProofError
from coregw.messages.common import Message, Natural, Segments, decode
from coregw.messages.prooflist import Link
from coregw.messages.query import ListIndexQuery, ListRangeQuery, MapKeyQuery

__all__ = [
    "MAX_PROOF_BYTES",
    "MAX_RANGE_SEGMENTS",
    "Bucket",
    "ListProof",
    "ListStep",
    "MapProof",
    "MapProofRequest",
    "MapProofResult",
    "MapStep",
    "Prooflist",
    "RangeProof",
    "ReadRequest",
    "ReadResult",
    "ResolveRequest",
    "ResolveResult",
    "Step",
    "from_base64",
    "proof_of",
]

MAX_PROOF_BYTES: Final = 16 << 20
"""The maximum size of a decoded proof, as of the proofs of ranges and listings in protocol section 4."""

MAX_RANGE_SEGMENTS: Final = 10_000
"""The maximum number of segments in the proof of a range, as in protocol section 5."""

MAX_MAP_STEPS: Final = 22
"""The maximum number of levels of a map: 12 bits of 256 each."""

MAX_LIST_STEPS: Final = 5
"""The maximum number of levels of a list of less than 2^53 elements: 4,095 children each."""

T = TypeVar("T")


class ResolveRequest(Message, frozen=True, kw_only=True):
    """Which target a path has."""

    profile: Literal["malt.resolve/v0alpha1"] = "malt.resolve/v0alpha1"
    root: str
    segments: Segments


class ReadRequest(Message, frozen=True, kw_only=True):
    """Which target a key or index has, or which elements intersect a range."""

    profile: Literal["malt.read/v0alpha1"] = "malt.read/v0alpha1"
    root: str
    query: MapKeyQuery | ListIndexQuery | ListRangeQuery


class MapProofRequest(Message, frozen=True, kw_only=True):
    """Whether a map has a key."""

    profile: Literal["malt.map-proof/v0alpha1"] = "malt.map-proof/v0alpha1"
    root: str
    key: Segments


class Step(Message, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A step of a prooflist. `query` and `coordinate` repeat others in words, and are not looked at."""

    kind: Literal["map_step", "map_absence", "payload_binding", "list_index", "list_range"]
    from_: Link
    query: str | UnsetType = UNSET
    coordinate: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    index: Natural | UnsetType = UNSET
    length: Natural | UnsetType = UNSET
    start: Natural | UnsetType = UNSET
    end: Natural | UnsetType = UNSET
    child_count: Natural | UnsetType = UNSET
    total_size: Natural | UnsetType = UNSET
    chunk_size: Natural | UnsetType = UNSET
    target: Link | None
    segments: list[Link] | UnsetType = UNSET
    evidence_kind: Literal["explicit", "structure"]
    evidence_backend: Literal["map", "list", "measured_list"] | UnsetType = UNSET
    evidence: str | UnsetType = UNSET
    proof: str | UnsetType = UNSET


class Prooflist(Message, frozen=True, kw_only=True):
    """The steps from the root to the target."""

    root: Link
    query: str | UnsetType = UNSET
    steps: list[Step]


class ResolveResult(Message, frozen=True, kw_only=True):
    """The target of a path, proven."""

    profile: Literal["malt.resolve/v0alpha1"]
    target: str
    prooflist: Prooflist


class ReadResult(Message, frozen=True, kw_only=True):
    """The target of a key or index, or the elements of a range, proven."""

    profile: Literal["malt.read/v0alpha1"]
    target: str
    range_segments: list[str] | UnsetType = UNSET
    prooflist: Prooflist


class MapProofResult(Message, frozen=True, kw_only=True):
    """Whether a map has a key, proven."""

    profile: Literal["malt.map-proof/v0alpha1"]
    present: bool
    target: str | UnsetType = UNSET
    prooflist: Prooflist


class MapStep(Message, frozen=True, kw_only=True):
    """One level of a map: the cell of the key's slot, empty or absent if the slot is empty, and its opening."""

    slot: str = ""
    proof: str


class Bucket(Message, frozen=True, kw_only=True):
    """Keys that share a slot: the opening of one of them, or all of them with the openings of all slots."""

    entries: Annotated[tuple[str, ...], Meta(max_length=4096)] = ()
    proof: str
    batches: Annotated[tuple[str, ...], Meta(max_length=256)] = ()


class MapProof(Message, frozen=True, kw_only=True):
    """The proof of one key of a map, from the top node down."""

    steps: Annotated[list[MapStep], Meta(min_length=1, max_length=MAX_MAP_STEPS)]
    bucket: Bucket | UnsetType = UNSET


class ListStep(Message, frozen=True, kw_only=True):
    """One level of a list: the cell of the index's slot, and its opening."""

    target: str
    proof: str
    slot: Natural | UnsetType = UNSET


class ListProof(Message, frozen=True, kw_only=True):
    """The proof of one element of a list: the metadata of its top node, and the levels down to it."""

    metadata_proof: str
    metadata_target: str = ""
    steps: Annotated[tuple[ListStep, ...], Meta(max_length=MAX_LIST_STEPS)] = ()


class _RangeElement(Message, frozen=True, kw_only=True):
    """The proof of one element of a range: a `ListProof` in base64."""

    index: Natural
    proof: str


class RangeProof(Message, frozen=True, kw_only=True):
    """The proof of a range of a list of elements of equal size."""

    metadata_proof: str
    index_proofs: Annotated[tuple[_RangeElement, ...], Meta(max_length=MAX_RANGE_SEGMENTS)] = ()


def from_base64(text: str, place: str) -> bytes:
    """Decode canonical base64 (RFC 4648 section 4).

    Raises:
        ProofError: It is something else.
    """
    try:
        decoded = binascii.a2b_base64(text, strict_mode=True)
        if base64.b64encode(decoded).decode("ascii") == text:
            return decoded
    except ValueError:  # also binascii.Error
        pass
    raise ProofError(f"{place}: not canonical base64", check="base64")


def proof_of(text: str, kind: type[T], place: str) -> T:
    """Decode a proof: JSON in base64.

    Raises:
        ProofError: It is malformed, or has more than `MAX_PROOF_BYTES`.
    """
    if len(text) > MAX_PROOF_BYTES // 3 * 4:
        raise ProofError(f"{place}: a proof of more than {MAX_PROOF_BYTES:,} bytes", check="limit")
    try:
        return decode(from_base64(text, place), kind)
    except InvalidInput as error:
        raise ProofError(f"{place}: {error.message}", check="proof") from None
