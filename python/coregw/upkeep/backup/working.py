"""The working store of a backup: a RocksDB store in the repository that begins as the newest generation.

```
DEST/working/000012/            the store, made of generation 12; 000000 in an empty repository
        rocksdb/000017.sst ->   table files, which RocksDB never changes, are links to the pool
        mirror.json             there while its pages are exactly those that its roots need
DEST/working/marks/             the pages that were visited
DEST/working/new/               a store that is being made
```

It is removed when its content has become a generation. What an interrupted backup leaves is used by the next one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from coregw.errors import NotFound, StoreDamaged
from coregw.syncing import sync_path
from coregw.upkeep.backup.files import make_directory, using
from coregw.upkeep.backup.manifest import Generation
from coregw.upkeep.backup.repository import Repository

__all__ = ["MIRROR", "WorkingStore", "link_generation"]

MIRROR: Final = "mirror.json"
"""A file of a generation that was copied row by row: each page that it holds has all pages below it."""

_FOLDER: Final = "working"
_CONTENT: Final = b'{"mirror": "coregw", "format": 1}\n'
_TABLE_FILE: Final = ".sst"


class WorkingStore:
    """The folder of the working store of a repository, which is locked. Its methods block.

    Args:
        repository: The repository.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._folder = repository.path / _FOLDER

    @property
    def marks(self) -> Path:
        """Where the marks of a backup belong."""
        return self._folder / "marks"

    def prepare(self) -> Path:
        """Return the working store: what an earlier backup has left, or the newest generation, or an empty directory.

        Raises:
            StorageFull, Unavailable: It cannot be made.
        """
        newest = self._newest()
        store = self._folder / f"{newest.number if newest is not None else 0:06}"
        with using(self._repository.path, "the backups that it had are unchanged"):
            if store.is_dir() and _has_all_tables(store):
                return store
            self.remove()
            new = self._folder / "new"
            make_directory(new)
            if newest is not None:
                link_generation(self._repository, newest, new)
            new.rename(store)
            sync_path(self._folder)
        return store

    def _newest(self) -> Generation | None:
        """The newest generation, if it is there and has all of its files."""
        try:
            newest = self._repository.newest()
        except (NotFound, StoreDamaged):  # then everything is copied again
            return None
        return newest if all(self._repository.holds(file.sha256, file.size) for file in newest.files) else None

    def remove(self) -> None:
        """Remove the working store. Raises `OSError`."""
        if self._folder.exists():
            shutil.rmtree(self._folder)

    @staticmethod
    def begin(store: Path) -> bool:
        """Note that the store is about to be changed; return whether its pages were exactly those that it needs."""
        mark = store / MIRROR
        is_exact = mark.is_file()
        with using(store):
            mark.unlink(missing_ok=True)
            sync_path(store)
        return is_exact or not any(store.iterdir())

    @staticmethod
    def end(checkpoint: Path) -> None:
        """Note in a checkpoint of the store that its pages are exactly those that it needs. Raises `OSError`."""
        (checkpoint / MIRROR).write_bytes(_CONTENT)


def link_generation(repository: Repository, generation: Generation, data: Path) -> None:
    """Fill an empty data directory with a generation: table files as links, the rest copied. Raises `OSError`."""
    for file in generation.files:
        target, place = data / file.path, repository.file(file.sha256).resolve()
        target.parent.mkdir(mode=0o700, exist_ok=True)
        if target.suffix == _TABLE_FILE:
            target.symlink_to(place)
        else:
            shutil.copyfile(place, target)


def _has_all_tables(store: Path) -> bool:
    """Whether all links of a store that an earlier backup has left lead to files."""
    return all(path.exists() for path in store.rglob(f"*{_TABLE_FILE}"))
