"""The explorer's files, for static trees: the page that a gateway has at ``/``, which works without one."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

__all__ = ["EXPLORER_TYPES", "explorer_files"]

EXPLORER_TYPES: Final = {
    "/index.html": "text/html; charset=utf-8",
    "/explorer.js": "text/javascript; charset=utf-8",
    "/explorer-style.css": "text/css; charset=utf-8",
}
"""The media types of the files by path."""


def explorer_files() -> list[tuple[str, bytes]]:
    """Return the files by path; the page itself is last, after what it loads."""
    folder = files("coregw") / "gateway" / "explorer"
    return [(path, folder.joinpath(path[1:]).read_bytes()) for path in reversed(EXPLORER_TYPES)]
