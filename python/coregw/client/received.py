"""An answer with many payloads as it arrives: each block is compared with its CID, and the answer with the request."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from coregw._core import CarReader, Cid, block_cid
from coregw.client.settings import ClientSettings
from coregw.client.spooled import SpooledBody
from coregw.errors import InvalidInput, PayloadNotFound, ProofError, TooLarge
from coregw.messages.batch import MAX_BATCH_BLOCKS
from coregw.messages.car import CAR_V2_START

__all__ = ["MAX_HEAD_BYTES", "ReceivedPayloads"]

MAX_HEAD_BYTES: Final = 160
"""What precedes a payload in an answer with many, at most."""

_MEMORY_BYTES: Final = 24 << 20


class ReceivedPayloads(SpooledBody):
    """The answer of ``/v1/cas/car``, checked while it is received; then a request body, or its payloads one by one.

    Up to 24 MiB are in memory, a longer answer is in a temporary file. A context manager.

    Args:
        what: What was requested, for messages.
        settings: The client's settings.
    """

    def __init__(self, what: str, settings: ClientSettings) -> None:
        super().__init__(_MEMORY_BYTES)
        self._what = what
        self._settings = settings
        self._reader = self._new_reader()

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._reader.bytes

    def restarted(self) -> ReceivedPayloads:
        """Forget what an earlier attempt has received."""
        self._file.seek(0)
        self._file.truncate()
        self._reader = self._new_reader()
        return self

    def write(self, chunk: bytes) -> None:
        """Check and keep the next chunk."""
        try:
            self._reader.feed(chunk)
        except TooLarge:
            raise
        except InvalidInput as error:
            raise ProofError(f"{self._what}: {error.message}", check="payload hash") from None
        super().write(chunk)

    def check(self, requested: Sequence[Cid], missing: str) -> None:
        """Check that the blocks are those that were requested, in their order.

        Raises:
            PayloadNotFound: One is missing; the message begins with `missing`.
            ProofError: A block was not requested, or the answer is truncated.
        """
        try:
            self._reader.check_end()
        except InvalidInput as error:
            raise ProofError(f"{self._what}: {error.message}", check="answer") from None
        self._file.seek(0)
        if self._file.read(len(CAR_V2_START)) == CAR_V2_START:
            raise ProofError(f"{self._what}: the answer is a CARv2, not a CARv1", check="answer")
        rest = iter(requested)
        absent: Cid | None = None
        for cid, _, _ in self._blocks():
            for wanted in rest:
                if wanted == cid:
                    break
                absent = absent or wanted
            else:
                raise ProofError(f"{self._what}: {cid.text} was not requested", check="answer")
        absent = absent or next(rest, None)
        if absent is not None:
            raise PayloadNotFound(f"{missing} {absent.text}; nothing may be missing")

    def whole(self) -> bytes:
        """Return all of it."""
        self._file.seek(0)
        return self._file.read()

    def payloads(self) -> Generator[bytes, None, None]:
        """Yield the payloads in the order in which they were requested. Only after `check`."""
        for _, begin, end in self._blocks():
            self._file.seek(begin)
            yield self._file.read(end - begin)

    def _blocks(self) -> Generator[tuple[Cid, int, int], None, None]:
        """Yield the CID of each block with where its payload begins and ends.

        The header and every length were checked when they arrived.
        """
        at = self._length(0)[1]
        while at < self._reader.bytes:
            begin, end = self._length(at)
            self._file.seek(begin)
            cid, size = block_cid(self._file.read(min(end - begin, MAX_HEAD_BYTES)))
            yield cid, begin + size, end
            at = end

    def _length(self, at: int) -> tuple[int, int]:
        """Return where the frame whose length is at byte `at` begins and ends."""
        self._file.seek(at)
        length = 0
        for index, byte in enumerate(self._file.read(10)):
            length |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return at + index + 1, at + index + 1 + length
        raise ProofError(f"{self._what}: byte {at}: no length", check="answer")

    def _new_reader(self) -> CarReader:
        return CarReader(self._settings.max_payload_bytes, MAX_BATCH_BLOCKS)
