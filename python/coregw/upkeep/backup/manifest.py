"""The manifest of a generation: which files it consists of, each with its size and digest.

```
000012.json: | JSON of a `Generation` on one line | newline | SHA-256 of that line in hex | newline |
```
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

import msgspec

from coregw.errors import StoreDamaged, Unavailable
from coregw.undecodable import UNDECODABLE

__all__ = ["FORMAT_VERSION", "Generation", "StoredFile", "decode_manifest", "encode_manifest"]

FORMAT_VERSION: Final = 1
"""The version of the repository's layout and of the manifests."""

_PATH: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]*", re.ASCII)


class StoredFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a generation.

    Attributes:
        path: Where it belongs in the data directory, such as ``rocksdb/000012.sst``.
        size: Its size in bytes.
        sha256: Its SHA-256 in hex, which also names it in the repository.
        modified_ns: The modification time of the source. With the path and the size it tells that a file of RocksDB,
            which never changes a complete table file, is the same as in an earlier generation.
    """

    path: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    modified_ns: int


class Generation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One backup.

    Attributes:
        format: `FORMAT_VERSION`.
        number: Its number in the repository; the newest has the greatest.
        created: When it began, in UTC: it contains everything that was acknowledged before.
        version: The version of coregw that made it.
        store: Which store it is of (`coregw.store.collection.Identity`); None if an earlier version made it.
        incarnation: Which incarnation of it.
        files: Its files, by path.
    """

    format: int
    number: Annotated[int, msgspec.Meta(ge=1)]
    created: datetime
    version: str
    files: tuple[StoredFile, ...]
    store: UUID | None = None
    incarnation: UUID | None = None

    @property
    def size(self) -> int:
        """The size of its files in bytes."""
        return sum(file.size for file in self.files)


class _Format(msgspec.Struct):
    format: int


def encode_manifest(generation: Generation) -> bytes:
    """Return the content of a manifest."""
    line = msgspec.json.encode(generation)
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


def decode_manifest(name: str, content: bytes) -> Generation:
    """Read a manifest.

    Args:
        name: The manifest's, for error messages.
        content: What `encode_manifest` returned.

    Raises:
        StoreDamaged: It is damaged.
        Unavailable: A newer coregw made it.
    """
    line, _, digest = content.partition(b"\n")
    if digest != hashlib.sha256(line).hexdigest().encode() + b"\n":
        raise StoreDamaged(f"{name} is damaged: it does not match its checksum")
    try:
        version = msgspec.json.decode(line, type=_Format).format
        if version != FORMAT_VERSION:
            raise Unavailable(f"{name} has format {version}; this version reads format {FORMAT_VERSION}")
        generation = msgspec.json.decode(line, type=Generation)
    except UNDECODABLE as error:
        raise StoreDamaged(f"{name} is malformed: {error}") from error
    for file in generation.files:
        if _PATH.fullmatch(file.path) is None:
            raise StoreDamaged(f"{name} names a file {file.path!r}, which no store has")
    return generation
