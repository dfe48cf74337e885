"""The bench of durable writes: its drivers in Python, and how syncs are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

import bench_writes
from bench_writes import Case, Measured

LOG = """\
41 1795000000.000001 openat(AT_FDCWD, "/data/CURRENT", O_RDONLY|O_CLOEXEC) = 7
41 1795000000.000002 openat(AT_FDCWD, "/log/tile", O_RDWR|O_CREAT|O_EXCL|O_SYNC|O_CLOEXEC, 0644) = 8
42 1795000000.000003 fdatasync(9 <unfinished ...>
41 1795000000.000004 fsync(8)          = 0
42 1795000000.000005 <... fdatasync resumed>) = 0
43 1795000000.000006 msync(0x7f0000000000, 4096, MS_SYNC) = 0
43 1795000000.000007 exit_group(0)     = ?
"""


def test_each_sync_of_a_trace_is_counted_once() -> None:
    assert [at[-1] for at in bench_writes.SYNC.findall(LOG)] == ["2", "3", "4", "6"]


@pytest.mark.parametrize(
    ("driver", "proven"), [(bench_writes.ENGINE, True), (bench_writes.ROCKSDB, False)], ids=["engine", "rocksdb"]
)
def test_writers_change_all_that_they_say_and_read_it_back(
    driver: bench_writes.Driver, proven: bool, tmp_path: Path
) -> None:
    bench_writes.write_keys(tmp_path / "keys", 64)
    with bench_writes.running(driver, tmp_path / "store", tmp_path / "keys") as store:
        for case in (Case(1, 1), Case(4, 10)):
            measured = Measured()
            _, _, changes = store.measure(case, 0.02, measured)
            assert changes == measured.changes > 0
            assert changes % case.changes == 0
            assert changes >= case.writers * case.changes
            assert measured.proven is proven
            assert measured.written_bytes >= 32 * changes
            assert measured.cpu_seconds > 0
    assert not (tmp_path / "store").exists()
