"""Ctrl-C ends commands at once, in one line and with the exit code of the signal.

So do SIGTERM and SIGHUP if they write files.

SIGKILL ends ``add`` anywhere, and the next one continues.
"""

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
from car_files import frames, split
from coregw.client import Client
from gateways import Reply, lying_gateway

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
CONTINUED = "; the same command continues: what the gateway has acknowledged is not sent again"
SECONDS = 60

PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored in this process group
import coregw.client.folders.add, coregw.__main__
coregw.client.folders.add.BATCHES_IN_FLIGHT = 1  # so that no request of a killed process is served later
coregw.__main__.main()
"""


@contextmanager
def started(tmp_path: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command as a process of its own; kill it if it has not ended."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("COREGW_DEBUG", None)
    command = [sys.executable, "-c", PROGRAM, *(os.fspath(str(argument)) for argument in arguments)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


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


def check_end(process: subprocess.Popen[bytes], number: signal.Signals, step: str = "") -> None:
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    said = f"coregw: interrupted ({number.name}){step}\n"
    assert (process.returncode, out, err.decode()) == (128 + number, b"", said)


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
        check_end(process, number, CONTINUED if command == "add" else "")


def test_nothing_is_sent_twice_if_the_process_is_killed(tmp_path: Path, gateway: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(24):
        (folder / f"{number:02}").write_bytes(os.urandom(1 << 20 if number % 8 else 3000))
    (folder / "copy").write_bytes((folder / "01").read_bytes())
    sent: list[tuple[bytes, int]] = []
    running: list[subprocess.Popen[bytes]] = []

    def kill(reply: Reply) -> Reply:
        if reply.path == "/v1/car" and reply.status == 201:
            blocks = [split(frame) for frame in frames(reply.request)[1:]]
            sent.extend((cid, len(data)) for cid, data in blocks if cid[1] == 0x55)
            if len(running) == 1 and len(sent) > 150:  # stored, and not acknowledged
                running[0].kill()
        return reply

    size = sum(file.stat().st_size for file in folder.iterdir() if file.name != "copy")
    with lying_gateway(kill, gateway) as url:
        for code in (-signal.SIGKILL, 0, 0):
            with started(tmp_path, "add", "--no-cache", "--gateway", url, folder) as process:
                running.append(process)
                assert process.wait(SECONDS) == code
            total = sum(length for _, length in sent)
            assert (0 < total < size) if code else (total == size)
            assert len(set(sent)) == len(sent)


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
            check_end(process, number, CONTINUED)
        finally:
            ended.set()


@pytest.mark.parametrize("command", ["ls", "cat"])
def test_ctrl_c_ends_commands_that_write_no_files(command: str, tmp_path: Path, gateway: str) -> None:
    requested, ended = threading.Event(), threading.Event()

    def slow(reply: Reply) -> Reply:
        requested.set()
        ended.wait(SECONDS)
        return reply

    with (
        lying_gateway(slow, gateway) as url,
        started(tmp_path, command, "--gateway", url, coregw.Map({}).root, "a") as process,
    ):
        try:
            wait_for(process, requested.is_set)
            check_end(process, signal.SIGINT)
        finally:
            ended.set()


def test_ctrl_c_while_the_command_is_loaded_is_one_line() -> None:
    code = """
import sys, coregw.__main__
class Interrupted:
    def find_spec(name, path, target=None):
        if name == "coregw.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted)
coregw.__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"coregw: interrupted (SIGINT)\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_get_leaves_nothing_behind(
    gateway: str, root: str, tmp_path: Path, number: signal.Signals
) -> None:
    requested, interrupted = threading.Event(), threading.Event()

    def slow(reply: Reply) -> Reply:
        if reply.path.startswith("/v1/cas/"):
            requested.set()
            interrupted.wait(60)
        return reply

    with Client(gateway) as client:
        client.put_payload(b"guide")
    with lying_gateway(slow, gateway) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "coregw", "get", root, tmp_path / "out", "--gateway", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            assert requested.wait(60), "get requested no payload"
            assert list(tmp_path.iterdir()) != []
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        finally:
            interrupted.set()
            process.kill()
            process.communicate()
    assert process.returncode == 128 + number
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_hangup_that_is_ignored_ends_nothing(gateway: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(100))
    requested, hung_up = threading.Event(), threading.Event()

    def slow(reply: Reply) -> Reply:
        requested.set()
        hung_up.wait(SECONDS)
        return reply

    with lying_gateway(slow, gateway) as url:
        command = ["nohup", sys.executable, "-m", "coregw", "add", "--gateway", url, tmp_path / "file"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert requested.wait(SECONDS)
            process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            hung_up.set()
            out, err = process.communicate(timeout=SECONDS)
        finally:
            hung_up.set()
            process.kill()
            process.communicate()
    assert (process.returncode, len(out.split())) == (0, 1), err


def test_no_file_of_a_store_gets_the_number_of_a_closed_standard_descriptor(tmp_path: Path) -> None:
    """As a shell closes them by ``<&- >&- 2>&-``."""
    command = f"exec {sys.executable} -m coregw serve --data {tmp_path / 'data'} --port 0 <&- >&- 2>&-"
    process = subprocess.Popen(["/bin/sh", "-c", command])
    try:
        wait_for_control(tmp_path / "data", process)
        opened = [str(Path(f"/proc/{process.pid}/fd/{number}").readlink()) for number in range(3)]
        process.terminate()
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    assert opened == ["/dev/null"] * 3


@pytest.mark.parametrize("command", [["hash", __file__], ["cat", "ROOT", "docs/readme"], ["doctor", "--json"]])
def test_commands_run_with_closed_standard_descriptors(command: list[str], gateway: str, root: str) -> None:
    words = " ".join(root if word == "ROOT" else word for word in command)
    shell = f"exec {sys.executable} -m coregw {words} <&- >&- 2>&-"
    environment = {**os.environ, "COREGW_GATEWAY": gateway}
    assert subprocess.run(["/bin/sh", "-c", shell], env=environment, timeout=SECONDS, check=False).returncode == 0


def wait_for_control(data: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a gateway that says nothing has started."""
    while not (data / "rocksdb" / "coregw-control.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)  # it handles signals a moment later
