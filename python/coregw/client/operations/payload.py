"""Single payloads: put, get, download (``/v1/cas``). The CID is always computed here."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec.structs import replace

from coregw import _core
from coregw.client.cars.continued import Calls, Continued, payload_call
from coregw.client.cars.received import MAX_HEAD_BYTES
from coregw.client.exchange.answers import decode
from coregw.client.exchange.call import OCTETS, Answer, Call, Memory
from coregw.client.files import Download, NewFile, Upload
from coregw.client.operations.steps import Steps, check_same_cid
from coregw.client.query import CidLike
from coregw.client.settings import ClientSettings
from coregw.errors import ProofError
from coregw.messages import CasCreated, encode
from coregw.messages.batch import GetBatchRequest
from coregw.verify import Buffer

__all__ = ["Receiver", "download", "get_payload", "get_payloads", "put_payload", "save_payload"]


def put_payload(
    settings: ClientSettings, data: Buffer | Path, codec: str | int = "raw", hash: str = "sha2-256"
) -> Steps[str]:
    """Store a payload, from memory or streamed from a file, and return its CID.

    Raises:
        InvalidInput: The codec or hash function is unknown.
        ProofError: The gateway's CID is not the one computed here.
        TooLarge: The payload has more than ``max_payload_bytes`` bytes.
    """
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
    """Return the bytes of a payload, after comparing their hash with the CID.

    After a truncated answer, only the rest is requested, from any gateway of the client.

    Raises:
        PayloadNotFound: The gateway says that it does not hold the payload.
        ProofError: The bytes do not have the CID's hash.
        TooLarge: The payload has more bytes than `max_bytes`, by default ``max_payload_bytes``.
    """
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
    """Request the payloads that a receiver wants in one answer, a CAR, and stream that into it; it verifies them.

    After a truncated answer, the rest of the payload in which it ended is requested by its range, then the other
    payloads that have not come. Payloads that the gateway does not hold are left out; the receiver knows which.

    Raises:
        ProofError: The answer is not the requested payloads.
        OSError: A file can't be written.
    """
    calls = _Calls(settings, receiver)
    call = calls.next()
    while call is not None:
        yield call
        call = calls.next() if calls.is_single else None


class Receiver(Continued, Protocol):
    """What receives payloads: `coregw._core.PayloadSink`, or `coregw.client.cars.received.ReceivedPayloads`."""

    @property
    def cids(self) -> list[str]:
        """The CIDs to request, at most 4,096."""

    @property
    def size(self) -> int | None:
        """The sum of their sizes in bytes; None if it is not known."""

    def restart(self) -> None:
        """Keep the payloads that are complete. The answer to a request for `cids` is written next."""


class _Calls(Calls):
    def __init__(self, settings: ClientSettings, receiver: Receiver) -> None:
        super().__init__(settings, receiver)
        self._receiver = receiver

    def _others(self) -> Call | None:
        receiver = self._receiver
        receiver.restart()
        if not (cids := receiver.cids):
            return None
        limit = receiver.size if receiver.size is not None else len(cids) * self._settings.max_payload_bytes
        limit += (len(cids) + 1) * MAX_HEAD_BYTES
        what, body = f"get {len(cids):,} payloads", encode(GetBatchRequest(cids=cids))
        return Call("POST", "/v1/cas/car", limit, what, content=body, sink=lambda: receiver, divided=self)


def download(settings: ClientSettings, cid: CidLike, file: BinaryIO, max_bytes: int | None = None) -> Steps[int]:
    """Stream a payload into an open file, in constant memory, and return its size in bytes.

    After a truncated answer, only the rest is requested, as by `get_payload`.

    The hash is known only at the end: after an exception, discard what was written.

    Raises:
        PayloadNotFound: The gateway says that it does not hold the payload.
        ProofError: The bytes do not have the CID's hash.
        TooLarge: As for `get_payload`.
    """
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
    """Stream a payload to a new file and return its size in bytes.

    The file appears complete and verified, or not at all.

    Raises:
        InvalidInput: `path` exists already (code ``invalid_path``).
        PayloadNotFound, ProofError, TooLarge: As for `download`.
    """
    with NewFile(path) as new:
        size = yield from download(settings, cid, new.file, max_bytes)
        new.commit()
        return size


def _wrong_hash(call: Call) -> ProofError:
    return ProofError(f"{call.what}: the received bytes have a different hash", check="payload hash")
