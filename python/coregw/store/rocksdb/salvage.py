"""Every readable row of a damaged database, read without RocksDB.

Memory is bounded by the logs (some 64 MiB, the bound that coregw sets for them), and a block and the index of each
table that overlaps others where the rows are read: those of level 0, and one of each further level.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from coregw.errors import StoreDamaged
from coregw.store.rocksdb.layout import (
    CLAIM_KEY,
    DIGEST_BYTES,
    EPOCH_KEY,
    EXPIRED_KEY,
    TIME_KEY,
    UNDATED_KEY,
    Confirmed,
    Family,
    decode_date,
    decode_epoch,
    payload_date,
)
from coregw.store.rocksdb.mark import require_durable
from coregw.store.rocksdb.sst import TableFile
from coregw.store.rocksdb.wal import Damage, FileBytes, Malformed, RowVersion, prefixed, read_batch, read_log, varint

__all__ = ["LiveTable", "Manifest", "RawDatabase", "StoreState", "read_manifest"]

_VARINTS: Final = {2, 3, 4, 9, 10, 203, 300}  # log number, next file, last sequence, ..., largest family, atomic group

_COMPARATOR, _CURSOR, _DELETED_FILE, _NEW_FILE = 1, 5, 6, 103

_FAMILY, _FAMILY_ADD, _FAMILY_DROP = 200, 201, 202

_IGNORABLE: Final = 1 << 13

_LOG_ADDED, _LOGS_DELETED, _SYNCED_SIZE = _IGNORABLE + 7, _IGNORABLE + 8, 2

_END_OF_FIELDS: Final = 1

_INTERNAL: Final = 8


class LiveTable(NamedTuple):
    """An SST file that the database has: its number, family, size, and its smallest and largest key."""

    number: int
    family_id: int
    size: int
    smallest: bytes
    largest: bytes


@dataclass
class Manifest:
    """What MANIFESTs say.

    Attributes:
        families: The names of the column families by number.
        tables: The SST files that the database has, by number.
        deleted: The numbers of SST files that it had.
        logs: The synced sizes of ended logs that it needs, by number, as the newest MANIFEST says.
    """

    families: dict[int, str] = field(default_factory=dict)
    tables: dict[int, LiveTable] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    logs: dict[int, int] = field(default_factory=dict)


def read_manifest(file: FileBytes, manifest: Manifest, damages: list[Damage]) -> None:
    """Add to `manifest` what the edits of a file say, and to `damages` what is damaged in it. O(bytes)."""
    found: list[Damage] = []
    manifest.logs.clear()
    for record in read_log(file.read(0, file.size), file.name, found):
        if record.is_intact:
            try:
                _apply(memoryview(record.data), manifest)
            except Malformed as error:
                found.append(Damage(file.name, record.start, record.start + len(record.data), None, str(error)))
    damages.extend(damage._replace(has_rows=False) for damage in found)


def _apply(data: memoryview, manifest: Manifest) -> None:
    at, end, family = 0, len(data), 0
    name: str | None = None
    added: list[LiveTable] = []
    while at < end:
        tag, at = varint(data, at, end)
        if tag in _VARINTS:
            _, at = varint(data, at, end)
        elif tag == _FAMILY:
            family, at = varint(data, at, end)
        elif tag == _FAMILY_ADD:
            text, at = prefixed(data, at, end)
            name = bytes(text).decode("utf-8", "replace")
        elif tag == _NEW_FILE:
            table, at = _new_file(data, at, end)
            added.append(table)
        elif tag == _DELETED_FILE:
            _, at = varint(data, at, end)
            number, at = varint(data, at, end)
            manifest.deleted.add(number)
            manifest.tables.pop(number, None)
        elif tag == _CURSOR:
            _, at = varint(data, at, end)
            _, at = prefixed(data, at, end)
        elif tag == _COMPARATOR or tag & _IGNORABLE:
            edit, at = prefixed(data, at, end)
            _apply_log(tag, edit, manifest)
        elif tag == _FAMILY_DROP:
            manifest.families.pop(family, None)
        else:
            raise Malformed(f"unknown edit {tag}")
    if name is not None:
        manifest.families[family] = name
    for table in added:  # a file that moves to another level is deleted and added in one edit
        manifest.deleted.discard(table.number)
        manifest.tables[table.number] = table._replace(family_id=family)


def _apply_log(tag: int, edit: memoryview, manifest: Manifest) -> None:
    """Add an ended log, or remove all that are older than one, if that is what an edit does."""
    if tag not in (_LOG_ADDED, _LOGS_DELETED):
        return
    end = len(edit)
    number, at = varint(edit, 0, end)
    if tag == _LOGS_DELETED:
        for older in [each for each in manifest.logs if each < number]:
            del manifest.logs[older]
        return
    while at < end:
        tag, at = varint(edit, at, end)
        if tag == _SYNCED_SIZE:
            manifest.logs[number], at = varint(edit, at, end)


def _new_file(data: memoryview, at: int, end: int) -> tuple[LiveTable, int]:
    _, at = varint(data, at, end)  # level
    number, at = varint(data, at, end)
    size, at = varint(data, at, end)
    smallest, at = prefixed(data, at, end)
    largest, at = prefixed(data, at, end)
    for _ in range(2):  # sequence numbers
        _, at = varint(data, at, end)
    while True:
        tag, at = varint(data, at, end)
        if tag == _END_OF_FIELDS:
            break
        _, at = prefixed(data, at, end)
    return LiveTable(number, 0, size, bytes(smallest[:-_INTERNAL]), bytes(largest[:-_INTERNAL])), at


_NUMBERS: Final = frozenset(range(len(Family)))
"""The numbers of the families. That of `Family.META` is 0; RocksDB's binding creates the others in any order."""

