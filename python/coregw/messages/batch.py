"""The JSON messages of the batch routes (protocol section 5, *batches*) as msgspec structs, and the limits of a batch.

Leaves out what the members mean, and reading them strictly: `coregw.messages.decode` and the engine.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from coregw.messages.common import MAX_INTEGER, Error, Message

__all__ = [
    "MAX_BATCH_BLOCKS",
    "MAX_BATCH_BYTES",
    "MAX_BATCH_PATHS",
    "Block",
    "HasBatchRequest",
    "HasBatchResult",
    "Presence",
    "PutBatchRequest",
    "PutBatchResult",
    "PutOutcome",
    "ResolveBatchRequest",
    "ResolveBatchResult",
    "ResolveOutcome",
]

MAX_BATCH_BLOCKS: Final = 4096
"""The most blocks, or CIDs asked about, in one batch."""

MAX_BATCH_BYTES: Final = 64 << 20
"""The most bytes of all blocks of one batch together, decoded."""

MAX_BATCH_PATHS: Final = 1000
"""The most paths in one batch of resolves."""

_BLOCKS: Final = Meta(extra_json_schema={"maxItems": MAX_BATCH_BLOCKS})
_PATHS: Final = Meta(extra_json_schema={"maxItems": MAX_BATCH_PATHS})
_BASE64: Final = Meta(extra_json_schema={"type": "string", "contentEncoding": "base64"})
_RESULT: Final = Meta(extra_json_schema={"$ref": "#/components/schemas/ResolveResult"})


class Block(Message, frozen=True, kw_only=True):
    """A payload to store: its bytes in canonical base64, and a multicodec by name or number (``raw`` if absent)."""

    codec: str | Annotated[int, Meta(ge=0, le=MAX_INTEGER)] | UnsetType = UNSET
    data: Annotated[Raw, _BASE64]


class PutBatchRequest(Message, frozen=True, kw_only=True):
    """``POST /v1/cas/batch``: payloads to store."""

    profile: Literal["cas.put-batch/v0alpha1"] = "cas.put-batch/v0alpha1"
    blocks: Annotated[list[Block], _BLOCKS]


class PutOutcome(Message, frozen=True, kw_only=True):
    """One payload of a batch, durable now: whether this batch stored it, or it was there (or earlier in the batch)."""

    cid: str
    status: Literal["stored", "already_present"]


class PutBatchResult(Message, frozen=True, kw_only=True):
    """What became of each block, in order."""

    profile: Literal["cas.put-batch/v0alpha1"] = "cas.put-batch/v0alpha1"
    results: list[PutOutcome]


class HasBatchRequest(Message, frozen=True, kw_only=True):
    """``POST /v1/cas/batch``: which payloads are held."""

    profile: Literal["cas.has-batch/v0alpha1"] = "cas.has-batch/v0alpha1"
    cids: Annotated[list[str], _BLOCKS]


class Presence(Message, frozen=True, kw_only=True):
    """Whether a payload is held; `cid` is the one asked for, normalised."""

    cid: str
    present: bool


class HasBatchResult(Message, frozen=True, kw_only=True):
    """What is held, in the order asked."""

    profile: Literal["cas.has-batch/v0alpha1"] = "cas.has-batch/v0alpha1"
    results: list[Presence]


class ResolveBatchRequest(Message, frozen=True, kw_only=True):
    """``POST /v1/resolve/batch``: many paths from one root."""

    root: str
    paths: Annotated[list[list[str]], _PATHS]


class ResolveOutcome(Message, frozen=True, kw_only=True):
    """What ``POST /v1/resolve`` would have answered for one path: exactly one of a result and an error."""

    result: Annotated[Raw, _RESULT] | UnsetType = UNSET
    error: Error | UnsetType = UNSET


class ResolveBatchResult(Message, frozen=True, kw_only=True):
    """An outcome for each path, in order."""

    results: list[ResolveOutcome]
