"""CAR files: export a root to a file (``/v1/roots/{root}/car``) and import one (``/v1/car``).

An export is checked while it is written (the hash of each block) and as a whole before the file gets its name (the
root, and that no node of the tree is missing). The format itself is implemented by the extension.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import msgspec

from coregw._core import CarReader, Cid, Need, Operation, block_cid, payload_car_header
from coregw.client.exchange import Answer, Body, Call, SentOnce, decode
from coregw.client.files import CHUNK_BYTES, FileState, NewFile
from coregw.client.operations.steps import Steps
from coregw.client.part_size import PartSize
from coregw.client.query import CidLike
from coregw.client.received import MAX_HEAD_BYTES
from coregw.client.settings import ClientSettings
from coregw.client.spooled import SpooledBody
from coregw.errors import Conflict, CoregwError, InvalidInput, ProofError, TooLarge, Unavailable
from coregw.messages.car import CAR_V2_START, CarTaken

__all__ = ["CAR_TYPE", "ExportedCar", "ImportedCar", "NewCar", "import_car", "put_car"]

CAR_TYPE: Final = "application/vnd.ipld.car; version=1"

_CHECK_BUDGET: Final = 1 << 20  # of nodes; checking a CAR visits none

Advance = Callable[[int], None]
"""A progress callback: called with the bytes of each chunk, and with a negative number when an attempt restarts."""


@dataclass(frozen=True, slots=True)
class ExportedCar:
    """The content of a CAR file that was written.

    Attributes:
        root: The root; its tree is complete.
        nested_roots: Number of roots nested in it that are included, complete too.
        blocks: Number of blocks.
        bytes: Size of the file in bytes.
        missing_payloads: Number of leaves whose payload is not in the file.
        missing_roots: Number of leaves whose nested root is not in the file.
    """

    root: str
    nested_roots: int
    blocks: int
    bytes: int
    missing_payloads: int
    missing_roots: int


@dataclass(frozen=True, slots=True)
class ImportedCar:
    """What a gateway imported: the roots of the file's header, and the number of blocks and bytes."""

    roots: list[str]
    blocks: int
    bytes: int


class NewCar:
    """An export in progress to a new file, which appears complete and verified or not at all. A context manager.

    Args:
        settings: The client's settings.
        root: The root to export.
        path: The file to create.
        payloads: Whether to include the payloads that leaves name.
        progress: Progress callback; see `Advance`.

    Raises:
        InvalidInput: `root` is not a root, or `path` exists already (code ``invalid_path``).
    """

    def __init__(
        self, settings: ClientSettings, root: CidLike, path: Path, payloads: bool, progress: Advance | None
    ) -> None:
        self._root = Cid(root)
        if self._root.kind == "cas":
            raise InvalidInput(f"{self._root.text} is a payload, not a root", code="kind_mismatch")
        self._settings = settings
        self._payloads = payloads
        self._progress: Advance = progress if progress is not None else lambda count: None
        self._new = NewFile(path)
        self._what = f"export {self._root.text}"

    def __enter__(self) -> Self:
        self._file = self._new.__enter__().file
        self._reader = self._new_reader()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._new.__exit__(kind, error, traceback)

    def fetch(self) -> Steps[None]:
        """Write the file, and check the hash of every block.

        Raises:
            ProofError: The answer is not a CAR of this root, or a block does not have its CID's hash.
            RootNotFound: The gateway says that it does not hold the root.
            TooLarge: The CAR exceeds ``max_car_bytes``, ``max_car_blocks`` or ``max_payload_bytes``.
            Unavailable: Every attempt was truncated.
        """
        yield Call(
            "GET",
            f"/v1/roots/{self._root.text}/car",
            self._settings.max_car_bytes,
            self._what,
            params={"payloads": "true"} if self._payloads else {},
            sink=self._restarted,
        )

    def finish(self) -> ExportedCar:
        """Check that the tree is complete, and give the file its name. O(n log n) of blocks; reads the file again.

        Raises:
            InvalidInput: `path` was created by somebody else meanwhile (code ``invalid_path``).
            ProofError: A node is missing or misplaced.
        """
        blocks, size = self._reader.blocks, self._reader.bytes
        self._file.flush()
        with self._new.partial.open("rb") as file:
            if file.read(len(CAR_V2_START)) == CAR_V2_START:
                raise ProofError(f"{self._what}: the answer is a CARv2, not a CARv1", check="car")
            try:
                checked = _check(self._reader, file)
            except InvalidInput as error:
                raise self._not_proven(error) from None
        self._new.commit()
        missing = checked.missing_payloads, checked.missing_roots
        return ExportedCar(self._root.text, len(checked.roots) - 1, blocks, size, *missing)

    def write(self, chunk: bytes) -> None:
        """Check and write the next chunk (the `Sink` protocol)."""
        try:
            self._reader.feed(chunk)
        except TooLarge:
            raise
        except InvalidInput as error:
            raise self._not_proven(error) from None
        if self._reader.roots not in (None, [self._root.text]):
            raise ProofError(f"{self._what}: the header of the CAR names other roots", check="car")
        self._file.write(chunk)
        self._progress(len(chunk))

    def _restarted(self) -> Self:
        """Discard what an earlier attempt wrote."""
        self._progress(-self._file.tell())
        self._file.seek(0)
        self._file.truncate()
        self._reader = self._new_reader()
        return self

    def _new_reader(self) -> CarReader:
        return CarReader(self._settings.max_payload_bytes, self._settings.max_car_blocks)

    def _not_proven(self, error: InvalidInput) -> ProofError:
        return ProofError(f"{self._what}: {error.message}", check="car")


