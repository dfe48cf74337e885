"""One attempt at a call, with the bytes moved by a driver: limits on its answer, and deadlines."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from typing import Final

from coregw.client.exchange.answers import error_from
from coregw.client.exchange.call import Answer, Body, Call, Memory, SentOnce, Sink
from coregw.client.settings import ClientSettings
from coregw.errors import ProofError, TooLarge, Unavailable

__all__ = ["Attempt"]

_MAX_DIGITS: Final = 20
"""A number of more digits is above every limit; Python refuses to read one of more than 4,300."""


class Attempt:
    """One attempt at a call: its body as it is sent, and its answer, bounded in bytes and in time.

    The driver sends the call, with `chunks` as a streamed body, then calls `start`, `feed` for each chunk, and `end`.
    """

    def __init__(self, call: Call, settings: ClientSettings, gateway: str = "") -> None:
        """Start the clock.

        Args:
            call: The call.
            settings: The client's settings.
            gateway: The address of the gateway that is asked.

        Attributes:
            deadline: The value of `time.monotonic` at which the attempt is given up. Streamed chunks postpone it.
        """
        self._call = call
        self._settings = settings
        self._gateway = gateway
        self.deadline = time.monotonic() + settings.answer_seconds
        self._is_sent = call.content is None or isinstance(call.content, bytes | SentOnce)
        self._streamed = 0
        self._count = 0
        self._length: int | None = None

    def chunks(self, body: Body) -> Generator[bytes, None, None]:
        """Yield the chunks of the call's streamed body, and note whether all of them were sent."""
        for chunk in body.chunks():
            self._allow_time_for(len(chunk))
            self._streamed += len(chunk)
            yield chunk
        self._is_sent = True

    @property
    def idle_seconds(self) -> float:
        """How long nothing may be sent or received.

        A gateway is silent between a streamed body and its answer while it works on all of it. That may take as long as
        sending it.
        """
        settings = self._settings
        if not self._is_sent or not self._streamed:
            return settings.idle_seconds
        return max(settings.idle_seconds, self._streamed / settings.stream_bytes_per_second)

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the status and headers of the answer.

        Raises:
            ProofError: The answer is compressed, though the request forbids it; or it is a success, though the gateway
                did not wait for the whole body: what it stored is not what was to be sent; or it is not the rest that
                was requested.
            TooLarge: Its content length exceeds the limit.
        """
        call = self._call
        self._status = status
        self._retry_after = headers.get("retry-after", "")
        self._media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        self._success = 200 <= status < 300
        self._limit = call.max_bytes if self._success else self._settings.max_result_bytes
        if self._success and not self._is_sent:
            raise ProofError(f"{call.what}: the gateway answered before everything was sent", check="answer")
        self._sink = self._destination(headers) if self._success else Memory()
        if headers.get("content-encoding", "identity") != "identity":
            raise ProofError(f"{call.what}: the answer is compressed, which the request forbids", check="answer")
        declared = headers.get("content-length", "")
        if declared.isascii() and declared.isdigit():
            digits = declared.lstrip("0") or "0"
            if len(digits) > _MAX_DIGITS or int(digits) > self._limit:
                raise self._too_large()
            self._length = int(digits)

    def feed(self, *chunks: bytes) -> None:
        """Take the next chunks of the body.

        Raises:
            TooLarge: The answer exceeds its limit in bytes.
        """
        size = sum(map(len, chunks))
        self._count += size
        if self._count > self._limit:
            raise self._too_large()
        if self._call.sink is not None:
            self._allow_time_for(size)
        if len(chunks) == 1:
            self._sink.write(chunks[0])
        elif (writelines := getattr(self._sink, "writelines", None)) is not None:
            writelines(chunks)
        else:
            self._sink.write(b"".join(chunks))

    def end(self) -> Answer:
        """Return the complete answer. Raises the mapped exception if the gateway answered with an error."""
        body = self._sink.value() if isinstance(self._sink, Memory) else b""
        if self._success:
            return Answer(self._status, body, self._length, self._gateway, self._media_type)
        partial = self._call.partial
        if self._status == 416 and partial is not None and partial.size:  # what was received may be too long
            partial.restarted()
            raise Unavailable(f"{self._call.what}: the gateway does not continue its answer")
        error = error_from(self._call, self._status, body)
        if isinstance(error, Unavailable):
            error.retry_after = _delay(self._retry_after)
        raise error

    def _destination(self, headers: Mapping[str, str]) -> Sink:
        """Return where a successful answer goes, after what it continues."""
        call, partial = self._call, self._call.partial
        if partial is None:
            return call.sink() if call.sink is not None else Memory()
        if self._status == 206 and (received := partial.size):
            if not headers.get("content-range", "").startswith(f"bytes {received}-"):
                raise ProofError(f"{call.what}: the answer is not what follows byte {received}", check="answer")
            self._limit -= received
            partial.senders.add(self._gateway)
            return partial
        partial.senders = {self._gateway}
        return partial.restarted()

    def overdue(self) -> Unavailable:
        """Return the exception to raise after the deadline."""
        seconds = self._settings.answer_seconds
        return Unavailable(f"{self._call.what}: the exchange took longer than {seconds:g} s")

    def _allow_time_for(self, size: int) -> None:
        self.deadline += size / self._settings.stream_bytes_per_second

    def _too_large(self) -> TooLarge:
        return TooLarge(f"{self._call.what}: the answer is longer than {self._limit} bytes")


def _delay(retry_after: str) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait, None without a valid one (RFC 9110, section 10.2.3)."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
