"""The plant store as it is run, alone and beside a gateway: a process on RocksDB."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import serving

TOKEN = "a-plant-token~of+the/tests=="
ALONE, BESIDE = "serve-plants", "serve"


@contextmanager
def running(command: str, data: Path, token: str = TOKEN, **settings: object) -> Iterator[serving.Process]:
    """``coregw serve-plants`` or ``coregw serve`` on a free port, for the length of a block; it must end well."""
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("COREGW_")}
    limits = {f"COREGW_{name.upper()}": str(value) for name, value in settings.items()}
    popen = subprocess.Popen(
        [sys.executable, "-m", "coregw", command, "--data", data, "--port", "0"],
        env={**quiet, "GATEWAY_ADMIN_TOKEN": "", "PLANTS_ACCESS_TOKEN": token, **limits},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert popen.stdout is not None
    line = popen.stdout.readline()
    if not line.startswith("coregw: listening on "):
        popen.kill()
        raise AssertionError(f"{command} did not start: {line!r} {popen.communicate()[1]}")
    process = serving.Process(line.split()[-1], popen)
    try:
        yield process
    finally:
        if popen.poll() is None:
            code = process.end()
            assert code == 0, popen.communicate()[1]
        popen.communicate()
