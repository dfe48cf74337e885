"""The head of a request: headers, media types, and query parameters. Functions on the ASGI scope."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from coregw._core import is_media_type, negotiate
from coregw.errors import InvalidInput

if TYPE_CHECKING:
    from litestar.types import HTTPScope

__all__ = [
    "check_content_coding",
    "check_json_type",
    "check_payload_type",
    "declared_length",
    "has_media_type",
    "header",
    "header_bytes",
    "preferred",
    "query_integer",
    "query_parameters",
]

_JSON: Final = "application/json"
_INTEGER: Final = re.compile("0|[1-9][0-9]{0,15}")
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def header(scope: HTTPScope, name: bytes) -> str | None:
    """Return a header's value, several joined with commas; None if the request has no such header.

    Args:
        scope: The ASGI scope.
        name: The header's name in lower case.
    """
    value = header_bytes(scope, name)
    return None if value is None else value.decode("latin-1")


def header_bytes(scope: HTTPScope, name: bytes) -> bytes | None:
    """Return a header's value as `header` does, undecoded."""
    values = [value for each, value in scope["headers"] if each == name]
    return b", ".join(values) if values else None


def declared_length(scope: HTTPScope) -> int | None:
    """Return the Content-Length in bytes, which the server has validated; None if there is none."""
    declared = header(scope, b"content-length")
    return int(declared) if declared else None


def check_json_type(scope: HTTPScope) -> None:
    """Check that the body is ``application/json`` in UTF-8, or has no Content-Type.

    Raises:
        InvalidInput: If it has another type or is compressed (code ``unsupported_media_type``).
    """
    given = header(scope, b"content-type")
    if given and given != _JSON and not has_media_type(scope, f"{_JSON}; charset=utf-8"):
        raise InvalidInput(f"Content-Type is {given!r:.200}, expected application/json", code="unsupported_media_type")
    check_content_coding(scope)


def check_payload_type(scope: HTTPScope) -> None:
    """Check that the body is a payload of any type, as it is: not compressed, and not the parts of a form.

    Raises:
        InvalidInput: If it is either (code ``unsupported_media_type``).
    """
    given = header(scope, b"content-type")
    if given and given.lstrip().lower().startswith("multipart/"):
        message = f"Content-Type is {given!r:.200}; a payload is sent as it is, not as a part of a form"
        raise InvalidInput(message, code="unsupported_media_type")
    check_content_coding(scope)


def has_media_type(scope: HTTPScope, *offers: str) -> bool:
    """Whether the body's Content-Type is one of some media types; false if there is none. O(length).

    Args:
        scope: The ASGI scope.
        offers: Media types with the parameters that they may have (`coregw._core.is_media_type`).
    """
    given = header_bytes(scope, b"content-type")
    return given is not None and is_media_type(given, list(offers))


def preferred(scope: HTTPScope, *offers: str) -> int | None:
    """Return the index of the media type that Accept wants most; None if it wants none of them or is absent.

    Args:
        scope: The ASGI scope.
        offers: Media types with their parameters (`coregw._core.negotiate`).
    """
    accept = header_bytes(scope, b"accept")
    return None if accept is None else negotiate(accept, list(offers))


def check_content_coding(scope: HTTPScope) -> None:
    """Check that the body is not compressed.

    Raises:
        InvalidInput: If it has a Content-Encoding other than identity (code ``unsupported_media_type``).
    """
    coding = header(scope, b"content-encoding")
    if coding and coding.strip().lower() not in ("", "identity"):
        raise InvalidInput(f"Content-Encoding is {coding!r:.200}, expected none", code="unsupported_media_type")


def query_parameters(scope: HTTPScope, *allowed: str) -> dict[str, str]:
    """Return the query parameters by name.

    Raises:
        InvalidInput: If a parameter is unknown or repeated, or the query is not percent-encoded UTF-8.
    """
    text = scope["query_string"].decode("latin-1")
    if not text:
        return {}
    if _BAD_ESCAPE.search(text) or not text.isascii():
        raise InvalidInput("query string: not percent-encoded")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=16)
    except (ValueError, UnicodeDecodeError):
        raise InvalidInput("query string: not a list of name=value pairs in percent-encoded UTF-8") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in allowed:
            expected = f"expected {' or '.join(allowed)}" if allowed else "this route has none"
            raise InvalidInput(f"unknown query parameter {name!r:.100}; {expected}")
        if name in found:
            raise InvalidInput(f"query parameter {name!r} is repeated")
        found[name] = value
    return found


def query_integer(name: str, text: str, minimum: int, maximum: int) -> int:
    """Return a query parameter that is an integer within bounds, both inclusive. Raises `InvalidInput`."""
    if not _INTEGER.fullmatch(text) or not minimum <= int(text) <= maximum:
        raise InvalidInput(f"query parameter {name!r} is {text!r:.100}, expected {minimum} to {maximum}")
    return int(text)
