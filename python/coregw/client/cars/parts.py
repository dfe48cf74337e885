"""CAR files in parts, for connections that do not last for a whole one: payloads first, then each tree by its leaves.

A part of the payloads is a CAR of its own. The gateway makes each tree again, from the arcs or elements that its leaves
in the CAR have: the root is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

import msgspec

from coregw._core import ArcSorter, CarReader, Cid, Need, Operation, block_cid, payload_car_header, read_varint
from coregw.client.cars.received import MAX_HEAD_BYTES, MAX_VARINT_BYTES
from coregw.client.exchange.answers import decode
from coregw.client.exchange.call import Answer, Call, SentOnce
from coregw.client.files import CHUNK_BYTES, FileState
from coregw.client.operations.root import build_sorted, create_list
from coregw.client.operations.steps import Steps, attempt
from coregw.client.part_size import PartSize
from coregw.client.settings import ClientSettings
from coregw.errors import Conflict, InvalidInput, ProofError, TooLarge
from coregw.messages.car import CAR_V2_START, CarTaken

__all__ = [
    "CAR_TYPE",
    "CAR_V2_TYPE",
    "Advance",
    "CarFile",
    "CarParts",
    "CheckedTrees",
    "HeldCar",
    "check_taken",
    "check_trees",
    "naming",
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
    """The bytes of a CARv1, such as `coregw.client.spooled.SpooledBody`."""

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

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._file = self._path.open("rb", buffering=0)
        self._state = FileState(self._file.fileno())
        self.length = os.fstat(self._file.fileno()).st_size
        self.is_v2 = self._file.read(len(CAR_V2_START)) == CAR_V2_START
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None and FileState(self._file.fileno()) != self._state:
                raise Conflict(f"{self._path} changed while it was read")

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
