"""Roots as CAR files: out of a gateway into a file that is proven, and from a file into a gateway.

An export is checked here block by block while it is written, and as a whole before it gets its name: the hash of each
block, the root, and that no node of the tree is missing. Leaves out the format (the extension) and HTTP.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from coregw._core import Car, CarReader, Cid
from coregw.client.operations import Steps
from coregw.client.payloads import CHUNK_BYTES, FileState, NewFile
from coregw.client.questions import CidLike
from coregw.client.settings import ClientSettings
from coregw.client.wire import Answer, Call, decode
from coregw.errors import Conflict, InvalidInput, ProofError, TooLarge
from coregw.messages.cars import CarTaken

__all__ = ["ExportedCar", "ImportedCar", "NewCar", "import_car"]

CAR_TYPE = "application/vnd.ipld.car; version=1"

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ExportedCar:
    """What a CAR file that was written holds.

    Attributes:
        root: The root, whose tree is whole.
        nested_roots: How many roots nested in it are there as well, whole too.
        blocks: Number of blocks.
        bytes: Size of the file in bytes.
        missing_payloads: How many leaves name a payload that is not in the file.
    """

    root: str
    nested_roots: int
    blocks: int
    bytes: int
    missing_payloads: int


@dataclass(frozen=True, slots=True)
class ImportedCar:
    """What a gateway took in: the roots of the file's header, and how many blocks and bytes."""

    roots: list[str]
    blocks: int
    bytes: int


class NewCar:
    """An export on its way to a new file, which appears whole and verified, or not at all. A context manager.

    Args:
        settings: The client's settings.
        root: The root to export.
        path: The file to make.
        payloads: Whether to ask for the payloads that leaves name.
        progress: Is told the number of bytes of each piece; fewer than none when an attempt begins anew.

    Raises:
        InvalidInput: `root` is no root, or something exists at `path` (code ``invalid_path``).
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
        """Writes the file, checking the hash of every block.

        Raises:
            ProofError: It is no CAR of this root, or a block has another hash.
            RootNotFound: The gateway says that it has no such root.
            TooLarge: It is past ``max_car_bytes``, ``max_car_blocks`` or ``max_payload_bytes``.
            Unavailable: The stream broke off, again and again.
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
        """Checks that the tree is whole, and gives the file its name. O(n log n) of blocks; reads the file again.

        Raises:
            InvalidInput: Something appeared at the path meanwhile (code ``invalid_path``).
            ProofError: A node is missing, or is where it does not belong.
        """
        blocks, size = self._reader.blocks, self._reader.bytes
        self._file.flush()
        with self._new.partial.open("rb") as file:
            try:
                car = self._reader.finish()
                _check(car, file)
            except InvalidInput as error:
                raise self._not_proven(error) from None
        self._new.commit()
        return ExportedCar(self._root.text, len(car.roots) - 1, blocks, size, car.missing_payloads)

    def write(self, chunk: bytes) -> None:
        """Takes the next piece, as a `Sink`."""
        try:
            self._reader.feed(chunk)
        except TooLarge:
            raise
        except InvalidInput as error:
            raise self._not_proven(error) from None
        if self._reader.roots not in (None, [self._root.text]):
            raise ProofError(f"{self._what}: the CAR is of other roots", check="car")
        self._file.write(chunk)
        self._progress(len(chunk))

    def _restarted(self) -> Self:
        """Begins anew: an attempt that broke off leaves nothing."""
        self._progress(-self._file.tell())
        self._file.seek(0)
        self._file.truncate()
        self._reader = self._new_reader()
        return self

    def _new_reader(self) -> CarReader:
        return CarReader(self._settings.max_payload_bytes, self._settings.max_car_blocks)

    def _not_proven(self, error: InvalidInput) -> ProofError:
        return ProofError(f"{self._what}: {error.message}", check="car")


def _check(car: Car, file: BinaryIO) -> None:
    while (span := car.check()) is not None:
        start, end = span
        car.supply(start, os.pread(file.fileno(), end - start, start))


class _Upload:
    """A CAR file to send, checked block by block as it goes, so that a damaged one is found here."""

    def __init__(self, settings: ClientSettings, path: Path, name: str, progress: Advance | None) -> None:
        self._settings = settings
        self._path = path
        self._name = name
        self._progress: Advance = progress if progress is not None else lambda count: None
        self._sent = 0
        self.outcome = ImportedCar([], 0, 0)

    def chunks(self) -> Generator[bytes, None, None]:
        """The file in pieces. Raises `InvalidInput`, naming the block, `Conflict` if it changes, or `OSError`."""
        self._progress(-self._sent)
        self._sent = 0
        reader = CarReader(self._settings.max_payload_bytes, self._settings.max_car_blocks)
        with self._path.open("rb", buffering=0) as file:
            before = FileState(file.fileno())
            while chunk := file.read(CHUNK_BYTES):
                self._feed(reader, chunk)
                yield chunk
                self._sent += len(chunk)
                self._progress(len(chunk))
            if FileState(file.fileno()) != before:
                raise Conflict(f"{self._name} changed while it was read")
        self.outcome = ImportedCar(reader.roots or [], reader.blocks, reader.bytes)
        self._feed(reader, b"")

    def _feed(self, reader: CarReader, chunk: bytes) -> None:
        """The next piece; no bytes are the end."""
        try:
            if chunk:
                reader.feed(chunk)
            else:
                reader.finish()
        except InvalidInput as error:
            raise type(error)(f"{self._name}: {error.message}", code=error.code) from None


def import_car(settings: ClientSettings, path: Path, name: str | None, progress: Advance | None) -> Steps[ImportedCar]:
    """Sends a CAR file to the gateway, which takes all of it or nothing.

    Args:
        settings: The client's settings.
        path: The file. It is read anew for each attempt.
        name: What messages call it; its path if not given.
        progress: Is told the number of bytes of each piece; fewer than none when an attempt begins anew.

    Raises:
        InvalidInput: It is no CAR, a block has another hash (found here), or the blocks are not whole trees (found by
            the gateway); the message names the block.
        OSError: The file can't be read.
        ProofError: The gateway says that it took something else.
        TooLarge: It is past a limit, here or there.
    """
    name = str(path) if name is None else name
    upload = _Upload(settings, path, name, progress)
    call = Call("POST", "/v1/car", settings.max_result_bytes, f"import {name}", content=upload, content_type=CAR_TYPE)
    answer: Answer = yield call
    taken = decode(call, answer, CarTaken)
    if ImportedCar(taken.roots, taken.blocks, taken.bytes) != upload.outcome:
        raise ProofError(f"{call.what}: the gateway says that it took something else", check="car")
    return upload.outcome
