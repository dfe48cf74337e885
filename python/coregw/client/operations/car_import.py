"""CARs sent to a gateway: files as they are, trees in parts, and payloads, many at once.

A part of the payloads is a CAR of its own. The gateway makes each tree again, from the arcs or elements that its leaves
in the CAR have: the root is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

import msgspec

from coregw import _core
from coregw._core import ArcSorter, CarReader, Cid, Need, Operation, block_cid, payload_car_header, read_varint
from coregw.client.files import CHUNK_BYTES, FileState, SpooledBody, as_bytes, open_file
from coregw.client.operations.payloads import MAX_HEAD_BYTES, MAX_VARINT_BYTES, put_payload
from coregw.client.operations.roots import build_sorted, create_list
from coregw.client.operations.steps import PartSize, Steps, attempt
from coregw.client.settings import ClientSettings
from coregw.client.transport.exchange import OCTETS, Answer, Body, Call, SentOnce, decode
from coregw.errors import Conflict, InvalidInput, ProofError, TooLarge
from coregw.messages.payloads import MAX_BATCH_BLOCKS, MAX_HAS_CIDS
from coregw.messages.roots import CAR_V2_START, MAX_WHOLE_CAR_BYTES, CarTaken
from coregw.verify import Buffer, CidLike

__all__ = [
    "CAR_TYPE",
    "CAR_V2_TYPE",
    "Advance",
    "CarFile",
    "CarParts",
    "CheckedTrees",
    "HeldCar",
    "ImportedCar",
    "check_taken",
    "check_trees",
    "has_payloads",
    "held_payloads",
    "import_car",
    "naming",
    "put_car",
    "put_payloads",
    "send_parts",
]

CAR_TYPE: Final = "application/vnd.ipld.car; version=1"

CAR_V2_TYPE: Final = "application/vnd.ipld.car; version=2"

Advance = Callable[[int], None]
"""A progress callback: called with the bytes of each chunk, and with a negative number when an attempt restarts."""

_CHECK_BUDGET: Final = 1 << 20  # of nodes; checking a CAR visits none

_MAX_MEMORY_BYTES: Final = 4 << 20
"""A longer part is not read into memory."""

_ELEMENTS: Final = msgspec.json.Decoder(tuple[str, int])


class CarSource(Protocol):
    """The bytes of a CARv1, such as `coregw.client.files.SpooledBody`."""

    @property
    def length(self) -> int:
        """Number of bytes."""

    def span(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield the bytes from `start` to `end`."""


class HeldCar:
    """A CAR in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def span(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield the bytes from `start` to `end`."""
        yield self._data[start:end]


class CarFile:
    """A CAR in a file. A context manager; leaving it raises `Conflict` if the file was changed meanwhile.

    Attributes:
        length: Its size in bytes.
        is_v2: Whether it is a CARv2.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name

    def __enter__(self) -> Self:
        self._file = open_file(self._path, self._name)
        self._state = FileState(self._file.fileno())
        self.length = os.fstat(self._file.fileno()).st_size
        self.is_v2 = self._file.read(len(CAR_V2_START)) == CAR_V2_START
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None and FileState(self._file.fileno()) != self._state:
                raise Conflict(f"{self._name} changed while it was read")

    def span(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield the bytes from `start` to `end`."""
        for at in range(start, end, CHUNK_BYTES):
            self._file.seek(at)
            yield self._file.read(min(CHUNK_BYTES, end - at))


class Elements(NamedTuple):
    """The elements of a list: their targets and measures."""

    targets: list[str]
    sizes: list[int]


class Tree(NamedTuple):
    """A tree of a CAR: its root, and the arcs of a map or the elements of a list."""

    root: Cid
    leaves: ArcSorter | Elements


class CheckedTrees(msgspec.Struct, frozen=True):
    """The roots of a CAR whose trees are complete, and the numbers of leaves whose payload or root it lacks."""

    roots: list[str]
    missing_payloads: int
    missing_roots: int


def check_trees(reader: CarReader, read: Callable[[int, int], bytes]) -> CheckedTrees:
    """Check the trees of a CAR. O(n log n) of its blocks.

    Args:
        reader: What has read the CAR; it can't be used any more.
        read: Returns the bytes from one position to another.

    Raises:
        InvalidInput: A node is missing or misplaced, or the CAR is truncated.
    """
    operation = Operation.check_car(reader)
    while isinstance(polled := operation.poll(_CHECK_BUDGET), Need):
        if polled.span is not None:
            operation.supply_bytes(read(*polled.span))
    return msgspec.json.decode(polled, type=CheckedTrees)


@contextmanager
def naming(name: str | None) -> Iterator[None]:
    """Prefix the message of an `InvalidInput` with the name of the file that it is about."""
    try:
        yield
    except InvalidInput as error:
        if name is None:
            raise
        raise type(error)(f"{name}: {error.message}", code=error.code) from None


