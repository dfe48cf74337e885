"""Rows of held roots: a row exists once all pages of the tree are stored.

A repair keeps the row of a root of which it could not copy all pages, with another value: what is there can be read and
proven, the rest fails as damaged. Storing the root again, or `coregw heal`, makes it complete.

A root whose payloads and nested roots were found to be held as well gets the value `WHOLE`. While its row exists,
garbage collection keeps all of them; whatever else may lose a payload resets the row to `COMPLETE`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CHECKING", "COMPLETE", "INCOMPLETE", "WHOLE"]

COMPLETE: Final = b""
"""The value of the row of a root whose tree is stored completely."""

INCOMPLETE: Final = b"incomplete"
"""The value of the row of a root whose tree has lost pages."""

WHOLE: Final = b"whole"
"""The value of the row of a root of which everything is held: all pages, nested roots and theirs, and all payloads."""

CHECKING: Final = b"checking "
"""The start of the value of the row of a root while it is checked; a random number follows. Otherwise as `COMPLETE`."""
