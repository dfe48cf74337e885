"""How RocksDB is opened, and what its statuses mean.

``docs/decisions/0010`` explains the sizes, ``docs/decisions/0011`` the recovery mode.

rocksdict raises every status as a plain `Exception` with RocksDB's text, so the texts are matched here alone.
The tests provoke in the real library those that they can.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DataBlockIndexType,
    DbClosedError,
    DBCompressionType,
    DBRecoveryMode,
    Options,
)

from coregw.concurrency import usable_cores
from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable
from coregw.store.rocksdb.layout import Family

__all__ = ["LEVEL_0_FILES", "WriteStalled", "database_options", "family_options", "max_open_files", "translated"]

_MIB: Final = 1 << 20

_BASE: Final = Path(__file__).parent / "base_options"

_MAX_OPEN_FILES: Final = 512


LEVEL_0_FILES: Final = 16
"""The SSTs of level 0 that share a compaction. Keys are digests, so that each one writes the whole next level again:
with RocksDB's default of 4, three times as much was written. Reads ask the filters of all of them."""


def database_options(*, create: bool, salvage: bool, compacts: bool = True) -> Options:
    """The options of the database as a whole, and of `Family.META`.

    Args:
        create: Whether to create the database.
        salvage: Whether to skip damaged and missing logs.
        compacts: Whether RocksDB compacts SSTs by itself.
    """
    # A store is salvaged without the logs that its MANIFEST names, so they must not be required then.
    options = Options(raw_mode=True) if salvage else Options.load_latest(str(_BASE))[0]
    _set_family_options(options, buffer_bytes=_MIB, buffers=2, compacts=compacts)
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    # Damage to acknowledged writes must not be skipped silently (docs/decisions/0011).
    options.set_wal_recovery_mode(
        DBRecoveryMode.skip_any_corrupted_record() if salvage else DBRecoveryMode.tolerate_corrupted_tail_records()
    )
    options.set_max_total_wal_size(64 * _MIB)  # bounds the log that the next open replays
    options.set_max_background_jobs(max(2, min(4, usable_cores())))
    options.set_bytes_per_sync(_MIB)  # SSTs reach the disk while they are written, not in one stall at their end
    options.set_max_open_files(max_open_files())
    options.set_max_log_file_size(_MIB)  # RocksDB's own LOG
    options.set_keep_log_file_num(4)
    return options


def max_open_files() -> int:
    """The maximum number of SSTs that RocksDB keeps open: a third of what the process may open, at most 512."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_OPEN_FILES if limit == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, limit // 3)


def family_options(cache: Cache, *, compacts: bool = True) -> dict[str, Options]:
    """The options of every family but `Family.META`. `cache` holds the blocks of all families but `Family.CHUNKS`."""
    small = _family_options(buffer_bytes=_MIB, buffers=2, compacts=compacts)
    small.set_block_based_table_factory(_point_lookups(cache))
    # Twice as large as those of chunks, since keys are digests: compactions write the next level half as often.
    pages = _family_options(buffer_bytes=8 * _MIB, buffers=2, compacts=compacts)
    pages.set_block_based_table_factory(_point_lookups(cache))
    # Only payloads may compress well. Chunks bypass the block cache: one large payload would evict every page, and the
    # operating system's page cache serves them equally well.
    chunks = _family_options(buffer_bytes=4 * _MIB, buffers=3, compacts=compacts)
    chunks.set_compression_type(DBCompressionType.lz4())
    table = BlockBasedOptions()
    table.disable_cache()
    chunks.set_block_based_table_factory(table)
    differences = _family_options(buffer_bytes=2 * _MIB, buffers=2, compacts=compacts)
    for each in (pages, differences):  # each change looks for rows that are not there
        each.set_memtable_prefix_bloom_ratio(0.02)
        each.set_memtable_whole_key_filtering(True)
    differences.set_block_based_table_factory(_point_lookups(cache))
    families = dict.fromkeys((Family.ROOTS, Family.PAYLOADS, Family.UPLOADS, Family.RECORDS), small)
    return {
        str(family): each
        for family, each in {
            **families,
            Family.PAGES: pages,
            Family.DIFFERENCES: differences,
            Family.CHUNKS: chunks,
        }.items()
    }


def _family_options(*, buffer_bytes: int, buffers: int, compacts: bool) -> Options:
    options = Options(raw_mode=True)
    _set_family_options(options, buffer_bytes=buffer_bytes, buffers=buffers, compacts=compacts)
    return options


def _set_family_options(options: Options, *, buffer_bytes: int, buffers: int, compacts: bool) -> None:
    options.set_disable_auto_compactions(not compacts)
    options.set_write_buffer_size(buffer_bytes)
    options.set_max_write_buffer_number(buffers)
    options.set_compression_type(DBCompressionType.none())
    options.set_level_zero_file_num_compaction_trigger(LEVEL_0_FILES)
    options.set_level_zero_slowdown_writes_trigger(3 * LEVEL_0_FILES)
    options.set_level_zero_stop_writes_trigger(4 * LEVEL_0_FILES)


def _point_lookups(cache: Cache) -> BlockBasedOptions:
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(4096)
    table.set_bloom_filter(10, block_based=False)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    table.set_data_block_hash_ratio(0.75)
    # Filters and indexes count against the cache's bound instead of growing with the store.
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    return table


_LOCKED: Final = ("lock hold by current process", "While lock file")

_FULL: Final = ("No space left on device", "Disk quota exceeded", "File too large")

_DAMAGED: Final = ("Corruption", "No such file or directory", "Column famil")

_STALLED: Final = "Write stall"


class WriteStalled(Unavailable):
    """RocksDB would delay the write until it has flushed or compacted."""


class translated:  # noqa: N801 - used like `contextlib.suppress`
    """Raise the errors of rocksdict and of the system as classes of `coregw.errors`. `path` is the store's.

    A class, since each commit enters several: a generator costs a microsecond more.

    Args:
        path: The store's directory.
        on_error: Called with what is raised, whatever it is.
    """

    __slots__ = ("_on_error", "_path")

    def __init__(self, path: Path, on_error: Callable[[BaseException], None] | None = None) -> None:
        self._path = path
        self._on_error = on_error

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            return
        raised = _translate(error, self._path)
        if self._on_error is not None:
            self._on_error(raised)
        if raised is not error:
            raise raised from error


def _translate(error: BaseException, path: Path) -> BaseException:
    """Return an error of rocksdict or of the system as a class of `coregw.errors`, and any other one as it is."""
    if isinstance(error, CoregwError):
        return error
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return StorageFull(f"the disk of the store in {path} is full")
        return Unavailable(f"the store in {path} failed: {error}")
    if type(error) is Exception or isinstance(error, DbClosedError):
        return _meaning(error, path)
    return error  # not rocksdict's: a bug in coregw


def in_use(path: Path) -> Unavailable:
    """The error of a store that is open already."""
    why = "in use by another process, or opened twice by this one"
    return Unavailable(f"the store in {path} is {why}; coregw status --data {path} shows a gateway that uses it")


def _meaning(error: Exception, path: Path) -> CoregwError:
    text = str(error)
    if isinstance(error, DbClosedError):
        return Unavailable("the store is closed")
    if _STALLED in text:
        return WriteStalled(f"the store in {path} is busy writing")
    if any(sign in text for sign in _LOCKED):
        return in_use(path)
    if any(sign in text for sign in _FULL):
        return StorageFull(f"the disk of the store in {path} is full")
    if any(sign in text for sign in _DAMAGED):
        return StoreDamaged(f"the store in {path} is damaged: {text}")
    return Unavailable(f"the store in {path} failed: {text}")
