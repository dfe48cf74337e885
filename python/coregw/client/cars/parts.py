"""CAR files in parts, for connections that do not last for a whole one: payloads first, then each tree by its leaves.

A part of the payloads is a CAR of its own. The gateway makes each tree again, from the arcs or elements that its leaves
in the CAR have: the root is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from coregw._core import CarReader, Cid, Need, Operation, block_cid, payload_car_header
from coregw.client.cars.received import MAX_HEAD_BYTES
from coregw.client.exchange import Answer, Call, SentOnce, decode
from coregw.client.files import CHUNK_BYTES, FileState
from coregw.client.operations.root import build_sorted, create_list, sort_arcs
from coregw.client.operations.steps import Steps, attempt
from coregw.client.part_size import PartSize
from coregw.client.settings import ClientSettings
from coregw.errors import Conflict, InvalidInput, ProofError, TooLarge
from coregw.messages.car import CAR_V2_START, CarTaken

__all__ = [
    "CAR_TYPE",
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

Advance = Callable[[int], None]
"""A progress callback: called with the bytes of each chunk, and with a negative number when an attempt restarts."""

_CHECK_BUDGET: Final = 1 << 20  # of nodes; checking a CAR visits none
_MAX_MEMORY_BYTES: Final = 4 << 20
"""A longer part is not read into memory."""

_DIGEST_BYTES: Final = 32
_MAP_LEAF, _MAP_INNER, _LIST_LEAF, _LIST_INNER = 0x01, 0x02, 0x11, 0x12


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

    Memory is about 200 bytes for each tree node.

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
        self._nodes: dict[bytes, tuple[int, int]] = {}
        self.roots: list[str] = []
        self.blocks = self.bytes = 0
        self.first = self._length(0)[1]
        self._feed(min(self.first, car.length))

    def payloads(self, start: int, limit: int | None) -> CarPart:
        """Return a part with payloads from byte `start` on, in about `limit` bytes, at least one if there is one."""
        part = CarPart(self._car, start)
        while part.end < self._car.length:
            begin, end = self._length(part.end)
            self._feed(min(end, self._car.length))
            if end > self._car.length:
                break
            cid, size = block_cid(self._read(begin, min(end, begin + MAX_HEAD_BYTES)))
            if cid.kind != "cas":
                self._nodes[_digest(cid)] = begin + size, end
                part.end = end
                if end - self._fed >= CHUNK_BYTES:  # the reader limits their number
                    self._feed(end)
            elif part.count and limit is not None and part.size + end - part.end > limit:
                break
            else:
                part.add(end)
        return part

    def trees(self) -> list[Cid]:
        """Return the roots of all trees, which are complete, those of the header last. Only after all payloads."""
        with naming(self._name):
            self._reader.check_end()
            self.roots, self.blocks, self.bytes = self._reader.roots or [], self._reader.blocks, self._reader.bytes
            roots = check_trees(self._reader, self._read).roots
        return [Cid(root) for root in sorted(roots, key=set(self.roots).__contains__)]

    def arcs(self, root: Cid) -> Generator[tuple[list[str], Cid], None, None]:
        """Yield the paths and targets of a map."""
        for leaf in self._leaves(root):
            key, at = _field(leaf, 1)
            yield _segments(key), Cid(_field(leaf, at)[0])

    def elements(self, root: Cid) -> tuple[list[Cid], list[int]]:
        """Return the targets and measures of a list.

        Raises:
            TooLarge: There are more than `ClientSettings.max_entries`: a node of the CAR may be in the list any number
                of times.
        """
        targets: list[Cid] = []
        sizes: list[int] = []
        for leaf in self._leaves(root):
            if len(targets) == self._max_entries:
                raise TooLarge(f"{root.text} has more than {self._max_entries:,} elements")
            size, at = _varint(leaf, 1)
            targets.append(Cid(_field(leaf, at)[0]))
            sizes.append(size)
        return targets, sizes

    def _leaves(self, root: Cid) -> Generator[bytes, None, None]:
        """Yield the leaves of a tree, which is complete, from left to right."""
        nodes = [_digest(root)]
        while nodes:
            node = self._read(*self._nodes[nodes.pop()])
            if node[0] in (_MAP_LEAF, _LIST_LEAF):
                yield node
            elif node[0] in (_MAP_INNER, _LIST_INNER):
                at = 1
                if node[0] == _MAP_INNER:
                    bit, at = _varint(node, 1)
                    at += (bit + 7) // 8
                children = []
                for _ in range(2):
                    for _ in range(1 if node[0] == _MAP_INNER else 2):
                        _, at = _varint(node, at)
                    children.append(node[at : at + _DIGEST_BYTES])
                    at += _DIGEST_BYTES
                nodes += reversed(children)

    def _length(self, at: int) -> tuple[int, int]:
        """Return where the frame whose length is at byte `at` begins and ends; after the CAR, if it is truncated."""
        try:
            length, size = _varint(self._read(at, min(self._car.length, at + 10)), 0)
        except IndexError:
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
    for root in parts.trees():
        suite = root.suite or ""
        if root.kind == "map":
            made = yield from build_sorted(settings, sort_arcs(parts.arcs(root)), suite, sizes)
        else:
            made = yield from create_list(settings, *parts.elements(root), suite=suite, parts=sizes)
        if made != root.text:
            raise InvalidInput(f"{what}: {root.text} is not the root of a tree of the protocol's shape")


def check_taken(call: Call, answer: Answer, size: int) -> None:
    """Raise `ProofError` if a gateway did not import a CAR of this size."""
    if decode(call, answer, CarTaken).bytes != size:
        raise ProofError(f"{call.what}: the gateway imported something other than this CAR", check="car")


def _digest(cid: Cid) -> bytes:
    return bytes(cid)[-_DIGEST_BYTES:]


def _segments(key: bytes) -> list[str]:
    """Return the path of a key (protocol section 2)."""
    return [part.replace(b"\x00\xff", b"\x00").decode() for part in key[:-2].split(b"\x00\x01")]


def _field(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes after their length at byte `at`, and where they end."""
    length, at = _varint(data, at)
    return data[at : at + length], at + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at byte `at`, and where it ends."""
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1
