"""Payloads on their way from one side to the other: requested in batches, hashed, and sent on unchanged."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from coregw._core import CarReader, Cid, block_cid
from coregw.client.mirror.side import Side
from coregw.client.operations.batch import held_payloads
from coregw.client.operations.car import put_car
from coregw.client.operations.payload import get_car
from coregw.client.operations.steps import Steps
from coregw.client.settings import MIB, ClientSettings
from coregw.client.spooled import SpooledBody
from coregw.errors import InvalidInput, PayloadNotFound, ProofError, TooLarge
from coregw.messages.batch import MAX_BATCH_BLOCKS, MAX_HAS_CIDS

__all__ = ["copy_payloads"]

_ANSWER_BYTES: Final = 16 * MIB
"""What one answer should have, about."""

_FIRST_COUNT: Final = 64
_MEMORY_BYTES: Final = 24 * MIB
_MAX_HEAD_BYTES: Final = 160


async def copy_payloads(source: Side, destination: Side, payloads: Iterable[Cid]) -> int:
    """Copy payloads that the destination does not hold. Memory for some 24 MiB; longer answers go to a temporary file.

    Args:
        source: Where they are.
        destination: Where they should be.
        payloads: Their CIDs.

    Returns:
        The number of payloads that were copied.

    Raises:
        PayloadNotFound: The source does not hold one.
        ProofError: The source sent something else; nothing of that answer is sent on.
    """
    distinct = [*{cid.multihash: cid for cid in payloads}.values()]
    missing: list[Cid] = []
    for start in range(0, len(distinct), MAX_HAS_CIDS):
        part = distinct[start : start + MAX_HAS_CIDS]
        held = await destination.run(held_payloads(destination.settings, b"".join(map(bytes, part)), len(part)))
        missing += [cid for index, cid in enumerate(part) if not held[index >> 3] >> (index & 7) & 1]
    at, count = 0, _FIRST_COUNT
    while at < len(missing):
        part = missing[at : at + count]
        size = await _copy(source, destination, part)
        at += len(part)
        count = max(1, min(MAX_BATCH_BLOCKS, _ANSWER_BYTES * len(part) // size))
    return len(missing)


async def _copy(source: Side, destination: Side, cids: Sequence[Cid]) -> int:
    """Copy payloads in one answer and one request, and return the size of the CAR."""
    what = f"get {len(cids):,} payloads"
    with _Received(what, source.settings) as car:
        await source.run(_checked(source, cids, car))
        body = car.whole() if car.size <= _ANSWER_BYTES else car
        await destination.run(put_car(destination.settings, body, f"send {len(cids):,} payloads", car.size))
        return car.size


def _checked(source: Side, cids: Sequence[Cid], car: _Received) -> Steps[None]:
    yield from get_car(source.settings, [cid.text for cid in cids], car.restarted)
    car.check(cids, f"{source.address.shown} does not hold the payload")


class _Received(SpooledBody):
    """An answer of many payloads as it arrives, each block compared with its CID; then a request body."""

    def __init__(self, what: str, settings: ClientSettings) -> None:
        super().__init__(_MEMORY_BYTES)
        self._what = what
        self._settings = settings
        self._reader = self._new_reader()

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._reader.bytes

    def restarted(self) -> _Received:
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
        rest = iter(requested)
        absent: Cid | None = None
        for cid in self._cids():
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

    def _cids(self) -> Generator[Cid, None, None]:
        """Yield the CIDs of all blocks; the header and every length were checked when they arrived."""
        at = self._length(0)[1]
        while at < self._reader.bytes:
            begin, end = self._length(at)
            self._file.seek(begin)
            yield block_cid(self._file.read(min(end - begin, _MAX_HEAD_BYTES)))
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