class _CheckedCar(msgspec.Struct, frozen=True):
    """The roots of a CAR whose trees are complete, and the numbers of leaves whose payload or root it lacks."""

    roots: list[str]
    missing_payloads: int
    missing_roots: int


def _check(reader: CarReader, file: BinaryIO) -> _CheckedCar:
    """Check the trees of a CAR, whose bytes are in `file`."""
    operation = Operation.check_car(reader)
    while isinstance(polled := operation.poll(_CHECK_BUDGET), Need):
        if polled.span is not None:
            start, end = polled.span
            operation.supply_bytes(os.pread(file.fileno(), end - start, start))
    return msgspec.json.decode(polled, type=_CheckedCar)


class _Upload:
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
        self._progress(-self._sent)
        self._sent = 0
        reader = CarReader(self._settings.max_payload_bytes, self._settings.max_car_blocks)
        with self._path.open("rb", buffering=0) as file:
            before = FileState(file.fileno())
            while chunk := file.read(CHUNK_BYTES):
                with self._naming_the_file():
                    reader.feed(chunk)
                yield chunk
                self._sent += len(chunk)
                self._progress(len(chunk))
            if FileState(file.fileno()) != before:
                raise Conflict(f"{self._name} changed while it was read")
        self.outcome = ImportedCar(reader.roots or [], reader.blocks, reader.bytes)
        with self._naming_the_file():
            reader.check_end()

    @contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        try:
            yield
        except InvalidInput as error:
            raise type(error)(f"{self._name}: {error.message}", code=error.code) from None


def put_car(
    settings: ClientSettings, car: bytes | SpooledBody, what: str, sizes: PartSize | None = None
) -> Steps[None]:
    """Send a CAR that was made or checked here to the gateway, which imports all of it or nothing.

    If it has only payloads, it is sent in parts after a failure; what was acknowledged is not sent again.

    Args:
        settings: The client's settings.
        car: The CAR.
        what: The call in words, for messages.
        sizes: How long the parts may be, as is known of earlier calls.

    Raises:
        InvalidInput: The gateway says that it is not a valid CAR.
        ProofError: The gateway's answer describes something other than this CAR.
        TooLarge: The CAR exceeds a limit of the gateway.
    """
    parts = _Parts(settings, car, what, sizes or PartSize())
    while True:
        answer: Answer = yield (call := parts.next())
        if decode(call, answer, CarTaken).bytes != parts.size:
            raise ProofError(f"{what}: the gateway imported something other than this CAR", check="car")
        if parts.is_acknowledged():
            return


