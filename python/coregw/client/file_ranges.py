"""Byte ranges of files, sans-I/O: the position in a file, the payloads that hold a range, and the cache of both.

A file is a payload, or a list of payloads whose measures are their sizes (protocol section 7). A list is looked up
window by window: a range query proves which payloads begin where, and how many bytes there are.

```
            0          16 MiB         32 MiB
  windows   │──────────────│──────────────│────     each one range query, when something of it is read
  payloads  ├──┼────┼─┼──────┼───┼──┼───────┼───    the last of a window may be the first of the next
  range            ▒▒▒▒▒▒▒▒▒                        the payloads that meet it are requested, and cached
```
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Container, Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from coregw import _core
from coregw.client.operations.lookup import value
from coregw.client.operations.payloads import ReceivedPayloads, get_payload, get_payloads
from coregw.client.operations.steps import Steps
from coregw.client.query import read_range
from coregw.client.settings import ClientSettings
from coregw.client.transport.gateways import watch_forks
from coregw.errors import InvalidInput, ProofError, TooLarge
from coregw.messages.payloads import MAX_BATCH_BLOCKS
from coregw.verify import Buffer, CidLike

__all__ = [
    "Cached",
    "Chunk",
    "Position",
    "Reading",
    "WeighedCache",
    "Window",
    "copied",
    "cut",
    "load_files",
    "read_files",
]

V = TypeVar("V")


class WeighedCache(Generic[V]):
    """Values with weights, whose sum is bounded. Safe to share between threads, and to use after a fork.

    Every operation takes O(1), amortised.

    Args:
        max_weight: The bound. A value that weighs more is not kept.
    """

    def __init__(self, max_weight: int) -> None:
        self.max_weight = max_weight
        self.weight = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        watch_forks(self)

    def forked(self) -> object:
        """Start empty in a child process: another thread of the parent may have been changing the cache."""
        kept = self._lock, self._values
        self._lock, self._values, self.weight = threading.Lock(), OrderedDict(), 0
        return kept

    def get(self, key: Hashable) -> V | None:
        """Return the value of a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V, weight: int) -> None:
        """Keep a value, and drop others until all weigh no more than the bound."""
        if weight > self.max_weight:
            return
        with self._lock:
            replaced = self._values.pop(key, None)
            self.weight += weight - (0 if replaced is None else replaced[1])
            self._values[key] = value, weight
            while self.weight > self.max_weight:
                self.weight -= self._values.popitem(last=False)[1][1]


_WINDOW_BYTES: Final = 16 << 20

_GUESSED_BYTES: Final = 1 << 20
"""What a file of one payload may have, of which no size is known."""

_ELEMENT_WEIGHT: Final = 200
"""What an element of a window takes in memory, about."""


class Chunk(NamedTuple):
    """A payload of a file.

    Attributes:
        start: Its first byte in the file.
        target: Its CID.
        size: Its size; None if nothing proves it yet.
    """

    start: int
    target: str
    size: int | None


class Window(NamedTuple):
    """What a range query proved of a list: the payloads that meet a window, and the size of all."""

    total: int
    starts: Sequence[int]
    chunks: Sequence[Chunk]


Cached = WeighedCache[bytes | Window]
"""Payloads by their CIDs, and windows by list and position. One cache serves all files of a client."""


