"""Memory for a large payload: chunks of it, never the whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import serving

MIB = 1 << 20


def _peak(pid: int) -> int:
    """Return the peak resident memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_64_mib_payload_is_streamed_in_both_directions(tmp_path: Path) -> None:
    block = os.urandom(MIB)

    def pieces() -> Iterator[bytes]:
        for number in range(64):
            yield number.to_bytes(4) + block[4:]

    with serving.process(tmp_path) as running, httpx2.Client(base_url=running.url, timeout=60) as client:
        small = client.post("/v1/cas", content=block).json()["cid"]
        assert client.get(f"/v1/cas/{small}").content == block
        before = _peak(running.popen.pid)
        cid = client.post("/v1/cas", content=pieces()).json()["cid"]
        with client.stream("GET", f"/v1/cas/{cid}") as answer:
            assert sum(map(len, answer.iter_bytes())) == 64 * MIB
        growth = _peak(running.popen.pid) - before
    # RocksDB's write buffers and block cache grow as well; the whole payload would be at least 64 MiB.
    assert growth < 48 * MIB
