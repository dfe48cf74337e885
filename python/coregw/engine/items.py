"""What all batches share: reading a message, counting its items, and saying which one is wrong."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from coregw.errors import InvalidInput, TooLarge

__all__ = ["check_count", "of_item", "typed"]

_T = TypeVar("_T")


def typed(body: bytes, kind: type[_T]) -> _T:
    """Reads a message whose text was checked before."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"not a {kind.__name__}: {error}") from None


def check_count(what: str, count: int, most: int) -> None:
    """Raises `TooLarge` if a batch has more than `most` items."""
    if count > most:
        raise TooLarge(f"a batch has at most {most} {what}, not {count}")


def of_item(what: str, index: int, error: InvalidInput) -> InvalidInput:
    """The error of one item as that of the whole batch, of which nothing is done."""
    details = msgspec.json.encode({"index": index})
    return type(error)(f"{what}[{index}]: {error.message}", code=error.code, details=details)
