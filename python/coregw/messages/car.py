"""CAR imports (protocol section 5, *CAR*)."""

from __future__ import annotations

from typing import Final

from coregw.messages.common import Message, Natural

__all__ = ["CAR_V2_START", "CarTaken"]

CAR_V2_START: Final = b"\x0a\xa1gversion\x02"
"""The first bytes of a CARv2. Imports take one; in an answer, where offsets are those of a CARv1, it is refused."""


class CarTaken(Message, frozen=True, kw_only=True):
    """The answer to ``POST /v1/car``: the roots of the CAR's header, and its number of blocks and bytes, all stored."""

    roots: list[str]
    blocks: Natural
    bytes: Natural
