"""Adding a folder: each file becomes a payload or a measured list, the folder one map of their paths.

```
survey ─► hash (all cores) ─► root ─► held completely? ──yes─► done: one request
                                            │ no
                                            ▼
             which payloads are held? ─► CARs of the others, several in flight ─► lists ─► map
```

Whatever is interrupted goes on where it was: payloads that were acknowledged are held, and are not sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import anyio.to_thread
from msgspec import UNSET, UnsetType

from coregw import _core
from coregw.client.folders.local import LocalFolder, Part
from coregw.client.folders.parallel import for_each
from coregw.client.operations.steps import check_same_cid
from coregw.client.query import CidLike
from coregw.errors import Conflict, RootNotFound, TooLarge
from coregw.folders.attributes import ATTRIBUTES_PATH
from coregw.folders.stat_cache import StatCache
from coregw.folders.survey import Skipped, Survey
from coregw.folders.tree import ALL, Recorded
from coregw.messages import Change, Delta, Endpoint, MutationReceipt

__all__ = ["AddProgress", "Added", "FolderSink", "add_folder"]

CAR_BYTES: Final = 8 << 20
"""The payloads of one CAR have at most this many bytes, give or take one."""

CARS_IN_FLIGHT: Final = 3

_CIDS_AT_ONCE: Final = 4096
_QUESTIONS_IN_FLIGHT: Final = 2
_LISTS_AT_ONCE: Final = 500
_MAX_ATTEMPTS: Final = 4
_MIN_CHANGES: Final = 64


class FolderSink(Protocol):
    """The methods of `AsyncClient` by which a folder is sent."""

    async def is_complete(self, root: CidLike) -> bool:
        """Return whether everything below a root is held."""

    async def has_payloads(self, cids: Iterable[CidLike]) -> list[bool]:
        """Return which payloads are held."""

    async def put_payload(self, data: bytes, codec: str) -> str:
        """Store a payload."""

    async def put_car(self, data: bytes, what: str) -> None:
        """Send a CAR."""

    async def create_root(self, arcs: Mapping[str, CidLike], suite: str) -> str:
        """Create a map."""

    async def mutate(self, root: CidLike, deltas: Sequence[Delta]) -> MutationReceipt:
        """Change a map."""


@dataclass(frozen=True, slots=True)
class Added:
    """The result of `add_folder`.

    Attributes:
        root: The candidate root, computed here.
        arcs: The target of every file's path.
        lists: Number of targets that are lists.
        bytes: Total size of all files.
        sent: Number of bytes of payloads that were sent.
        skipped: What was left out, and why.
    """

    root: str
    arcs: dict[str, str]
    lists: int
    bytes: int
    sent: int
    skipped: list[Skipped]


def _ignore(count: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class AddProgress:
    """Callbacks of `add_folder`; all of them count bytes of files.

    Attributes:
        hashed: Called for files whose targets are known.
        sending: Called with the number of bytes that are to be sent.
        sent: Called for bytes that the gateway has acknowledged.
    """

    hashed: Callable[[int], None] = field(default=_ignore)
    sending: Callable[[int], None] = field(default=_ignore)
    sent: Callable[[int], None] = field(default=_ignore)


async def add_folder(
    client: FolderSink,
    found: Survey,
    suite: str = "sha2-256",
    progress: AddProgress = AddProgress(),
    cache: StatCache | None = None,
    recorded: Recorded = ALL,
) -> Added:
    """Store every file of a survey and create the map of their paths.

    O(bytes) of files that the cache does not know. Some 50 MiB of memory hold what is in flight; the rest grows with
    the number of files. A file is read once more if its payloads have to be sent. If it changed meanwhile, its new
    bytes are added; if it grew, those that it had. A file that keeps changing is skipped.

    Args:
        client: The client to send with.
        found: The files to add.
        suite: The suite of the map and of the lists.
        progress: Callbacks.
        cache: What is known of the files since the last time; saved at the end. None reads all files.
        recorded: Which attributes are part of the root.

    Raises:
        ProofError: The gateway's answers are not those that follow from what was sent.
        Unavailable: The gateway can't be reached, or can't store more.
    """
    folder = LocalFolder(found, suite, cache or StatCache.none(), progress.hashed)
    try:
        await anyio.to_thread.run_sync(folder.read_all, abandon_on_cancel=True)
        upload = _Upload(client, folder, suite, progress, recorded)
        if not await upload.is_held():
            await upload.send_all()
        await upload.save()
        return upload.added()
    finally:
        folder.is_stopped.set()


class _Upload:
    """The state of one `add_folder`: what the gateway has acknowledged."""

    def __init__(
        self, client: FolderSink, folder: LocalFolder, suite: str, progress: AddProgress, recorded: Recorded
    ) -> None:
        self.sent = 0
        self._recorded = recorded
        self._records: list[tuple[str, str, bytes]] = []
        self._client = client
        self._folder = folder
        self._suite = suite
        self._progress = progress
        self._held: set[str] = set()
        self._has_base = False
        self._attributes: str | None = None
        self.root = ""

    async def is_held(self) -> bool:
        """Whether the gateway holds everything already: one question.

        If it does not, another question is whether it holds all of what was added the last time.
        """
        self.root = _core.Map(await self._files(), self._suite).root
        if await self._client.is_complete(self.root):
            return True
        cache = self._folder.cache
        if cache.root is not None and cache.root != self.root and await self._client.is_complete(cache.root):
            self._has_base = True
            self._held.update(cache.targets.values())
        return False

    async def _files(self) -> dict[str, str]:
        """The arcs of the folder's map, with the one of the map of attributes (protocol section 7)."""
        self._records = await anyio.to_thread.run_sync(self._folder.records, self._recorded)
        self._attributes = _core.Map(self._record_targets(), self._suite).root if self._records else None
        return _with_attributes(self._folder.arcs, self._attributes)

    def _record_targets(self) -> dict[str, str]:
        return {path: target for path, target, _ in self._records}

    async def save(self) -> None:
        """Write the cache, for the next time."""
        await anyio.to_thread.run_sync(self._folder.save, self.root, self._attributes, self._record_targets())

    def added(self) -> Added:
        """The result."""
        folder = self._folder
        lists = sum(_core.Cid(target).kind == "list" for target in folder.arcs.values())
        return Added(self.root, folder.arcs, lists, folder.bytes, self.sent, folder.skipped)

    async def send_all(self) -> None:
        """Send what the gateway lacks, then the maps. Files that change meanwhile are read again, or left out."""
        for attempt in range(_MAX_ATTEMPTS):
            if not (changed := await self.send()):
                break
            follow_up = self._folder.read_again if attempt < _MAX_ATTEMPTS - 1 else self._folder.leave_out
            await anyio.to_thread.run_sync(follow_up, changed, abandon_on_cancel=True)
        await self.send_map()

    async def send_map(self) -> None:
        """Store both maps: in one request, as changes of those of the last time, if that is shorter."""
        arcs = await self._files()
        self.root = _core.Map(arcs, self._suite).root
        held = set(self._folder.cache.records.values()) if self._has_base else set()
        for _, target, record in self._records:
            if target not in held and _core.Cid(target).hash_name != "identity":
                await self._client.put_payload(record, codec="dag-cbor")
        if self._has_base and (deltas := self._deltas(arcs)):
            base = self._folder.cache.root or ""
            with suppress(Conflict, RootNotFound, TooLarge):  # the cache is wrong, or the root has expired just now
                receipt = await self._client.mutate(base, deltas)
                check_same_cid("change the map", receipt.new_root, self.root)
                return
        if self._records:
            await self._client.create_root(self._record_targets(), self._suite)
        self.root = await self._client.create_root(arcs, self._suite)

    def _deltas(self, arcs: dict[str, str]) -> list[Delta]:
        """The changes from the maps of the last time, attributes first; none if the maps themselves are shorter."""
        cache, records = self._folder.cache, self._record_targets()
        files = _changes(_with_attributes(cache.targets, cache.attributes), arcs)
        attributes = _changes(cache.records, records) if records else []
        if len(files) + len(attributes) > max(_MIN_CHANGES, (len(arcs) + len(records)) // 8):
            return []
        if attributes and cache.attributes is None:
            return []
        changed = ((cache.attributes, attributes), (cache.root, files))
        return [Delta(kind="map", object=root, changes=changes) for root, changes in changed if root and changes]

    async def send(self) -> set[str]:
        """Send all payloads and lists that the gateway lacks; return targets whose files have other bytes meanwhile."""
        targets = [target for target in self._folder.contents if target not in self._held]
        changed = set(await anyio.to_thread.run_sync(self._folder.learn_chunks, targets, abandon_on_cancel=True))
        owners: dict[str, tuple[str, Part]] = {}
        for target in targets:
            if target not in changed:
                for part in self._folder.contents[target].parts():
                    owners.setdefault(part[3], (target, part))
        missing = await self._missing([cid for cid in owners if cid not in self._held])
        self._progress.sending(sum(owners[cid][1][2] for cid in missing))

        async def send(parts: list[Part]) -> None:
            failed = await self._send_parts(parts)
            changed.update(owners[part[3]][0] for part in failed)

        await for_each(_groups(owners[cid][1] for cid in missing), send, CARS_IN_FLIGHT)
        await self._send_lists([target for target in targets if target not in changed])
        self._held.update(target for target in targets if target not in changed)
        return changed

    async def _missing(self, cids: list[str]) -> list[str]:
        """Those of these payloads that the gateway does not hold."""
        missing: dict[int, list[str]] = {}

        async def ask(start: int) -> None:
            batch = cids[start : start + _CIDS_AT_ONCE]
            held = await self._client.has_payloads(batch)
            self._held.update(cid for cid, is_held in zip(batch, held, strict=True) if is_held)
            missing[start] = [cid for cid, is_held in zip(batch, held, strict=True) if not is_held]

        await for_each(range(0, len(cids), _CIDS_AT_ONCE), ask, _QUESTIONS_IN_FLIGHT)
        return [cid for start in sorted(missing) for cid in missing[start]]

    async def _send_parts(self, parts: list[Part]) -> list[Part]:
        """Send payloads in one CAR; return those that their files do not have any more."""
        failed: list[Part] = []
        while parts:
            car, indices = await anyio.to_thread.run_sync(_core.files_car, parts)
            if not indices:
                await self._client.put_car(car, f"send {len(parts)} payloads")
                size = sum(part[2] for part in parts)
                self.sent += size
                self._progress.sent(size)
                self._held.update(part[3] for part in parts)
                break
            lost = set(indices)
            failed += [part for index, part in enumerate(parts) if index in lost]
            parts = [part for index, part in enumerate(parts) if index not in lost]
        return failed

    async def _send_lists(self, targets: list[str]) -> None:
        contents = [self._folder.contents[target] for target in targets]
        lists = [content for content in contents if content.chunks is not None and len(content.chunks) > 1]
        for start in range(0, len(lists), _LISTS_AT_ONCE):
            trees = []
            for content in lists[start : start + _LISTS_AT_ONCE]:
                parts = list(content.parts())
                trees.append(_core.List([part[3] for part in parts], [part[2] for part in parts], self._suite))
            car = await anyio.to_thread.run_sync(partial(_core.lists_car, trees))
            await self._client.put_car(car, f"send {len(trees)} lists")


def _with_attributes(arcs: dict[str, str], attributes: str | None) -> dict[str, str]:
    return arcs if attributes is None else {**arcs, "/".join(ATTRIBUTES_PATH): attributes}


def _changes(before: dict[str, str], after: dict[str, str]) -> list[Change]:
    """The changes of a map from one binding of paths to another."""
    paths = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    ends = ((path, _endpoint(before.get(path)), _endpoint(after.get(path))) for path in sorted(paths))
    return [Change(path=path, before=old, after=new) for path, old, new in ends]


def _endpoint(target: str | None) -> Endpoint | UnsetType:
    return UNSET if target is None else Endpoint(target=target)


def _groups(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Group payloads into CARs."""
    group: list[Part] = []
    size = 0
    for part in parts:
        if group and size + part[2] > CAR_BYTES:
            yield group
            group, size = [], 0
        group.append(part)
        size += part[2]
    if group:
        yield group
