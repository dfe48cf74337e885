"""The file system of fsspec: its answers are those of the folder on disk, absence is proven, and nothing is written."""

from __future__ import annotations

import asyncio
import errno
import io
import multiprocessing
import os
import pickle
import random
import runpy
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

import coregw
from coregw._core import encode_attributes
from coregw.client import Client
from coregw.client.folders import names as folder_names
from coregw.client.folders.names import can_be_name
from coregw.client.static.export import export_static
from coregw.errors import CoregwError, InvalidInput, ProofError, RootNotFound, TooLarge
from coregw.filesystem import CoregwFileSystem, OpenFile
from coregw.filesystem.options import client_of
from filesystem.conftest import added
from gateways import Counted, Reply, lying_gateway, scripted_gateway
from static_trees import python_server
from tables import rows

LARGE = random.Random(8).randbytes(1_500_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("source") / "top"
    for name, data in {
        "a.txt": b"first",
        "empty": b"",
        "data/large.bin": LARGE,
        "data/deep/er/x.csv": b"a,b\n1,2\n",
        "data/b.csv": b"a,b\n3,4\n",
        "na me/ü [1].txt": b"names",
    }.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (top / "nothing").mkdir()
    (top / "link").symlink_to("data/b.csv")
    (top / "data" / "up").symlink_to("../na me")
    (top / "dangling").symlink_to("../outside")
    (top / "a.txt").chmod(0o640)
    os.utime(top / "a.txt", ns=(10**18, 10**18))
    return top


@pytest.fixture(scope="module")
def root(client: Client, folder: Path) -> str:
    return added(client, folder)


@pytest.fixture
def fs(honest: str) -> CoregwFileSystem:
    return CoregwFileSystem(honest, skip_instance_cache=True)


@pytest.fixture
def counting(counted: Counted) -> CoregwFileSystem:
    counted.replies.clear()
    return CoregwFileSystem(counted.url, skip_instance_cache=True)


def relative(names: list[str], top: str) -> list[str]:
    return sorted(name.removeprefix(top).strip("/") for name in names)


def test_listings_are_those_of_the_folder(fs: CoregwFileSystem, root: str, folder: Path) -> None:
    local = LocalFileSystem()
    for path in ("", "data", "data/deep", "na me", "nothing", "data/up"):
        ours, theirs = fs.ls(f"{root}/{path}", detail=True), local.ls(f"{folder}/{path}", detail=True)
        files = [each for each in ours if each["size"] and "islink" not in each]
        kinds = {each["name"].rpartition("/")[2]: (each["type"], each["size"]) for each in files}
        assert kinds == {
            Path(each["name"]).name: (each["type"], each["size"])
            for each in theirs
            if each["type"] == "file" and each["size"]
        }
        assert relative(fs.ls(f"coregw://{root}/{path}", detail=False), f"{root}/{path}") == relative(
            [each["name"] for each in theirs], f"{folder}/{path}"
        )
    assert relative(fs.find(root), root) == relative(local.find(str(folder)), str(folder))
    upper = ["a.txt", "dangling", "data/b.csv", "data/large.bin", "data/up", "empty", "link", "na me/ü [1].txt"]
    assert relative(fs.find(root, maxdepth=2), root) == upper
    assert relative(fs.glob(f"{root}/data/*.csv"), root) == ["data/b.csv"]
    assert relative(fs.glob(f"{root}/data/**/*.csv"), root) == ["data/b.csv", "data/deep/er/x.csv"]
    walked = {relative([at], root)[0]: (sorted(folders), sorted(files)) for at, folders, files in fs.walk(root)}
    assert walked["data/deep"] == (["er"], [])
    assert walked[""][1] == ["a.txt", "dangling", "empty", "link"]
    assert fs.du(root) == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_is_known_of_a_file_comes_without_its_payload(
    counting: CoregwFileSystem, root: str, counted: Counted
) -> None:
    fs = counting
    known = fs.info(f"coregw://{root}/a.txt")
    assert (known["type"], known["size"], known["mode"], known["mtime"]) == ("file", 5, 0o640, 1e9)
    assert known["cid"] == coregw.payload_cid(b"first") == fs.ukey(f"{root}/a.txt")
    assert fs.info(f"{root}/data/large.bin")["size"] == fs.size(f"{root}/data/large.bin") == len(LARGE)
    assert fs.info(f"{root}/link")["size"] == 8
    assert fs.info(f"{root}/data/up/ü [1].txt")["size"] == 5
    assert fs.info(root) == {"name": root, "type": "directory", "size": 0}
    assert fs.info(f"{root}/nothing/")["type"] == fs.info(f"{root}/data/deep")["type"] == "directory"
    assert fs.info(f"{root}/dangling")["type"] == "link"
    assert fs.modified(f"{root}/a.txt").timestamp() == 1e9
    assert not [path for path in counted.paths if path.startswith("cas/ba")]
    assert (fs.isfile(f"{root}/a.txt"), fs.isdir(f"{root}/a.txt"), fs.isdir(f"{root}/data")) == (True, False, True)
    listed = {each["name"].rpartition("/")[2]: each for each in fs.ls(root)}
    assert (listed["link"]["islink"], listed["link"]["destination"]) == (True, "data/b.csv")


def test_the_folder_itself_has_what_is_recorded_of_it(client: Client, honest: str, tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "a").touch()
    (tmp_path / "top").chmod(0o1770)
    os.utime(tmp_path / "top", ns=(0, 10**18))
    fs = CoregwFileSystem(honest, skip_instance_cache=True)
    plain, whole = (client.add(tmp_path / "top", attributes=level).root for level in ("all", "whole"))
    known = fs.info(whole)
    assert (known["type"], known["mode"], known["mtime"]) == ("directory", 0o1770, 1e9)
    assert "mode" not in fs.info(plain)
    for root in (plain, whole):
        assert [fs.info(f"{root}/{name}").get("mode") for name in (".coregw", "a")] == [None, 0o644]
        assert fs.ls(root, detail=False) == fs.find(root) == [f"{root}/a"]


def test_a_size_that_is_not_recorded_is_that_of_the_verified_payload(fs: CoregwFileSystem, client: Client) -> None:
    payload = client.put_payload(b"unrecorded")
    root = client.create_root({"x": payload, "list": client.create_list([payload] * 3, [10] * 3)})
    assert {each["name"]: each["size"] for each in fs.ls(root)} == {f"{root}/list": 30, f"{root}/x": None}
    assert (fs.info(f"{root}/x")["size"], fs.info(payload)["size"], fs.cat(payload)) == (10, 10, b"unrecorded")


def test_absence_is_proven_and_nothing_else_is_an_absence(
    fs: CoregwFileSystem, root: str, client: Client, honest: str
) -> None:
    for path in ("no", "a.txt/below", "data/no", "data/up/no", "na me/ü"):
        assert not fs.exists(f"{root}/{path}")
        for use in (fs.info, fs.ls, fs.cat, fs.open):
            with pytest.raises(FileNotFoundError):
                use(f"{root}/{path}")
    with pytest.raises(IsADirectoryError):
        fs.open(f"{root}/data")
    unknown = coregw.Map({"x": coregw.payload_cid(b"not held")}).root
    with pytest.raises(OSError, match=unknown) as caught:
        fs.exists(f"{unknown}/x")
    assert (caught.value.errno, type(caught.value.__cause__)) == (errno.EIO, RootNotFound)
    held = client.create_root({"x": coregw.payload_cid(b"not held")})
    with pytest.raises(OSError, match="not held") as caught:
        fs.get_mapper(held)["x"]  # a KeyError would mean: absent
    assert caught.value.errno == errno.EIO

    def lie(reply: Reply) -> Reply:
        return reply.with_body(reply.body[:-1]) if reply.path == "/v1/map-proof" else reply

    with lying_gateway(lie, honest) as url, pytest.raises(ProofError):
        CoregwFileSystem(url, retry_seconds=0.01).exists(f"{root}/a.txt")


def test_nested_maps_are_folders(fs: CoregwFileSystem, client: Client, root: str) -> None:
    outer = client.create_root({"in/side": root, "x": client.put_payload(b"x")})
    assert fs.cat(f"{outer}/in/side/data/b.csv") == b"a,b\n3,4\n"
    assert fs.cat_file(f"{outer}/in/side/data/up/ü [1].txt") == b"names"
    assert [fs.info(f"{outer}/{path}")["type"] for path in ("in", "in/side", "in/side/data")] == ["directory"] * 3
    assert f"{outer}/in/side/data/deep/er/x.csv" in fs.find(outer)
    assert not fs.exists(f"{outer}/in/side/no")
    assert fs.ls(f"{outer}/in", detail=False) == [f"{outer}/in/side"]


def test_bytes_are_read_whole_in_ranges_and_as_files(
    fs: CoregwFileSystem, root: str, counting: CoregwFileSystem, counted: Counted
) -> None:
    large = f"{root}/data/large.bin"
    assert fs.cat_file(large) == LARGE
    assert fs.cat_file(large, -10) == LARGE[-10:]
    assert fs.cat_file(large, 100, -100) == LARGE[100:-100]
    assert (fs.head(large, 5), fs.tail(large, 5)) == (LARGE[:5], LARGE[-5:])
    paths = [large, f"{root}/a.txt", large, f"{root}/no", f"{root}/data/b.csv"]
    found = counting.cat_ranges(paths[:3] + paths[4:], [10, 0, 700_000, 2], [20, 3, 700_010, None])
    assert found == [LARGE[10:20], b"fir", LARGE[700_000:700_010], b"b\n3,4\n"]
    assert counted.paths == ["map-proof", "read", "cas/car"]  # one lookup, one window, and all payloads at once
    found = fs.cat_ranges(paths, 0, 2)
    assert [type(each) for each in found] == [bytes, bytes, bytes, FileNotFoundError, bytes]
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 2, on_error="raise")
    assert fs.cat([f"{root}/a.txt", f"{root}/empty"]) == {f"{root}/a.txt": b"first", f"{root}/empty": b""}
    assert len(fs.cat(f"{root}/data/**", recursive=True)) == 4
    assert fs.read_block(large, 1_000, 50) == LARGE[1_000:1_050]
    with fs.open(large) as file:
        file.seek(-7, io.SEEK_END)
        assert (file.read(), file.size, file.path, file.fs) == (LARGE[-7:], len(LARGE), large, fs)
    with fs.open(f"coregw://{root}/data/b.csv", "r") as text:
        assert text.readline() == "a,b\n"


