"""That a serving process keeps freed memory in few places."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

THREADS = """
import ctypes, sys, threading
from coregw.gateway.allocator import limit_arenas

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.fdopen.restype = ctypes.c_void_p
if sys.argv[1] == "limited":
    limit_arenas()
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


@pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="glibc only")
def test_threads_share_two_arenas_where_each_would_have_its_own() -> None:
    assert arenas("unlimited") > 2
    assert arenas("limited") <= 2
