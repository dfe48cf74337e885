"""Updating a folder that has content, resuming, attributes, and interrupted restores."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import serving
from coregw import _core, encode_attributes
from coregw.client import AsyncClient, Client
from coregw.client.folders import restore as restoring
from coregw.client.folders.restore import Deletion, Extras, Restored, restore_folder
from coregw.errors import InvalidInput, PayloadNotFound, ProofError, Unavailable
from gateways import Reply, lying_gateway, names

MIB = 1 << 20


def restore(gateway: str, root: str, destination: Path, **options: Any) -> Restored:  # noqa: ANN401
    async def run() -> Restored:
        async with AsyncClient(gateway) as client:
            return await restore_folder(client, root, destination, **options)

    return asyncio.run(run())


def content(folder: Path) -> dict[str, bytes | None]:
    """The files of a folder with their bytes, and its empty folders."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
        if not path.is_dir() or not any(path.iterdir())
    }


@pytest.fixture
def root_of(client: Client) -> Callable[..., str]:
    """Stores files and makes the map of them, with records of attributes if there are any."""

    def make(files: dict[str, bytes], **records: Any) -> str:  # noqa: ANN401
        arcs = {path: client.put_payload(data) for path, data in files.items()}
        given = {path: encode_attributes(**record) for path, record in records.get("records", {}).items()}
        if given:
            for target, record in given.values():
                if len(record) > 128:
                    assert client.put_payload(record, "dag-cbor") == target
            arcs[".coregw/attributes"] = client.create_root({path: target for path, (target, _) in given.items()})
        return client.create_root(arcs)

    return make