def test_files_are_copied_to_disk(fs: CoregwFileSystem, root: str, folder: Path, tmp_path: Path) -> None:
    fs.get_file(f"{root}/data/large.bin", str(tmp_path / "one"))
    assert (tmp_path / "one").read_bytes() == LARGE
    fs.get(f"{root}/data/", str(tmp_path / "copy/"), recursive=True)
    assert (tmp_path / "copy" / "deep" / "er" / "x.csv").read_bytes() == b"a,b\n1,2\n"


def test_get_does_not_write_through_local_links(fs: CoregwFileSystem, root: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "large.bin").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("outside/large.bin")
    with pytest.raises(OSError, match="link"):
        fs.get_file(f"{root}/data/large.bin", str(tmp_path / "link"))
    with pytest.raises(OSError, match="link"):
        fs.get(f"{root}/data/large.bin", str(tmp_path / "link"))
    for name, target in (("large.bin", "../outside/large.bin"), ("deep", "../outside/deep"), ("deep", "nothing")):
        copy = tmp_path / f"copy of {name} {len(target)}"
        copy.mkdir()
        (copy / name).symlink_to(target)
        with pytest.raises(OSError, match=name):
            fs.get(f"{root}/data/", f"{copy}/", recursive=True)
        assert (copy / name).is_symlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        fs.get_file(f"{root}/data/large.bin", str(tmp_path / "pipe"))
    assert sorted(path.name for path in outside.rglob("*")) == ["deep", "large.bin"]
    assert (outside / "large.bin").read_bytes() == b"mine"
    # The destination itself may be a link, as /tmp is on some systems.
    (tmp_path / "to").symlink_to("outside/deep")
    fs.get(f"{root}/data/", f"{tmp_path}/to/", recursive=True)
    assert (outside / "deep/deep/er/x.csv").read_bytes() == b"a,b\n1,2\n"
    fs.get(f"{root}/data/b.csv", f"{tmp_path}/to/")
    assert (outside / "deep/b.csv").read_bytes() == b"a,b\n3,4\n"


