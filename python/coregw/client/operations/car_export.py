"""Export of a root to a new CAR file (``/v1/roots/{root}/car``).

It is checked while it is written (the hash of each block) and as a whole before the file gets its name (the root, and
that no node of the tree is missing). After a lost connection it is continued: the payload in which the answer ended by
its range, then the blocks after the last whole one. The format itself is implemented by the extension.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from msgspec.structs import replace

from coregw._core import CarReader, Cid, car_header
from coregw.client.operations.car_import import Advance, check_trees
from coregw.client.operations.payloads import payload_call, without_head
from coregw.client.operations.steps import Steps
from coregw.client.settings import ClientSettings
from coregw.client.transport.exchange import Call
from coregw.durability import NewFile
from coregw.errors import CoregwError, InvalidInput, NotFound, ProofError, TooLarge, Unavailable
from coregw.messages.roots import CAR_V2_START
from coregw.verify import CidLike

__all__ = ["ExportedCar", "NewCar"]

_MIN_CONTINUED_BYTES: Final = 64 << 10
"""A truncated payload is continued if this many bytes of it have come. Otherwise it is requested again with others."""


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
        self._head = b""  # of an answer that continues another: the part that is not received yet
        self._may_join = True  # a payload from two answers
        self._may_follow = True  # the blocks of an answer with those of another
        self._follows = self._is_continued = False

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
        calls = _ExportCalls(self._settings, self)
        call: Call | None = calls.next()
        while call is not None:
            try:
                yield call
            except (InvalidInput, NotFound, ProofError) as error:
                if calls.is_single:  # not held any more, or two answers have parts that do not fit: one has to have it
                    self._may_join = False
                elif self._follows and not isinstance(error, ProofError | TooLarge):  # an older gateway, or another
                    self._may_follow = False
                else:
                    raise
                call = calls.next()
            else:
                call = calls.next() if calls.is_single else None

    def finish(self) -> ExportedCar:
        """Check that the tree is complete, and give the file its name. O(n log n) of blocks; reads the file again.

        Raises:
            InvalidInput: `path` was created by somebody else meanwhile (code ``invalid_path``).
            ProofError: A node is missing or misplaced.
            Unavailable: A node is missing, and the file is of several answers.
        """
        blocks, size = self._reader.blocks, self._reader.bytes
        self._file.flush()
        with self._new.partial.open("rb") as file:
            if file.read(len(CAR_V2_START)) == CAR_V2_START:
                raise ProofError(f"{self._what}: the answer is a CARv2, not a CARv1", check="car")
            try:
                checked = check_trees(self._reader, lambda start, end: os.pread(file.fileno(), end - start, start))
            except InvalidInput as error:
                if self._is_continued:
                    message = f"{self._what}: the answers before and after a lost connection do not fit together"
                    raise Unavailable(f"{message}: {error.message}") from None
                raise self._not_proven(error) from None
        self._new.commit()
        missing = checked.missing_payloads, checked.missing_roots
        return ExportedCar(self._root.text, len(checked.roots) - 1, blocks, size, *missing)

    def write(self, chunk: bytes) -> None:
        """Check and write the next chunk (the `Sink` protocol). Raises `ProofError` if it is no part of one."""
        if self._head:
            self._head, chunk = without_head(self._head, chunk, f"{self._what}: the answer is not a CAR of this root")
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

    # What continues an answer

    @property
    def received(self) -> int:
        """Number of bytes that need not come again."""
        return self._reader.bytes

    def continued(self) -> tuple[str, int] | None:
        """Return the payload in which the last answer ended, and the byte from which on it is written next."""
        if not self._may_join or (unfinished := self._reader.unfinished) is None:
            return None
        cid, start = unfinished
        count = self._reader.bytes - start
        if count < _MIN_CONTINUED_BYTES:
            return None
        self._is_continued = True
        return cid.text, count

    def restart_continued(self) -> None:
        """Forget the part of that payload: its first byte is written next."""
        self._reader.restart_unfinished()
        self._cut()

    def restart(self, is_single: bool) -> Call:
        """Keep the blocks that are complete, and return the call for the others, whose answer is written next.

        Args:
            is_single: Whether the last answer was to bring the rest of a payload.
        """
        if not self._may_follow or self._reader.last_block is None:
            self._reader = self._new_reader()
        end = self._reader.rewind()
        if is_single and end < self._file.tell():
            self._may_join = False
        self._cut()
        params = {"payloads": "true"} if self._payloads else {}
        last = self._reader.last_block
        self._follows = self._is_continued = last is not None
        self._head = car_header(self._root) if last is not None else b""
        if last is not None:
            params |= {"after": last[0].text, "occurrence": str(last[1])}
        limit = self._settings.max_car_bytes - end + len(self._head)
        return Call("GET", f"/v1/roots/{self._root.text}/car", limit, self._what, params=params)

    def _cut(self) -> None:
        """Forget what the reader has forgotten."""
        end = self._reader.bytes
        self._progress(end - self._file.tell())
        self._file.seek(end)
        self._file.truncate()

    def _new_reader(self) -> CarReader:
        return CarReader(self._settings.max_payload_bytes, self._settings.max_car_blocks)

    def _not_proven(self, error: InvalidInput) -> ProofError:
        return ProofError(f"{self._what}: {error.message}", check="car")


class _ExportCalls:
    """The calls that bring a CAR (`coregw.client.transport.exchange.Divided`).

    After a truncated answer, the rest of the payload in which it ended is requested by its range, then the blocks that
    have not come.

    Attributes:
        is_single: Whether the last call requests the rest of a single payload.
    """

    def __init__(self, settings: ClientSettings, new: NewCar) -> None:
        self._settings = settings
        self._new = new
        self.is_single = False

    @property
    def done(self) -> int:
        """Number of bytes that need not come again."""
        return self._new.received

    def rest(self, _: CoregwError) -> Call:
        """Return the call to make after one that has failed."""
        if (continued := self._new.continued()) is None:
            return self.next()
        self.is_single = True
        cid, start = continued
        rest = _Rest(self._new, start)
        return replace(payload_call(self._settings, cid, None), sink=rest.restarted, partial=rest, divided=self)

    def next(self) -> Call:
        """Return the call for all blocks that are not complete."""
        call = self._new.restart(self.is_single)
        self.is_single = False
        return replace(call, sink=lambda: self._new, divided=self)


class _Rest:
    """A payload of which a receiver has a part (`coregw.client.transport.exchange.PartialAnswer`)."""

    def __init__(self, receiver: NewCar, size: int) -> None:
        self._receiver = receiver
        self.size = size
        self.senders: set[str] = set()  # the receiver requests all of it if the hash is wrong, whoever sent it

    def restarted(self) -> Self:
        self._receiver.restart_continued()
        self.size = 0
        return self

    def write(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._receiver.write(chunk)
