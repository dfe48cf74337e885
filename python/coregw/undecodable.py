"""Exceptions of decoders for bytes that a stranger, or a damaged disk, has written."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["UNDECODABLE"]

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes that do not encode the expected type: text that is not UTF-8, and values that are
nested too deeply, have exceptions of their own."""
