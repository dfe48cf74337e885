"""Repairing a store: of files, everything readable is copied into a new database, which takes their place.

Only rows whose content matches their name are copied. What is lost is noted (`coregw.upkeep.check`): a payload by its
multihash, and a root whose tree has lost pages as incomplete. Salvaging files is less: RocksDB opens them in place with
what it can read, which needs no room for another copy.

A shared store is repaired while it is in use: what does not match its name is removed, so that it can be stored again,
and all guides (`coregw.store.protocol`) and logs of published names are derived again.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import shutil
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from coregw._core import Cid, page_guides
from coregw.durability import sync_path
from coregw.engine.completeness import forget_whole
from coregw.engine.pages import COMPLETE, INCOMPLETE
from coregw.engine.records import LOG, NEWEST, REVISIONS, encode_record, record_key, revision_key
from coregw.errors import InvalidInput, StoreDamaged, Unavailable
from coregw.messages.management import Progress, ProgressCallback
from coregw.store import Stored, Table
from coregw.store.collection import CollectableStore, collect_in_turn
from coregw.store.protocol import Guide, GuidedStore
from coregw.store.rocksdb import open_store
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.directory import DATABASE, LOCK, MARKER, copy_file, lock_database, lock_directory, mark_ready
from coregw.store.rocksdb.layout import (
    EPOCH_KEY,
    Family,
    PayloadRow,
    RootRow,
    base_of,
    chunk_range,
    encode_epoch,
    epoch_of_upload,
    upload_id,
)
from coregw.store.rocksdb.rows import Write
from coregw.store.rocksdb.salvage import RawDatabase
from coregw.upkeep.check import Harm, StoreCheck, check_online, lost_key
from coregw.upkeep.file_check import FileCheck, Orphan, check_database
from coregw.upkeep.findings import CheckResult, RepairResult, payload_cid
from coregw.upkeep.inventory import StoreInventory
from coregw.upkeep.pins import LOST_PINS, pin_name

__all__ = [
    "HEALING",
    "KEPT",
    "StoreCopy",
    "exclusive",
    "fresh_directory",
    "give_to_owner",
    "keep_linked",
    "put_in_place",
    "readable",
    "repair_online",
    "repair_store",
    "require_store",
    "salvage_store",
    "snapshot",
]

_BATCH_BYTES: Final = 1 << 20

_COPIES_EPOCH: Final = 0
"""The epoch of new uploads: no opening has it, as epochs count from 1."""


class StoreCopy:
    """Copies a checked database into an empty one.

    Args:
        check: The check of the damaged database, which was run.
        target: The new database, which is empty.

    Attributes:
        recovered_payloads: Payloads whose rows were lost, found by their chunks.
        recovered_roots: Roots whose rows were lost, found by their pages.
    """

    def __init__(self, check: FileCheck, target: Database) -> None:
        self._source = check.inventory
        self._check = check
        self._target = target
        self._batch: list[Write] = []
        self._batch_bytes = 0
        self._epoch = 0
        self._copies = 0
        self._lost = {each.family for each in check.damages if each.has_rows}
        self.recovered_payloads: list[bytes] = []
        self.recovered_roots: list[bytes] = []

    def run(self) -> None:
        """Copy everything; durable on return."""
        self._copy_payloads()
        self._copy_pages()
        self._copy_roots()
        self._copy_records()
        self._epoch = max(self._epoch, self._source.state.epoch)
        self._put(Family.META, EPOCH_KEY, encode_epoch(self._epoch))
        self._write()
        self._target.sync()
        self._target.flush()

    # --- payloads -----------------------------------------------------------------------------------------------------

    def _copy_payloads(self) -> None:
        copied = self._source.payloads_by_upload(lambda key, chunk: self._put(Family.CHUNKS, key, chunk))
        for row, payload in copied:
            if payload.what is None:
                self._note_epoch(row.upload_id)
                self._put(Family.PAYLOADS, payload.multihash, row.encode())
            else:
                self._write()
                self._target.write([], [(Family.CHUNKS, *chunk_range(row.upload_id))])
        for orphan in self._check.orphans.values():
            for number, multihash in enumerate(orphan.names):
                self._recover(orphan, number, multihash)
        for multihash, harm in self._check.payload_harms.items():
            if harm & Harm.LOST_CONTENT:
                self._put(Family.RECORDS, lost_key(multihash), b"")

    def _recover(self, orphan: Orphan, number: int, multihash: bytes) -> None:
        """Make an upload a payload; for its further names, a copy of it."""
        upload = orphan.upload
        if number:
            self._copies += 1
            upload = upload_id(_COPIES_EPOCH, self._copies)
        for row in self._source.database.rows(Family.CHUNKS, *chunk_range(orphan.upload)):
            self._put(Family.CHUNKS, upload + row.key[len(upload) :], bytes(row.value or b""))
        self._note_epoch(upload)
        self._put(Family.PAYLOADS, multihash, PayloadRow(upload, orphan.size).encode())
        self.recovered_payloads.append(multihash)

    # --- pages and roots ----------------------------------------------------------------------------------------------

    def _copy_pages(self) -> None:
        lost = self._check.pages.damaged.keys() | self._check.pages.missing.keys()
        for digest, base in self._source.kept_bases():
            self._put(Family.DIFFERENCES, digest, base)
        for page in self._check.pages.pages():
            if page.difference is not None and page.is_intact and base_of(page.difference) not in lost:
                self._put(Family.DIFFERENCES, page.digest, page.difference)
            else:
                self._put(Family.PAGES, page.digest, page.page)

    def _copy_roots(self) -> None:
        held: set[bytes] = set()
        for root, _ in self._check.roots():
            if self._is_lost(Family.ROOTS):
                held.add(root)
            self._put_root(root)
        for root in self._check.unreadable_roots():
            if self._target.get(Family.PAGES, [root[-32:]])[0]:  # otherwise the key may be damaged as well
                held.add(root)
                self._put_root(root)
        if self._is_lost(Family.ROOTS):
            self._write()
            for root in self._roots_without_rows():
                if root not in held and not self._harm(root) & Harm.LOST_PAGE:
                    self._put_root(root)
                    self.recovered_roots.append(root)

    def _put_root(self, root: bytes) -> None:
        value = INCOMPLETE if self._harm(root) & Harm.LOST_PAGE else COMPLETE
        self._put(Family.ROOTS, root, RootRow(self._target.clock.now(), value).encode())

    def _harm(self, root: bytes) -> Harm:
        return self._check.pages.harms.get(root[-32:], Harm(0))

    def _roots_without_rows(self) -> Iterator[bytes]:
        """Iterate over what may be a root whose row is lost: pages that no page leads to, and what leaves name."""
        pages = array("Q", (_prefix(digest) for digest, _ in self._check.pages.links()))
        has_parent = bytearray(len(pages))
        for _, links in self._check.pages.links():
            for at in (_index(pages, _prefix(digest)) for digest in links.pages):
                if at is not None:
                    has_parent[at] = 1
        for digest, links in self._check.pages.links():
            at = _index(pages, _prefix(digest))
            if at is not None and not has_parent[at]:
                yield links.root
            for root in links.roots:
                if _index(pages, _prefix(root[-32:])) is not None:
                    yield root
        for record in self._check.names():
            if record.newest is not None and _index(pages, _prefix(record.newest.root[-32:])) is not None:
                yield record.newest.root

    # --- records ------------------------------------------------------------------------------------------------------

    def _copy_records(self) -> None:
        for key, value in self._source.rows(Table.RECORDS):
            if value is not None and key[:1] not in (NEWEST, REVISIONS, LOG):
                self._put(Family.RECORDS, key, value)
            elif value is None and pin_name(key) is not None:
                self._put(Family.RECORDS, LOST_PINS + key[1:], b"")
        for name in self._check.names():
            for number, record in name.revisions.items():
                self._put(Family.RECORDS, revision_key(name.scope, name.name, number), encode_record(record))
            for key, node in name.log.items():
                self._put(Family.RECORDS, key, node)
            if name.newest is not None:
                self._put(Family.RECORDS, record_key(name.scope, name.name), encode_record(name.newest))

    # --- writing ------------------------------------------------------------------------------------------------------

    def _put(self, family: Family, key: bytes, value: bytes) -> None:
        self._batch.append((family, key, value))
        self._batch_bytes += len(key) + len(value)
        if self._batch_bytes >= _BATCH_BYTES:
            self._write()

    def _write(self) -> None:
        if self._batch:
            self._target.write(self._batch)
        self._batch, self._batch_bytes = [], 0

    def _is_lost(self, family: Family) -> bool:
        """Whether rows of a family may be lost."""
        return None in self._lost or family in self._lost

    def _note_epoch(self, upload: bytes) -> None:
        """Keep the epoch of the new store above that of every upload, so that no upload id is used twice."""
        self._epoch = max(self._epoch, epoch_of_upload(upload))


def _prefix(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big")


def _index(sorted_prefixes: array[int], prefix: int) -> int | None:
    at = bisect_left(sorted_prefixes, prefix)
    return at if at < len(sorted_prefixes) and sorted_prefixes[at] == prefix else None


KEPT: Final = "damaged-"
"""The start of the names of directories that keep databases which a repair has replaced."""

HEALING: Final = "healing-"
"""The start of the names of directories with what was fetched to be restored."""

_NEW: Final = "repairing-"

_SNAPSHOT: Final = "fsck-"

_AT_FDCWD: Final = -100

_EXCHANGE: Final = 2

_ATTEMPTS: Final = 10


def require_store(data: Path) -> Path:
    """Return the directory of the database in a data directory.

    Raises:
        InvalidInput: If there is no database, not even a damaged one.
    """
    database = data / DATABASE
    if not database.is_dir():
        left = sorted(path.name for path in data.glob(f"{_NEW}*")) if data.is_dir() else []
        hint = f"; a repair was interrupted, rename {data / left[0] / DATABASE} to {database}" if left else ""
        shared = "" if hint else "; a store in PostgreSQL is named by COREGW_STORE"
        raise InvalidInput(f"{data} has no database to check ({database}){hint or shared}")
    return database


@contextmanager
def exclusive(data: Path) -> Iterator[None]:
    """Hold the locks of a store: that of its directory, and that which RocksDB holds while it is open for writing.

    Raises:
        Unavailable: If another process has the store open, or a lock cannot be used.
    """
    with ExitStack() as stack:
        stack.callback(lock_directory(data))
        is_new = not (data / DATABASE / LOCK).exists()
        descriptor = lock_database(data)
        stack.callback(os.close, descriptor)
        if is_new:  # then it belongs to whom the others do
            _give(descriptor, data / DATABASE)
        yield


@contextmanager
def readable(data: Path) -> Iterator[Path]:
    """Return a directory with the database's files that nothing changes: its own, under its lock, or a snapshot.

    Raises:
        InvalidInput: If there is no database.
        Unavailable, OSError: As `snapshot`.
    """
    database = require_store(data)
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive(data))
        except Unavailable:
            if os.access(data, os.W_OK):
                database = stack.enter_context(snapshot(data))
        yield database


@contextmanager
def snapshot(data: Path) -> Iterator[Path]:
    """Make a directory with the files of a database that is in use, as hard links; removed at the end.

    Tables do not change. The newest log grows while it is read: what it has is a prefix of what was written.

    Raises:
        Unavailable: If the files change faster than they can be linked.
        OSError: If the file system has no hard links.
    """
    directory = fresh_directory(data, _SNAPSHOT)
    try:
        for _ in range(_ATTEMPTS):
            if _linked(data / DATABASE, directory):
                break
        else:
            raise Unavailable(f"the files of {data / DATABASE} change too fast to be checked; try again")
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def fresh_directory(data: Path, prefix: str = _NEW) -> Path:
    """Make a new directory for a database in a data directory, and remove those that ended processes have left."""
    for left in data.glob(f"{prefix}*"):
        if not _is_running(left.name.removeprefix(prefix)):
            shutil.rmtree(left, ignore_errors=True)
    path = data / f"{prefix}{os.getpid()}"
    path.mkdir(mode=0o700)
    if os.geteuid() == 0:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _give(descriptor, data)
        finally:
            os.close(descriptor)
    return path


def _give(made: int, folder: Path) -> None:
    """Give what root has made in a folder to the user of that folder, who may have put something else at its name."""
    if os.geteuid() == 0:
        status = folder.stat()
        os.fchown(made, status.st_uid, status.st_gid)


def give_to_owner(made: Path, folder: Path) -> None:
    """Give a directory that root has made in a folder to the user of that folder, with all that is in it.

    It comes last, so that until then nobody else can put anything in it, such as a hard link to a file of another user.
    """
    if os.geteuid() != 0:
        return
    status = folder.stat()
    for _, folders, files, descriptor in os.fwalk(made, topdown=False):
        for name in (*folders, *files):
            os.chown(name, status.st_uid, status.st_gid, dir_fd=descriptor, follow_symlinks=False)
        os.fchown(descriptor, status.st_uid, status.st_gid)


def put_in_place(data: Path, new: Path) -> Path:
    """Exchange the database of a store for that in the directory `new`, atomically, and return where the old one is.

    Raises:
        OSError: If it cannot be renamed, or the marker of the store not be copied; the old database is in its place.
    """
    _copy_marker(data, new)
    _sync_tree(new)
    kept = data / f"{KEPT}{_now()}"
    if _exchange(new / DATABASE, data / DATABASE):
        new.rename(kept)
    else:  # between the two renames there is no database; a start is refused then, and `require_store` says why
        kept.mkdir(mode=0o700)
        _copy_marker(new, kept)
        (data / DATABASE).rename(kept / DATABASE)
        (new / DATABASE).rename(data / DATABASE)
        shutil.rmtree(new, ignore_errors=True)
    _sync_tree(kept)
    sync_path(data)
    mark_ready(data)
    sync_path(data)
    return kept


def keep_linked(data: Path) -> Path:
    """Keep the files of a database, to which nothing writes, as hard links beside it, and return the directory.

    Raises:
        OSError: If the file system has no hard links.
    """
    kept = data / f"{KEPT}{_now()}"
    kept.mkdir(mode=0o700)
    try:
        (kept / DATABASE).mkdir(mode=0o700)
        _linked(data / DATABASE, kept / DATABASE)
        _copy_marker(data, kept)
        _sync_tree(kept)
        sync_path(data)
    except BaseException:
        shutil.rmtree(kept, ignore_errors=True)
        raise
    return kept


def _copy_marker(data: Path, kept: Path) -> None:
    """Copy the marker of a store, if there is one, beside its damaged database."""
    with suppress(FileNotFoundError):
        copy_file(data / MARKER, kept / MARKER)


def _linked(database: Path, directory: Path) -> bool:
    """Link all files of a database; whether none appeared or disappeared meanwhile."""
    for old in directory.iterdir():
        old.unlink()
    before = _names(database)
    for name in before:
        try:
            os.link(database / name, directory / name)
        except FileNotFoundError:
            return False
    return _names(database) == before


def _names(database: Path) -> list[str]:
    kinds = (".sst", ".log", "CURRENT")
    return sorted(
        entry.name for entry in database.iterdir() if entry.name.endswith(kinds) or entry.name.startswith("MANIFEST-")
    )


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically; False if the system cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    if library.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _sync_tree(path: Path) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            sync_path(Path(folder) / name)
        sync_path(Path(folder))


def _is_running(number: str) -> bool:
    """Whether there is a process of this number, other than this one."""
    if not number.isdecimal() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _now() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")


_CACHE_BYTES: Final = 8 << 20


def repair_store(data: Path, report: ProgressCallback) -> RepairResult:
    """Copy everything readable of a store into a new database, check that, and put it in the place of the damaged one.

    The damaged database is kept, in a directory beside it. Until both are exchanged, nothing is changed. Needs room for
    another copy of the store. O(bytes).

    Args:
        data: The data directory, which no process has open.
        report: Called often, with how far the repair is; may raise, which ends it.

    Raises:
        InvalidInput: If there is no database.
        Unavailable: If another process has the store open (`StorageFull`: there is no room).
        StoreDamaged: If the copy is damaged as well.
        OSError: If a file cannot be read or written.
    """
    database = require_store(data)
    with exclusive(data):
        new = fresh_directory(data)
        try:
            found, copy = _copied(database, new, report)
            repaired = check_database(new / DATABASE, report)
            _require_sound(new, repaired)
            kept = put_in_place(data, new)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    return RepairResult(
        found=found,
        repaired=repaired,
        kept=str(kept),
        recovered_payloads=[payload_cid(multihash) for multihash in copy.recovered_payloads],
        recovered_roots=[Cid(root).text for root in copy.recovered_roots],
    )


def salvage_store(data: Path, report: ProgressCallback) -> RepairResult:
    """Let RocksDB open a damaged store with what it can read of its log, once, so that it opens for writing again.

    The rest of the log is lost, and with it acknowledged writes that a repair might have copied; payloads that lost
    chunks are removed, and no root counts as complete until it is checked again. Damaged table files stay as they are.
    The damaged database is kept as hard links, on which `repair_store` works still. Needs no room for a copy of the
    store. O(bytes), for the checks before and after.

    Args:
        data: The data directory, which no process has open.
        report: Called often, with how far the checks are; may raise, which ends them.

    Raises:
        InvalidInput: If there is no database.
        Unavailable: If another process has the store open (`StorageFull`: there is no room).
        StoreDamaged: If RocksDB cannot open it either; a repair can read what is kept.
        OSError: If a file cannot be read or linked.
    """
    database = require_store(data)
    with exclusive(data):
        found = check_database(database, report)
        kept = keep_linked(data)
    try:
        asyncio.run(_open_once(data, report))
    except StoreDamaged as error:
        left = f"repair it with `coregw fsck --repair`; the database as it was is in {kept}"
        raise StoreDamaged(f"RocksDB cannot open the store: {error.message}; {left}") from error
    with exclusive(data):
        repaired = check_database(database, report)
    return RepairResult(
        found=found, repaired=repaired, kept=str(kept), recovered_payloads=[], recovered_roots=[], is_salvaged=True
    )


async def _open_once(data: Path, report: ProgressCallback) -> None:
    report(Progress(step="salvaging"))
    async with await open_store(data, cache_bytes=_CACHE_BYTES, reserve_bytes=0, salvage=True) as store:
        await forget_whole(store)


def _copied(database: Path, new: Path, report: ProgressCallback) -> tuple[CheckResult, StoreCopy]:
    """Check a damaged database, and copy what is readable into a new store."""
    with RawDatabase(database) as source:
        check = FileCheck(source, report)
        found = check.run()
        report(Progress(step="copying"))
        target = Database(new, _CACHE_BYTES, salvage=False)
        try:
            copy = StoreCopy(check, target)
            copy.run()
        finally:
            target.close()
    return found, copy


def _require_sound(new: Path, repaired: CheckResult) -> None:
    """Raise `StoreDamaged` if the copy has other damage than rows that could not be copied."""
    if repaired.damaged_files or repaired.damaged_pages or repaired.damaged_payloads:
        raise StoreDamaged(f"the copy in {new} is damaged as well, so the disk or the memory of this machine is faulty")


_REPAIR_WAITS_SECONDS: Final = 10.0

_WRITTEN_AT_ONCE: Final = 256


async def repair_online(store: CollectableStore, report: ProgressCallback) -> RepairResult:
    """Remove pages and payloads that do not match their names, and note what is lost, so that it can be healed.

    Roots that lack pages are marked as incomplete; storing them again makes them whole. What is stored again meanwhile
    is kept. Raises as `coregw.upkeep.check.check_online`.
    """
    inventory = StoreInventory(store)
    check = StoreCheck(inventory, report)
    found = await inventory.in_thread(check.run)
    lost, pages = list(check.payload_harms), [*check.pages.damaged, *check.pages.missing]
    report(Progress(step="removing what is damaged", done=0, total=len(lost) + len(pages)))
    async with collect_in_turn(store, 0.0, _REPAIR_WAITS_SECONDS) as collection:
        removed = await collection.remove(Stored.PAYLOADS, lost) if lost else []
        if pages:
            await collection.remove(Stored.PAGES, pages)
    if pages or any(removed):
        await forget_whole(store)
    notes = [(lost_key(name), b"") for name, is_removed in zip(lost, removed, strict=True) if is_removed]
    if notes:
        await store.put({Table.RECORDS: notes})
    incomplete = [Cid(each.root) for each in found.affected_roots if not each.is_complete]
    for root in map(bytes, incomplete):
        (value,) = await store.get(Table.ROOTS, [root])
        if value is not None:
            await store.compare_and_set(Table.ROOTS, root, value, INCOMPLETE)
    if isinstance(store, GuidedStore):
        await inventory.in_thread(lambda: _guide_again(inventory, check))
    await inventory.in_thread(lambda: _log_again(inventory, check))
    repaired = await check_online(store, report)
    return RepairResult(found=found, repaired=repaired, kept="", recovered_payloads=[], recovered_roots=[])


def _guide_again(inventory: StoreInventory, check: StoreCheck) -> None:
    """Set the guides of all pages. O(bytes)."""
    assert isinstance(inventory.store, GuidedStore)  # noqa: S101 - its caller has looked
    if check.misguiding:
        inventory.call(inventory.store.set_guides(check.misguiding, []))
    pages = check.pages.pages()
    while batch := list(islice(pages, _WRITTEN_AT_ONCE)):
        if guides := [Guide(*guide) for guide in page_guides([(each.digest, each.page) for each in batch])]:
            inventory.call(inventory.store.set_guides([guide.page for guide in guides], guides))


def _log_again(inventory: StoreInventory, check: StoreCheck) -> None:
    """Set the rows of logs that do not follow from the revisions of their names. O(revisions)."""
    for name in check.names():
        if name.what is not None:
            log = iter(name.log.items())
            while batch := list(islice(log, _WRITTEN_AT_ONCE)):
                inventory.call(inventory.store.put({Table.RECORDS: batch}))
