"""Payloads, many at once: which are held, and pages by name."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from coregw.messages.common import Message

__all__ = [
    "MAX_BATCH_BLOCKS",
    "MAX_BATCH_PAGES",
    "MAX_BATCH_PATHS",
    "MAX_HAS_CIDS",
    "GetBatchRequest",
    "GetPagesRequest",
    "HasBatchRequest",
    "HasBatchResult",
    "Presence",
]

MAX_BATCH_BLOCKS: Final = 4096
"""The maximum number of payloads of one batch: to read, or to look up in JSON."""

MAX_HAS_CIDS: Final = 16_384
"""The maximum number of binary CIDs to look up in one request."""

MAX_BATCH_PAGES: Final = 1024
"""The maximum number of pages in one answer."""

MAX_BATCH_PATHS: Final = 1000
"""The maximum number of paths in one batch of resolves."""

_BLOCKS: Final = Meta(extra_json_schema={"maxItems": MAX_BATCH_BLOCKS})

_PAGES: Final = Meta(extra_json_schema={"maxItems": MAX_BATCH_PAGES})

_PATHS: Final = Meta(extra_json_schema={"maxItems": MAX_BATCH_PATHS})

_RESULT: Final = Meta(extra_json_schema={"$ref": "#/components/schemas/ResolveResult"})


class HasBatchRequest(Message, frozen=True, kw_only=True):
    """The JSON body of ``POST /v1/cas/has``: payloads to look up."""

    profile: Literal["cas.has-batch/v0alpha1"] = "cas.has-batch/v0alpha1"
    cids: Annotated[list[str], _BLOCKS]


class Presence(Message, frozen=True, kw_only=True):
    """Whether the gateway holds a payload; `cid` is the requested CID in canonical form."""

    cid: str
    present: bool


class HasBatchResult(Message, frozen=True, kw_only=True):
    """The outcome for each CID, in order."""

    profile: Literal["cas.has-batch/v0alpha1"] = "cas.has-batch/v0alpha1"
    results: list[Presence]


class GetBatchRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /v1/cas/car``: payloads to read."""

    profile: Literal["cas.get-batch/v0alpha1"] = "cas.get-batch/v0alpha1"
    cids: Annotated[list[str], _BLOCKS]


class GetPagesRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /v1/pages/car``: pages to read, by their digests as 64 characters of ``0-9a-f`` each."""

    profile: Literal["pages.get-batch/v0alpha1"] = "pages.get-batch/v0alpha1"
    pages: Annotated[list[str], _PAGES]
