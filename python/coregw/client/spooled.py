"""Request bodies that are kept, so that they can be sent again: short ones in memory, others in a temporary file."""

from __future__ import annotations

from collections.abc import Generator
from typing import IO, Final, Self

__all__ = ["SpooledBody"]

_CHUNK_BYTES: Final = 1 << 20


class SpooledBody:
    """A body that is written once, and read as often as needed (`coregw.client.exchange.call.Body`). A context manager.

    Args:
        max_memory: A body of more bytes is in a file, which has no name.
    """

    def __init__(self, max_memory: int) -> None:
        from tempfile import SpooledTemporaryFile  # noqa: PLC0415 - loading it takes longer than a short command

        # Closed with this object.
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=max_memory, prefix="coregw-")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        """Append bytes. Raises `OSError`."""
        self._file.write(chunk)

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield all of it, for one attempt of a request."""
        yield from self.span(0, self.length)

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self._file.seek(0, 2)

    def span(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield the bytes from `start` to `end`."""
        for at in range(start, end, _CHUNK_BYTES):
            self._file.seek(at)
            yield self._file.read(min(_CHUNK_BYTES, end - at))
