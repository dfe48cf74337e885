"""The memory of imports and exports: some dozens of bytes for each block, independent of their content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import serving
from car_files import TYPE, block, cid, header
from coregw import Map, payload_cid

MIB = 1 << 20
PAYLOADS = 96


def _peak(pid: int) -> int:
    """The peak memory of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def _payload(number: int, noise: bytes) -> bytes:
    return number.to_bytes(4) + noise[4:]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_96_mib_of_payloads_are_imported_and_exported_in_bounded_memory(tmp_path: Path) -> None:
    noise = os.urandom(MIB)
    arcs = {str(i): payload_cid(_payload(i, noise)) for i in range(PAYLOADS)}
    root = Map(arcs).root

    with (
        serving.process(tmp_path, cache_bytes=4 * MIB) as running,
        httpx2.Client(base_url=running.url, timeout=60) as client,
    ):
        assert client.post("/v1/roots", json={"arcs": arcs}).json()["root"] == root
        nodes = client.get(f"/v1/roots/{root}/car").content
        empty = header(cid(0x303110, b"\0")) + block(cid(0x303110, b"\0"), b"\0")
        assert client.post("/v1/car", content=empty, headers=TYPE).status_code == 201

        def car() -> Iterator[bytes]:
            yield nodes
            for i in range(PAYLOADS):
                yield block(cid(0x55, _payload(i, noise)), _payload(i, noise))

        before = _peak(running.popen.pid)
        taken = client.post("/v1/car", content=car(), headers=TYPE).json()
        assert taken["roots"] == [root]
        digest = hashlib.sha256()
        size = 0
        with client.stream("GET", f"/v1/roots/{root}/car?payloads=true") as answer:
            for chunk in answer.iter_raw():
                digest.update(chunk)
                size += len(chunk)
        assert size == taken["bytes"]
        growth = _peak(running.popen.pid) - before
    # RocksDB's write buffers and block cache fill up as well; the CAR as a whole would be 96 MiB and more.
    assert growth < 56 * MIB, f"{growth / MIB:.0f} MiB"