class Reading:
    """One file, as far as it is known.

    Args:
        settings: The client's.
        cache: Where payloads and windows are kept.
        target: The file: a payload, or a list of payloads.
        recorded: The size that a record says the file has, if there is one. It is compared with what is proven.

    Attributes:
        target: The file's CID.

    Raises:
        InvalidInput: The target is a map (code ``kind_mismatch``).
    """

    def __init__(self, settings: ClientSettings, cache: Cached, target: CidLike, recorded: int | None = None) -> None:
        self.target = _core.Cid(target)
        if self.target.kind == "map":
            raise InvalidInput(f"{self.target.text} is a map, not a file", code="kind_mismatch")
        self.settings = settings
        self.cache = cache
        self.recorded = recorded
        self._span = _WINDOW_BYTES
        self._size = len(self.target.digest) if self.target.hash_name == "identity" else None

    def size(self) -> Steps[int]:
        """Return the size in bytes. At most one request: of a list a query, of a payload without a record all of it.

        Raises:
            InvalidInput: The record says another size.
            ProofError: An answer is not proven.
        """
        if self._size is not None:
            return self._size
        if self.recorded is not None:
            return self.recorded
        if self.target.kind == "list":
            return (yield from self._window(0)).total
        (payloads,) = yield from load_files([(self, 0, 1)])
        return len(payloads[0][1])

    def chunks(self, start: int, end: int) -> Steps[list[Chunk]]:
        """Return the payloads that meet ``[start, end)``; those of a file that is a payload, even if they do not."""
        if self.target.kind == "cas":
            return [Chunk(0, self.target.text, self.recorded if self._size is None else self._size)]
        if self._size is not None:
            end = min(end, self._size)
        found: list[Chunk] = []
        while start < end:
            window = yield from self._window(start)
            end = min(end, window.total)
            until = min(end, (start // self._span + 1) * self._span)
            first = max(0, bisect_right(window.starts, start) - 1)
            for chunk in window.chunks[first:]:
                if chunk.start >= until:
                    break
                if chunk.start + (chunk.size or 0) > start and (not found or found[-1].start < chunk.start):
                    found.append(chunk)
            start = until
        return found

    def received(self, chunk: Chunk, data: bytes) -> None:
        """Compare a payload with what the list and the record say of it.

        Raises:
            InvalidInput: Its size is another one (code ``kind_mismatch``).
        """
        if self.target.kind == "cas":
            self._learn_size(len(data))
        elif len(data) != chunk.size:
            raise InvalidInput(
                f"{self.target.text} is not a file: the element at byte {chunk.start} has measure {chunk.size}, its "
                f"payload {len(data)} bytes",
                code="kind_mismatch",
            )

    def _window(self, position: int) -> Steps[Window]:
        """Return the window that has the byte at `position`."""
        while True:
            number, span = position // self._span, self._span
            key = self.target.text, span, number
            cached = self.cache.get(key)
            if isinstance(cached, Window):
                self._learn_size(cached.total)
                return cached
            try:
                window = yield from self._proven(number * span, (number + 1) * span)
            except TooLarge:
                # A range of more than 10,000 elements is refused: the elements are small, so ask for fewer bytes.
                if span <= 1:
                    raise
                self._span = max(1, span // 8)
                continue
            self._learn_size(window.total)
            self.cache.put(key, window, _ELEMENT_WEIGHT * (len(window.chunks) + 1))
            return window

    def _proven(self, start: int, end: int) -> Steps[Window]:
        part = yield from value(self.settings, read_range(self.target, start, end))
        if part.total_size is None or part.segments is None or part.sizes is None:
            raise ProofError(f"{self.target.text}: the answer is not a range", check="range")
        chunks: list[Chunk] = []
        at = part.offset or 0
        for target, size in zip(part.segments, part.sizes, strict=True):
            if _core.Cid(target).kind != "cas":
                raise InvalidInput(
                    f"{self.target.text} is not a file: the element at byte {at} is {target}, not a payload",
                    code="kind_mismatch",
                )
            chunks.append(Chunk(at, target, size))
            at += size
        return Window(part.total_size, [chunk.start for chunk in chunks], chunks)

    def _learn_size(self, size: int) -> None:
        if self.recorded not in (None, size):
            raise InvalidInput(f"{self.target.text}: recorded with {self.recorded} bytes, but it has {size}")
        self._size = size


def read_files(ranges: Sequence[tuple[Reading, int, int]]) -> Steps[list[bytes]]:
    """Return ranges of files, each cut to the file's end; see `load_files`."""
    loaded = yield from load_files(ranges)
    return [cut(payloads, start, end) for payloads, (_, start, end) in zip(loaded, ranges, strict=True)]


def load_files(ranges: Sequence[tuple[Reading, int, int]], ahead: int = 0) -> Steps[list[list[tuple[int, bytes]]]]:
    """Return the payloads that hold ranges of files. Those that are not cached are requested in few answers.

    Args:
        ranges: Files with the first byte of a range and the one after it; all of one client.
        ahead: How many bytes after each range are requested with it and cached, if something of it is not cached.

    Returns:
        For each range its payloads in order, with their first bytes in the file. O(bytes) memory.

    Raises:
        InvalidInput: A file is not one: its elements are not payloads of the proven sizes.
        PayloadNotFound: The gateway says that it does not hold a payload.
        ProofError: An answer is not proven.
    """
    wanted: list[list[Chunk]] = []
    for reading, start, end in ranges:
        wanted.append((yield from reading.chunks(start, end)) if start < end else [])
    held = yield from _held(ranges, wanted, ahead)
    for (reading, _, _), chunks in zip(ranges, wanted, strict=True):
        for chunk in chunks:
            reading.received(chunk, held[chunk.target])
    return [[(chunk.start, held[chunk.target]) for chunk in chunks] for chunks in wanted]


def cut(payloads: Sequence[tuple[int, bytes]], start: int, end: int) -> bytes:
    """Return the bytes ``[start, end)`` of a file, of which the payloads are given that hold them."""
    if len(payloads) == 1:
        at, data = payloads[0]
        return data[max(0, start - at) : max(0, end - at)]
    return b"".join(memoryview(data)[max(0, start - at) : max(0, end - at)] for at, data in payloads)


def _held(
    ranges: Sequence[tuple[Reading, int, int]], wanted: Sequence[Sequence[Chunk]], ahead: int
) -> Steps[dict[str, bytes]]:
    """Return the payloads of chunks by their CIDs, from the cache or requested."""
    held: dict[str, bytes] = {}
    missing: dict[str, int | None] = {}
    extra: dict[str, int | None] = {}
    for (reading, _, end), chunks in zip(ranges, wanted, strict=True):
        before = len(missing)
        for chunk in chunks:
            _look_up(reading, chunk, held, missing)
        if ahead and len(missing) > before:
            for chunk in (yield from reading.chunks(end, end + ahead)):
                _look_up(reading, chunk, None, extra)
    extra = {target: size for target, size in extra.items() if target not in missing}
    if missing:
        reading = ranges[0][0]
        held.update((yield from _fetch(reading.settings, reading.cache, missing | extra, missing.keys())))
    return held


def _look_up(reading: Reading, chunk: Chunk, held: dict[str, bytes] | None, missing: dict[str, int | None]) -> None:
    """Note a chunk with those that are held, or with those that are missing."""
    if held is not None and chunk.target in held:
        return
    cid = _core.Cid(chunk.target)
    data = cid.digest if cid.hash_name == "identity" else reading.cache.get(chunk.target)
    if not isinstance(data, bytes):
        missing[chunk.target] = chunk.size
    elif held is not None:
        held[chunk.target] = data


def _fetch(
    settings: ClientSettings, cache: Cached, missing: dict[str, int | None], wanted: Container[str]
) -> Steps[dict[str, bytes]]:
    """Request payloads, cache them, and return those that are wanted."""
    found: dict[str, bytes] = {}
    for batch in _batches(settings, missing):
        if len(batch) == 1:
            datas = [(yield from get_payload(settings, batch[0]))]
        else:
            sizes = [missing[each] for each in batch]
            known = None if None in sizes else sum(size or 0 for size in sizes)
            datas = yield from _many(settings, batch, known)
        for target, data in zip(batch, datas, strict=True):
            cache.put(target, data, len(data))
            if target in wanted:
                found[target] = data
    return found


def _batches(settings: ClientSettings, missing: dict[str, int | None]) -> list[list[str]]:
    """Group payloads into answers of about ``batch_bytes``."""
    batches: list[list[str]] = []
    total = settings.batch_bytes
    for target, known in missing.items():
        size = _GUESSED_BYTES if known is None else known
        if total + size > settings.batch_bytes or len(batches[-1]) == MAX_BATCH_BLOCKS:
            batches.append([])
            total = 0
        batches[-1].append(target)
        total += size
    return batches


def _many(settings: ClientSettings, targets: list[str], size: int | None) -> Steps[list[bytes]]:
    requested = [_core.Cid(each) for each in targets]
    with ReceivedPayloads(f"get {len(targets):,} payloads", requested, settings, size) as car:
        yield from get_payloads(settings, car)
        car.check("the gateway does not hold the payload")
        return list(car.payloads())


_FIRST_AHEAD_BYTES: Final = 256 << 10

_LINE_BYTES: Final = 8 << 10
"""Of a peek, at most: for each line the bytes up to its end are looked at."""


class Position:
    """The position in one open file.

    A read that continues where the last one ended requests 256 KiB more than it was asked for if something of it is not
    cached; the next one twice that, up to ``read_ahead_bytes``. Any other read requests just its payloads.

    Args:
        settings: The client's.
        cache: The client's.
        target: The file: a payload, or a list of payloads.
        recorded: The size that a record says the file has, if there is one.
        offset: The position.

    Attributes:
        reading: The file.
        offset: The position in bytes from the start; may be after the end.
    """

    def __init__(
        self, settings: ClientSettings, cache: Cached, target: CidLike, recorded: int | None = None, offset: int = 0
    ) -> None:
        self.reading = Reading(settings, cache, target, recorded)
        self.offset = offset
        self._max_ahead = min(settings.read_ahead_bytes, settings.cache_bytes // 2)
        self._ahead = 0
        self._end_of_last = -1
        self._kept, self._kept_at = b"", 0

    def kept(self, size: int) -> bytes | None:
        """Return the next `size` bytes and move past them, if they are at hand without a step."""
        at = self.offset - self._kept_at
        if not 0 <= at <= at + size <= len(self._kept):
            return None
        self.offset += size
        self._end_of_last = self.offset
        return self._kept[at : at + size]

    def kept_line(self) -> bytes | None:
        """Return the next line and move past it, if all of it is at hand without a step."""
        at = self.offset - self._kept_at
        end = self._kept.find(b"\n", at) + 1 if 0 <= at < len(self._kept) else 0
        return self.kept(end - at) if end else None

    def read(self, size: int | None) -> Steps[bytes]:
        """Return the next bytes, fewer than `size` only at the end, and move past them; all that follow for None or -1.

        Raises:
            ProofError, PayloadNotFound, InvalidInput: As `read_files`.
        """
        start = self.offset
        if size is None or size < 0:
            size = max(0, (yield from self.reading.size()) - start)
        data = yield from self._load(start, size)
        self.offset = self._end_of_last = start + len(data)
        return data

    def read_at(self, offset: int, size: int) -> Steps[bytes]:
        """Return at most `size` bytes from `offset` on; the position stays.

        Raises:
            ValueError: `offset` is negative.
            ProofError, PayloadNotFound, InvalidInput: As `read_files`.
        """
        if offset < 0:
            raise ValueError(f"negative offset {offset}")
        (data,) = yield from read_files([(self.reading, offset, offset + max(0, size))])
        return data

    def peek(self) -> Steps[bytes]:
        """Return some of the next bytes, none only at the end; the position stays."""
        at = self.offset - self._kept_at
        if 0 <= at < len(self._kept):
            return self._kept[at : at + _LINE_BYTES]
        if not (yield from self._load(self.offset, 1)):
            return b""
        at = self.offset - self._kept_at
        return self._kept[at : at + _LINE_BYTES]

    def line(self, limit: int = -1) -> Steps[bytes]:
        """Return the next line with its end, or at most `limit` bytes of it; empty at the end of the file."""
        parts: list[bytes] = []
        while limit and (found := (yield from self.peek())):
            found = found if limit < 0 else found[:limit]
            end = found.find(b"\n") + 1 or len(found)
            parts.append(found[:end])
            limit = limit if limit < 0 else limit - end
            self.offset = self._end_of_last = self.offset + end
            if found[end - 1 : end] == b"\n":
                break
        return b"".join(parts)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> Steps[int]:
        """Move, and return the position.

        Raises:
            ValueError: The position would be negative, or `whence` is none of `os.SEEK_SET`, `os.SEEK_CUR` and
                `os.SEEK_END`.
        """
        if whence == os.SEEK_SET:
            target = offset
        elif whence == os.SEEK_CUR:
            target = self.offset + offset
        elif whence == os.SEEK_END:
            target = (yield from self.reading.size()) + offset
        else:
            raise ValueError(f"invalid whence {whence}")
        if target < 0:
            raise ValueError(f"negative seek position {target}")
        self.offset = target
        return target

    def forget(self) -> None:
        """Drop the bytes that are kept."""
        self._kept = b""

    def _load(self, start: int, size: int) -> Steps[bytes]:
        """Return at most `size` bytes from `start` on, and keep the last payload that has some of them."""
        if size <= 0:
            return b""
        is_next = start == self._end_of_last
        self._ahead = min(max(2 * self._ahead, _FIRST_AHEAD_BYTES), self._max_ahead) if is_next else 0
        (payloads,) = yield from load_files([(self.reading, start, start + size)], self._ahead)
        if payloads:
            self._kept_at, self._kept = payloads[-1]
        return cut(payloads, start, start + size)


def copied(data: bytes, into: Buffer) -> int:
    """Copy bytes to the start of a buffer that is long enough, and return how many they are."""
    memoryview(into).cast("B")[: len(data)] = data
    return len(data)
