"""Adding a folder: each file becomes a payload or a measured list, the folder one map of their paths.

```
threads: read, hash ─► batches of payloads ─► which are held? ─► CARs of the others     several in flight
                                  │ all files are read
                                  ▼
         few changes of many files, and the root of the last time held completely? (also asked at the start)
                      │ no                            └──yes─► last batch ─► lists ─► mutations, whose proofs give
                      │                                                               the new root: done
                      ▼
         root ─► held completely? ──yes─► done: one request, unless there was more than one batch
                      │ no
                      ▼
         root of the last time held? ──no─► which of the remembered payloads are held? ─► read the others
                      │ yes
                      ▼
         last batch ─► lists ─► maps, or what has changed of them
```

Whatever is interrupted goes on where it was: payloads that were acknowledged are held, and are not sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol, TypeVar, TypeVarTuple

from msgspec import UNSET, UnsetType

from coregw import _core
from coregw.client.operations.mutate import Changes
from coregw.concurrency import for_each, in_stoppable_thread, in_thread
from coregw.errors import Conflict, RootNotFound, TooLarge, Unavailable
from coregw.folders.caches import UploadCache
from coregw.folders.tree import ALL, ATTRIBUTES_PATH, Recorded, Skipped, Survey, skipped_at, survey
from coregw.messages import Change, Delta, Endpoint, MutationReceipt
from coregw.verify import CidLike

__all__ = ["AddProgress", "Added", "FolderSink", "add_folder", "add_path"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BATCHES_IN_FLIGHT: Final = 3

_MAX_ATTEMPTS: Final = 5
_WAIT_SECONDS: Final = 0.05
_CID_BYTES: Final = 36
_MIN_CHANGES: Final = 64
_MAX_CHANGES: Final = 16_384
"""Changes of the maps are sent if they are few compared with the maps, and no more than this; otherwise the maps."""
_MAX_PROVEN_CHANGES: Final = 1024
_MIN_PROVEN_FILES: Final = 50_000
"""Roots are derived from proofs of few changes of many files; otherwise from all entries, in a microsecond each."""


class FolderSink(Protocol):
    """The methods of `AsyncClient` by which a folder is sent."""

    @property
    def switches(self) -> int:
        """How often another gateway became the one in use."""

    async def is_complete(self, root: CidLike) -> bool:
        """Return whether everything below a root is held."""

    async def held_payloads(self, cids: bytes, count: int) -> bytes:
        """Return which payloads are held."""

    async def put_car(self, data: bytes, what: str) -> None:
        """Send a CAR."""

    async def build_lines(self, lines: Callable[[int], Iterable[bytes]], root: str, suite: str) -> None:
        """Create a map."""

    async def apply_changes(self, targets: Sequence[Changes], what: str) -> None:
        """Change maps to what is known to result."""

    async def mutate(self, root: CidLike, deltas: Sequence[Delta]) -> MutationReceipt:
        """Change a map, and derive what results from the receipt's proofs."""


@dataclass(frozen=True)
class Added:
    """The result of `add_folder`.

    Attributes:
        root: The candidate root, computed here.
        files: Number of files that were added.
        lists: Number of targets that are lists.
        bytes: Total size of all files.
        sent: Number of bytes of payloads that were sent.
        skipped: What was left out, and why.
        folder: What was read of the folder.
    """

    root: str
    files: int
    lists: int
    bytes: int
    sent: int
    skipped: list[Skipped]
    folder: _core.FolderUpload = field(repr=False, compare=False)

    @cached_property
    def arcs(self) -> dict[str, str]:
        """The target of every file's path. O(files) the first time, and in memory from then on."""
        return self.folder.arcs()


