"""Checks of arguments that every store shares, so that all stores refuse the same calls with the same messages."""

from __future__ import annotations

from collections.abc import Sequence

from coregw.errors import InvalidInput
from coregw.store import CHUNK_BYTES, Stored

__all__ = ["check_listing", "check_payload_sizes", "check_range", "check_renewal", "check_whole_payload", "key_range"]


def check_payload_sizes(payloads: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise `InvalidInput` if a payload is longer than `Store.put_payloads` allows."""
    for _, data in payloads:
        if len(data) > CHUNK_BYTES:
            raise InvalidInput(f"put_payloads takes payloads of at most {CHUNK_BYTES:,} bytes, not {len(data):,}")


def check_whole_payload(multihash: bytes, size: int) -> None:
    """Raise `InvalidInput` if a payload is longer than `Store.get_payloads` reads."""
    if size > CHUNK_BYTES:
        limit = f"get_payloads reads at most {CHUNK_BYTES:,} bytes of each"
        raise InvalidInput(f"the payload {multihash.hex()} has {size:,} bytes; {limit}")


def check_range(start: int, end: int | None) -> None:
    """Raise `InvalidInput` if `Store.read_payload` does not allow a range."""
    if start < 0 or (end is not None and end < start):
        raise InvalidInput(f"invalid byte range: start {start}, end {end}")


def check_listing(prefix: bytes, limit: int) -> None:
    """Raise `InvalidInput` if `Store.list_rows` does not allow these arguments."""
    if not prefix:
        raise InvalidInput("a listing needs a prefix of at least one byte")
    if limit < 1:
        raise InvalidInput(f"the limit of a listing is at least 1, not {limit}")


def check_renewal(kind: Stored) -> None:
    """Raise `InvalidInput` if `Store.renew` does not allow this kind."""
    if kind is Stored.PAGES:
        raise InvalidInput("pages have no dates: only roots and payloads are renewed")


def key_range(prefix: bytes, after: bytes | None) -> tuple[bytes, bytes | None]:
    """The keys that start with `prefix` and are greater than `after`, as (first, end).

    The end is exclusive; None if the prefix consists of bytes ``ff`` and so has no end.
    """
    first = prefix if after is None else max(prefix, after + b"\0")
    stem = prefix.rstrip(b"\xff")
    return first, stem[:-1] + bytes([stem[-1] + 1]) if stem else None
