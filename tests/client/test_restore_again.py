"""Restoring again: what a killed process has left, and files that have not changed since."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from coregw import _core, encode_attributes
from coregw.client import AsyncClient, Client
from coregw.client.folders import restore
from coregw.client.folders.destination import PartialFolder, partial_folder
from coregw.errors import InvalidInput
from coregw.folders.caches import cache_file
from gateways import Reply, lying_gateway, names

FILES = {f"d{number % 3}/f{number:02}": b"content %d" % number for number in range(40)}
# One payload in a request, so that some files are complete and others are not.
COMMAND = (
    "from coregw.cli.main import main; from coregw.client.folders import restore; restore.REQUEST_BYTES = 1; main()"
)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def root(client: Client) -> str:
    return client.create_root({path: client.put_payload(data) for path, data in FILES.items()})


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def incomplete(destination: Path, *, is_inside: bool) -> Iterator[PartialFolder]:
    """The folder for incomplete files of a destination, as a restore has it."""
    with asyncio.Runner() as runner:
        context = partial_folder(destination, is_inside=is_inside)
        yield runner.run(context.__aenter__())  # type: ignore[arg-type]
        runner.run(context.__aexit__(None, None, None))  # type: ignore[arg-type]


def get_and_kill(gateway: str, root: str, out: Path, *options: str) -> None:
    """Run ``coregw get`` and kill it when it has written some files."""
    served, ended = threading.Semaphore(20), threading.Event()

    def slow(reply: Reply) -> Reply:
        if reply.path == "/v1/cas/car" and not served.acquire(blocking=False):
            ended.wait()
        return reply

    def written() -> int:
        return sum(path.name.startswith("f") and path.is_file() for path in out.parent.rglob("*"))

    with lying_gateway(slow, gateway) as url:
        command = [sys.executable, "-c", COMMAND, "get", "--gateway", url, *options, root, str(out)]
        before = written()
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            try:
                while written() < before + 15:
                    assert process.poll() is None, process.stderr.read() if process.stderr else ""
                    time.sleep(0.01)
                process.send_signal(signal.SIGKILL)
                process.communicate(timeout=60)
            finally:
                ended.set()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("existed", [False, True])
def test_a_new_folder_whose_process_was_killed_is_continued(
    gateway: str, client: Client, root: str, tmp_path: Path, existed: bool
) -> None:
    out = tmp_path / "out"
    if existed:
        out.mkdir()
    get_and_kill(gateway, root, out)
    assert [name.endswith(".partial") for name in names(out if existed else tmp_path)] == [True]
    # What is incomplete there, or of another tree, is nothing that the caller has had.
    left = next(path for path in tmp_path.rglob("tree/*/f*") if path.is_file())
    left.write_bytes(b"incomplete")
    left.with_name("of another tree").touch()
    done = client.get(root, out)
    assert done.kept >= 14
    assert (done.files + done.kept, done.replaced, done.deleted) == (40, 0, 0)
    assert names(tmp_path) == ["out"]
    assert content(out) == FILES


def test_an_update_whose_process_was_killed_is_continued(
    gateway: str, client: Client, root: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_bytes(b"mine")
    get_and_kill(gateway, root, out)
    assert ".coregw.partial" in names(out)
    done = client.get(root, out)
    assert (done.kept >= 15, done.files + done.kept) == (True, 40)
    assert content(out) == FILES | {"mine": b"mine"}
    # What is beside a folder that exists is removed as well: a process was killed just after its last rename.
    with incomplete(out, is_inside=False) as left:
        place, moved = left.folder, tmp_path / "moved"
        left.folder.rename(moved)
    moved.rename(place)
    assert client.get(root, out).kept == 40
    assert names(tmp_path) == ["out"]


class Watched:
    """A writer whose calls are noted, with the thread of each and what it returns."""

    calls: ClassVar[list[tuple[str, int, object]]]

    def __init__(self, *args: Any, **words: Any) -> None:  # noqa: ANN401
        self._writer = _core.FolderWriter(*args, **words)

    def __getattr__(self, name: str) -> object:
        found = getattr(self._writer, name)
        if not callable(found):
            return found

        def noted(*args: object) -> object:
            returned = found(*args)
            self.calls.append((name, threading.get_ident(), returned))
            return returned

        return noted


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, object]]:
    """The calls of all writers."""
    Watched.calls = []
    extension = SimpleNamespace(**{**vars(_core), "FolderWriter": Watched})
    monkeypatch.setattr(restore, "_core", extension)
    return Watched.calls


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "another tree"])
def test_what_takes_as_long_as_there_are_files_is_not_done_in_the_event_loop(
    gateway: str,
    client: Client,
    root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calls: list[tuple[str, int, object]],
    there: str,
) -> None:
    out = tmp_path / "out"
    if there == "another tree":
        client.get(client.create_root({path: client.put_payload(b"other") for path in FILES}), out)
    elif there == "an empty folder":
        out.mkdir()
    calls.clear()
    publish = restore.publish

    def published(*args: Any, **words: Any) -> None:  # noqa: ANN401
        calls.append(("publish", threading.get_ident(), None))
        publish(*args, **words)

    monkeypatch.setattr(restore, "publish", published)

    async def get() -> None:
        async with AsyncClient(gateway) as opened:
            await opened.get(root, out)

    asyncio.run(get())
    assert content(out) == FILES
    in_threads = {"survey", "recall", "compare", "decide", "apply"} if there == "another tree" else {"start", "publish"}
    called = {name for name, _, _ in calls}
    assert called >= in_threads | {"request", "finish", "finish_top", "save_cache"}
    # A page of a listing is added, and threads are ended, which have nothing left to do.
    here = {name for name, thread, _ in calls if thread == threading.get_ident()}
    assert here <= {"add_listed", "supply_list", "stop", "close"}


def unread_state(path: Path) -> tuple[int, ...]:
    """What reading a folder does not change, as it does its access time."""
    now = path.lstat()
    return now.st_mode, now.st_ino, now.st_uid, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def test_a_folder_with_a_writer_is_refused_and_those_of_others_stay(client: Client, root: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with incomplete(out, is_inside=False) as partial:
        (partial.files / "0").write_bytes(b"incomplete")
        with pytest.raises(InvalidInput, match="out: another process is restoring it"):
            client.get(root, out)
        assert names(partial.files) == ["0"]
        place = partial.folder
    assert names(tmp_path) == []
    # Folders of the same name that no restore has made are neither used nor removed.
    for make in (
        lambda: (place.mkdir(mode=0o700), (place / "letter").write_bytes(b"mine")),
        lambda: (place.mkdir(), place.chmod(0o777)),
        lambda: place.write_bytes(b"mine"),
        lambda: place.symlink_to(tmp_path / "elsewhere"),
    ):
        make()
        before = unread_state(place)
        client.get(root, out)
        assert content(out) == FILES
        assert unread_state(place) == before
        assert names(tmp_path) == sorted([place.name, "out"])
        if place.is_dir():
            for child in place.iterdir():
                child.unlink()
            place.rmdir()
        else:
            place.unlink()
        for path in sorted(out.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        out.rmdir()


def test_a_tree_cannot_use_the_name_of_the_folder_for_incomplete_files(client: Client, tmp_path: Path) -> None:
    root = client.create_root({".coregw.partial/files/0": client.put_payload(b"x")})
    for out in (tmp_path / "out", tmp_path):
        with pytest.raises(InvalidInput, match="is the name of the folder for incomplete files"):
            client.get(root, out)
    assert names(tmp_path) == []


@pytest.mark.parametrize("existed", [False, True])
def test_files_that_have_not_changed_are_not_read_again(
    client: Client, root: str, tmp_path: Path, calls: list[tuple[str, int, object]], existed: bool
) -> None:
    def found() -> tuple[list[object], list[object]]:
        """The bytes of files that were known to be right, and of those that were read and are right."""
        known = [bytes_ for name, _, bytes_ in calls if name == "recall"]
        read = [bytes_ for name, _, bytes_ in calls if name == "compare" and bytes_ is not None]
        calls.clear()
        return known, read

    out = tmp_path / "out"
    top = {"at the top": client.put_payload(b"top"), **{p: client.put_payload(d) for p, d in FILES.items()}}
    root = client.create_root(top)
    size = len(b"top") + sum(map(len, FILES.values()))
    if existed:
        out.mkdir()
    advanced: list[int] = []
    client.get(root, out)
    assert client.get(root, out, progress=advanced.append).kept == 41
    assert found() == ([size], [])
    assert sum(advanced) == size
    # Another file of the same size, and with the same time of modification, is noticed.
    changed, touched = out / "d0/f03", out / "d1/f01"
    status = changed.stat()
    changed.write_bytes(b"CONTENT 3")
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    touched.touch()
    assert client.get(root, out).files == 1
    assert found() == ([size - 2 * len(b"content 3")], [len(b"content 3")])
    assert content(out) == FILES | {"at the top": b"top"}
    assert client.get(root, out).kept == 41
    assert found() == ([size], [])
    # The next version of the tree: what it has others of is fetched, and what the cache knows to be wrong is read.
    assert client.get(client.create_root(top | {"d2/f02": top["d0/f00"]}), out).files == 1
    assert found() == ([size - len(b"content 2")], [0])
    assert client.get(root, out, use_cache=False).files == 1
    assert found() == ([0], [size - len(b"content 2")])
    assert content(out) == FILES | {"at the top": b"top"}


@pytest.mark.parametrize("extras", [{"owners": True}, {"xattrs": True}])
def test_files_whose_other_attributes_are_restored_are_not_read_again(
    client: Client, tmp_path: Path, calls: list[tuple[str, int, object]], extras: dict[str, bool]
) -> None:
    payload, owner = client.put_payload(b"content"), (os.getuid(), os.getgid())
    record, _ = encode_attributes("file", mode=0o600, owner=owner, xattrs={"user.a": b"a"})
    records = client.create_root({"f": record, "d/g": record})
    root = client.create_root({"f": payload, "d/g": payload, ".coregw/attributes": records})
    for known in (None, 14, 14):
        client.get(root, tmp_path / "out", **extras)
        assert [bytes_ for name, _, bytes_ in calls if name == "recall"] == ([] if known is None else [known])
        calls.clear()


def test_a_cache_that_cannot_be_kept_is_no_error(
    client: Client, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert [client.get(root, tmp_path / "out").files for _ in range(2)] == [40, 0]


def test_a_cache_that_is_not_understood_is_read_afresh_and_replaced(
    client: Client, root: str, tmp_path: Path, calls: list[tuple[str, int, object]]
) -> None:
    out = tmp_path / "out"
    client.get(root, out)
    file = cache_file(out, "restored")
    whole = file.read_bytes()
    size = sum(map(len, FILES.values()))
    for content in (b"", b"coregw restore 2\n" + whole[17:], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(content)
        for known in (0, size):
            calls.clear()
            assert client.get(root, out).kept == 40
            assert [found for name, _, found in calls if name == "recall"] == [known]
    assert list(file.parent.iterdir()) == [file]


def test_a_change_that_follows_a_restore_at_once_is_noticed(client: Client, tmp_path: Path) -> None:
    root, out = client.create_root({"f": client.put_payload(b"right")}), tmp_path / "out"
    for number in range(50):
        client.get(root, out)
        status = (out / "f").stat()
        (out / "f").write_bytes(b"%05d" % number)
        os.utime(out / "f", ns=(status.st_atime_ns, status.st_mtime_ns))
        assert client.get(root, out).replaced == 1
        assert content(out) == {"f": b"right"}