_NAMED: Final = re.compile(rb"[a-z][A-Za-z0-9._\0-]{22}")
"""How the keys of records that are as long as a digest begin; they may end with numbers of 9 bytes."""

_PAGE_STARTS: Final = frozenset(bytes([kind + node]) for kind in (0x00, 0x10) for node in range(4))

_STATE_KEYS: Final = frozenset({CLAIM_KEY, EPOCH_KEY, EXPIRED_KEY, TIME_KEY, UNDATED_KEY})


_ROOT_CID_BYTES: Final = 39

_CHUNK_KEY_BYTES: Final = 16

_UPLOAD_ID_BYTES: Final = 12

_PAYLOAD_ROW_BYTES: Final = 20

_DATE_BYTES: Final = 8


class RawDatabase:
    """The files of a database directory, open for reading. A context manager.

    Args:
        path: The directory.
        on_read: Called with the number of bytes of each read, before it; may wait, to limit the rate.

    Raises:
        OSError: If the directory or a file cannot be opened.
    """

    def __init__(self, path: Path, on_read: Callable[[int], None] = lambda size: None) -> None:
        self._damages: list[Damage] = []
        self._tables: list[TableFile] = []
        self._logged: defaultdict[Family, list[RowVersion]] = defaultdict(list)
        self._index_of = lru_cache(_INDEXES)(TableFile.index_block)
        self._files = ExitStack()
        self.bytes = 0
        """The size of all files that are read."""
        with self._files:
            self._open(path, on_read)
            self._files = self._files.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._files.close()

    def rows(self, family: Family, first: bytes = b"", end: bytes | None = None) -> Iterator[RowVersion]:
        """Iterate over the rows of a family in key order (of damaged parts, nearly in order). O(bytes).

        Of each row this is the newest version whose checksums hold. If there is none, it is what a damaged part says:
        the value may be wrong, and the key as well.

        Args:
            family: The family.
            first: The first key.
            end: The key to end before; None reads to the end.
        """
        for versions in self.versions(family, first, end):
            if (best := _best(versions)) is not None:
                yield best

    def find(self, family: Family, key: bytes) -> RowVersion | None:
        """Return the row with a key, as `rows` does; None if there is none. O(log(rows)) for each sound table."""
        tables = (table for table in self._tables if table.family == family)
        stored = (entry for table in tables for entry in table.find(key, self._index_of(table)))
        logged = self._logged[family]
        start = bisect_left(logged, key, key=lambda entry: entry.key)
        end = bisect_right(logged, key, key=lambda entry: entry.key)
        return _best(sorted([*stored, *logged[start:end]], key=_order))

    def versions(self, family: Family, first: bytes = b"", end: bytes | None = None) -> Iterator[list[RowVersion]]:
        """Iterate over all versions of each row, as `rows` does: those whose checksums hold first, then newest first.

        A value of None is a deletion. Among them are versions that were deleted or replaced long ago.
        """
        merged = heapq.merge(self._stored(family, first, end), self._logged[family], key=_order)
        for key, versions in groupby(merged, key=lambda entry: entry.key):
            if first <= key and (end is None or key < end):
                yield list(versions)

    def damages(self) -> list[Damage]:
        """What is damaged, as far as the files were read: complete when `rows` has read every family."""
        return [*self._damages, *(damage for table in self._tables for damage in table.damages)]

    def _stored(self, family: Family, first: bytes, end: bytes | None) -> Iterator[RowVersion]:
        """Merge the tables of a family. A table is read when the merge arrives at its first key."""
        waiting: list[tuple[bytes, int, Iterator[RowVersion]]] = []
        for number, table in enumerate(self._tables):
            if table.family == family:
                smallest = next((entry.key for entry in table.entries(first, end)), None)
                if smallest is not None:
                    waiting.append((smallest, number, table.entries(first, end)))
        waiting.sort(reverse=True)
        active: list[tuple[tuple[bytes, bool, int], int, RowVersion, Iterator[RowVersion]]] = []
        while active or waiting:
            while waiting and (not active or waiting[-1][0] <= active[0][2].key):
                _, number, entries = waiting.pop()
                _push(active, number, entries)
            if active:
                _, number, entry, entries = heapq.heappop(active)
                yield entry
                _push(active, number, entries)

    # --- opening ------------------------------------------------------------------------------------------------------

    def _open(self, path: Path, on_read: Callable[[int], None]) -> None:
        manifest = Manifest()
        names = sorted(entry.name for entry in path.iterdir())
        for name in [name for name in names if name.startswith("MANIFEST-")]:
            read_manifest(self._opened(path / name, on_read), manifest, self._damages)
        self._check_current(path, names)
        try:
            with suppress(FileNotFoundError):  # CURRENT, which is reported
                require_durable(path)
        except StoreDamaged as error:
            self._damages.append(Damage("coregw-mark", 0, 0, None, error.message))
        tables = self._open_tables(path, names, manifest, on_read)
        families = {table.family_id: table.family for table in self._tables if table.family_id is not None}
        by_id = {0: str(Family.META)} | {i: name for i, name in families.items() if name} | manifest.families
        for name, table in zip(tables, self._tables, strict=True):
            table.check_metadata()
            live = manifest.tables.get(_number(name))
            if live is not None:
                table.smallest, table.largest = live.smallest, live.largest
                table.family = table.family or by_id.get(live.family_id)
            if table.family is None:
                table.family = _guessed_family(table)
        present = set(map(_number, tables))
        for live in manifest.tables.values():
            if live.number not in present:
                name, family = f"{live.number:06}.sst", by_id.get(live.family_id)
                self._damages.append(
                    Damage(name, 0, live.size, family, "the file is missing", live.smallest, live.largest)
                )
        self._open_logs(path, [name for name in names if name.endswith(".log")], manifest, by_id, on_read)

    def _open_tables(
        self, path: Path, names: list[str], manifest: Manifest, on_read: Callable[[int], None]
    ) -> list[str]:
        """Open the tables, and return their names.

        Without damage so far, the MANIFEST names all that the database has. Another one without an end is what a flush
        or a compaction had not finished when the process died, or the snapshot was made.
        """
        is_listed = not self._damages
        opened: list[str] = []
        for name in names:
            if name.endswith(".sst") and _number(name) not in manifest.deleted:
                table = TableFile(self._opened(path / name, on_read))
                if table.has_index or not is_listed or _number(name) in manifest.tables:
                    opened.append(name)
                    self._tables.append(table)
        return opened

    def _open_logs(
        self,
        path: Path,
        names: Sequence[str],
        manifest: Manifest,
        by_id: Mapping[int, str],
        on_read: Callable[[int], None],
    ) -> None:
        logs = ((f"{number:06}.log", size) for number, size in manifest.logs.items())
        self._damages += [
            Damage(name, 0, size, None, "the file is missing") for name, size in logs if name not in names
        ]
        logged: defaultdict[int, list[RowVersion]] = defaultdict(list)
        sources: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for name in names:
            file = self._opened(path / name, on_read)
            for number in self._read_log(file, _NUMBERS | by_id.keys(), logged):
                sources[number][name] = file.size
        families = _families_of(logged, by_id)
        for number, family in families.items():
            self._logged[family] += logged[number]
        for entries in self._logged.values():
            entries.sort(key=_order)
        for number in sorted(sources.keys() - families.keys() - by_id.keys()):
            what = f"rows of column family {number}: no file names it, and their form does not tell which it is"
            self._damages += [Damage(name, 0, size, None, what) for name, size in sources[number].items()]

    def _opened(self, path: Path, on_read: Callable[[int], None]) -> FileBytes:
        file = self._files.enter_context(FileBytes(path, on_read))
        self.bytes += file.size
        return file

    def _check_current(self, path: Path, names: list[str]) -> None:
        try:
            named = (path / "CURRENT").read_bytes()
        except OSError:
            self._damages.append(Damage("CURRENT", 0, 0, None, "the file is missing", has_rows=False))
            return
        if not named.endswith(b"\n") or named[:-1].decode("latin-1") not in names:
            what = "it names a MANIFEST that does not exist"
            self._damages.append(Damage("CURRENT", 0, len(named), None, what, has_rows=False))

    def _read_log(
        self, file: FileBytes, numbers: AbstractSet[int], logged: defaultdict[int, list[RowVersion]]
    ) -> set[int]:
        """Add the rows of a log to `logged`; return the numbers of families of which it has intact values."""
        found = set()
        for record in read_log(file.read(0, file.size), file.name, self._damages):
            for number, entry, until in read_batch(record.data, numbers, is_intact=record.is_intact):
                if until is None and (entry.is_intact or entry.value is not None):
                    logged[number].append(entry)
                    if entry.is_intact and entry.value is not None:
                        found.add(number)
        return found


