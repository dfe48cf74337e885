"""CAR imports (protocol section 5, *CAR*)."""

from __future__ import annotations

from typing import Final

from coregw.messages.common import Message, Natural

__all__ = ["CAR_V2_START", "MAX_WHOLE_CAR_BYTES", "CarTaken"]

CAR_V2_START: Final = b"\x0a\xa1gversion\x02"
"""The first bytes of a CARv2. Imports take one; in an answer, where offsets are those of a CARv1, it is refused."""

MAX_WHOLE_CAR_BYTES: Final = 16 << 20
"""A CAR of at most this size, if Content-Length tells it, is imported from memory: it needs no place among imports."""


class CarTaken(Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/car``: the roots of the CAR's header, and its number of blocks and bytes, all stored."""

    roots: list[str]
    blocks: Natural
    bytes: Natural
