"""A model of a disk: what a power cut may leave of the recorded changes of a process.

The model knows what POSIX promises and no more. The data of a file survives if the file was synced after it was
written; a name (created, renamed, removed) survives if its directory was synced after the change. Of everything else
any part may survive. `Disk.cut` chooses one of three kinds:

    synced     nothing survives but what was synced
    ordered    everything survives, except for the end of what was appended without a sync
    torn       of the unsynced data, any pages of 4 KiB; of the unsynced names, any changes
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from chaos.recorder import Record

KINDS = ("synced", "ordered", "torn")

_PAGE_BYTES = 4096
_CREATED, _EMPTIED, _DIRECTORY = 1, 2, 4


@dataclass(frozen=True)
class _Change:
    """Bytes written to a file at an offset, or with None, the file truncated to that size."""

    position: int
    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.offset :]
        content.extend(bytes(max(0, self.offset - len(content))))
        if self.data is not None:
            content[self.offset : self.offset + len(self.data)] = self.data


@dataclass(eq=False)
class _File:
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[_Change] = field(default_factory=list)

    def sync(self, began: int) -> None:
        """Make the changes durable that were recorded before the sync began."""
        for change in self.unsynced:
            if change.position <= began:
                change.apply(self.synced)
        self.unsynced = [change for change in self.unsynced if change.position > began]

    def left(self, kind: str, rng: random.Random) -> bytes:
        if kind == "synced" or not self.unsynced:
            return bytes(self.synced)
        current = bytearray(self.synced)
        for change in self.unsynced:
            change.apply(current)
        if kind == "ordered":
            is_short = len(current) > len(self.synced) and rng.random() < 0.5
            return bytes(current[: rng.randrange(len(self.synced), len(current)) if is_short else len(current)])
        shorter, longer = sorted((len(self.synced), len(current)))
        size = rng.choice([len(self.synced), len(current), rng.randint(shorter, longer)])
        image = bytearray(self.synced[:size].ljust(size, b"\0"))
        share = rng.random()
        for start in range(0, size, _PAGE_BYTES):
            end = min(start + _PAGE_BYTES, size)
            if rng.random() < share:
                image[start:end] = current[start:end].ljust(end - start, b"\0")
        return bytes(image)


@dataclass(eq=False)
class _Folder:
    current: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)


@dataclass
class _Naming:
    """Names set or, with None, removed in one step, and the folders that have not been synced since."""

    position: int
    names: list[tuple[_Folder, str, _File | _Folder | None]]
    waiting: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.waiting = {id(folder) for folder, _, _ in self.names}


_Names = dict[str, "_File | _Folder"]


class Disk:
    """A disk whose changes are replayed from a trace.

    Args:
        root: The directory that stands for the disk; what is in it now is durable.
        honours: Whether a sync of the file with this path does anything. A disk that ignores some is the control of an
            experiment: it must lose acknowledged writes.
    """

    def __init__(self, root: Path, honours: Callable[[str], bool] = lambda _: True) -> None:
        self._root = root
        self._honours = honours
        self._top = _read(root)
        self._opened: dict[int, tuple[_File | _Folder, str]] = {}
        self._unsynced: list[_Naming] = []
        self._newest: dict[tuple[int, str], int] = {}

    def replay(self, record: Record) -> None:
        """Apply the next record of the trace."""
        if record.operation == "w":
            self._change(record, record.first)
        elif record.operation == "t":
            self._change(record, None)
        elif record.operation == "s":
            self._sync(record)
        elif record.operation == "o":
            self._open(record, record.first.decode())
        else:
            self._name(record)

    def cut(self, kind: str, rng: random.Random, target: Path) -> None:
        """Write to `target` what a power cut now may leave."""
        names: dict[int, _Names] = {}
        if kind == "torn":
            for change in self._unsynced:
                if rng.random() < 0.5:
                    self._apply(change, lambda folder: names.setdefault(id(folder), dict(folder.synced)))

        def left(folder: _Folder) -> _Names:
            return folder.current if kind == "ordered" else names.get(id(folder), folder.synced)

        _write(self._top, target, left, lambda file: file.left(kind, rng))

    def _change(self, record: Record, data: bytes | None) -> None:
        node, _ = self._opened[record.file]
        assert isinstance(node, _File)
        node.unsynced.append(_Change(record.position, record.number, data))

    def _sync(self, record: Record) -> None:
        node, path = self._opened[record.file]
        if not self._honours(path):
            return
        if isinstance(node, _File):
            node.sync(record.number)
            return
        for change in self._unsynced:
            if change.position <= record.number:
                change.waiting.discard(id(node))
        for change in self._unsynced:
            if not change.waiting:
                self._apply(change, lambda folder: folder.synced)
                for folder, name, _ in change.names:
                    self._newest[id(folder), name] = change.position
        self._unsynced = [change for change in self._unsynced if change.waiting]

    def _apply(self, change: _Naming, names_of: Callable[[_Folder], _Names]) -> None:
        for folder, name, node in change.names:
            if self._newest.get((id(folder), name), 0) < change.position:  # else a later change is durable already
                _assign(names_of(folder), name, node)

    def _open(self, record: Record, path: str) -> None:
        if record.number & _CREATED:
            node: _File | _Folder | None = _File()
            self._set(record, [(path, node)])
        else:
            node = self._find(path)
        if node is None:  # created by a call that is not recorded, like RocksDB's own log
            node = _File()
            self._set(record, [(path, node)])
        assert isinstance(node, _Folder) == bool(record.number & _DIRECTORY), path
        self._opened[record.file] = node, path
        if record.number & _EMPTIED and isinstance(node, _File):
            node.unsynced.append(_Change(record.position, 0, None))

    def _name(self, record: Record) -> None:
        first, second = record.first.decode(), record.second.decode()
        if record.operation == "m":
            self._set(record, [(first, _Folder())])
        elif record.operation == "u":
            self._set(record, [(first, None)])
        elif (node := self._find(first)) is not None:
            self._set(record, [(first, None), (second, node)] if record.operation == "r" else [(second, node)])

    def _set(self, record: Record, paths: list[tuple[str, _File | _Folder | None]]) -> None:
        names = []
        for path, node in paths:
            folder = self._find(str(PurePath(path).parent))
            assert isinstance(folder, _Folder), path
            _assign(folder.current, PurePath(path).name, node)
            names.append((folder, PurePath(path).name, node))
        self._unsynced.append(_Naming(record.position, names))

    def _find(self, path: str) -> _File | _Folder | None:
        node: _File | _Folder | None = self._top
        for part in PurePath(path).relative_to(self._root).parts:
            node = node.current.get(part) if isinstance(node, _Folder) else None
        return node


def _assign(names: _Names, name: str, node: _File | _Folder | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _read(path: Path) -> _Folder:
    folder = _Folder()
    for entry in path.iterdir():
        if entry.is_dir():
            folder.synced[entry.name] = _read(entry)
        elif entry.is_file():  # and no socket
            folder.synced[entry.name] = _File(bytearray(entry.read_bytes()))
    folder.current = dict(folder.synced)
    return folder


def _write(folder: _Folder, target: Path, names: Callable[[_Folder], _Names], left: Callable[[_File], bytes]) -> None:
    target.mkdir(mode=0o700)
    for name, node in names(folder).items():
        if isinstance(node, _Folder):
            _write(node, target / name, names, left)
        else:
            (target / name).write_bytes(left(node))