class CarPart:
    """A CAR of some payloads of another one, as a request body.

    Attributes:
        size: Its number of bytes.
        end: Where the block after its last one begins in the other CAR.
        count: The number of its blocks.
    """

    def __init__(self, car: CarSource, start: int) -> None:
        self._car = car
        self._header = payload_car_header()
        self._spans: list[tuple[int, int]] = []
        self.size = len(self._header)
        self.end = start
        self.count = 0

    def add(self, end: int) -> None:
        """Add the block that begins where the last one ends."""
        if self._spans and self._spans[-1][1] == self.end:
            self._spans[-1] = self._spans[-1][0], end
        else:
            self._spans.append((self.end, end))
        self.size += end - self.end
        self.count += 1
        self.end = end

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the bytes."""
        yield self._header
        for span in self._spans:
            yield from self._car.span(*span)


class CarParts:
    """The payloads and trees of a CAR.

    Memory is about 60 bytes for each block.

    Args:
        settings: The client's settings.
        car: The CAR.
        name: What errors call it.

    Attributes:
        first: Where its first block begins.
        roots: The roots of its header; like the others, after `trees`.
        blocks: The number of its blocks.
        bytes: Its size.
    """

    def __init__(self, settings: ClientSettings, car: CarSource, name: str | None = None) -> None:
        self._reader = CarReader(settings.max_payload_bytes, settings.max_car_blocks)
        self._max_entries = settings.max_entries
        self._car = car
        self._name = name
        self._fed = 0
        self.roots: list[str] = []
        self.blocks = self.bytes = 0
        self.first = self._frame(0)[1]
        self._feed(min(self.first, car.length))

    def payloads(self, start: int, limit: int | None) -> CarPart:
        """Return a part with payloads from byte `start` on, in about `limit` bytes, at least one if there is one."""
        part = CarPart(self._car, start)
        while part.end < self._car.length:
            begin, end = self._frame(part.end)
            self._feed(min(end, self._car.length))
            if end > self._car.length:
                break
            if block_cid(self._read(begin, min(end, begin + MAX_HEAD_BYTES)))[0].kind != "cas":
                part.end = end
                if end - self._fed >= CHUNK_BYTES:  # the reader limits their number
                    self._feed(end)
            elif part.count and limit is not None and part.size + end - part.end > limit:
                break
            else:
                part.add(end)
        return part

    def trees(self) -> Generator[Tree, None, None]:
        """Yield all trees, which are complete, those of the header's roots last. Only after all payloads.

        Raises:
            InvalidInput: A node is missing or misplaced, or the CAR is truncated.
            TooLarge: A list has more elements than `ClientSettings.max_entries`: a node of the CAR may be in the list
                any number of times.
        """
        with naming(self._name):
            self._reader.check_end()
            self.roots, self.blocks, self.bytes = self._reader.roots or [], self._reader.blocks, self._reader.bytes
            leaves = _leaves(Operation.list_car(self._reader), self._read)
            for root, of_tree in groupby(leaves, key=itemgetter(0)):
                lines = (lines for _, lines in of_tree)
                yield Tree(root, _sorted(lines) if root.kind == "map" else self._elements(root, lines))

    def _elements(self, root: Cid, chunks: Iterable[bytes]) -> Elements:
        elements = Elements([], [])
        for lines in chunks:
            for target, size in _ELEMENTS.decode_lines(lines):
                elements.targets.append(target)
                elements.sizes.append(size)
            if len(elements.targets) > self._max_entries:
                raise TooLarge(f"{root.text} has more than {self._max_entries:,} elements")
        return elements

    def _frame(self, at: int) -> tuple[int, int]:
        """Return where the frame whose length is at byte `at` begins and ends; after the CAR, if it is truncated."""
        head = self._read(at, min(self._car.length, at + MAX_VARINT_BYTES))
        try:
            length, size = read_varint(head)
        except InvalidInput:  # the reader says why
            return self._car.length, self._car.length + 1
        return at + size, at + size + length

    def _feed(self, end: int) -> None:
        """Check the blocks up to byte `end`, unless they were."""
        with naming(self._name):
            for chunk in self._car.span(self._fed, max(self._fed, end)):
                self._reader.feed(chunk)
        self._fed = max(self._fed, end)

    def _read(self, start: int, end: int) -> bytes:
        return b"".join(self._car.span(start, end))


def _leaves(operation: Operation, read: Callable[[int, int], bytes]) -> Generator[tuple[Cid, bytes], None, None]:
    """Yield lines of the leaves of trees, each with the root of its tree."""
    while isinstance(polled := operation.poll(_CHECK_BUDGET), Need):
        if polled.span is not None:
            operation.supply_bytes(read(*polled.span))
        elif polled.leaves is not None:
            yield polled.leaves


def _sorted(chunks: Iterable[bytes]) -> ArcSorter:
    sorter = ArcSorter()
    for lines in chunks:
        sorter.feed(lines)
    sorter.end()
    return sorter


def send_parts(
    settings: ClientSettings, parts: CarParts, what: str, sizes: PartSize, progress: Advance | None = None
) -> Steps[None]:
    """Send the payloads of a CAR, as many at once as a connection lasts for, then its trees, nested ones first.

    Raises:
        InvalidInput: It is not a valid CAR.
        ProofError: The gateway's answer describes something other than what was sent.
        TooLarge: A tree exceeds a limit of the gateway, or a list one of this client.
    """
    at = parts.first
    advance: Advance = progress or (lambda count: None)
    advance(at)
    while (part := parts.payloads(at, sizes.limit)).end > at:
        if part.count:
            most = settings.max_result_bytes
            content = SentOnce(b"".join(part.chunks())) if part.size <= _MAX_MEMORY_BYTES else part
            call = Call("POST", "/v1/car", most, what, content=content, content_type=CAR_TYPE)
            answer = yield from attempt(call, sizes, part.size, is_divisible=part.count > 1)
            if answer is None:
                continue
            check_taken(call, answer, part.size)
        advance(part.end - at)
        at = part.end
    for root, leaves in parts.trees():
        suite = root.suite or ""
        if isinstance(leaves, ArcSorter):
            made = yield from build_sorted(settings, leaves, suite, sizes)
        else:
            made = yield from create_list(settings, *leaves, suite=suite, parts=sizes)
        if made != root.text:
            raise InvalidInput(f"{what}: {root.text} is not the root of a tree of the protocol's shape")


def check_taken(call: Call, answer: Answer, size: int) -> None:
    """Raise `ProofError` if a gateway did not import a CAR of this size."""
    if decode(call, answer, CarTaken).bytes != size:
        raise ProofError(f"{call.what}: the gateway imported something other than this CAR", check="car")


@dataclass(frozen=True, slots=True)
class ImportedCar:
    """What a gateway imported: the roots of the file's header, and the number of blocks and bytes."""

    roots: list[str]
    blocks: int
    bytes: int


