"""How long things take to start: importing coregw, and a gateway on a store of 10^7 arcs until it answers.

Both sides of each figure run in turn, in processes of their own. The times of the gateway are absolute, since a person
waits for them; they are shown beside the start of a bare interpreter.
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
SERVER_MODULES = ("litestar", "uvicorn", "rocksdict", "httpx2", "rich")


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def import_seconds(module: str) -> float:
    """Processor seconds of an import, the interpreter's own start left out."""
    return float(python(f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"))


def bare_seconds() -> float:
    start = time.perf_counter()
    python("")
    return time.perf_counter() - start


def answer_seconds(store: Path, where: BigMap, *, kill: bool) -> float:
    """Seconds from the start of a gateway's process to its first proven answer; it then ends well, or is killed."""
    start = time.perf_counter()
    gateway = subprocess.Popen([*SERVE, str(store)], stdout=subprocess.PIPE, text=True)
    try:
        assert gateway.stdout is not None
        address = gateway.stdout.readline().rpartition("/")[2].strip()
        body = {"profile": "core.resolve/v0alpha1", "root": where.root, "segments": [key(7)]}
        assert b'"target"' in post(address, "/v1/resolve", json.dumps(body).encode())
        seconds = time.perf_counter() - start
        if kill:
            fill_log(address)
    finally:
        gateway.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        gateway.wait()
    return seconds


def fill_log(address: str) -> None:
    """Leaves as much in the log as there may be to replay: some 60 MiB of payloads."""
    for _ in range(15):
        post(address, "/v1/cas", os.urandom(4 << 20))


def post(address: str, path: str, body: bytes) -> bytes:
    """The answer to a POST, which must be a success."""
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
    figures = report.Report("start", "Starting", args, (f"Medians of {runs} runs.",))

    imports: dict[str, list[float]] = {"msgspec": [], "coregw": [], "coregw.client": []}
    for _ in range(runs):
        for module, times in imports.items():
            times.append(import_seconds(module))
    more = [1000 * (ours - floor) for ours, floor in zip(imports["coregw"], imports["msgspec"], strict=True)]
    ratio = statistics.median(imports["coregw"]) / statistics.median(imports["msgspec"])
    figures.add("import coregw / import msgspec", ratio, better="lower", guarded=True)
    figures.add("import coregw, more than import msgspec", statistics.median(more), "ms", better="lower", bar=60)
    for module, times in imports.items():
        figures.add(f"import {module}", 1000 * statistics.median(times), "ms", recorded=False)
    loaded = json.loads(python("import coregw, sys, json; print(json.dumps(list(sys.modules)))"))
    brought = [name for name in SERVER_MODULES if name in loaded]
    figures.add("server modules that import coregw loads", len(brought), "", better="lower", bar=0)

    bare = statistics.median(bare_seconds() for _ in range(runs))
    figures.add("python, nothing imported", bare, "s", recorded=False)
    name = f"a gateway on {where.arcs:,} arcs answers"
    ended = [answer_seconds(where.path, where, kill=False) for _ in range(runs)]
    figures.add(f"{name}, after a clean end", statistics.median(ended), "s", better="lower", bar=1.5)
    copy = where.path.with_name(f"{where.path.name}-killed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(where.path, copy)
    try:
        killed = [answer_seconds(copy, where, kill=True) for _ in range(4)][1:]  # the first finds no log to replay
    finally:
        shutil.rmtree(copy)
    figures.add(f"{name}, after a kill with a full log", statistics.median(killed), "s", better="lower", bar=1.5)
    figures.finish()


if __name__ == "__main__":
    main()
