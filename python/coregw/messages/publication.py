"""Verifiable publications: the messages of ``/v1/publications`` and of signing (protocol section 9)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from coregw.messages.common import MAX_INTEGER, Message
from coregw.messages.record import PublishedRecord

__all__ = ["MAX_CHECKPOINT_CHARACTERS", "PublicationProof", "SignedCheckpoint", "UnsignedPublication"]

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
