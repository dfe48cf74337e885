"""CARs to import (``/v1/car``): files, and what was made or checked here."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from coregw._core import CarReader
from coregw.client.cars.parts import (
    CAR_TYPE,
    CAR_V2_TYPE,
    Advance,
    CarFile,
    CarParts,
    HeldCar,
    check_taken,
    naming,
    send_parts,
)
from coregw.client.exchange.answers import decode
from coregw.client.exchange.call import Body, Call, SentOnce
from coregw.client.files import CHUNK_BYTES, FileState
from coregw.client.operations.steps import Steps, attempt
from coregw.client.part_size import PartSize
from coregw.client.settings import ClientSettings
from coregw.client.spooled import SpooledBody
from coregw.errors import Conflict, ProofError
from coregw.messages.car import CarTaken

__all__ = ["CAR_TYPE", "Advance", "ImportedCar", "import_car", "put_car"]


@dataclass(frozen=True, slots=True)
class ImportedCar:
    """What a gateway imported: the roots of the file's header, and the number of blocks and bytes."""

    roots: list[str]
    blocks: int
    bytes: int


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
        self.restart()
        reader = CarReader(self._settings.max_payload_bytes, self._settings.max_car_blocks)
        with self._path.open("rb", buffering=0) as file:
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
    """Send a CAR that was made or checked here to the gateway, which imports all of it or nothing.

    If a connection does not last for it, it is sent in parts; what was acknowledged is not sent again.

    Args:
        settings: The client's settings.
        car: The CAR.
        what: The call in words, for messages.
        sizes: How long requests may be, as learned from earlier calls.

    Raises:
        InvalidInput: The gateway says that it is not a valid CAR.
        ProofError: The gateway's answer describes something other than this CAR.
        TooLarge: The CAR exceeds a limit of the gateway.
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
    """Send a CAR file to the gateway, which imports all of it or nothing.

    If a connection does not last for it, a CARv1 is sent in parts: payloads, then trees. What was acknowledged is not
    sent again, and the gateway keeps it if the import fails.

    Args:
        settings: The client's settings.
        path: The file; each attempt to send all of it reads it from the start.
        name: The file's name in messages; by default its path.
        progress: Progress callback; see `Advance`.
        sizes: How long requests may be, as learned from earlier calls.

    Raises:
        InvalidInput: The file is not a CAR, a block does not have its CID's hash (both found here), or a tree is
            incomplete (found by the gateway, or here); the message names the block.
        OSError: The file can't be read.
        ProofError: The gateway's answer describes something other than this file.
        TooLarge: The file exceeds a limit, of this client or of the gateway.
    """
    name = str(path) if name is None else name
    sizes = sizes or PartSize()
    what = f"import {name}"
    with CarFile(path) as file:
        if sizes.limit is None or file.length <= sizes.limit or file.is_v2:
            upload = _Upload(settings, path, name, progress)
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
