"""Protocols of an origin store: where objects come from, how they are checked, and the paths that name them.

```
page       /v1/pages/{digest}   64 characters of 0-9a-f
root       /v1/roots/{root}     CIDv1 in base32; the body is the page with the top node
payload    /v1/cas/{cid}        CIDv1 in base32, with codec raw
```
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Final, Protocol

__all__ = ["MAX_PAGE_BYTES", "RAW", "Checks", "Hasher", "Sink", "Upstream", "page_path", "payload_path", "root_path"]

MAX_PAGE_BYTES: Final = 16_642
"""The maximum size of a page (docs/protocol.md, section 8)."""

RAW: Final = b"\x01\x55"
"""The start of a binary CID of version 1 with the codec raw; a multihash follows."""


class Sink(Protocol):
    """A destination for bytes that arrive in chunks."""

    def write(self, chunk: bytes) -> None:
        """Write the next chunk."""


class Upstream(Protocol):
    """Where objects are read from by path. For the tasks of one event loop.

    Every method raises `Unavailable` if the upstream does not answer, after its own retries, and `TooLarge` if an
    answer is longer than allowed.
    """

    @property
    def url(self) -> str:
        """The address that paths are below, for messages; without credentials."""

    @property
    def requests(self) -> int:
        """The number of requests sent."""

    @property
    def received(self) -> int:
        """The number of bytes of the bodies received."""

    @property
    def has_batches(self) -> bool:
        """Whether it answers `pages` and `payloads`, as gateways do and static trees do not."""

    async def get(self, path: str, max_bytes: int) -> bytes | None:
        """Return the bytes of an object; None if the upstream has none by this name."""

    async def download(self, path: str, sink: Callable[[], Sink]) -> bool:
        """Stream an object into what `sink` returns; called for each answer that starts over. False if absent."""

    async def size(self, path: str) -> int | None:
        """Return the size of an object in bytes, without reading it; None if absent."""

    async def pages(self, digests: Sequence[bytes], max_bytes: int) -> bytes:
        """Return the answer of ``POST /v1/pages/car`` for these digests."""

    async def payloads(self, multihashes: Sequence[bytes], max_bytes: int) -> bytes:
        """Return the answer of ``POST /v1/cas/car`` for the payloads with these multihashes, with the codec `RAW`."""

    async def aclose(self) -> None:
        """Close all connections."""


class Hasher(Protocol):
    """A running hash of a payload."""

    def update(self, chunk: bytes, /) -> object:
        """Add the next chunk."""

    def digest(self) -> bytes:
        """Return the digest of all chunks."""


class Checks(Protocol):
    """Compares objects with their names. `coregw.engine.objects.checks` has them, since a store computes no digests."""

    def are_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Return for each pair of a digest and bytes whether the bytes are the page with this digest. O(bytes)."""

    def is_root_page(self, root: bytes, page: bytes) -> bool:
        """Return whether the bytes are the page of a binary root CID, of its kind and suite. O(bytes)."""

    def hasher(self, multihash: bytes) -> tuple[Hasher, bytes]:
        """Return a hasher of the multihash's function, and the digest that a payload must have."""


def page_path(digest: bytes) -> str:
    """Return the path of a page."""
    return f"/v1/pages/{digest.hex()}"


def root_path(root: bytes) -> str:
    """Return the path of a root, by its binary CID."""
    return f"/v1/roots/{_text(root)}"


def payload_path(multihash: bytes) -> str:
    """Return the path of a payload, by its binary multihash."""
    return f"/v1/cas/{_text(RAW + multihash)}"


def _text(cid: bytes) -> str:
    return "b" + base64.b32encode(cid).decode().rstrip("=").lower()
