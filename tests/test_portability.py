"""The client and the command line where Unix-only modules are missing: hidden here, as on Windows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateways import honest_gateway

# Third-party modules and the standard library may use what is there; what is tested is coregw.
HIDE = """
import asyncio, concurrent.futures, logging, multiprocessing, os, select, signal, socket, subprocess, sys, tempfile
import filelock, fsspec, msgspec, platformdirs, pycurl, rich.console, rich_click
import fsspec.implementations.local
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "uvloop", "rocksdict", "syslog"):
    sys.modules[name] = None
for owner, names in {
    os: "fork register_at_fork sched_getaffinity sched_setaffinity geteuid getuid getxattr setxattr listxattr fchmod"
        " fchown chown lchown statvfs sysconf pread pwrite posix_fadvise O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NONBLOCK"
        " mkfifo getloadavg",
    select: "poll epoll POLLIN POLLOUT POLLERR POLLHUP POLLNVAL",
    signal: "SIGHUP SIGUSR1 SIGUSR2 SIGKILL SIGQUIT pthread_sigmask setitimer",
    socket: "SO_REUSEPORT",
}.items():
    for name in names.split():
        if hasattr(owner, name):
            delattr(owner, name)
os.process_cpu_count = os.cpu_count  # since Python 3.13 it uses sched_getaffinity, where there is one
"""

IMPORTS = """
import importlib
import coregw, coregw.client, coregw.cli, coregw.filesystem, coregw.trust, coregw.verify
for name in coregw.__all__:
    getattr(coregw, name)
for name in ("add", "diff", "entries", "mutate", "verify", "transfer"):
    importlib.import_module(f"coregw.cli.{name}")
"""

USE = """
import sys
address, folder = sys.argv[1:]
from pathlib import Path
from coregw import Client, AsyncClient
with Client(address) as client:
    root = client.add(Path(folder)).root
    assert client.get_payload(client.resolve(root, "small")) == b"small"
    with client.open(root, "large") as file:
        file.seek(500_000)
        assert file.read(4) == bytes([32, 33, 34, 35])
    assert [leaf.segments for leaf in client.walk(root)] == [["large"], ["small"]]
    client.save_payload(client.resolve(root, "small"), Path(folder).with_name("saved"))

async def use():
    async with AsyncClient(address) as client:
        async with await client.open(root, "large") as file:
            assert len(await file.read()) == 512_000

asyncio.run(use())
from coregw.filesystem import CoregwFileSystem
assert CoregwFileSystem(address).cat(f"{root}/small") == b"small"
from coregw.cli.main import main
sys.argv = ["coregw", "cat", root, "small", "--gateway", address]
main()
"""


REFUSED = """
import sys
from coregw import Client
from coregw.cli.main import main
address, folder, *arguments = sys.argv[1:]
if arguments:
    sys.argv = ["coregw", *arguments]
    main()
try:
    with Client(address) as client:
        client.get(client.add(folder).root, folder + "-got")
except ModuleNotFoundError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", HIDE + code, *arguments], capture_output=True, check=False)


def test_the_client_and_the_command_line_are_imported_without_unix_modules() -> None:
    found = run(IMPORTS)
    assert found.returncode == 0, found.stderr.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="hides what Windows lacks anyway")
def test_the_client_works_without_unix_modules(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "small").write_bytes(b"small")
    (folder / "large").write_bytes(bytes(range(256)) * 2_000)
    with honest_gateway(tmp_path / "data") as address:
        found = run(USE, address, str(folder))
    assert found.returncode == 0, found.stderr.decode()
    assert found.stdout == b"small"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], b"UnsupportedPlatformError: writing a folder needs a Unix: this platform has no fcntl\n"),
        (["get", "ROOT", "DEST"], b"coregw: coregw get needs a Unix: this platform has no fcntl\n"),
        (["export", "ROOT", "--static", "DEST"], b"coregw: coregw export needs a Unix: this platform has no fcntl\n"),
        (["serve"], b"coregw: coregw serve needs a Unix: this platform has no "),
    ],
    ids=["Client.get", "get", "export", "serve"],
)
def test_what_needs_a_unix_says_so(arguments: list[str], message: bytes, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"data")
    root = "bafkr4ict25fynajzxafwlbevbzlbtqbxaqfv4xsb5ymwxujnokjhq5pnoi"
    given = [each.replace("ROOT", root).replace("DEST", str(tmp_path / "new")) for each in arguments]
    with honest_gateway(tmp_path / "data") as address:
        if given and given[0] in {"get", "export"}:
            given += ["--gateway", address]
        found = run(REFUSED, address, str(tmp_path / "folder"), *given)
    assert (found.returncode, found.stderr[: len(message)]) == (1, message), found.stderr.decode()
