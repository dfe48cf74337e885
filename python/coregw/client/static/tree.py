"""A static tree as exports and checks use it, and the explorer in it.

```
v1/pages/{digest}     pages                    each only when all that it leads to is there
v1/cas/{cid}          payloads
v1/roots/{root}       the page of each root    after everything below it is there to stay
admin/v1/scopes/{scope}/roots/{name}           published names, which change
.coregw-no-payloads   if an export has left payloads out
```

Because a page is written after what it leads to, a page that is there stands for its whole subtree, and the next export
does not look below it. Where that order may be broken, there may be gaps, and an export looks at everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from importlib.resources import files
from types import TracebackType
from typing import IO, Final, NamedTuple, Protocol, Self

__all__ = [
    "EXPLORER_TYPES",
    "MAX_SMALL_BYTES",
    "NO_PAYLOADS",
    "SCOPES",
    "StaticTree",
    "TreeState",
    "explorer_files",
    "record_path",
]

NO_PAYLOADS: Final = ".coregw-no-payloads"

MAX_SMALL_BYTES: Final = 64 << 10
"""More than a page or a published record has."""

SCOPES: Final = "admin/v1/scopes"
"""Where published names are."""


class TreeState(NamedTuple):
    """What is known of a static tree before it is read.

    Attributes:
        exists: Whether there is a static tree.
        is_unfinished: Whether an export is running, or was interrupted and may have left gaps.
        has_payloads: Whether no export has left payloads out.
    """

    exists: bool
    is_unfinished: bool
    has_payloads: bool


class StaticTree(Protocol):
    """A static tree that is checked, or, as an asynchronous context manager, written. Paths begin with ``/``.

    Every method raises `OSError` if a file system refuses an operation, and `Unavailable` if a bucket does.

    Attributes:
        place: Where it is, for messages.
        payloads: Whether the export writes payloads.
        may_have_gaps: Whether a page may be there without all that it leads to. Known on entering.
        may_be_torn: Whether an object that is there may have other bytes than were written, after a power cut.
        at_once: The number of calls for single objects that are worth making concurrently.
    """

    place: str
    payloads: bool
    may_have_gaps: bool
    may_be_torn: bool
    at_once: int

    async def __aenter__(self) -> Self:
        """Begin an export.

        Raises:
            InvalidInput: Another export is running, where that can be known.
        """

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End an export; without an exception, nothing is missing now."""

    async def state(self) -> TreeState:
        """Return what is there."""

    async def missing(self, paths: Sequence[str]) -> list[str]:
        """Return those paths at which nothing is."""

    async def read(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return the bytes of small objects, unchecked; None for those that are not there.

        Of an object that is longer than `MAX_SMALL_BYTES`, so many and one more: no page or record is.
        """

    def chunks(self, path: str) -> AsyncIterator[bytes]:
        """Iterate over the bytes of an object that is there, unchecked."""

    async def listed(self, folder: str) -> list[str]:
        """Return the paths of all objects below a folder, relative to it, in order. O(names)."""

    async def put(self, objects: Sequence[tuple[str, bytes]], *, is_durable: bool = False) -> None:
        """Write small objects, each whole or not at all. If durable, they survive a power cut when this returns."""

    async def put_file(self, path: str, file: IO[bytes]) -> int:
        """Write an object from an open file at its start, whole or not at all. Returns its size in bytes."""

    async def settle(self) -> None:
        """Return when everything that was written before survives a power cut."""


def record_path(scope: str, name: str) -> str:
    """Return the path of a published name."""
    return f"/{SCOPES}/{scope}/roots/{name}"


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