class _Parts:
    """The requests for one CAR (`coregw.client.exchange.Divided`).

    Attributes:
        done: Number of bytes of the CAR that were acknowledged.
        size: The size of the body of the last call.
    """

    def __init__(self, settings: ClientSettings, car: bytes | SpooledBody, what: str, sizes: PartSize) -> None:
        self._settings = settings
        self._car = car
        self._length = len(car) if isinstance(car, bytes) else car.length
        self._what = what
        self._sizes = sizes
        self._header = payload_car_header()
        self._is_divisible: bool | None = None
        self._end = 0  # of what the last call sends
        self.done = 0
        self.size = 0

    def next(self) -> Call:
        """Return the call for the first bytes that were not acknowledged."""
        limit = self._sizes.limit
        if self.done == 0 and (limit is None or self._length <= limit or not self._has_parts()):
            self._end = self.size = self._length
            content: Body | SentOnce = self._car if isinstance(self._car, SpooledBody) else SentOnce(self._car)
        else:
            content = self._part(max(self.done, len(self._header)), limit or self._length)
        most = self._settings.max_result_bytes
        return Call("POST", "/v1/car", most, self._what, content=content, content_type=CAR_TYPE, divided=self)

    def rest(self, error: CoregwError) -> Call:
        if isinstance(error, Unavailable) and error.is_interrupted:
            self._sizes.failed(self.size)
        return self.next()

    def is_acknowledged(self) -> bool:
        """Note that the gateway has what the last call sent, and return whether that was all."""
        self._sizes.succeeded()
        self.done = self._end
        return self.done == self._length

    def _has_parts(self) -> bool:
        """Return whether the CAR has only payloads: other blocks are imported all or none."""
        if self._is_divisible is None:
            self._is_divisible = self._read(0, len(self._header)) == self._header
            at = len(self._header)
            while self._is_divisible and at < self._length:
                cid, at = self._block(at)
                self._is_divisible = cid.kind == "cas"
        return self._is_divisible

    def _part(self, start: int, limit: int) -> SentOnce | _Span:
        """Return a CAR of the blocks from byte `start` on, at least one, that has about `limit` bytes."""
        self._end = start
        while self._end < self._length:
            _, end = self._block(self._end)
            if self._end > start and end - start > limit:
                break
            self._end = end
        self.size = len(self._header) + self._end - start
        if isinstance(self._car, SpooledBody):
            return _Span(self._header, self._car, start, self._end)
        return SentOnce(self._header + self._car[start : self._end])

    def _block(self, at: int) -> tuple[Cid, int]:
        """Return the CID of the block at byte `at`, and where the block ends."""
        head = self._read(at, min(self._length, at + MAX_HEAD_BYTES))
        length = used = 0
        while (byte := head[used]) >= 0x80:
            length |= (byte & 0x7F) << (7 * used)
            used += 1
        cid, _ = block_cid(head[used + 1 :])
        return cid, at + used + 1 + (length | byte << (7 * used))

    def _read(self, start: int, end: int) -> bytes:
        return self._car[start:end] if isinstance(self._car, bytes) else b"".join(self._car.span(start, end))


@dataclass(frozen=True, slots=True)
class _Span:
    """A CAR of some blocks of another one, as a request body."""

    header: bytes
    car: SpooledBody
    start: int
    end: int

    def chunks(self) -> Generator[bytes, None, None]:
        yield self.header
        yield from self.car.span(self.start, self.end)


def import_car(settings: ClientSettings, path: Path, name: str | None, progress: Advance | None) -> Steps[ImportedCar]:
    """Send a CAR file to the gateway, which imports all of it or nothing.

    Args:
        settings: The client's settings.
        path: The file; each attempt reads it from the start.
        name: The file's name in messages; by default its path.
        progress: Progress callback; see `Advance`.

    Raises:
        InvalidInput: The file is not a CAR, a block does not have its CID's hash (both found here), or a tree is
            incomplete (found by the gateway); the message names the block.
        OSError: The file can't be read.
        ProofError: The gateway's answer describes something other than this file.
        TooLarge: The file exceeds a limit, of this client or of the gateway.
    """
    name = str(path) if name is None else name
    upload = _Upload(settings, path, name, progress)
    call = Call("POST", "/v1/car", settings.max_result_bytes, f"import {name}", content=upload, content_type=CAR_TYPE)
    answer: Answer = yield call
    taken = decode(call, answer, CarTaken)
    if upload.outcome is None or ImportedCar(taken.roots, taken.blocks, taken.bytes) != upload.outcome:
        raise ProofError(f"{call.what}: the gateway imported something other than this file", check="car")
    return upload.outcome
