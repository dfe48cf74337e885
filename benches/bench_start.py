"""Startup times: importing coregw, and the first answer of a gateway on a store of 10^7 arcs.

Both sides of each figure alternate, in processes of their own. The gateway's times are absolute, since a person waits
for them; the start of a bare interpreter is shown for comparison.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

import report
from big_map import BigMap, big_map, key

SERVE = [sys.executable, "-m", "coregw", "serve", "--port", "0", "--set", "log_level=error", "--data"]
SERVER_MODULES = ("litestar", "uvicorn", "rocksdict", "pycurl", "rich")


def python(code: str) -> str:
    """Run code in a new interpreter and return its output."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def import_seconds(module: str) -> float:
    """Return the CPU seconds of an import, excluding the interpreter's own startup."""
    return float(python(f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"))


def bare_seconds() -> float:
    start = time.perf_counter()
    python("")
    return time.perf_counter() - start


def answer_seconds(store: Path, where: BigMap, *, kill: bool) -> float:
    """Return the seconds from starting a gateway to its first proven answer, then stop it gracefully or kill it."""
    start = time.perf_counter()
    gateway = subprocess.Popen([*SERVE, str(store)], stdout=subprocess.PIPE, text=True)
    try:
        assert gateway.stdout is not None
        address = gateway.stdout.readline().rpartition("/")[2].strip()
        body = {"profile": "core.resolve/v0alpha1", "root": where.root, "segments": [key(7)]}
        assert b'"target"' in post(address, "/v1/resolve", json.dumps(body).encode())
        seconds = time.perf_counter() - start
        if kill:
            fill_wal(address)
    finally:
        gateway.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        gateway.wait()
    return seconds


def fill_wal(address: str) -> None:
    """Leave as much in the WAL as a restart may have to replay: some 60 MiB of payloads."""
    for _ in range(15):
        post(address, "/v1/cas", os.urandom(4 << 20))


def post(address: str, path: str, body: bytes) -> bytes:
    """Send a POST, which has to succeed, and return the response body."""
    connection = HTTPConnection(address)
    connection.request("POST", path, body)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status in (200, 201), text
    connection.close()
    return text


def main() -> None:
    args = report.arguments(__doc__)
    runs = 5 if args.quick else 15
    where = big_map(10**6 if args.quick else 10**7)
    figures = report.Report("start", "Startup", args, (f"Medians of {runs} runs.",))

    imports: dict[str, list[float]] = {"msgspec": [], "coregw": [], "coregw.client": []}
    for _ in range(runs):
        for module, times in imports.items():
            times.append(import_seconds(module))
    more = [1000 * (ours - floor) for ours, floor in zip(imports["coregw"], imports["msgspec"], strict=True)]
    ratio = statistics.median(imports["coregw"]) / statistics.median(imports["msgspec"])
    figures.add("import coregw / import msgspec", ratio, better="lower", guarded=True)
    figures.add("import coregw minus import msgspec", statistics.median(more), "ms", better="lower", bar=60)
    for module, times in imports.items():
        figures.add(f"import {module}", 1000 * statistics.median(times), "ms", recorded=False)
    loaded = json.loads(python("import coregw, sys, json; print(json.dumps(list(sys.modules)))"))
    loaded_server_modules = [name for name in SERVER_MODULES if name in loaded]
    figures.add("server modules loaded by import coregw", len(loaded_server_modules), "", better="lower", bar=0)

    bare = statistics.median(bare_seconds() for _ in range(runs))
    figures.add("bare interpreter", bare, "s", recorded=False)
    name = f"first answer of a gateway on {where.arcs:,} arcs"
    stopped = [answer_seconds(where.path, where, kill=False) for _ in range(runs)]
    figures.add(f"{name}, after a graceful shutdown", statistics.median(stopped), "s", better="lower", bar=1.5)
    copy = where.path.with_name(f"{where.path.name}-killed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(where.path, copy)
    try:
        killed = [answer_seconds(copy, where, kill=True) for _ in range(4)][1:]  # the first one has no WAL to replay
    finally:
        shutil.rmtree(copy)
    figures.add(f"{name}, after a kill with a full WAL", statistics.median(killed), "s", better="lower", bar=1.5)
    figures.finish()


if __name__ == "__main__":
    main()
