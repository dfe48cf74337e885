"""MANIFESTs: the log of what files a database consists of, read as far as its checksums hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from coregw.store.rocksdb.raw.coding import Damage, Malformed, prefixed, varint
from coregw.store.rocksdb.raw.files import FileBytes
from coregw.store.rocksdb.raw.logs import read_log

__all__ = ["LiveTable", "Manifest", "read_manifest"]

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
