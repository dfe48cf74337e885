"""Items of batches: their number, and the index of an invalid one in its error."""

from __future__ import annotations

import msgspec

from coregw.errors import InvalidInput, TooLarge

__all__ = ["check_count", "of_item"]


def check_count(what: str, count: int, most: int) -> None:
    """Raise `TooLarge` if a batch has more than `most` items."""
    if count > most:
        raise TooLarge(f"a batch has at most {most} {what}, not {count}")


def of_item(what: str, index: int, error: InvalidInput) -> InvalidInput:
    """The error of an item as the error of its batch, with the item's index in message and details."""
    details = msgspec.json.encode({"index": index})
    return type(error)(f"{what}[{index}]: {error.message}", code=error.code, details=details)
