"""The head of a request: headers, media types, and query parameters. Functions on the ASGI scope."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from coregw.errors import InvalidInput

if TYPE_CHECKING:
    from litestar.types import HTTPScope

__all__ = [
    "check_content_coding",
    "check_json_type",
    "check_payload_type",
    "declared_length",
    "header",
    "is_media_type",
    "is_preferred",
    "media_ranges",
    "query_integer",
    "query_parameters",
]

_JSON: Final = "application/json"
_INTEGER: Final = re.compile("0|[1-9][0-9]{0,15}")
_WEIGHT: Final = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")  # RFC 9110, section 12.4.2
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def header(scope: HTTPScope, name: bytes) -> str | None:
    """Return a header's value, several joined with commas; None if the request has no such header.

    Args:
        scope: The ASGI scope.
        name: The header's name in lower case.
    """
    values = [value.decode("latin-1") for each, value in scope["headers"] if each == name]
    return ", ".join(values) if values else None


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
    if given and given != _JSON and not is_media_type(given, _JSON, "charset", "utf-8"):
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


def is_media_type(given: str, media_type: str, parameter: str, value: str) -> bool:
    """Whether a Content-Type is `media_type`, alone or with one parameter that has this value. O(length).

    Args:
        given: The header's value.
        media_type: In lower case, as the parameter's name and value.
        parameter: The name of the only parameter that is accepted.
        value: The only value that is accepted, with or without quotes.
    """
    kind, *parameters = (part.strip() for part in given.lower().split(";", 3))
    if parameters and not parameters[-1]:
        parameters.pop()  # after a semicolon at the end
    if kind != media_type or len(parameters) > 1:
        return False
    if not parameters:
        return True
    name, _, found = parameters[0].partition("=")
    return name.rstrip() == parameter and found.lstrip() in (value, f'"{value}"')


def media_ranges(accept: str) -> list[tuple[float, str, list[str]]]:
    """Return the media ranges in Accept with their weights and parameters, the most wanted first. O(n log n).

    A range without a valid weight has weight 1; ranges of equal weight stay in their order.
    """
    found = []
    for each in accept.split(","):
        name, *parameters = (part.strip().lower() for part in each.split(";"))
        weights = [_WEIGHT.fullmatch(parameter) for parameter in parameters]
        found.append((next((float(match[1]) for match in weights if match), 1.0), name, parameters))
    found.sort(key=lambda each: -each[0])
    return found


def is_preferred(scope: HTTPScope, media_type: str, default: str) -> bool:
    """Whether Accept names `media_type`, and wants it more than `default`, or as much and names it first.

    The weight of `default` is that of the most specific range that it is in (RFC 9110, section 12.5.1).

    Args:
        scope: The ASGI scope.
        media_type: In lower case.
        default: What is sent to clients that name neither; in lower case.
    """
    accept = header(scope, b"accept")
    if accept is None or media_type not in accept.lower():
        return False  # as of most requests
    ranges = media_ranges(accept)
    names = [name for _, name, _ in ranges]
    if media_type not in names or not ranges[names.index(media_type)][0]:
        return False
    wider = (default, default.partition("/")[0] + "/*", "*/*")
    alternative = next((name for name in wider if name in names), None)
    return alternative is None or names.index(media_type) < names.index(alternative)


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
