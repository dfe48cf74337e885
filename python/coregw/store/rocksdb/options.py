"""RocksDB options of the database and of each column family.

``docs/decisions/0010`` explains the sizes, ``docs/decisions/0011`` the recovery mode.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from rocksdict import BlockBasedOptions, Cache, DataBlockIndexType, DBCompressionType, DBRecoveryMode, Options

from coregw.store.rocksdb.layout import Family

__all__ = ["database_options", "family_options", "max_open_files"]

_MIB: Final = 1 << 20
_BASE: Final = Path(__file__).parent / "base_options"
_MAX_OPEN_FILES: Final = 512


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
    options.set_max_background_jobs(max(2, min(4, os.cpu_count() or 2)))
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
    pages = _family_options(buffer_bytes=4 * _MIB, buffers=3, compacts=compacts)
    pages.set_block_based_table_factory(_point_lookups(cache))
    # Only payloads may compress well. Chunks bypass the block cache: one large payload would evict every page, and the
    # operating system's page cache serves them equally well.
    chunks = _family_options(buffer_bytes=4 * _MIB, buffers=3, compacts=compacts)
    chunks.set_compression_type(DBCompressionType.lz4())
    table = BlockBasedOptions()
    table.disable_cache()
    chunks.set_block_based_table_factory(table)
    families = dict.fromkeys((Family.ROOTS, Family.PAYLOADS, Family.UPLOADS, Family.RECORDS), small)
    return {str(family): each for family, each in {**families, Family.PAGES: pages, Family.CHUNKS: chunks}.items()}


def _family_options(*, buffer_bytes: int, buffers: int, compacts: bool) -> Options:
    options = Options(raw_mode=True)
    _set_family_options(options, buffer_bytes=buffer_bytes, buffers=buffers, compacts=compacts)
    return options


def _set_family_options(options: Options, *, buffer_bytes: int, buffers: int, compacts: bool) -> None:
    options.set_disable_auto_compactions(not compacts)
    options.set_write_buffer_size(buffer_bytes)
    options.set_max_write_buffer_number(buffers)
    options.set_compression_type(DBCompressionType.none())


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
