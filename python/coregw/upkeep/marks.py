"""A set of keys on disk: exact, of any size, in bounded memory.

A garbage collection marks what is reachable in it. A filter would not do: one false "visited before" would end a
descent early, and everything below would be taken for garbage.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from coregw.store.rocksdb.statuses import translated

__all__ = ["MarkFile"]

_CACHE_BYTES: Final = 8 << 20
_BUFFER_BYTES: Final = 8 << 20


class MarkFile:
    """A set of byte strings in a directory of its own, which is deleted before and after. Takes some 32 MiB of memory.

    Every call blocks. Nothing is synced, as nobody reads the set after a crash.

    Args:
        path: The directory.

    Raises:
        StorageFull, Unavailable: It cannot be created. So do the methods if they cannot write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        """A caller that was cancelled may still be using the set in a thread when it is closed."""
        shutil.rmtree(path, ignore_errors=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_BUFFER_BYTES)
        options.set_max_write_buffer_number(2)
        options.set_compression_type(DBCompressionType.none())
        table = BlockBasedOptions()
        table.set_block_cache(Cache(_CACHE_BYTES))
        table.set_bloom_filter(10, block_based=False)
        table.set_cache_index_and_filter_blocks(True)
        options.set_block_based_table_factory(table)
        self._options = WriteOptions()
        self._options.disable_wal = True  # type: ignore[method-assign, assignment]
        with translated(path):
            path.mkdir(mode=0o700, parents=True)
            self._database = Rdict(str(path / "marks"), options)

    def close(self) -> None:
        """Delete the set."""
        with self._lock:
            self._database.close()
            shutil.rmtree(self._path, ignore_errors=True)

    def add(self, keys: Sequence[bytes]) -> list[bytes]:
        """Add keys, and return those that are new, each once, in their order."""
        distinct = list(dict.fromkeys(keys))
        with self._lock:
            new = [key for key, is_held in zip(distinct, self.holds(distinct), strict=True) if not is_held]
            if new:
                batch = WriteBatch(raw_mode=True)
                for key in new:
                    batch.put(key, b"")
                with translated(self._path):
                    self._database.write(batch, self._options)
        return new

    def holds(self, keys: Sequence[bytes]) -> list[bool]:
        """Return whether each key was added."""
        if not keys:
            return []
        with self._lock, translated(self._path):
            found = cast("list[bytes | None]", self._database.get(list(keys)))
        return [value is not None for value in found]
