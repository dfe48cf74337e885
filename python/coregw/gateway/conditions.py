"""Conditional and range requests on immutable bytes (RFC 9110 sections 13 and 14): pure functions on header texts.

Leaves out everything about dates: content-addressed bytes have no modification time.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["ByteRange", "Unsatisfiable", "etag_listed", "parse_range", "range_applies"]

_TAG: Final = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_SPEC: Final = re.compile(r"([0-9]*)-([0-9]*)", re.ASCII)
_HUGE: Final = 1 << 62


class ByteRange(NamedTuple):
    """The bytes `start` to `end` (exclusive)."""

    start: int
    end: int


class Unsatisfiable(NamedTuple):
    """A range that holds no byte of `size`."""

    size: int


def etag_listed(if_none_match: str, etag: str) -> bool:
    """Whether an If-None-Match value names `etag` (weak comparison), or is ``*``. The value of no header is ``""``."""
    return if_none_match.strip() == "*" or etag in _TAG.findall(if_none_match)


def range_applies(if_range: str | None, etag: str) -> bool:
    """Whether a Range is to be looked at: there is no If-Range, or it is exactly `etag` (strong comparison)."""
    return if_range is None or if_range.strip() == etag


def parse_range(header: str, size: int) -> ByteRange | Unsatisfiable | None:
    """What a Range header asks of `size` bytes; None for all of them.

    All of them are also the answer to several ranges, to another unit, and to what is no range at all.
    """
    unit, separator, specs = header.partition("=")
    if not separator or unit.strip().lower() != "bytes":
        return None
    found = [spec.strip() for spec in specs.split(",") if spec.strip()]
    match = _SPEC.fullmatch(found[0]) if len(found) == 1 else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        length = _number(match[2])
        return ByteRange(max(0, size - length), size) if length and size else Unsatisfiable(size)
    first, last = _number(match[1]), _number(match[2]) if match[2] else _HUGE
    if last < first:
        return None
    return ByteRange(first, min(last + 1, size)) if first < size else Unsatisfiable(size)


def _number(digits: str) -> int:
    """A number of any length; past 2^62 it does not matter how far."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= 18 else _HUGE
