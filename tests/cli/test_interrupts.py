"""Ctrl-C and SIGTERM end ``add``, ``hash`` and ``verify`` at once, in one line and with the exit code of the signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import coregw
from gateways import Reply, lying_gateway

SIGNALS = [signal.SIGINT, signal.SIGTERM]
SECONDS = 60


@contextmanager
def started(tmp_path: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command as a process of its own; kill it if it has not ended."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("COREGW_DEBUG", None)
    command = [sys.executable, "-m", "coregw", *(os.fspath(str(argument)) for argument in arguments)]
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_obey,  # noqa: PLW1509 - it does not allocate
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _obey() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored in this process group


def wait_for(process: subprocess.Popen[bytes], is_true: Callable[[], bool]) -> None:
    """Wait until something is true, as long as the process runs."""
    while not is_true():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def has_open(process: subprocess.Popen[bytes], file: Path) -> bool:
    """Whether a process has a file open."""
    with suppress(OSError):  # a descriptor is closed meanwhile
        return any(each.readlink() == file for each in Path(f"/proc/{process.pid}/fd").iterdir())
    return False


def check_end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (128 + number, b"", f"coregw: interrupted ({number.name})\n".encode())


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("command", ["add", "hash", "verify"])
def test_a_signal_ends_the_reading_of_a_long_file(
    command: str, number: signal.Signals, tmp_path: Path, gateway: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("long", "short"):
        with (folder / name).open("wb") as file:
            file.truncate(1 << 40 if name == "long" else 1)  # hours of work, and no space on the disk
    options = {"add": ("--gateway", gateway), "hash": (), "verify": (coregw.Map({}).root,)}[command]
    with started(tmp_path, command, *options, folder) as process:
        wait_for(process, lambda: has_open(process, folder / "long"))
        check_end(process, number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_sending_of_a_folder(number: signal.Signals, tmp_path: Path, gateway: str) -> None:
    (tmp_path / "file").write_bytes(os.urandom(100))
    requested, ended = threading.Event(), threading.Event()

    def slow(reply: Reply) -> Reply:
        if reply.path == "/v1/car":
            requested.set()
            ended.wait(SECONDS)
        return reply

    with (
        lying_gateway(slow, gateway) as url,
        started(tmp_path, "add", "--gateway", url, tmp_path / "file") as process,
    ):
        try:
            wait_for(process, requested.is_set)
            check_end(process, number)
        finally:
            ended.set()
