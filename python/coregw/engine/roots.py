"""Rows of held roots: a row exists once all pages of the tree are stored.

A repair keeps the row of a root of which it could not copy all pages, with another value: what is there can be read and
proven, the rest fails as damaged. Storing the root again, or `coregw heal`, makes it complete.
"""

from __future__ import annotations

from typing import Final

__all__ = ["COMPLETE", "INCOMPLETE"]

COMPLETE: Final = b""
"""The value of the row of a root whose tree is stored completely."""

INCOMPLETE: Final = b"incomplete"
"""The value of the row of a root whose tree has lost pages."""