WRITES: list[tuple[str, tuple[Any, ...]]] = [
    *(("open", ("x", mode)) for mode in ("wb", "ab", "xb", "r+b")),
    *((name, ("x",)) for name in ("mkdir", "makedirs", "rmdir", "rm", "rm_file", "touch", "delete")),
    *((name, ("x", "y")) for name in ("mv", "cp_file", "copy", "cp", "put", "put_file", "upload", "rename")),
    *((name, ("x", b"y")) for name in ("pipe", "pipe_file", "write_bytes")),
]


@rows(("name", "arguments"), WRITES)
def test_what_writes_raises(fs: CoregwFileSystem, root: str, name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(OSError, match="read-only") as caught:
        getattr(fs, name)(f"{root}/{arguments[0]}", *arguments[1:])
    assert caught.value.errno == errno.EROFS


# ----------------------------------------------------------------------------------- URLs, options, names, processes


def test_a_url_may_have_the_gateway(honest: str, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with fsspec.open(f"coregw+{honest}/{root}/a.txt") as file:
        assert file.read() == b"first"
    fs, path = fsspec.url_to_fs(f"coregw+{honest}/{root}/data")
    assert (path, fs.client.base_url, fs.isdir(path)) == (f"{root}/data", honest, True)
    with fsspec.open(f"coregw://{root}/a.txt", gateway=honest) as file:
        assert file.read() == b"first"
    monkeypatch.setenv("COREGW_GATEWAY", f"http://127.0.0.1:9,{honest}")
    with fsspec.open(f"coregw://{root}/link", "r", retry_seconds=5) as text:
        assert text.read() == "a,b\n3,4\n"


@pytest.mark.parametrize("own", [None, "http://127.0.0.1:9", "the other"])
def test_credentials_of_the_environment_go_to_its_own_gateway_alone(
    honest: str, root: str, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    """A URL is often a part of data, written by somebody else."""
    heads: list[bytes] = []

    def script(connection: socket.socket) -> None:
        heads.append(connection.recv(65_536).lower())
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def sent(text: bytes, **options: str) -> bool:
        """Whether what is sent to the other gateway has a text."""
        heads.clear()
        with suppress(OSError, CoregwError):
            fsspec.open(f"coregw+{other}/{root}/a.txt", skip_instance_cache=True, **options).open()
        assert heads
        return any(text in head for head in heads)

    with scripted_gateway(script) as other:
        if own is not None:
            monkeypatch.setenv("COREGW_GATEWAY", f"{honest},{other}" if own == "the other" else own)
        is_own = own == "the other"
        monkeypatch.setenv("COREGW_HEADERS", "X-Key: sesame")
        assert sent(b"x-key: sesame") == is_own
        assert sent(b"authorization: bearer given", bearer_token="given")
        monkeypatch.setenv("COREGW_BASIC_AUTH", "user:secret")
        assert sent(b"authorization: basic") == is_own
        monkeypatch.delenv("COREGW_BASIC_AUTH")
        monkeypatch.setenv("COREGW_BEARER_TOKEN", "secret")
        assert sent(b"authorization: bearer secret") == is_own


@pytest.mark.parametrize(
    ("address", "is_own"),
    [
        ("https://mine.example", True),
        ("https://MINE.example:443/a/path", True),
        ("static+https://mine.example:0443", True),
        ("https://mine.example:", True),
        ("http://mine.example", False),
        ("http://mine.example:443", False),
        ("https://mine.example:80", False),
        ("https://mine.example.", False),
        ("https://mine.example@evil.example", False),
        ("https://mine.example:443@evil.example", False),
        ("https://mine.example%2eevil.example", False),
        ("https://mine.example\\@evil.example", False),
        ("https://mine.example;.evil.example", False),
    ],
)
def test_an_address_is_a_gateway_of_the_environment_by_scheme_host_and_port(
    address: str, is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COREGW_GATEWAY", "http://127.0.0.1:1,https://mine.example")
    monkeypatch.setenv("COREGW_BEARER_TOKEN", "secret")
    with closing(client_of([address], None, {})) as client:
        assert (client._connection.bearer_token == "secret") is is_own


def test_a_name_is_what_was_pinned_or_accepted(honest: str, root: str, client: Client, tmp_path: Path) -> None:
    fs = fsspec.filesystem("coregw", gateway=honest, roots={"main": root}, trust=str(tmp_path / "trust"))
    assert fs.cat("coregw://main/a.txt") == b"first"
    assert fs.ls("main/data", detail=False)[0] == "main/data/b.csv"
    with pytest.raises(InvalidInput, match="not in the storage option"):
        fs.exists("coregw://other/a.txt")
    trust = coregw.TrustStore(tmp_path / "trust")
    trust.trust("other", root)
    assert fs.cat("coregw://other/a.txt") == b"first"
    trust.accept("other", client.create_root({}))
    assert fs.exists("coregw://other/a.txt")  # as long as this object exists
    assert not CoregwFileSystem(honest, trust=str(tmp_path / "trust"), skip_instance_cache=True).exists("other/a.txt")
    for roots in ({root: root}, {"a/b": root}, {"": root}, {"x": "no CID"}):
        with pytest.raises(InvalidInput):
            CoregwFileSystem(honest, roots)


def test_options_are_checked_and_passed_on(honest: str, root: str) -> None:
    fs = CoregwFileSystem([honest], headers={"X-Test": "1"}, basic_auth=("user", "secret"), cache_bytes=1_000)
    assert (fs.client.cache.max_weight, fs.cat(f"{root}/a.txt")) == (1_000, b"first")
    for options in ({"unknown": 1}, {"headers": "text"}, {"cache_bytes": "1"}, {"cache_bytes": -1}, {"proxy": "no"}):
        with pytest.raises(InvalidInput):
            CoregwFileSystem(honest, **options)  # type: ignore[arg-type]


def read_in_process(fs: CoregwFileSystem, file: OpenFile, path: str) -> tuple[bytes, bytes]:
    return fs.cat_file(path), file.read(5)


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_processes_and_threads_share_a_file_system(fs: CoregwFileSystem, root: str, method: str) -> None:
    path = f"{root}/data/large.bin"
    with fs.open(path) as file:
        file.seek(1_000)
        copy, again = pickle.loads(pickle.dumps(file)), pickle.loads(pickle.dumps(fs))
        assert (copy.read(3), copy.path, again.cat(f"{root}/a.txt")) == (LARGE[1_000:1_003], path, b"first")
        if method in multiprocessing.get_all_start_methods():
            with multiprocessing.get_context(method).Pool(1) as pool:
                found = pool.apply(read_in_process, (fs, file, path))
            assert found == (LARGE, LARGE[1_000:1_005])
    with ThreadPoolExecutor(4) as threads:
        starts = range(0, 1_400_000, 70_000)
        found = list(threads.map(lambda start: fs.cat_file(path, start, start + 9), starts))
        assert found == [LARGE[start : start + 9] for start in starts]


def test_a_static_tree_is_a_file_system(honest: str, root: str, tmp_path: Path) -> None:
    asyncio.run(export_static(honest, root, tmp_path / "tree"))
    with python_server(tmp_path / "tree") as address:
        fs = CoregwFileSystem(address)
        assert fs.cat([f"{root}/a.txt", f"{root}/data/large.bin"])[f"{root}/data/large.bin"] == LARGE
        assert fs.info(f"{root}/a.txt")["size"] == 5
        assert not fs.exists(f"{root}/no")
        assert pickle.loads(pickle.dumps(fs)).cat(f"{root}/link") == b"a,b\n3,4\n"


def test_get_writes_nothing_into_a_repository_that_is_there(
    fs: CoregwFileSystem, client: Client, tmp_path: Path
) -> None:
    hook = client.put_payload(b"#!/bin/sh")
    root = client.create_root({"a": hook, "sub/.GIT/hooks/pre-commit": hook, "z": hook})
    out = tmp_path / "out"
    fs.get(f"{root}/", f"{out}/", recursive=True)  # a new repository is no danger
    assert (out / "sub/.GIT/hooks/pre-commit").read_bytes() == b"#!/bin/sh"
    for path in ("a", "z"):
        (out / path).unlink()
    with pytest.raises(InvalidInput, match="git runs programs"):
        fs.get(f"{root}/", f"{out}/", recursive=True)
    assert sorted(path.name for path in out.iterdir()) == ["sub"]
    (tmp_path / "file/sub").mkdir(parents=True)
    (tmp_path / "file/sub/.GIT").write_bytes(b"gitdir: elsewhere")
    with pytest.raises(InvalidInput, match="git runs programs"):
        fs.get(f"{root}/", f"{tmp_path}/file/", recursive=True)
    fs.get(f"{root}/sub/.GIT/hooks/pre-commit", f"{out}/sub/.GIT/hooks/pre-commit")  # where the caller says


def test_get_writes_no_file_that_does_not_fit_on_the_disk(
    fs: CoregwFileSystem, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = client.create_root({"small": client.put_payload(b"small"), "sub/large": client.put_payload(bytes(5000))})
    found = os.statvfs(tmp_path)
    fields = {"f_bavail": 4000, "f_frsize": 1, "f_blocks": found.f_blocks}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**fields))
    (tmp_path / "out/sub").mkdir(parents=True)
    for old in (None, bytes(900)):
        if old is not None:
            (tmp_path / "out/sub/large").write_bytes(old)
        with pytest.raises(TooLarge, match=r"sub/large: 5000 bytes are to be written, but 4[09]00 are free"):
            fs.get(f"{root}/", f"{tmp_path}/out/", recursive=True)
        assert (tmp_path / "out/small").read_bytes() == b"small"
        assert (tmp_path / "out/sub/large").exists() == (old is not None)
    (tmp_path / "out/sub/large").write_bytes(bytes(1000))
    fs.get(f"{root}/", f"{tmp_path}/out/", recursive=True)
    assert (tmp_path / "out/sub/large").read_bytes() == bytes(5000)


def test_get_writes_nothing_outside_of_its_destination(
    client: Client, fs: CoregwFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made the root chose its names. Not all versions of fsspec look at them."""
    monkeypatch.setattr("fsspec.spec.check_contained", lambda *_: None, raising=False)
    payload = client.put_payload(b"evil")
    inner = tmp_path / "a" / "b" / "out"
    for path in ("../../evil", "folder/../../../evil", "x/./evil"):
        root = client.create_root({path: payload})
        inner.mkdir(parents=True, exist_ok=True)
        with pytest.raises(InvalidInput, match="can't be a file name"):
            fs.get(f"{root}/", f"{inner}/", recursive=True)
        assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_drives_and_paths_are_no_file_names_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_be_name("C:evil")
    monkeypatch.setattr(os, "name", "nt")
    names = runpy.run_path(folder_names.__file__)
    monkeypatch.undo()
    for name in ("C:evil", "..\\evil", "a\\b", "//host/share", "", ".", ".."):
        assert not names["can_be_name"](name)


def test_a_small_root_with_endless_entries_is_too_large(client: Client, honest: str) -> None:
    """Each map has the next one three times."""
    root = client.create_root({"file": client.put_payload(b"x")})
    for _ in range(40):
        root = client.create_root(dict.fromkeys("abc", root))
    fs = CoregwFileSystem(honest, max_entries=500, skip_instance_cache=True)
    for endless in (
        lambda: fs.find(root),
        lambda: fs.find(root, withdirs=True),
        lambda: fs.glob(f"{root}/**"),
        lambda: list(fs.walk(root)),
    ):
        with pytest.raises(TooLarge, match="500"):
            endless()
    assert len(list(fs.walk(root, maxdepth=2))) == 4


def root_with_links(client: Client, files: dict[str, str], links: dict[str, str]) -> str:
    records = {}
    for path, target in links.items():
        records[path], record = encode_attributes("link", link=target.encode())
        if len(record) > 128:
            client.put_payload(record, "dag-cbor")
    return client.create_root({**files, ".coregw/attributes": client.create_root(records)})


def test_walks_do_not_enter_links_to_folders(fs: CoregwFileSystem, client: Client, tmp_path: Path) -> None:
    links = {"d/up1": "..", "d/up2": "..", "here": ".", "file": "d/f", "nowhere": "no", "loop": "loop"}
    root = root_with_links(client, {"d/f": client.put_payload(b"x")}, links)
    listed = {each["name"].removeprefix(f"{root}/"): each for each in [*fs.ls(root), *fs.ls(f"{root}/d")]}
    assert {name: each["type"] for name, each in listed.items()} == {
        "d": "directory",
        "d/f": "file",
        "file": "file",
        **dict.fromkeys(["d/up1", "d/up2", "here", "nowhere", "loop"], "link"),
    }
    assert {name: each["destination"] for name, each in listed.items() if "islink" in each} == links
    everything = sorted(["d", *listed.keys() - {"d"}])
    assert relative(fs.find(root), root) == sorted(listed.keys() - {"d"})
    assert relative(fs.find(root, withdirs=True), root) == ["", *everything]
    assert relative(fs.glob(f"{root}/**"), root) == ["", *everything]
    for topdown in (True, False):
        walked = [
            (relative([at], root)[0], folders, sorted(files)) for at, folders, files in fs.walk(root, topdown=topdown)
        ]
        rows = [("", ["d"], ["file", "here", "loop", "nowhere"]), ("d", [], ["f", "up1", "up2"])]
        assert walked == (rows if topdown else rows[::-1])
    assert fs.cat(root, recursive=True) == {f"{root}/d/f": b"x", f"{root}/file": b"x"}
    fs.get(f"{root}/", f"{tmp_path}/out/", recursive=True)
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")) == [
        "d",
        "d/f",
        "file",
    ]
    # What is named is followed.
    assert fs.isdir(f"{root}/d/up1")
    assert fs.cat(f"{root}/d/up1/here/d/f") == b"x"


def nested(client: Client, depth: int, payload: str) -> str:
    root = client.create_root({"a": payload})
    for _ in range(depth):
        root = client.create_root({"a": root})
    return root


@pytest.mark.slow
def test_a_path_through_many_maps_hides_no_neighbour(
    fs: CoregwFileSystem, counting: CoregwFileSystem, client: Client, counted: Counted
) -> None:
    payload = client.put_payload(b"x")
    path = "/".join(["t", *"a" * 71])
    root = root_with_links(client, {"t": nested(client, 70, payload), "f": payload}, {"far": path, "near": "f"})
    counted.replies.clear()
    assert {each["name"].removeprefix(f"{root}/"): each["type"] for each in counting.ls(root)} == {
        "f": "file",
        "near": "file",
        "t": "directory",
        "far": "link",
    }
    assert len(counted.paths) < 100
    for look in (fs.find, fs.info, lambda path: list(fs.walk(path))):
        with pytest.raises(InvalidInput, match="nest deeper than 64"):
            look(f"{root}/{path}" if look == fs.info else root)
    # Each map on the path is asked once, whatever leads through it.
    links = {f"l{number}": "/".join(["t", *"a" * 21]) for number in range(10)}
    root = root_with_links(client, {"t": nested(client, 20, payload)}, links)
    counted.replies.clear()
    assert [each["type"] for each in counting.ls(root)] == ["file"] * 10 + ["directory"]
    assert len(counted.paths) < 80


def test_a_deep_folder_is_walked(fs: CoregwFileSystem, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deeper than functions of Python may call themselves."""

    def ls(path: str, detail: bool) -> list[dict[str, Any]]:
        return [{"name": f"{path}/d", "type": "directory"}] if path.count("/") < 2000 else []

    monkeypatch.setattr(fs, "ls", ls)
    for topdown in (True, False):
        assert [path.count("/") for path, _, _ in fs.walk(root, topdown=topdown)] == sorted(
            range(2001), reverse=not topdown
        )
