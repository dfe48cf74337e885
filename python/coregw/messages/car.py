"""CAR imports (protocol section 5, *CAR*)."""

from __future__ import annotations

from coregw.messages.common import Message, Natural

__all__ = ["CarTaken"]


class CarTaken(Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/car``: the roots of the CAR's header, and its number of blocks and bytes, all stored."""

    roots: list[str]
    blocks: Natural
    bytes: Natural
