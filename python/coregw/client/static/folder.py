"""A static tree in a folder, and the place that an address names.

``.coregw-export`` is in the folder while an export runs, and after one was interrupted: a power cut may have broken the
order in which files were written, and the files themselves, so the next export reads and checks what is there.
"""

from __future__ import annotations

import asyncio
import io
import os
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from coregw.client.static.tree import MAX_SMALL_BYTES, NO_PAYLOADS, StaticTree, TreeState
from coregw.durability import PARTIAL_NAME, NewFile, open_at_once, sync_path
from coregw.errors import InvalidInput
from coregw.extras import missing_extra

try:
    import fcntl
except ModuleNotFoundError as error:
    raise missing_extra(error, "writing a static tree to a folder", "client") from None

__all__ = ["MARK", "StaticFolder", "open_tree"]

MARK: Final = ".coregw-export"

_COPY_BYTES: Final = 1 << 20


class StaticFolder:
    """Implements `coregw.client.static.tree.StaticTree` in a folder; one export at a time.

    Args:
        top: The folder; an export creates it if it does not exist.
        payloads: Whether the export writes payloads.
    """

    may_be_torn: bool = True
    at_once: int = 4

    def __init__(self, top: Path, *, payloads: bool = True) -> None:
        self.top = top
        self.place = str(top)
        self.payloads = payloads
        self.may_have_gaps = False
        self._mark: IO[bytes] | None = None

    async def __aenter__(self) -> Self:
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `StaticTree.__aexit__`. After an exception the mark stays."""
        if self._mark is not None:
            if kind is None:
                if self.may_have_gaps:
                    await self.settle()
                (self.top / MARK).unlink(missing_ok=True)
            self._mark.close()

    async def state(self) -> TreeState:
        """See `StaticTree.state`."""
        return TreeState(
            (self.top / "v1" / "pages").is_dir(),
            is_unfinished=(self.top / MARK).exists(),
            has_payloads=not (self.top / NO_PAYLOADS).exists(),
        )

    async def missing(self, paths: Sequence[str]) -> list[str]:
        """See `StaticTree.missing`."""
        return await asyncio.to_thread(lambda: [path for path in paths if not self._file(path).exists()])

    async def read(self, paths: Sequence[str]) -> list[bytes | None]:
        """See `StaticTree.read`."""
        return await asyncio.to_thread(lambda: [self._content(path) for path in paths])

    async def chunks(self, path: str) -> AsyncIterator[bytes]:
        """See `StaticTree.chunks`."""
        with await asyncio.to_thread(self._opened, path) as file:
            while chunk := await asyncio.to_thread(file.read, _COPY_BYTES):
                yield chunk

    async def listed(self, folder: str) -> list[str]:
        """See `StaticTree.listed`. Without files that an export has left unfinished."""
        return await asyncio.to_thread(self._listed, self.top / folder)

    async def put(self, objects: Sequence[tuple[str, bytes]], *, is_durable: bool = False) -> None:
        """See `StaticTree.put`."""
        await asyncio.to_thread(self._put, objects, is_durable)

    async def put_file(self, path: str, file: IO[bytes]) -> int:
        """See `StaticTree.put_file`."""
        return await asyncio.to_thread(self._copy, path, file)

    async def settle(self) -> None:
        """See `StaticTree.settle`. One sync of everything: it costs less than one for each file."""
        await asyncio.to_thread(os.sync)

    def _content(self, path: str) -> bytes | None:
        try:
            with self._opened(path) as file:
                return file.read(MAX_SMALL_BYTES + 1)
        except FileNotFoundError:
            return None

    def _opened(self, path: str) -> IO[bytes]:
        """Open a file. What is not a regular file counts as empty: a device may have no end, and a pipe no writer."""
        file = open_at_once(self._file(path))
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
        return io.BytesIO()

    def _listed(self, folder: Path) -> list[str]:
        files = (path for path in folder.rglob("*") if not path.is_dir() and not PARTIAL_NAME.fullmatch(path.name))
        return sorted(str(path.relative_to(folder)) for path in files)

    def _put(self, objects: Sequence[tuple[str, bytes]], is_durable: bool) -> None:
        for path, content in objects:
            file = self._file(path)
            if is_durable:
                file.parent.mkdir(parents=True, exist_ok=True)
            with NewFile(file, replaces=True) as new:
                new.file.write(content)
                new.commit(durably=is_durable)

    def _copy(self, path: str, file: IO[bytes]) -> int:
        size = 0
        with NewFile(self._file(path), replaces=True) as new:
            while chunk := file.read(_COPY_BYTES):
                size += len(chunk)
                new.file.write(chunk)
            new.commit()
        return size

    def _file(self, path: str) -> Path:
        return self.top / path.removeprefix("/")


def open_tree(place: str | Path, *, payloads: bool = True) -> StaticTree:
    """Return the static tree at a place, which may be empty.

    Args:
        place: A folder, or ``s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME]``, with credentials in
            ``AWS_ACCESS_KEY_ID`` and the other variables of AWS.
        payloads: Whether an export writes payloads.

    Raises:
        InvalidInput: The address of the bucket is malformed.
        MissingExtraError: A bucket needs the extra ``s3``.
    """
    if isinstance(place, str) and place.startswith("s3://"):
        from coregw.client.static.bucket import StaticBucket  # noqa: PLC0415 - needs an extra of its own

        return StaticBucket(place, payloads=payloads)
    return StaticFolder(Path(place), payloads=payloads)
