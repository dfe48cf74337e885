"""Parsers of conditional and range request headers (RFC 9110 sections 13 and 14).

Dates are not supported: content-addressed bytes have no modification time.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["ByteRange", "Unsatisfiable", "is_listed", "parse_range", "range_applies"]

_TAG: Final = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_SPEC: Final = re.compile(r"([0-9]*)-([0-9]*)", re.ASCII)
_BEYOND_ANY_SIZE: Final = 1 << 62


class ByteRange(NamedTuple):
    """The bytes `start` to `end` (exclusive)."""

    start: int
    end: int


class Unsatisfiable(NamedTuple):
    """A range that contains none of `size` bytes."""

    size: int


def is_listed(etag: str, if_none_match: str) -> bool:
    """Whether If-None-Match names `etag` (weak comparison) or is ``*``. Pass ``""`` if the header is absent."""
    return if_none_match.strip() == "*" or etag in _TAG.findall(if_none_match)


def range_applies(if_range: str | None, etag: str) -> bool:
    """Whether Range is to be honoured: If-Range is absent or exactly `etag` (strong comparison)."""
    return if_range is None or if_range.strip() == etag


def parse_range(range_header: str, size: int) -> ByteRange | Unsatisfiable | None:
    """Return the range of `size` bytes that a Range header requests.

    None stands for all bytes, which is also the response to several ranges, other units, and malformed headers.
    """
    unit, separator, specs = range_header.partition("=")
    if not separator or unit.strip().lower() != "bytes":
        return None
    found = [spec.strip() for spec in specs.split(",") if spec.strip()]
    match = _SPEC.fullmatch(found[0]) if len(found) == 1 else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        length = _number(match[2])
        return ByteRange(max(0, size - length), size) if length and size else Unsatisfiable(size)
    first, last = _number(match[1]), _number(match[2]) if match[2] else _BEYOND_ANY_SIZE
    if last < first:
        return None
    return ByteRange(first, min(last + 1, size)) if first < size else Unsatisfiable(size)


def _number(digits: str) -> int:
    """Return a number of any length, or one beyond any size."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= 18 else _BEYOND_ANY_SIZE
