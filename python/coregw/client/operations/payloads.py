"""Payloads: sent, fetched and downloaded, also as CARs, and continued after a lost connection."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from msgspec.structs import replace

from coregw import _core
from coregw._core import CarReader, Cid, block_cid, payload_car_header, read_varint
from coregw.client.files import Download, SpooledBody, Upload
from coregw.client.operations.steps import Steps, check_same_cid
from coregw.client.settings import ClientSettings
from coregw.client.transport.exchange import OCTETS, Answer, Call, Memory, Sink, decode
from coregw.durability import NewFile
from coregw.errors import CoregwError, InvalidInput, PayloadNotFound, ProofError, TooLarge
from coregw.messages import CasCreated, encode
from coregw.messages.payloads import MAX_BATCH_BLOCKS, GetBatchRequest
from coregw.messages.roots import CAR_V2_START
from coregw.verify import Buffer, CidLike

__all__ = [
    "MAX_HEAD_BYTES",
    "MAX_VARINT_BYTES",
    "ReceivedPayloads",
    "Receiver",
    "download",
    "get_payload",
    "get_payloads",
    "payload_call",
    "put_payload",
    "save_payload",
    "without_head",
]

MAX_HEAD_BYTES: Final = 160
"""What precedes a payload in an answer with many, at most."""

MAX_VARINT_BYTES: Final = 9
"""What a length takes, at most."""

_MEMORY_BYTES: Final = 24 << 20

_CHUNK_BYTES: Final = 1 << 20


class ReceivedPayloads(SpooledBody):
    """The answer of ``/v1/cas/car``, checked while it is received; then a request body, or its payloads one by one.

    Up to 24 MiB are in memory, a longer answer is in a temporary file. What several answers have is joined to one CAR
    (`coregw.client.operations.payloads.Receiver`). A context manager.

    Args:
        what: What was requested, for messages.
        requested: The payloads that are requested, at most 4,096.
        settings: The client's settings.
        size: The sum of their sizes in bytes, if it is known, or what it may be at most.
    """

    def __init__(self, what: str, requested: Sequence[Cid], settings: ClientSettings, size: int | None = None) -> None:
        super().__init__(_MEMORY_BYTES)
        self._what = what
        self._requested = requested
        self._settings = settings
        self._known = size
        self._reader = self._new_reader()
        self._position = 0  # of the first payload that the next answer may have
        self._head = b""  # of an answer that continues another: the part that is not received yet

    @property
    def received(self) -> int:
        """Number of bytes that need not come again, unless they are of a payload that is not complete."""
        return self._reader.bytes

    @property
    def cids(self) -> list[str]:
        """The payloads to request."""
        return [cid.text for cid in self._requested[self._position :]]

    @property
    def size(self) -> int | None:
        """The sum of their sizes in bytes, or a little more; None if it is not known."""
        if self._known is None:
            return None
        heads = (self._position + 1) * MAX_HEAD_BYTES  # at most, in what has come
        return max(0, self._known - max(0, self._reader.bytes - heads))

    def restart(self) -> None:
        """Keep the payloads that are complete. The answer to a request for `cids` is written next."""
        end = self._whole()
        self._rewind(end)
        self._head = payload_car_header() if end else b""

    def write(self, chunk: bytes) -> None:
        """Check and keep the next chunk. Raises `ProofError` if it is not of a CAR of valid payloads."""
        if self._head:
            self._head, chunk = without_head(self._head, chunk, f"{self._what}: the answer is not a CAR of payloads")
        try:
            self._reader.feed(chunk)
        except TooLarge:
            raise
        except InvalidInput as error:
            raise ProofError(f"{self._what}: {error.message}", check="payload hash") from None
        super().write(chunk)

    def _whole(self) -> int:
        """Return where the last whole block ends, and note the payload that follows it. 0 without a whole header."""
        end = self._file.seek(0, 2)
        at = self._position = 0
        with suppress(ProofError, InvalidInput):  # the header, or the head of a block, is truncated
            header = self._length(0)[1]
            at = header if header <= end else 0
            while at and (block := self._block(at))[2] <= end:
                cid, _, at = block
                found = (place for place, each in enumerate(self._requested) if place >= self._position and each == cid)
                self._position = next(found, len(self._requested)) + 1
        return at

    def _rewind(self, end: int) -> None:
        """Forget what comes after byte `end`, which is in no head."""
        self._file.seek(end)
        self._file.truncate()
        self._reader = self._new_reader()
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK_BYTES):
            self._reader.feed(chunk)

    def check(self, missing: str) -> None:
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
        rest = iter(self._requested)
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
            raise PayloadNotFound(f"{missing} {absent.text}; every requested payload is needed")

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
            yield (block := self._block(at))
            at = block[2]

    def _block(self, at: int) -> tuple[Cid, int, int]:
        """Return the CID of the block at byte `at` with where its payload begins and ends."""
        begin, end = self._length(at)
        self._file.seek(begin)
        cid, size = block_cid(self._file.read(min(end - begin, MAX_HEAD_BYTES)))
        return cid, begin + size, end

    def _length(self, at: int) -> tuple[int, int]:
        """Return where the frame whose length is at byte `at` begins and ends."""
        self._file.seek(at)
        try:
            length, size = read_varint(self._file.read(MAX_VARINT_BYTES))
        except InvalidInput as error:
            raise ProofError(f"{self._what}: byte {at}: no length: {error.message}", check="answer") from None
        return at + size, at + size + length

    def _new_reader(self) -> CarReader:
        return CarReader(self._settings.max_payload_bytes, MAX_BATCH_BLOCKS)


def without_head(head: bytes, chunk: bytes, message: str) -> tuple[bytes, bytes]:
    """Return what is still missing of the header of an answer, and the chunk without its part of that.

    Raises:
        ProofError: The answer begins otherwise, with this message.
    """
    begin, rest = chunk[: len(head)], chunk[len(head) :]
    if not head.startswith(begin):
        raise ProofError(message, check="answer")
    return head[len(begin) :], rest


def payload_call(settings: ClientSettings, cid: CidLike, max_bytes: int | None) -> Call:
    """Return the call for a payload of at most `max_bytes`, by default ``max_payload_bytes``."""
    text = _core.Cid(cid).text
    limit = settings.max_payload_bytes if max_bytes is None else max_bytes
    return Call("GET", f"/v1/cas/{text}", limit, f"get {text}")


def put_payload(
    settings: ClientSettings, data: Buffer | Path, codec: str | int = "raw", hash: str = "sha2-256"
) -> Steps[str]:
    """Steps of `AsyncClient.put_payload`, which describes arguments and errors."""
    upload = Upload(data, codec, hash, settings.max_payload_bytes)
    params = {"codec": str(_core.codec_code(codec))}
    if hash != "sha2-256":
        params["hash"] = hash
    call = Call(
        "POST",
        "/v1/cas",
        settings.max_result_bytes,
        f"put {upload.name}",
        content=upload.content,
        content_type=OCTETS,
        params=params,
    )
    answer: Answer = yield call
    check_same_cid(call.what, decode(call, answer, CasCreated).cid, upload.cid)
    return upload.cid


def get_payload(settings: ClientSettings, cid: CidLike, max_bytes: int | None = None) -> Steps[bytes]:
    """Steps of `AsyncClient.get_payload`, which describes arguments and errors."""
    received = Memory()
    call = replace(payload_call(settings, cid, max_bytes), partial=received)
    answer: Answer = yield call
    if len(received.senders) > 1 and not _core.payload_matches(cid, answer.body):
        call = replace(call, partial=None)  # which of them sent something else is unknown: one has to send all of it
        answer = yield call
    if not _core.payload_matches(cid, answer.body):
        raise _wrong_hash(call)
    return answer.body


def get_payloads(settings: ClientSettings, receiver: Receiver) -> Steps[None]:
    """Steps of `AsyncClient.get_payloads`, which describes arguments and errors."""
    call = _ReceiverCalls(settings, receiver).next()
    if call is not None:
        yield call


class Receiver(Sink, Protocol):
    """What receives payloads: `coregw._core.PayloadSink`, or `coregw.client.operations.payloads.ReceivedPayloads`."""

    @property
    def received(self) -> int:
        """Number of bytes that need not come again."""

    @property
    def cids(self) -> list[str]:
        """The CIDs to request, at most 4,096."""

    @property
    def size(self) -> int | None:
        """The sum of their sizes in bytes; None if it is not known."""

    def restart(self) -> None:
        """Keep the payloads that are complete. The answer to a request for `cids` is written next."""


class _ReceiverCalls:
    """The calls that bring payloads (`coregw.client.transport.exchange.Divided`).

    After a truncated answer, the payloads that have not come are requested, the one in which it ended from its first
    byte: those of files are short, and longer ones are better requested one by one.
    """

    def __init__(self, settings: ClientSettings, receiver: Receiver) -> None:
        self._settings = settings
        self._receiver = receiver

    @property
    def done(self) -> int:
        """Number of bytes that need not come again."""
        return self._receiver.received

    def rest(self, _: CoregwError) -> Call | None:
        """Return the call to make after one that has failed; None if nothing is left."""
        return self.next()

    def next(self) -> Call | None:
        """Return the call for all payloads that are not complete; None if there are none."""
        receiver = self._receiver
        receiver.restart()
        if not (cids := receiver.cids):
            return None
        limit = receiver.size if receiver.size is not None else len(cids) * self._settings.max_payload_bytes
        limit += (len(cids) + 1) * MAX_HEAD_BYTES
        what, body = f"get {len(cids):,} payloads", encode(GetBatchRequest(cids=cids))
        return Call("POST", "/v1/cas/car", limit, what, content=body, sink=lambda: receiver, divided=self)


def download(settings: ClientSettings, cid: CidLike, file: BinaryIO, max_bytes: int | None = None) -> Steps[int]:
    """Steps of `AsyncClient.download`, which describes arguments and errors."""
    incoming = Download(_core.Cid(cid), file)
    call = replace(payload_call(settings, cid, max_bytes), sink=incoming.restarted, partial=incoming)
    yield call
    if len(incoming.senders) > 1 and not incoming.matches():
        call = replace(call, partial=None)
        yield call
    if not incoming.matches():
        raise _wrong_hash(call)
    return incoming.size


def save_payload(settings: ClientSettings, cid: CidLike, path: Path, max_bytes: int | None = None) -> Steps[int]:
    """Steps of `AsyncClient.save_payload`, which describes arguments and errors."""
    with NewFile(path) as new:
        size = yield from download(settings, cid, new.file, max_bytes)
        new.commit()
        return size


def _wrong_hash(call: Call) -> ProofError:
    return ProofError(f"{call.what}: the received bytes have a different hash", check="payload hash")
