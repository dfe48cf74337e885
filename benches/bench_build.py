"""Maps of any size: creating a map from lines of arcs over HTTP, compared with `Map` of the same arcs in memory.

Each side is a process of its own and gets the same arcs in the same random order: a gateway that sorts them on the disk
and stores the map, and an interpreter that makes `Map` of one JSON object. Rounds alternate. CPU time is that of the
whole process after its start.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from statistics import median
from typing import NamedTuple

import report

SERVE = [sys.executable, "-m", "coregw", "serve", "--port", "0", "--set", "log_level=error", "--data"]
IN_MEMORY = """
import os, sys, time
import coregw
body = sys.stdin.buffer.read()
begun, before = time.perf_counter(), os.times()
root = coregw.Map(body).root
after = os.times()
print(root, time.perf_counter() - begun, after.user + after.system - before.user - before.system)
"""
PREFIX = bytes.fromhex("01551220")  # a CIDv1 of raw bytes, sha2-256


class Made(NamedTuple):
    """One map: its root, wall and CPU seconds, and the peak memory and stored bytes of a gateway."""

    root: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int = 0
    stored_bytes: int = 0


def lines(count: int, step: int = 10_000) -> Iterator[str]:
    """Lines of arcs with random paths and targets, each of 100 bytes, the same in each call."""
    chance = random.Random(1)
    for at in range(0, count, step):
        rows = min(step, count - at)
        keys, targets = chance.randbytes(16 * rows).hex(), chance.randbytes(32 * rows)
        for i in range(rows):
            key = keys[32 * i : 32 * i + 32]
            target = base64.b32encode(PREFIX + targets[32 * i : 32 * i + 32]).decode().rstrip("=").lower()
            yield f'["{key[:2]}/{key[2:]}","b{target}"]\n'


def over_http(file: Path, folder: Path) -> Made:
    """Send the lines in a file to a new gateway on a new store."""
    gateway = subprocess.Popen([*SERVE, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert gateway.stdout is not None
        host, _, port = gateway.stdout.readline().strip().rpartition("/")[2].rpartition(":")
        started, begun = cpu_seconds(gateway.pid), time.perf_counter()
        with socket.create_connection((host, int(port))) as connection, file.open("rb") as body:
            head = "POST /v1/roots HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            connection.sendall(f"{head}Content-Length: {file.stat().st_size}\r\n\r\n".encode())
            connection.sendfile(body)
            answer = HTTPResponse(connection)
            answer.begin()
            root = json.loads(answer.read())["root"]
        seconds, used = time.perf_counter() - begun, cpu_seconds(gateway.pid) - started
        status = Path(f"/proc/{gateway.pid}/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024
    finally:
        gateway.terminate()
        gateway.wait()
    stored = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    return Made(root, seconds, used, peak, stored)


def in_memory(body: Path) -> Made:
    """Make `Map` of the JSON object in a file."""
    with body.open("rb") as given:
        done = subprocess.run([sys.executable, "-c", IN_MEMORY], stdin=given, capture_output=True, check=True)
    root, seconds, cpu = done.stdout.decode().split()
    return Made(root, float(seconds), float(cpu))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    args = report.arguments(__doc__)
    count, rounds = (500_000, 3) if args.quick else (10_000_000, 2)
    figures = report.Report("build", "Maps of any size", args, (f"{count:,} arcs; medians of {rounds} rounds.",))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arcs, body = folder / "arcs.ndjson", folder / "body.json"
        with arcs.open("w") as file, body.open("w") as whole:
            for number, line in enumerate(lines(count)):
                file.write(line)
                path, target = line[2:-3].split('","')
                whole.write(f'{"," if number else "{"}"{path}":"{target}"')
            whole.write("}")
        built, mapped = [], []
        for number in range(rounds):
            built.append(over_http(arcs, folder / f"store-{number}"))
            shutil.rmtree(folder / f"store-{number}")
            mapped.append(in_memory(body))
    assert len({made.root for made in built + mapped}) == 1
    wall = [made.seconds / other.seconds for made, other in zip(built, mapped, strict=True)]
    cpu = [made.cpu_seconds / other.cpu_seconds for made, other in zip(built, mapped, strict=True)]
    figures.add("time over HTTP / Map in memory", median(wall), better="lower", bar=2.5)
    figures.add("CPU time of the gateway / Map in memory", median(cpu), better="lower", bar=2.5, guarded=True)
    peak = max(made.peak_bytes for made in built) / 2**20
    figures.add("peak memory of the gateway", peak, "MiB", better="lower", bar=512)
    figures.add("stored bytes per arc", built[0].stored_bytes / count, "B")
    rate = count / median(made.seconds for made in built)
    figures.add("arcs per second over HTTP", rate, "1/s", recorded=False)
    in_memory_rate = count / median(made.seconds for made in mapped)
    figures.headline(
        f"Python: arcs of a new map of {count:,} over HTTP, durable", rate, "1/s", "in memory", in_memory_rate
    )
    figures.finish()


if __name__ == "__main__":
    main()
