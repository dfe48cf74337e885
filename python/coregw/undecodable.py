"""Exceptions of decoders for bytes that a stranger, or a damaged disk, has written."""

from __future__ import annotations

from typing import Final

from coregw.extras import missing_extra

try:
    import msgspec
except ModuleNotFoundError as error:
    raise missing_extra(error, "decoding JSON", "client") from error

__all__ = ["UNDECODABLE"]

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes that do not encode the expected type: text that is not UTF-8, and values that are
nested too deeply, have exceptions of their own."""