def _push(
    active: list[tuple[tuple[bytes, bool, int], int, RowVersion, Iterator[RowVersion]]],
    number: int,
    entries: Iterator[RowVersion],
) -> None:
    """Add the next entry of a table to the heap, if it has one."""
    entry = next(entries, None)
    if entry is not None:
        heapq.heappush(active, (_order(entry), number, entry, entries))


_INDEXES: Final = 64
"""Indexes of tables that are kept in memory to find rows: about 1 % of the tables, so at most some 50 MiB."""


def _best(versions: Sequence[RowVersion]) -> RowVersion | None:
    """The newest version of a row whose checksums hold, or else what a damaged part says; None if it is deleted."""
    found = (
        versions[0]
        if versions and versions[0].is_intact
        else next((each for each in versions if each.value is not None), None)
    )
    return None if found is None or found.value is None else found


def _order(entry: RowVersion) -> tuple[bytes, bool, int]:
    return entry.key, not entry.is_intact, -entry.sequence


def _number(name: str) -> int:
    stem = name.partition(".")[0]
    return int(stem) if stem.isdecimal() else -1


def _guessed_family(table: TableFile) -> str | None:
    """The family of a file that has lost its properties and is not in a MANIFEST, by the form of its first row."""
    entry = next((entry for entry in table.entries() if entry.value is not None), None)
    return None if entry is None or entry.value is None else _family_by_form(entry.key, entry.value)


