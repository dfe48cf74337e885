"""What all messages share: the base struct, numbers, strict reading and writing; errors and health.

Leaves out the messages of the routes (`coregw.messages`).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coregw._core import check_json
from coregw.errors import InvalidInput

__all__ = [
    "MAX_INTEGER",
    "PROTOCOL_VERSION",
    "Error",
    "Health",
    "Message",
    "Natural",
    "Segments",
    "Size",
    "Suite",
    "decode",
    "decode_checked",
    "encode",
]

PROTOCOL_VERSION: Final = "0.0.6"
MAX_INTEGER: Final = 2**53 - 1

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
    return decode_checked(body, kind)


def decode_checked(body: bytes, kind: type[T]) -> T:
    """The same for a text that was checked before, as one that is read twice is."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not a {getattr(kind, '__name__', 'message')}: {error}") from None


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all messages share."""


class Error(Message, frozen=True, kw_only=True):
    """Every failure: a code of the protocol's table, a sentence, and details where a client can use them."""

    error: str
    message: str
    details: msgspec.Raw | UnsetType = UNSET


class Health(Message, frozen=True, kw_only=True):
    """``GET /healthz``."""

    status: Literal["ok"]
    version: str
    protocol: str = PROTOCOL_VERSION
