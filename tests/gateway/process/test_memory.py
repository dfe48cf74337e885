"""Memory of a serving process: chunks of a large payload, never the whole, and long answers within the settings."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import serving
from coregw import payload_cid
from coregw.gateway.limits.machine import ANSWER_COPIES, LONGEST_ANSWER_BYTES

MIB = 1 << 20


LONG_QUERIES = 2


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


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc")
def test_clients_that_read_no_long_answers_take_no_more_memory_than_configured(tmp_path: Path) -> None:
    cid = payload_cid(b"x")
    arcs = {"\0" * 4090 + f"{number:04}": cid for number in range(1000)}  # each NUL is six bytes of JSON
    limits = {"unsent_bytes": 32 * MIB, "cache_bytes": 16 * MIB, "long_queries": LONG_QUERIES}
    with serving.process(tmp_path, {"MIMALLOC_PURGE_DELAY": "0"}, **limits) as running:
        root = httpx2.post(f"{running.url}/v1/roots", json={"arcs": arcs}, timeout=60).json()["root"]
        body = json.dumps({"profile": "core.scan/v0alpha1", "root": root, "prefix": []}).encode()
        answer = len(httpx2.post(f"{running.url}/v1/scan", content=body, timeout=60).content)
        assert 23 * MIB < answer < LONGEST_ANSWER_BYTES
        time.sleep(1)
        pid = running.popen.pid
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
        start = _peak(pid)
        clients = [_ask(running.url, body) for _ in range(16)]
        time.sleep(8)
        growth = _peak(pid) - start
        assert httpx2.get(f"{running.url}/healthz", timeout=10).status_code == 200
        for client in clients:
            client.close()
    unread = max(1.5 * limits["unsent_bytes"], 2 * answer)
    allowed = unread + LONG_QUERIES * ANSWER_COPIES * answer + limits["cache_bytes"]
    print(f"peak {growth / MIB:.0f} MiB above the start; the settings allow {allowed / MIB:.0f} MiB")
    assert growth < allowed


def _ask(url: str, body: bytes) -> socket.socket:
    """Request a listing, and read nothing."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, int(port)))
    client.sendall(b"POST /v1/scan HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return client