def _families_of(logged: Mapping[int, Sequence[RowVersion]], by_id: Mapping[int, str]) -> dict[int, Family]:
    """Return the family of each number in the logs. If no other file names it, the form of most of its rows decides.

    Rows without a valid checksum count only where there are no others, since some of them are not rows.
    """
    known = {number: Family(name) for number, name in by_id.items() if name in set(Family)}
    for is_intact in (True, False):
        forms = Counter(
            (number, _family_by_form(entry.key, entry.value))
            for number in logged.keys() - by_id.keys()
            for entry in logged[number]
            if entry.value is not None and entry.is_intact is is_intact
        )
        for (number, family), _ in forms.most_common():
            if number not in known and family not in known.values():
                known[number] = family
    return {number: known[number] for number in logged if number in known}


def _family_by_form(key: bytes, value: bytes | memoryview) -> Family:
    """The family that a row with this key and this value has the form of.

    Keys of records begin with a letter, which ids of uploads and multihashes do not; after it, those as long as a
    digest have names. A difference begins with a digest, which is random; so among several rows of pages there are some
    whose first byte begins no page.
    """
    size = len(value)
    if key in _STATE_KEYS or (key[:1] == payload_date(b"") and size == _DATE_BYTES):
        return Family.META
    if len(key) == _ROOT_CID_BYTES and key[:1] == b"\x01":
        return Family.ROOTS
    if len(key) == DIGEST_BYTES and _NAMED.match(key) is None:
        return Family.PAGES if bytes(value[:1]) in _PAGE_STARTS else Family.DIFFERENCES
    if key[:1].isalpha():
        return Family.RECORDS
    if size == 0 and len(key) == _UPLOAD_ID_BYTES:
        return Family.UPLOADS
    if size == _PAYLOAD_ROW_BYTES and len(key) != _CHUNK_KEY_BYTES:
        return Family.PAYLOADS
    return Family.CHUNKS if len(key) == _CHUNK_KEY_BYTES else Family.RECORDS