def _ignore(_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class AddProgress:
    """Callbacks of `add_folder`; all but the first count bytes of files.

    Attributes:
        surveyed: Called with what was found, before anything is read.
        hashed: Called with further numbers of bytes that were read, or need not be read.
        sending: Called with further numbers of bytes that are to be sent.
        sent: Called with further numbers of bytes that the gateway has acknowledged.
    """

    surveyed: Callable[[Survey], None] = field(default=_ignore)
    hashed: Callable[[int], None] = field(default=_ignore)
    sending: Callable[[int], None] = field(default=_ignore)
    sent: Callable[[int], None] = field(default=_ignore)


async def add_path(
    client: FolderSink,
    path: Path,
    *,
    suite: str,
    recorded: Recorded,
    exclude: Sequence[str],
    gitignore: bool,
    use_cache: bool,
    progress: AddProgress,
) -> Added:
    """Survey a folder or file and add it, as `coregw.client.AsyncClient.add`, which describes the other arguments."""
    cache = UploadCache.of(path, f"{suite} fastcdc 64 KiB") if use_cache else UploadCache.none()
    async with _question(client, cache.probable_root()) as question:
        found = await in_stoppable_thread(survey, path, exclude, gitignore, "add", None)
        progress.surveyed(found)
        return await add_folder(client, found, suite, progress, cache, recorded, question)


@asynccontextmanager
async def _question(client: FolderSink, root: str | None) -> AsyncIterator[asyncio.Future[bool] | None]:
    """Ask whether a root is held completely, until the end of the context.

    The first such question may take the gateway as long as the survey of the folder takes here. Unless the answer is
    no, it is asked again when the folder was read, and the answer is quick then: only that one is young.
    """
    if root is None:
        yield None
        return
    question = asyncio.ensure_future(client.is_complete(root))
    try:
        yield question
    finally:
        question.cancel()
        await asyncio.gather(question, return_exceptions=True)


async def add_folder(
    client: FolderSink,
    found: Survey,
    suite: str = "sha2-256",
    progress: AddProgress = AddProgress(),
    cache: UploadCache | None = None,
    recorded: Recorded = ALL,
    question: asyncio.Future[bool] | None = None,
) -> Added:
    """Store every file of a survey and create the map of their paths.

    O(bytes) of files that the cache does not know; each is read once. Some 40 MiB of memory hold what was read and is
    not acknowledged; besides that, it is about 35 bytes for each entry. A file that changes while it is read is added
    as it was at one time, or skipped.

    Args:
        client: The client to send with.
        found: The files to add.
        suite: The suite of the map and of the lists.
        progress: Callbacks.
        cache: What is known of the files since the last time; saved at the end. None reads all files.
        recorded: Which attributes are part of the root.
        question: Whether the root of the last time is held completely, which is not asked again before this has ended.

    Raises:
        ProofError: The gateway's answers are not those that follow from what was sent.
        Unavailable: The gateway can't be reached, or can't store more.
    """
    cache = cache or UploadCache.none()
    for _ in range(_MAX_ATTEMPTS):
        switches = client.switches
        added = await _add(client, found, suite, progress, cache, recorded, question)
        # Another gateway may lack what an earlier one has acknowledged.
        if client.switches == switches or await client.is_complete(added.root):
            return added
    raise Unavailable("add: no gateway has answered for long enough to receive everything")


async def _add(
    client: FolderSink,
    found: Survey,
    suite: str,
    progress: AddProgress,
    cache: UploadCache,
    recorded: Recorded,
    question: asyncio.Future[bool] | None,
) -> Added:
    """Send what the gateway in use lacks."""
    folder = await in_thread(lambda: cache.upload(found, suite, xattrs=recorded.xattrs))
    try:
        upload = _Addition(client, folder, suite, progress, recorded, question)
        await upload.run()
        await in_thread(cache.save, folder, (upload.root, upload.attributes), recorded)
        files, lists, size = folder.totals()
        skipped = skipped_at(folder, recorded.attributes)
        return Added(upload.root, files, lists, size, upload.sent, skipped, folder)
    finally:
        folder.stop()


class _Addition:
    """The state of one `add_folder`: what the gateway has acknowledged."""

    def __init__(
        self,
        client: FolderSink,
        folder: _core.FolderUpload,
        suite: str,
        progress: AddProgress,
        recorded: Recorded,
        question: asyncio.Future[bool] | None,
    ) -> None:
        self.root = ""
        self.attributes: str | None = None
        self.sent = 0
        self._client = client
        self._folder = folder
        self._suite = suite
        self._progress = progress
        self._recorded = recorded.attributes, recorded.owner
        self._question = question
        self._has_base = False

    async def run(self) -> None:
        """Send what the gateway lacks."""
        await self._send_batches(self._folder.start)
        base, changes = self._folder.cached_root, await self._find_changes()
        few = changes if changes is not None and self._are_few(*changes) else None
        if base is not None and few is not None:
            self._has_base = await self._is_complete(base)
            if self._has_base and await self._change_maps(base, *few):
                return
        await self._derive_roots()
        # If a payload was missing, so is the root, or parts of what is below it.
        is_known = few is not None and base == self.root
        if not (self.sent or is_known) and await self._is_complete(self.root):
            return
        if base is not None and few is None:
            self._has_base = base != self.root and await self._is_complete(base)
        if self._has_base:
            await self._send_records()
            if base is not None and changes is not None and await self._send_changes(base, *changes):
                return
        if not self._has_base:  # or not any more
            await self._ask_for_remembered()
            await self._send_batches(self._folder.start_again)
            await self._derive_roots()
            await self._send_records()
        await self._send_maps()

    async def _is_complete(self, root: str) -> bool:
        if self._question is not None:
            (answer,) = await asyncio.gather(self._question, return_exceptions=True)
            if root == self._folder.cached_root:
                if answer is False:
                    return False  # which may have taken as long as a gateway works for a question
                if isinstance(answer, Unavailable):
                    raise answer  # after as many attempts as one question is worth
        return await self._client.is_complete(root)

    async def _in_thread(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        return await in_thread(work, *args, stop=self._folder.stop)

    async def _find_changes(self) -> tuple[list[Change], list[Change]] | None:
        """The changes of the folder's map, and of its attributes, since the last time; None if these are not few."""
        if self._folder.cached_root is None:
            return None
        most = min(_MAX_CHANGES, max(_MIN_CHANGES, self._folder.totals()[0] // 4))
        found = await self._in_thread(self._folder.changes, *self._recorded, most)
        if found is None:
            return None
        files, records = found
        return [_change(*each) for each in files], [_change(*each) for each in records]

    def _are_few(self, files: list[Change], records: list[Change]) -> bool:
        """Whether nothing has changed, or little compared with hashing all entries."""
        count = len(files) + len(records) + self._drops_attributes()
        return count == 0 or (count <= _MAX_PROVEN_CHANGES and self._folder.totals()[0] >= _MIN_PROVEN_FILES)

    def _drops_attributes(self) -> bool:
        """Whether the map of attributes of the last time has no successor, since none are recorded."""
        return self._recorded[0] == "none" and self._folder.cached_attributes is not None

    async def _change_maps(self, base: str, files: list[Change], records: list[Change]) -> bool:
        """Change the maps of the last time, which are held, and derive the roots; False if that is not possible."""
        old = self._folder.cached_attributes
        if records and old is None:
            return False
        if files or records:
            await self._send_records()
        try:
            new = None if old is None or self._drops_attributes() else await self._changed(old, records)
            if new == _core.Map({}, self._suite).root:
                new = None
            self.root = await self._changed(base, _with_attributes(files, old, new))
        except (Conflict, TooLarge):  # the cache is wrong
            return False
        except RootNotFound:
            self._has_base = False  # it has expired just now
            return False
        self.attributes = new
        return True

    async def _changed(self, root: str, changes: list[Change]) -> str:
        if not changes:
            return root
        return (await self._client.mutate(root, [Delta(kind="map", changes=changes)])).new_root

    async def _send_records(self) -> None:
        """Send the records of attributes that are payloads, and what waits for the last batch."""
        await self._send_batches(lambda: self._folder.start_records(*self._recorded, self._has_base))
        await self._send_batches(self._folder.flush)
        await self._send_lists(everything=True)

    async def _derive_roots(self) -> None:
        self.root, self.attributes = await self._in_thread(self._folder.roots, *self._recorded)

    async def _ask_for_remembered(self) -> None:
        """Find the files that the cache knows and the gateway lacks."""
        while (cids := await self._in_thread(self._folder.next_question)) is not None:
            held = await self._client.held_payloads(cids, len(cids) // _CID_BYTES)
            await self._in_thread(self._folder.answer, held)

    async def _send_batches(self, begin: Callable[[], None]) -> None:
        """Start to read, and send all full batches."""
        begin()

        async def send(_: int) -> None:
            while not self._folder.is_read:
                batch = await self._in_thread(self._folder.next_batch, _WAIT_SECONDS)
                self._progress.hashed(self._folder.take_progress())
                if batch is not None:
                    await self._send_batch(batch)

        await for_each(range(BATCHES_IN_FLIGHT), send, BATCHES_IN_FLIGHT)

    async def _send_batch(self, batch: _core.PayloadBatch) -> None:
        held = await self._client.held_payloads(batch.cids, len(batch))
        car, count, size = await self._in_thread(batch.car, held)
        if count:
            self._progress.sending(size)
            await self._client.put_car(car, f"send {count} payloads")
            self.sent += size
            self._progress.sent(size)
        self._folder.acknowledge(batch)
        await self._send_lists(everything=False)

    async def _send_lists(self, *, everything: bool) -> None:
        while (found := await self._in_thread(self._folder.lists_car, everything))[1]:
            car, count = found
            await self._client.put_car(car, f"send {count} lists")

    async def _send_changes(self, base: str, files: list[Change], records: list[Change]) -> bool:
        """Store both maps as changes of those of the last time, which are held; whether that was possible."""
        old, new = self._folder.cached_attributes, self.attributes
        if new is None:
            records = []
        elif records and old is None:
            return False
        maps = ((old, records, new), (base, _with_attributes(files, old, new), self.root))
        changed = [Changes(root, "map", changes, result) for root, changes, result in maps if root and changes]
        if not changed:
            return False
        try:
            await self._client.apply_changes(changed, "change the map")
        except (Conflict, TooLarge):  # the cache is wrong
            return False
        except RootNotFound:
            self._has_base = False  # it has expired just now
            return False
        return True

    async def _send_maps(self) -> None:
        """Store both maps."""
        folder, recorded, attributes = self._folder, self._recorded, self.attributes
        if attributes is not None:
            lines = lambda size: folder.record_lines(*recorded, size)  # noqa: E731 - as the next one
            await self._client.build_lines(lines, attributes, self._suite)
        await self._client.build_lines(lambda size: folder.file_lines(attributes, size), self.root, self._suite)


def _with_attributes(files: list[Change], before: str | None, after: str | None) -> list[Change]:
    """Changes of the folder's map, that of its map of attributes first."""
    return files if before == after else [_change("/".join(ATTRIBUTES_PATH), before, after), *files]


def _change(path: str, before: str | None, after: str | None) -> Change:
    return Change(path=path, before=_endpoint(before), after=_endpoint(after))


def _endpoint(target: str | None) -> Endpoint | UnsetType:
    return UNSET if target is None else Endpoint(target=target)
