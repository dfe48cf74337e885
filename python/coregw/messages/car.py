"""The answer to a CAR that was taken in (protocol section 5, *CAR*) as a msgspec struct."""

from __future__ import annotations

from coregw.messages.common import Message, Natural

__all__ = ["CarTaken"]


class CarTaken(Message, frozen=True, kw_only=True):
    """The answer of ``POST /v1/car``: all of it is stored.

    Attributes:
        roots: The roots that the CAR's header names.
        blocks: How many blocks it had.
        bytes: How many bytes it had.
    """

    roots: list[str]
    blocks: Natural
    bytes: Natural