def _confirmed_time(value: bytes) -> int:
    return Confirmed.decode(value).time


_DECODERS: Final[dict[bytes, Callable[[bytes], int]]] = {
    EPOCH_KEY: decode_epoch,
    EXPIRED_KEY: decode_date,
    UNDATED_KEY: _confirmed_time,
    TIME_KEY: _confirmed_time,
}


class StoreState(NamedTuple):
    """The rows of a store's state.

    Attributes:
        found: The number in each row that is readable, by its key.
        damaged: The keys of rows that are there and not readable.
    """

    found: dict[bytes, int]
    damaged: frozenset[bytes]

    @classmethod
    def read(cls, database: RawDatabase) -> Self:
        """Read the rows of a database."""
        found: dict[bytes, int] = {}
        damaged: set[bytes] = set()
        for key, decode in _DECODERS.items():
            for versions in database.versions(Family.META, key, key + b"\0"):
                newest = max(versions, key=lambda entry: entry.sequence)  # an older one may keep too little
                try:
                    if not newest.is_intact:
                        damaged.add(key)
                    elif newest.value is not None:
                        found[key] = decode(bytes(newest.value))
                except StoreDamaged:
                    damaged.add(key)
        return cls(found, frozenset(damaged))

    @property
    def epoch(self) -> int:
        """The number of openings; 0 if it is lost."""
        return self.found.get(EPOCH_KEY, 0)

    def is_held(self, date: int | None) -> bool:
        """Whether a root of this date has not expired. If the limit is lost, none has: a start does the same."""
        expired_before = self.found.get(EXPIRED_KEY, 0)
        return (self.found.get(UNDATED_KEY, expired_before) if date is None else date) >= expired_before

    def lost(self, *, is_damaged: bool) -> list[str]:
        """Return the names of the rows that are lost.

        Args:
            is_damaged: Whether the files are damaged where the rows are: a missing one may have been there.
        """
        missing = _DECODERS.keys() - self.found.keys()
        # Every opening writes the epoch; a store without the others may be new, or of an older version.
        lost = missing if is_damaged else missing & (self.damaged | {EPOCH_KEY})
        return sorted(key.decode() for key in lost)