class _CarBody:
    """A CAR file as a request body; each block is checked as it is sent, so that a damaged file is found here."""

    def __init__(self, settings: ClientSettings, path: Path, name: str, progress: Advance | None) -> None:
        self._settings = settings
        self._path = path
        self._name = name
        self._progress: Advance = progress if progress is not None else lambda count: None
        self._sent = 0
        self.outcome: ImportedCar | None = None

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the file in chunks.

        Raises:
            InvalidInput: The file is not a valid CAR; the message names the block.
            Conflict: The file changed while it was read.
            OSError: The file can't be read.
        """
        self.restart()
        reader = CarReader(self._settings.max_payload_bytes, self._settings.max_car_blocks)
        with open_file(self._path, self._name) as file:
            before = FileState(file.fileno())
            while chunk := file.read(CHUNK_BYTES):
                with naming(self._name):
                    reader.feed(chunk)
                yield chunk
                self._sent += len(chunk)
                self._progress(len(chunk))
            if FileState(file.fileno()) != before:
                raise Conflict(f"{self._name} changed while it was read")
        self.outcome = ImportedCar(reader.roots or [], reader.blocks, reader.bytes)
        with naming(self._name):
            reader.check_end()

    def sent(self) -> int:
        """Return how many bytes the last attempt has sent."""
        return self._sent

    def restart(self) -> None:
        """Forget what the last attempt has sent."""
        self._progress(-self._sent)
        self._sent = 0


def put_car(
    settings: ClientSettings, car: bytes | SpooledBody, what: str, sizes: PartSize | None = None
) -> Steps[None]:
    """Steps of `AsyncClient.put_car`, which describes arguments and errors.

    `sizes` is how long requests may be, as learned from earlier calls.
    """
    sizes = sizes or PartSize()
    source = HeldCar(car) if isinstance(car, bytes) else car
    if sizes.limit is None or source.length <= sizes.limit:
        content: Body | SentOnce = SentOnce(car) if isinstance(car, bytes) else car
        call = Call("POST", "/v1/car", settings.max_result_bytes, what, content=content, content_type=CAR_TYPE)
        answer = yield from attempt(call, sizes, source.length)
        if answer is not None:
            check_taken(call, answer, source.length)
            return
    yield from send_parts(settings, CarParts(settings, source), what, sizes)


def import_car(
    settings: ClientSettings,
    path: Path,
    name: str | None = None,
    progress: Advance | None = None,
    sizes: PartSize | None = None,
) -> Steps[ImportedCar]:
    """Steps of `AsyncClient.import_car`, which describes arguments and errors.

    `sizes` is how long requests may be, as learned from earlier calls.
    """
    name = str(path) if name is None else name
    sizes = sizes or PartSize()
    what = f"import {name}"
    with CarFile(path, name) as file:
        if sizes.limit is None or file.length <= sizes.limit or file.is_v2:
            upload = _CarBody(settings, path, name, progress)
            most = settings.max_result_bytes
            call = Call(
                "POST", "/v1/car", most, what, content=upload, content_type=CAR_V2_TYPE if file.is_v2 else CAR_TYPE
            )
            answer = yield from attempt(call, sizes, upload.sent, is_divisible=not file.is_v2)
            if answer is not None:
                taken = decode(call, answer, CarTaken)
                if upload.outcome is None or ImportedCar(taken.roots, taken.blocks, taken.bytes) != upload.outcome:
                    raise ProofError(f"{what}: the gateway imported something other than this file", check="car")
                return upload.outcome
            upload.restart()
        parts = CarParts(settings, file, name)
        yield from send_parts(settings, parts, what, sizes, progress)
        return ImportedCar(parts.roots, parts.blocks, parts.bytes)


def put_payloads(
    settings: ClientSettings, datas: Iterable[Buffer], codec: str | int = "raw", sizes: PartSize | None = None
) -> Steps[list[str]]:
    """Steps of `AsyncClient.put_payloads`, which describes arguments and errors.

    `sizes` is how long requests may be, as learned from earlier calls.
    """
    number = _core.codec_code(codec)
    cids: list[str] = []
    for batch in _batches(settings, datas, number):
        if len(batch) == 1:
            cids.append((yield from put_payload(settings, batch[0], number)))
        else:
            named = [_core.Cid(_core.payload_cid(data, number)) for data in batch]
            yield from put_car(settings, _car(named, batch), f"put {len(batch)} payloads", sizes)
            cids += [cid.text for cid in named]
    return cids


def _car(cids: list[_core.Cid], payloads: list[bytes]) -> bytes:
    """Return a CAR of payloads."""
    heads = _core.block_heads(cids, payloads)
    return b"".join([_core.payload_car_header(), *chain.from_iterable(zip(heads, payloads, strict=True))])


def _batches(settings: ClientSettings, datas: Iterable[Buffer], codec: int) -> Generator[list[bytes], None, None]:
    """Group payloads into runs that fit a batch and its CAR; a payload that fits neither is a run of its own.

    Raises:
        TooLarge: A payload has more than ``max_payload_bytes`` bytes; the message names it.
    """
    any_cid = _core.Cid(_core.payload_cid(b"", codec))  # all of a codec have the same length
    empty = len(_core.payload_car_header())
    batch: list[bytes] = []
    size, car_size = 0, empty
    for index, data in enumerate(map(as_bytes, datas)):
        length = len(data)
        if length > settings.max_payload_bytes:
            raise TooLarge(f"datas[{index}]: {length} bytes; the limit is {settings.max_payload_bytes}")
        framed = len(_core.block_head(any_cid, length)) + length
        is_full = size + length > settings.batch_bytes or car_size + framed > MAX_WHOLE_CAR_BYTES
        if batch and (is_full or len(batch) == MAX_BATCH_BLOCKS):
            yield batch
            batch, size, car_size = [], 0, empty
        batch.append(data)
        size += length
        car_size += framed
    if batch:
        yield batch


def has_payloads(settings: ClientSettings, cids: Iterable[CidLike]) -> Steps[list[bool]]:
    """Steps of `AsyncClient.has_payloads`, which describes arguments and errors."""
    parsed = [bytes(_core.Cid(cid)) for cid in cids]
    present: list[bool] = []
    for start in range(0, len(parsed), MAX_HAS_CIDS):
        batch = parsed[start : start + MAX_HAS_CIDS]
        held = yield from held_payloads(settings, b"".join(batch), len(batch))
        present += [bool(held[index >> 3] >> (index & 7) & 1) for index in range(len(batch))]
    return present


def held_payloads(settings: ClientSettings, cids: Buffer, count: int) -> Steps[bytes]:
    """Steps of `AsyncClient.held_payloads`, which describes arguments and errors."""
    what = f"look up {count} payloads"
    size = -(-count // 8)
    call = Call("POST", "/v1/cas/has", settings.max_result_bytes, what, content=as_bytes(cids), content_type=OCTETS)
    answer: Answer = yield call
    if len(answer.body) != size or (size and count % 8 and answer.body[-1] >> count % 8):
        raise ProofError(f"{what}: the answer does not have one bit for each CID", check="answer")
    return answer.body
