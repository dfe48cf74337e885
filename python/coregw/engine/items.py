"""What all batches share: counting their items, and saying which one is wrong."""

from __future__ import annotations

import msgspec

from coregw.errors import InvalidInput, TooLarge

__all__ = ["check_count", "of_item"]


def check_count(what: str, count: int, most: int) -> None:
    """Raises `TooLarge` if a batch has more than `most` items."""
    if count > most:
        raise TooLarge(f"a batch has at most {most} {what}, not {count}")


def of_item(what: str, index: int, error: InvalidInput) -> InvalidInput:
    """The error of one item as that of the whole batch, of which nothing is done."""
    details = msgspec.json.encode({"index": index})
    return type(error)(f"{what}[{index}]: {error.message}", code=error.code, details=details)
