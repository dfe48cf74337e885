"""A static tree in a folder: files that appear whole, under names that never change their contents.

```
v1/pages/{digest}     pages                    each only when all that it leads to is there
v1/cas/{cid}          payloads
v1/roots/{root}       the page of each root    after everything below it is on the disk
admin/v1/scopes/{scope}/roots/{name}           published names, which change
.coregw-export        while an export runs, and after one was interrupted
.coregw-no-payloads   if an export has left payloads out
```

Because a page is written after what it leads to, a page that is there stands for its whole subtree, and the next export
does not look below it. A power cut may break that order, and without payloads it is not so: if there may be gaps, an
export looks at everything that is there.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, Self

from coregw.errors import InvalidInput
from coregw.store.origin import page_path, payload_path, root_path
from coregw.syncing import sync_path

__all__ = ["MARK", "NO_PAYLOADS", "TEMPORARY", "StaticFolder"]

MARK: Final = ".coregw-export"
NO_PAYLOADS: Final = ".coregw-no-payloads"
TEMPORARY: Final = ".coregw-new-"
"""The start of the names of files that are being written."""

_COPY_BYTES: Final = 1 << 20


class StaticFolder:
    """A static tree that is being written, as a context manager; one export at a time.

    Args:
        top: The folder, which is created if it does not exist.
        payloads: Whether the export writes payloads.

    Attributes:
        may_have_gaps: Whether a page may be there without all that it leads to.

    Raises:
        InvalidInput: On entering: another export is running.
        OSError: The file system refused an operation; so do all methods.
    """

    def __init__(self, top: Path, *, payloads: bool = True) -> None:
        self.top = top
        self.payloads = payloads
        self.may_have_gaps = False
        self._mark: IO[bytes] | None = None

    def __enter__(self) -> Self:
        for folder in ("v1/pages", "v1/cas", "v1/roots"):
            (self.top / folder).mkdir(parents=True, exist_ok=True)
        path = self.top / MARK
        lacks_payloads = self.top / NO_PAYLOADS
        self.may_have_gaps = path.exists() or (self.payloads and lacks_payloads.exists())
        self._mark = path.open("ab")
        try:
            fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._mark.close()
            raise InvalidInput(f"{self.top}: another export to this folder is running") from None
        if not self.payloads:
            lacks_payloads.touch()
        os.fsync(self._mark.fileno())
        sync_path(self.top)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._mark is not None:
            if kind is None:
                if self.may_have_gaps:
                    os.sync()
                (self.top / MARK).unlink(missing_ok=True)
            self._mark.close()

    def has_page(self, digest: bytes) -> bool:
        """Return whether a page is there."""
        return self._file(page_path(digest)).exists()

    def has_root(self, root: bytes) -> bool:
        """Return whether a root is there, by its binary CID."""
        return self._file(root_path(root)).exists()

    def has_payload(self, multihash: bytes) -> bool:
        """Return whether a payload is there."""
        return self._file(payload_path(multihash)).exists()

    def page(self, digest: bytes) -> bytes | None:
        """Return the bytes of a page, unchecked; None if it is not there."""
        try:
            return self._file(page_path(digest)).read_bytes()
        except FileNotFoundError:
            return None

    def payload(self, multihash: bytes) -> IO[bytes]:
        """Open a payload that is there, unchecked."""
        return self._file(payload_path(multihash)).open("rb")

    def put_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> None:
        """Write pages by digest, after all that they lead to."""
        for digest, page in pages:
            self._put(page_path(digest), page)

    def put_payload(self, multihash: bytes, file: IO[bytes]) -> int:
        """Write a payload from an open file at its start, and return its size in bytes."""
        path = self._file(payload_path(multihash))
        size = 0
        with _NewFile(path) as new:
            while chunk := file.read(_COPY_BYTES):
                size += len(chunk)
                new.write(chunk)
        return size

    def put_root(self, root: bytes, page: bytes, *, is_last: bool) -> None:
        """Write a root, by its binary CID, after everything below it.

        Args:
            root: The binary CID.
            page: The page with its top node.
            is_last: Whether it is what the export was asked for: then everything before it is on the disk before it is,
                and it is on the disk on return. Others may precede their pages in a power cut, which leaves the mark.
        """
        if is_last:
            os.sync()
        self._put(root_path(root), page, is_durable=is_last)

    def record(self, scope: str, name: str) -> bytes | None:
        """Return the record that is published under a name; None without one."""
        try:
            return self._record(scope, name).read_bytes()
        except FileNotFoundError:
            return None

    def put_record(self, scope: str, name: str, record: bytes) -> None:
        """Publish a record under a name, instead of the one that is there; durable on return."""
        path = self._record(scope, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._put(f"/{path.relative_to(self.top)}", record, is_durable=True)

    def _put(self, path: str, content: bytes, *, is_durable: bool = False) -> None:
        with _NewFile(self._file(path)) as new:
            new.write(content)
            if is_durable:
                new.flush()
                os.fsync(new.fileno())
        if is_durable:
            sync_path(self._file(path).parent)

    def _record(self, scope: str, name: str) -> Path:
        return self._file(f"/admin/v1/scopes/{scope}/roots/{name}")

    def _file(self, path: str) -> Path:
        return self.top / path.removeprefix("/")


class _NewFile:
    """A file that gets its name when all of it is written. An older one with the name is replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")

    def __enter__(self) -> IO[bytes]:
        self._file = self._partial.open("xb")
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        if kind is None:
            self._partial.replace(self._path)
        else:
            self._partial.unlink()