FILES = {"same": b"same", "changed": b"new", "d/added": b"added", "d/e/same": b"also the same", "link": b"a file"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder with some of the files, one of them changed, others that the tree lacks, and links."""
    out = tmp_path / "out"
    (out / "d/e").mkdir(parents=True)
    (out / "extra/deep").mkdir(parents=True)
    (out / "same").write_bytes(b"same")
    (out / "changed").write_bytes(b"old")
    (out / "d/e/same").write_bytes(b"also the same")
    (out / "extra/deep/file").write_bytes(b"mine")
    (out / "d/extra").write_bytes(b"mine")
    (tmp_path / "outside").write_bytes(b"mine")
    (out / "link").symlink_to("../outside")
    return out


def test_only_what_differs_is_fetched_and_what_the_tree_lacks_stays(
    gateway: str, root_of: Callable[..., str], out: Path
) -> None:
    inodes = {path: path.stat().st_ino for path in (out / "same", out / "d/e/same", out / "extra/deep/file")}
    advanced: list[int] = []
    done = restore(gateway, root_of(FILES), out, progress=advanced.append)
    assert done == Restored(3, len(b"new" + b"added" + b"a file"), kept=2, replaced=2)
    assert content(out) == FILES | {"extra/deep/file": b"mine", "d/extra": b"mine"}
    assert (out.parent / "outside").read_bytes() == b"mine"
    assert not (out / "link").is_symlink()
    assert {path: path.stat().st_ino for path in inodes} == inodes
    assert restore(gateway, root_of(FILES), out) == Restored(0, 0, kept=5)


def test_what_the_tree_lacks_is_deleted_on_request(gateway: str, root_of: Callable[..., str], out: Path) -> None:
    (out / "extra/loop").symlink_to("../..")
    assert restore(gateway, root_of(FILES), out, delete=Deletion()).deleted == 2
    assert content(out) == FILES
    assert (out.parent / "outside").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("path", "why"),
    [("d/e", "is a folder, but the tree has a file"), ("changed/x", "is not a folder"), ("link/x", "is not a folder")],
)
def test_files_in_the_place_of_folders_are_replaced_on_request_only(
    gateway: str, root_of: Callable[..., str], out: Path, path: str, why: str
) -> None:
    before = content(out)
    files = {"same": b"other", path: b"x"}
    with pytest.raises(InvalidInput, match=rf"{path.removesuffix('/x')}: {why}.*; --delete replaces it"):
        restore(gateway, root_of(files), out)
    assert content(out) == before
    restore(gateway, root_of(files), out, delete=Deletion())
    assert content(out) == files
    assert (out.parent / "outside").read_bytes() == b"mine"


@pytest.mark.parametrize("existed", [False, True])
def test_an_attempt_that_fails_in_place_is_continued(
    gateway: str, client: Client, tmp_path: Path, existed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "REQUEST_BYTES", 1)  # one payload a request
    out = tmp_path / "out"
    files = {f"f{number:02}": b"content %d" % number for number in range(40)}
    if existed:
        out.mkdir()
        (out / "f39").write_bytes(b"old")
    arcs = {path: client.put_payload(data) for path, data in files.items()}
    missing = client.create_root(arcs | {"zz": "bafkreic7a" + "a" * 48 + "a"})
    with pytest.raises(PayloadNotFound):
        restore(gateway, missing, out, in_place=not existed)
    assert not [name for name in names(out) if name.startswith(".coregw")]
    complete = {name for name in names(out) if (out / name).read_bytes() == files[name]}
    assert complete >= {f"f{number:02}" for number in range(30)}
    assert {*names(out)} - complete <= {"f39"}
    done = restore(gateway, client.create_root(arcs), out)
    assert (done.files, done.kept) == (40 - len(complete), len(complete))
    assert content(out) == files


def test_long_files_and_repeated_payloads_come_in_several_requests(
    gateway: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "REQUEST_BYTES", MIB)
    chunks = [os.urandom(MIB) for _ in range(5)] + [b"the end"]
    cids = [client.put_payload(chunk) for chunk in chunks]
    payload = os.urandom(5 * MIB + 1)
    root = client.create_root(
        {
            "list": client.create_list(cids, [len(chunk) for chunk in chunks]),
            "list again": client.create_list([*cids[:2], *cids], [len(chunk) for chunk in (*chunks[:2], *chunks)]),
            "one payload": client.put_payload(payload),
            "small": client.put_payload(b"the end"),
        }
    )
    whole = b"".join(chunks)
    files = {"list": whole, "list again": whole[: 2 * MIB] + whole, "one payload": payload, "small": b"the end"}
    assert restore(gateway, root, tmp_path / "out") == Restored(4, sum(map(len, files.values())))
    assert content(tmp_path / "out") == files
    with (tmp_path / "out/list").open("r+b") as file:
        file.seek(3 * MIB)
        file.write(b"!")
    assert restore(gateway, root, tmp_path / "out") == Restored(1, len(whole), kept=3, replaced=1)
    assert content(tmp_path / "out") == files


def test_attributes_links_and_empty_folders_come_back(
    gateway: str, root_of: Callable[..., str], tmp_path: Path
) -> None:
    second = 1_000_000_000
    records: dict[str, dict[str, Any]] = {
        "bin": {"kind": "folder", "mode": 0o555, "mtime_ns": 3 * second},
        "bin/go": {"kind": "file", "size": 2, "mode": 0o755, "mtime_ns": second + 5},
        "bin/now": {"kind": "link", "link": b"../secret", "mtime_ns": 7 * second},
        "secret": {"kind": "file", "size": 6, "mode": 0o4600},
        "empty": {"kind": "folder", "mode": 0o700},
        "out": {"kind": "link", "link": b"/etc/passwd"},
        "up": {"kind": "link", "link": b"bin/../../x" + b"y" * 200},
    }
    root = root_of({"bin/go": b"go", "secret": b"secret", "plain": b"plain"}, records=records)

    def check(out: Path) -> None:
        assert names(out) == ["bin", "empty", "plain", "secret"]
        assert (out / "bin/now").readlink() == Path("../secret")
        assert (out / "bin/go").read_bytes() == b"go"
        modes = {name: stat.S_IMODE((out / name).stat().st_mode) for name in ("bin", "bin/go", "secret", "empty")}
        assert modes == {"bin": 0o555, "bin/go": 0o755, "secret": 0o600, "empty": 0o700}
        times = [(out / name).lstat().st_mtime_ns for name in ("bin", "bin/go", "bin/now")]
        assert times == [3 * second, second + 5, 7 * second]

    out = tmp_path / "out"
    done = restore(gateway, root, out)
    assert [(each.file.name, each.why) for each in done.skipped] == [
        ("out", "the link leads out of the folder"),
        ("up", "the link leads out of the folder"),
    ]
    check(out)
    (out / "bin/go").chmod(0o600)
    (out / "secret").write_bytes(b"SECRET")
    (out / "bin/now").unlink()
    (out / "bin/now").symlink_to("/etc/passwd")
    (out / "empty").rmdir()
    assert restore(gateway, root, out).files == 1
    check(out)
    (tmp_path / "filled").mkdir()
    restore(gateway, root, tmp_path / "filled", extras=Extras(owners=True, xattrs=True))
    check(tmp_path / "filled")


def test_a_recorded_size_that_is_wrong_is_refused(
    gateway: str, client: Client, root_of: Callable[..., str], tmp_path: Path
) -> None:
    records = {"a": {"kind": "file", "size": 3}}
    with pytest.raises(InvalidInput, match="a: at byte 0 are 3 bytes, but the payload"):
        restore(gateway, root_of({"a": b"four"}, records=records), tmp_path / "out")
    listed = client.create_list([client.put_payload(b"four")], [4])
    bound = client.create_root({"a": encode_attributes("file", size=3)[0]})
    with pytest.raises(InvalidInput, match="a: recorded with 3 bytes, but its list has 4"):
        restore(gateway, client.create_root({"a": listed, ".coregw/attributes": bound}), tmp_path / "out")
    assert names(tmp_path) == []


def test_a_gateway_that_leaves_out_or_exchanges_payloads_is_noticed(
    gateway: str, root_of: Callable[..., str], tmp_path: Path
) -> None:
    root = root_of({"a": b"one", "b": b"other"})

    def without_the_first(reply: Reply) -> Reply:
        return reply.with_body(reply.body[:26] + reply.body[-42:]) if reply.path == "/v1/cas/car" else reply

    def exchanged(reply: Reply) -> Reply:
        return reply.with_body(reply.body.replace(b"other", b"OTHER")) if reply.path == "/v1/cas/car" else reply

    for lie, expected in ((without_the_first, Unavailable), (exchanged, ProofError)):
        with lying_gateway(lie, gateway) as url, pytest.raises(expected):
            restore(url, root, tmp_path / "out")
        assert names(tmp_path) == []


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("existed", [False, True])
def test_an_interrupted_command_leaves_no_partial_folder(
    gateway: str, root_of: Callable[..., str], tmp_path: Path, which: signal.Signals, existed: bool
) -> None:
    root = root_of({"a": b"one", "b": b"other"})
    if existed:
        (tmp_path / "out").mkdir()
        (tmp_path / "out/mine").write_bytes(b"mine")

    has_ended = threading.Event()

    def slow(reply: Reply) -> Reply:
        if reply.path == "/v1/cas/car":
            has_ended.wait()
        return reply

    with lying_gateway(slow, gateway) as url:
        command = [sys.executable, "-m", "coregw", "get", "--gateway", url, root, str(tmp_path / "out")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            while not [path for path in tmp_path.rglob("*") if path.name.endswith(".partial")]:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(which)
            _, said = process.communicate(timeout=60)
            has_ended.set()
    assert process.returncode == 128 + which, said
    assert "Traceback" not in said
    assert content(tmp_path) == ({"out/mine": b"mine"} if existed else {})


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_the_blocking_client_restores_too(
    client: Client, root_of: Callable[..., str], tmp_path: Path, in_a_loop: bool
) -> None:
    advanced: list[int] = []
    root = root_of(FILES)

    async def call() -> Restored:
        return client.get(root, tmp_path / "out", progress=advanced.append)

    done = asyncio.run(call()) if in_a_loop else client.get(root, tmp_path / "out", progress=advanced.append)
    size = sum(map(len, FILES.values()))
    assert done == Restored(5, size)
    assert sum(advanced) == size
    assert content(tmp_path / "out") == FILES
    (tmp_path / "out/more").write_bytes(b"more")
    assert client.get(root, tmp_path / "out", delete=True) == Restored(0, 0, kept=5, deleted=1)
    with pytest.raises(InvalidInput, match="not a map root"):
        client.get(client.put_payload(b"x"), tmp_path / "other")


def test_a_private_folder_is_private_when_it_is_moved_into_a_destination(
    gateway: str, root_of: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    real = restoring.publish

    def publish(tree: Path, destination: Path, *, existed: bool) -> None:
        modes.append(stat.S_IMODE((tree / "private").stat().st_mode))
        real(tree, destination, existed=existed)

    monkeypatch.setattr(restoring, "publish", publish)
    records = {"private": {"kind": "folder", "mode": 0o500}, "private/x": {"mode": 0o644}}
    root = root_of({"private/x": b"x"}, records=records)
    (tmp_path / "dest").mkdir()
    for extras in (Extras(), Extras(xattrs=True)):
        (tmp_path / "dest").rmdir()
        (tmp_path / "dest").mkdir()
        restore(gateway, root, tmp_path / "dest", extras=extras)
        assert stat.S_IMODE((tmp_path / "dest" / "private").stat().st_mode) == 0o500
        (tmp_path / "dest" / "private").chmod(0o700)
        (tmp_path / "dest" / "private" / "x").unlink()
        (tmp_path / "dest" / "private").rmdir()
    assert modes == [0o700, 0o700]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user, to whom modes matter")
def test_rights_to_a_folder_are_given_for_a_while(tmp_path: Path) -> None:
    own = tmp_path / "own"
    folder = own / "folder"
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    for each in (own, folder):
        os.chown(each, serving.NOBODY, serving.NOBODY)
    above = os.open(own, os.O_RDONLY)
    place = Path(f"/proc/self/fd/{above}/folder")

    def change() -> str:
        rights = _core.FolderRights(place)
        during = stat.S_IMODE(place.stat().st_mode)
        place.chmod(0o1750)  # somebody takes rights of others, and sets the sticky bit
        rights.close()
        rights.close()
        return f"{during:o} {stat.S_IMODE(place.stat().st_mode):o}"

    assert serving.as_nobody(change) == "755 1550"
    folder.chmod(0o555)
    _core.FolderRights(folder)  # root needs none
    _core.FolderRights(own / "absent").close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o555
    os.close(above)
