"""Memory of a process: few malloc arenas, no huge pages, and no reference cycles."""

from __future__ import annotations

import asyncio
import gc
import json
import platform
import subprocess
import sys
from typing import Any

import pytest

from coregw.engine import Engine
from coregw.gateway.app import create_app_over
from coregw.gateway.context import Gateway
from coregw.gateway.settings import Settings
from coregw.store.memory import MemoryStore

THREADS = """
import ctypes, sys, threading
from coregw.heap import limit_heap

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.fdopen.restype = ctypes.c_void_p
if sys.argv[1] == "limited":
    limit_heap()
all_there = threading.Barrier(12)

def allocate():
    libc.malloc(1000)
    all_there.wait()

threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
stdout = libc.fdopen(1, b"w")
libc.malloc_info(0, ctypes.c_void_p(stdout))
libc.fflush(ctypes.c_void_p(stdout))
"""


def arenas(how: str) -> int:
    shown = subprocess.run([sys.executable, "-c", THREADS, how], check=True, capture_output=True, text=True).stdout
    return shown.count("<heap nr=")


IS_GLIBC = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"


@pytest.mark.skipif(not IS_GLIBC, reason="glibc only")
def test_threads_share_two_arenas() -> None:
    assert arenas("unlimited") > 2
    assert arenas("limited") <= 2


LONG_BLOCKS = """
import sys
from coregw.heap import limit_heap

if sys.argv[1] == "limited":
    limit_heap()
bytes(24 << 20)  # mapped, and when it is freed, glibc takes longer blocks from the heap from then on
blocks = []
for _ in range(8):
    blocks += [bytes([1]) * (24 << 20), bytearray(100_000)]  # a short one after each keeps the heap from shrinking
del blocks[::2]
for line in open("/proc/self/status"):
    if line.startswith("RssAnon:"):
        print(int(line.split()[1]) >> 10)
"""


@pytest.mark.skipif(not IS_GLIBC, reason="glibc only")
def test_long_blocks_return_to_the_system_when_they_are_freed() -> None:
    def kept(how: str) -> int:
        command = [sys.executable, "-c", LONG_BLOCKS, how]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert kept("unlimited") > 100
    assert kept("limited") < 50


HUGE_PAGES = """
import atexit, sys
from coregw.__main__ import main

atexit.register(lambda: print(open("/proc/self/status").read()))
sys.argv[1:] = ["--version"]
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_the_memory_of_a_command_is_in_pages_of_the_size_that_is_used() -> None:
    shown = subprocess.run([sys.executable, "-c", HUGE_PAGES], check=True, capture_output=True, text=True).stdout
    assert "THP_enabled:\t0" in shown


SERVING = """
import gc, os, pathlib, signal, sys
from coregw.gateway.server import run
from coregw.gateway.settings import Settings

def ready(url):
    print(gc.get_freeze_count(), gc.get_threshold()[0])
    os.kill(os.getpid(), signal.SIGTERM)

run(Settings(data=pathlib.Path(sys.argv[1]), port=0), on_ready=ready)
"""


def test_serving_process_freezes_its_start_and_collects_rarely(tmp_path: object) -> None:
    command = [sys.executable, "-c", SERVING, str(tmp_path)]
    frozen, young = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert frozen > 10_000
    assert young == 10_000


async def _ask(
    app: Any,  # noqa: ANN401 - an ASGI application
    path: str,
    body: bytes,
    method: str = "POST",
) -> tuple[int, bytes]:
    """Send a request as a client that disconnects after the first chunk of the response."""
    sent: list[Any] = []
    messages: list[dict[str, object]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, object]:
        while not messages:
            await asyncio.sleep(0)
            if len(sent) > 1:
                return {"type": "http.disconnect"}
        return messages.pop()

    async def send(message: dict[str, object]) -> None:
        sent.append(message)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    headers = [(b"host", b"test"), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": ""}
    await app(scope | {"query_string": b"", "headers": headers, "http_version": "1.1"}, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def test_requests_leave_no_reference_cycles() -> None:
    """The garbage collector runs rarely, so cycles would accumulate."""

    async def cycles() -> int:
        app = create_app_over(Gateway.over(Engine(MemoryStore()), Settings()))
        cid = json.loads((await _ask(app, "/v1/cas", b"warm"))[1])["cid"]
        made = (await _ask(app, "/v1/roots", json.dumps({"arcs": {"a": cid}}).encode()))[1]
        question = {"profile": "core.resolve/v0alpha1", "root": json.loads(made)["root"], "segments": ["a"]}
        large = json.loads((await _ask(app, "/v1/cas", bytes(5 << 20)))[1])["cid"]
        gc.collect()
        gc.disable()
        try:
            for number in range(200):
                assert (await _ask(app, "/v1/cas", b"%d" % number))[0] == 201
                assert (await _ask(app, "/v1/resolve", json.dumps(question).encode()))[0] == 200
                assert (await _ask(app, "/v1/resolve", b"nonsense"))[0] == 400
                status, piece = await _ask(app, f"/v1/cas/{large}", b"", "GET")
                assert status == 200
                assert len(piece) < 3 << 20
            return gc.collect()
        finally:
            gc.enable()

    assert asyncio.run(cycles()) < 200
