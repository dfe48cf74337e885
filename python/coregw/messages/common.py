"""The base struct of all messages, bounded numbers, strict decoding; and the messages of errors and health."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coregw._core import check_json
from coregw.errors import InvalidInput

__all__ = [
    "MAX_INTEGER",
    "MAX_NAME_CHARACTERS",
    "NAME",
    "PROTOCOL_VERSION",
    "ErrorBody",
    "Health",
    "Message",
    "Natural",
    "Readiness",
    "Segments",
    "Size",
    "Suite",
    "check_names",
    "decode",
    "encode",
    "is_name",
]

PROTOCOL_VERSION: Final = "0.0.6"
"""The version of the protocol that this package implements."""

MAX_INTEGER: Final = 2**53 - 1
"""The largest integer that the protocol allows, exact in every JSON implementation."""

NAME: Final = r"(?:[A-Za-z0-9_-]|\.{1,2}[A-Za-z0-9_-]|\.{3})[A-Za-z0-9._-]*"
"""The names of scopes, published records and pins, as a regular expression without lookahead, for schemas.

They are segments of URLs, where clients resolve ``.`` and ``..`` before they send a request (RFC 3986).
"""

MAX_NAME_CHARACTERS: Final = 128
"""The longest name."""

_NAME: Final = re.compile(NAME)

T = TypeVar("T")

Natural = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Size = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
Segments = list[str]
Suite = Literal["sha2-256", "blake3"]


def is_name(text: str) -> bool:
    """Whether a text has the form of the names of protocol section 5."""
    return len(text) <= MAX_NAME_CHARACTERS and _NAME.fullmatch(text) is not None


def check_names(scope: str, *names: str) -> None:
    """Raise `InvalidInput` if a scope or one of its names is not of the form of protocol section 5."""
    for what, value in (("scope", scope), *(("name", name) for name in names)):
        if not is_name(value):
            raise InvalidInput(
                f"{what} {value!r:.200}: expected 1 to 128 of the characters A-Z a-z 0-9 . _ -, not . or .."
            )


def encode(message: Struct) -> bytes:
    """Return a message as compact JSON text. O(size)."""
    return msgspec.json.encode(message)


def decode(body: bytes, kind: type[T]) -> T:
    """Decode a message strictly, as protocol section 5 requires.

    Args:
        body: The JSON text in UTF-8.
        kind: The struct to decode to, such as `ResolveResult`.

    Raises:
        InvalidInput: The text is not strict JSON (the message has the byte offset), or its members are not those of
            `kind` (the message has the JSON path).
    """
    check_json(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not a {getattr(kind, '__name__', 'message')}: {error}") from None


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all messages: immutable, and without unknown members."""


class ErrorBody(Message, frozen=True, kw_only=True):
    """The body of every error: a code of the error table, a message, and details that a client can use."""

    error: str
    message: str
    details: msgspec.Raw | UnsetType = UNSET


class Health(Message, frozen=True, kw_only=True):
    """The answer to ``GET /healthz``."""

    status: Literal["ok"]
    version: str
    protocol: str = PROTOCOL_VERSION


class About(Message, frozen=True, kw_only=True):
    """The answer to ``GET /`` for clients that accept JSON only: what this is, and where its description is."""

    service: Literal["coregw"] = "coregw"
    version: str
    protocol: str = PROTOCOL_VERSION
    openapi: str = "openapi.json"
    documentation: str = "docs"


class Readiness(Message, frozen=True, kw_only=True):
    """The answer to ``GET /readyz``."""

    status: Literal["ready"]
