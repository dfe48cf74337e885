"""A database as its files have it: the versions of each row, newest first, from all tables and logs.

Memory is bounded by the logs (some 64 MiB, the bound that coregw sets for them), and a block and the index of each
table that overlaps others where the rows are read: those of level 0, and one of each further level.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from coregw.errors import StoreDamaged
from coregw.store.rocksdb.layout import CLAIM_KEY, EPOCH_KEY, EXPIRED_KEY, TIME_KEY, UNDATED_KEY, Family, payload_date
from coregw.store.rocksdb.mark import require_durable
from coregw.store.rocksdb.raw.batches import read_batch
from coregw.store.rocksdb.raw.coding import Damage, Entry
from coregw.store.rocksdb.raw.files import FileBytes
from coregw.store.rocksdb.raw.logs import read_log
from coregw.store.rocksdb.raw.manifest import Manifest, read_manifest
from coregw.store.rocksdb.raw.tables import TableFile

__all__ = ["RawDatabase", "RawRow"]

_NUMBERS: Final = frozenset(range(len(Family)))
"""The numbers of the families. That of `Family.META` is 0; RocksDB's binding creates the others in any order."""

_NAMED: Final = re.compile(rb"[a-z][A-Za-z0-9._\0-]{22}")
"""How the keys of records that are as long as a digest begin; they may end with numbers of 9 bytes."""

_STATE_KEYS: Final = frozenset({CLAIM_KEY, EPOCH_KEY, EXPIRED_KEY, TIME_KEY, UNDATED_KEY})
_DIGEST_BYTES: Final = 32
_ROOT_CID_BYTES: Final = 39
_CHUNK_KEY_BYTES: Final = 16
_UPLOAD_ID_BYTES: Final = 12
_PAYLOAD_ROW_BYTES: Final = 20
_DATE_BYTES: Final = 8


class RawRow(NamedTuple):
    """A row: its key, and its versions, newest first.

    A value of None is a deletion. Among them are versions that were deleted or replaced long ago, and versions whose
    checksums do not hold.
    """

    key: bytes
    versions: list[Entry]

    @property
    def newest(self) -> Entry | None:
        """The newest version whose checksums hold; None if there is none, or if it is a deletion."""
        for entry in self.versions:
            if entry.is_intact:
                return None if entry.value is None else entry
        return None

    @property
    def is_deleted(self) -> bool:
        """Whether the newest version whose checksums hold is a deletion."""
        return next((entry.value is None for entry in self.versions if entry.is_intact), False)


Key = bytes


class Rows(Protocol):
    """The rows of a database, as a check reads them."""

    bytes: int
    """The size of what is read."""

    def rows(self, family: Family, first: Key = b"", end: Key | None = None) -> Iterator[RawRow]:
        """See `RawDatabase.rows`."""

    def damages(self) -> list[Damage]:
        """See `RawDatabase.damages`."""


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
        self._logged: defaultdict[Family, list[Entry]] = defaultdict(list)
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

    def rows(self, family: Family, first: bytes = b"", end: bytes | None = None) -> Iterator[RawRow]:
        """Iterate over the rows of a family in key order (of damaged parts, nearly in order). O(bytes).

        Args:
            family: The family.
            first: The first key.
            end: The key to end before; None reads to the end.
        """
        merged = heapq.merge(self._stored(family, first, end), self._logged[family], key=_order)
        for key, versions in groupby(merged, key=lambda entry: entry.key):
            if first <= key and (end is None or key < end):
                yield RawRow(key, list(versions))

    def damages(self) -> list[Damage]:
        """What is damaged, as far as the files were read: complete when `rows` has read every family."""
        return [*self._damages, *(damage for table in self._tables for damage in table.damages)]

    def _stored(self, family: Family, first: bytes, end: bytes | None) -> Iterator[Entry]:
        """Merge the tables of a family. A table is read when the merge arrives at its first key."""
        waiting: list[tuple[bytes, int, Iterator[Entry]]] = []
        for number, table in enumerate(self._tables):
            if table.family == family:
                smallest = next((entry.key for entry in table.entries(first, end)), None)
                if smallest is not None:
                    waiting.append((smallest, number, table.entries(first, end)))
        waiting.sort(reverse=True)
        active: list[tuple[tuple[bytes, bool, int], int, Entry, Iterator[Entry]]] = []
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
        logged: defaultdict[int, list[Entry]] = defaultdict(list)
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

    def _read_log(self, file: FileBytes, numbers: AbstractSet[int], logged: defaultdict[int, list[Entry]]) -> set[int]:
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
    active: list[tuple[tuple[bytes, bool, int], int, Entry, Iterator[Entry]]], number: int, entries: Iterator[Entry]
) -> None:
    """Add the next entry of a table to the heap, if it has one."""
    entry = next(entries, None)
    if entry is not None:
        heapq.heappush(active, (_order(entry), number, entry, entries))


def _order(entry: Entry) -> tuple[bytes, bool, int]:
    return entry.key, not entry.is_intact, -entry.sequence


def _number(name: str) -> int:
    stem = name.partition(".")[0]
    return int(stem) if stem.isdecimal() else -1


def _guessed_family(table: TableFile) -> str | None:
    """The family of a file that has lost its properties and is not in a MANIFEST, by the form of its first row."""
    entry = next((entry for entry in table.entries() if entry.value is not None), None)
    return None if entry is None or entry.value is None else _family_by_form(entry.key, len(entry.value))


def _families_of(logged: Mapping[int, Sequence[Entry]], by_id: Mapping[int, str]) -> dict[int, Family]:
    """Return the family of each number in the logs. If no other file names it, the form of most of its rows decides.

    Rows without a valid checksum count only where there are no others, since some of them are not rows.
    """
    known = {number: Family(name) for number, name in by_id.items() if name in set(Family)}
    for is_intact in (True, False):
        forms = Counter(
            (number, _family_by_form(entry.key, len(entry.value)))
            for number in logged.keys() - by_id.keys()
            for entry in logged[number]
            if entry.value is not None and entry.is_intact is is_intact
        )
        for (number, family), _ in forms.most_common():
            if number not in known and family not in known.values():
                known[number] = family
    return {number: known[number] for number in logged if number in known}


def _family_by_form(key: bytes, size: int) -> Family:
    """The family that a row with this key, and a value of this many bytes, has the form of.

    Keys of records begin with a letter, which ids of uploads and multihashes do not; after it, those as long as a
    digest have names.
    """
    if key in _STATE_KEYS or (key[:1] == payload_date(b"").key and size == _DATE_BYTES):
        return Family.META
    if len(key) == _ROOT_CID_BYTES and key[:1] == b"\x01":
        return Family.ROOTS
    if len(key) == _DIGEST_BYTES and _NAMED.match(key) is None:
        return Family.PAGES
    if key[:1].isalpha():
        return Family.RECORDS
    if size == 0 and len(key) == _UPLOAD_ID_BYTES:
        return Family.UPLOADS
    if size == _PAYLOAD_ROW_BYTES and len(key) != _CHUNK_KEY_BYTES:
        return Family.PAYLOADS
    return Family.CHUNKS if len(key) == _CHUNK_KEY_BYTES else Family.RECORDS
