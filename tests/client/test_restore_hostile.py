"""Restoring trees that are made to harm, by content that is expanded, depth, links and modes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import coregw
import serving
from car_files import block, cid, header, varint
from coregw import _core, encode_attributes
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.client.folders import destination
from coregw.client.folders import restore as restoring
from coregw.client.folders.destination import Extras
from coregw.client.folders.listing import list_folder
from coregw.client.folders.paths import folder_level, folder_tree
from coregw.client.folders.restore import Deletion, Restored, RestorePlan, plan_restore, restore_folder
from coregw.errors import InvalidInput, TooLarge
from coregw.filesystem import CoregwFileSystem
from coregw.folders.tree import FolderEntry
from gateways import Reply, lying_gateway, names

Restore = Callable[..., Restored]
MIB = 1 << 20


@pytest.fixture
def restore(gateway: str) -> Restore:
    def call(root: str, destination: Path, **options: Any) -> Restored:  # noqa: ANN401
        async def run() -> Restored:
            async with AsyncClient(options.pop("url", gateway)) as client:
                return await restore_folder(client, root, destination, **options)

        return asyncio.run(run())

    return call


@pytest.fixture
def tree(client: Client) -> Callable[..., str]:
    """Makes the map of files by their bytes or targets, and records of attributes by the arguments of these."""

    def make(files: dict[str, bytes | str], records: dict[str, dict[str, Any]] | None = None) -> str:
        arcs = {path: each if isinstance(each, str) else client.put_payload(each) for path, each in files.items()}
        known: dict[str, str] = {}
        for path, record in (records or {}).items():
            known[path], payload = encode_attributes(**record)
            if coregw.Cid(known[path]).hash_name != "identity":
                client.put_payload(payload, "dag-cbor")
        if known:
            arcs[".coregw/attributes"] = client.create_root(known)
        return client.create_root(arcs)

    return make


def doubled(client: Client, payload: bytes, levels: int, size: int | None = None) -> str:
    """A list of 2^levels elements, all of them one payload, in as many nodes as levels."""
    target = bytes(coregw.Cid(client.put_payload(payload)))
    measure, count = len(payload) if size is None else size, 1
    nodes = [b"\x11" + varint(measure) + varint(len(target)) + target]
    for _ in range(levels):
        digest = hashlib.sha256(nodes[-1]).digest()
        nodes.append(b"\x12" + (varint(count) + varint(count * measure) + digest) * 2)
        count *= 2
    named = [(cid(0x303210, node), node) for node in reversed(nodes)]
    client.put_car(header(named[0][0]) + b"".join(block(*each) for each in named))
    return coregw.Cid(named[0][0]).text


# Content that is expanded


XATTRS = {f"user.{number:02}": bytes([number]) * 300 for number in range(8)}


@pytest.mark.parametrize("extras", [Extras(), Extras(xattrs=True)])
@pytest.mark.parametrize("existed", [False, True])
def test_a_record_that_many_paths_share_is_requested_once(
    gateway: str, tree: Callable[..., str], restore: Restore, tmp_path: Path, extras: Extras, existed: bool
) -> None:
    paths = [f"f{number}" for number in range(50)]
    root = tree(dict.fromkeys(paths, b"x"), {path: {"kind": "file", "mode": 0o640, "xattrs": XATTRS} for path in paths})
    nested = tree({"a": root, "b": root})
    asked: list[str] = []

    def seen(reply: Reply) -> Reply:
        if len(reply.body) > 2_400 and reply.path != "/v1/scan":
            asked.append(reply.path)
        return reply

    out = tmp_path / "out"
    if existed:
        out.mkdir()
        (out / "mine").write_bytes(b"mine")
    with lying_gateway(seen, gateway) as url:
        restore(nested, out, url=url, extras=extras)
    assert len(asked) == 1
    assert {stat.S_IMODE((out / folder / path).stat().st_mode) for folder in "ab" for path in paths} == {0o640}
    if extras.xattrs:
        assert os.getxattr(out / "b/f49", "user.07") == XATTRS["user.07"]


def test_the_attributes_of_paths_that_share_a_record_are_one_object(gateway: str, tree: Callable[..., str]) -> None:
    paths = [f"f{number}" for number in range(20)]
    root = tree(dict.fromkeys(paths, b"x"), {path: {"kind": "file", "xattrs": XATTRS} for path in paths})

    async def listed() -> list[FolderEntry]:
        async with AsyncClient(gateway) as client:
            return (await list_folder(client, coregw.Cid(root))).entries

    found = [entry.attributes for entry in asyncio.run(listed())]
    assert all(each is found[0] for each in found)


def test_listings_and_differences_request_a_shared_record_once(gateway: str, tree: Callable[..., str]) -> None:
    paths = [f"d/f{number}" for number in range(30)]
    files = dict.fromkeys(paths, b"x")
    root, other = tree(files, {path: {"kind": "file", "xattrs": XATTRS} for path in paths}), tree(files)
    asked: list[str] = []

    def seen(reply: Reply) -> Reply:
        asked.extend([reply.path] * reply.path.startswith("/v1/cas/"))
        return reply

    with lying_gateway(seen, gateway) as url, Client(url) as client:
        fs = CoregwFileSystem(url)
        uses: list[Callable[[], int]] = [
            lambda: len([*folder_tree(client, root)]),
            lambda: len([*folder_level(client, root, ["d"])]),
            lambda: len([*client.diff_folders(root, other)]),
            lambda: len([fs.info(f"{root}/{path}")["size"] for path in paths if fs.ukey(f"{root}/{path}")]),
        ]
        for use in uses:
            asked.clear()
            assert use() == 30
            assert len([path for path in asked if path != f"/v1/cas/{coregw.payload_cid(b'x')}"]) == 1


def test_a_list_that_files_share_is_listed_once(
    gateway: str, client: Client, tree: Callable[..., str], restore: Restore, tmp_path: Path
) -> None:
    shared = doubled(client, b"0123456789abcdef", 4)
    reads: list[str] = []

    def seen(reply: Reply) -> Reply:
        reads.extend([reply.path] * (reply.path == "/v1/read"))
        return reply

    root = tree({f"f{number}": shared for number in range(20)})
    for existed in (False, True):
        with lying_gateway(seen, gateway) as url:
            assert restore(root, tmp_path / "out", url=url, delete=Deletion() if existed else None).bytes == (
                0 if existed else 20 * 256
            )
    assert len(reads) == 2


def left_over(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("how", ["new", "existing", "dry run", pytest.param("compared", marks=pytest.mark.slow)])
def test_a_small_list_of_petabytes_is_refused_at_once(
    gateway: str, client: Client, tree: Callable[..., str], restore: Restore, tmp_path: Path, how: str
) -> None:
    root = tree({"a": b"first", "f": doubled(client, b"x", 50)})
    reads: list[str] = []

    def seen(reply: Reply) -> Reply:
        reads.extend([reply.path] * (reply.path == "/v1/read"))
        return reply

    out = tmp_path / "out"
    if how != "new":
        out.mkdir()
        (out / "f").write_bytes(b"mine")

    with lying_gateway(seen, gateway) as url:
        if how == "compared":
            with Client(url) as opened:
                (_, found) = opened.diff_tree(root, out).differences
            assert (found.segments, found.ranges) == (("f",), None)
            assert len(reads) < 300
            return
        with pytest.raises(
            TooLarge, match=r"f: with this file, 1125899906842624 bytes are to be written, but \d+ are free"
        ):
            planned(url, root, out) if how == "dry run" else restore(root, out, url=url)
    assert len(reads) <= 6  # a window of bytes that holds too many elements is made smaller
    assert names(tmp_path) == ([] if how == "new" else ["out"])
    assert left_over(tmp_path) == ({} if how == "new" else {"out/f": b"mine"})


def test_the_size_of_a_list_is_compared_before_its_elements_are_listed(
    gateway: str, client: Client, tree: Callable[..., str], restore: Restore, tmp_path: Path
) -> None:
    root = tree({"f": doubled(client, b"x" * 16, 30)}, {"f": {"kind": "file", "size": 5}})
    with pytest.raises(InvalidInput, match="f: recorded with 5 bytes, but its list has 17179869184"):
        restore(root, tmp_path / "out")
    assert names(tmp_path) == []


@pytest.mark.parametrize("existed", [False, True])
def test_more_bytes_than_the_disk_has_are_refused_before_one_is_written(
    client: Client,
    tree: Callable[..., str],
    restore: Restore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    existed: bool,
) -> None:
    for module in (destination, restoring):
        monkeypatch.setattr(module, "free_bytes", lambda _: 100_000, raising=False)
    out = tmp_path / "out"
    if existed:
        out.mkdir()
        (out / "mine").write_bytes(b"mine")
    known = {f"f{number}": {"kind": "file", "size": 30_000} for number in range(4)}
    shared = os.urandom(30_000)
    for files, records in (
        ({f"f{number}": os.urandom(30_000) for number in range(4)}, known),
        ({f"f{number}": shared for number in range(4)}, known),
        ({f"f{number}": shared for number in range(4)}, {}),  # known when the payload comes
        ({"l": doubled(client, os.urandom(1_000), 7)}, {}),
        ({f"l{number}": doubled(client, b"y" * 1_000, 5) for number in range(4)}, {}),
    ):
        with pytest.raises(TooLarge, match="bytes are to be written, but 100000 are free on the disk"):
            restore(tree(files, records), out)
        assert left_over(tmp_path) == ({"out/mine": b"mine"} if existed else {})
        assert names(tmp_path) == (["out"] if existed else [])
    right = tree({f"f{number}": shared for number in range(3)}, {name: known[name] for name in ("f0", "f1", "f2")})
    assert restore(right, out).files == 3
    # What is there and is right is not written, and what is replaced gives its bytes back.
    assert restore(right, out) == Restored(0, 0, kept=3)
    other = tree({f"f{number}": os.urandom(60_000) for number in range(3)})
    assert restore(other, out).replaced == 3


def test_elements_that_no_size_explains_are_an_error(
    gateway: str, client: Client, tree: Callable[..., str], tmp_path: Path
) -> None:
    async def run(root: str) -> Restored:
        async with AsyncClient(gateway, ClientSettings(max_entries=1_000)) as opened:
            return await restore_folder(opened, root, tmp_path / "out")

    with pytest.raises(TooLarge, match="has more than 1,000 elements for 8,192 bytes"):
        asyncio.run(run(tree({"f": doubled(client, b"x", 13)})))
    shared = doubled(client, b"x", 8)
    with pytest.raises(TooLarge, match="f3: the tree has more elements of lists than its 1,024 bytes explain"):
        asyncio.run(run(tree({f"f{number}": shared for number in range(5)})))
    assert names(tmp_path) == []
    assert asyncio.run(run(tree({"f": doubled(client, b"x" * 20_000, 10)}))).bytes == 20_000 << 10


# Depth


def nested_trees(client: Client, maps: int, segments: int) -> str:
    root = client.create_root({"/".join(["s"] * segments): client.put_payload(b"x")})
    for _ in range(maps - 1):
        root = client.create_root({"/".join(["s"] * segments): root})
    return root


MEASURED = """
import pathlib, re, sys
from coregw.cli.main import main
try:
    main()
finally:
    status = pathlib.Path("/proc/self/status").read_text()
    print(int(re.search(r"VmHWM:\\s*(\\d+) kB", status)[1]) >> 10, file=sys.stderr)
"""


def peak_mib(*args: object) -> tuple[int, int, str]:
    """The exit code of a command, the most memory that it had, and what it said."""
    command = [sys.executable, "-c", MEASURED, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    *said, peak = done.stderr.strip().splitlines()
    return done.returncode, int(peak), done.stdout + "\n".join(said)


@pytest.fixture
def deep_path(tmp_path: Path) -> Iterator[Path]:
    """A folder for deep trees, which pytest cannot remove."""
    yield tmp_path
    for name in names(tmp_path):
        _core.remove_tree(tmp_path / name)


@pytest.mark.slow
def test_depth_costs_no_more_than_its_names(gateway: str, client: Client, deep_path: Path) -> None:
    tmp_path = deep_path
    root = nested_trees(client, 4, 2_048)  # 8,192 folders
    out = tmp_path / "out"
    more = tmp_path / "more"
    more.mkdir()
    (more / "mine").write_bytes(b"mine")
    for command in (
        ["get", root, out],
        ["get", root, out],
        ["get", root, more, "--dry-run"],
        ["get", root, more],
        ["get", client.create_root({"s": client.put_payload(b"x")}), more, "--delete"],
    ):
        code, peak, said = peak_mib(*command, "--gateway", gateway)
        assert code == 0, said[-1000:]
        assert peak < 150, command
    assert (names(more), (more / "s").read_bytes()) == (["s"], b"x")


@pytest.mark.parametrize("existed", [False, True])
def test_deep_trees_that_fail_leave_nothing_behind(
    client: Client, restore: Restore, deep_path: Path, existed: bool
) -> None:
    tmp_path = deep_path
    deep = "/".join(["s"] * 2_000)
    missing = coregw.payload_cid(os.urandom(20))
    out = tmp_path / "out"
    if existed:
        out.mkdir()
    with pytest.raises(coregw.PayloadNotFound):
        restore(client.create_root({deep: client.put_payload(b"x"), "z": missing}), out)
    assert names(tmp_path) == (["out"] if existed else [])
    assert not existed or names(out) == []


@pytest.mark.parametrize("is_root", [True, False])
def test_a_folder_is_removed_whatever_its_depth_and_modes(deep_path: Path, is_root: bool) -> None:
    """Root needs no rights, so the modes only count for somebody else."""
    if not is_root and os.geteuid() != 0:
        pytest.skip("only root may become another user")
    tmp_path = deep_path / "own"
    tmp_path.mkdir()
    owner = (-1, -1) if is_root else (serving.NOBODY, serving.NOBODY)
    os.chown(tmp_path, *owner)
    at = os.open(tmp_path, os.O_RDONLY)
    for number in range(1_500):
        os.mkdir("d", 0o700, dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.fchown(below, *owner)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.symlink("/etc", "link", dir_fd=below)
        if number:
            os.fchmod(at, 0o500 if number % 2 else 0o100)
        os.close(at)
        at = below
    os.close(at)
    above = os.open(tmp_path, os.O_RDONLY)
    if is_root:
        _core.remove_tree(f"/proc/self/fd/{above}/d")
    else:
        assert serving.as_nobody(lambda: _core.remove_tree(f"/proc/self/fd/{above}/d")) == "None"
    os.close(above)
    assert names(tmp_path) == []


def test_entries_below_many_folders_count_for_their_paths(gateway: str, client: Client, tmp_path: Path) -> None:
    below = client.create_root({f"f{number}": client.put_payload(b"x") for number in range(50)})
    root = client.create_root({"/".join(["s"] * 640): below})

    async def run(limit: int) -> Restored:
        async with AsyncClient(gateway, ClientSettings(max_entries=limit)) as opened:
            return await restore_folder(opened, root, tmp_path / "out")

    with pytest.raises(TooLarge, match="more than 2000 entries"):
        asyncio.run(run(2_000))
    assert asyncio.run(run(2_200)).files == 50


# Links


def link(target: str) -> dict[str, Any]:
    return {"kind": "link", "link": target.encode()}


def test_no_link_leads_out_through_one_that_is_there(
    tree: Callable[..., str], restore: Restore, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    restore(tree({"keep": b"x", "a/b/k": b"x"}, {"a/b/c": link("../.."), "a/b/m": link("k")}), out)
    (out / "mine").symlink_to("..")
    (out / "d").mkdir()
    (out / "d/etc").symlink_to("/etc")
    done = restore(
        tree(
            {"keep": b"x"},
            {
                "up": link("a/b/c/../.."),
                "etc": link("d/etc/passwd"),
                "out": link("mine/x"),
                "through": link("d/../mine"),
                "in": link("a/b/m"),
                "ok": link("a/b/../../keep"),
                "none": link("a/none/x"),
            },
        ),
        out,
    )
    assert [each.file.name for each in done.skipped] == ["etc", "out", "through", "up"]
    assert [name for name in ("in", "none", "ok") if (out / name).is_symlink()] == ["in", "none", "ok"]


def test_a_link_that_stays_inside_does_so_after_every_other_tree(
    tree: Callable[..., str], restore: Restore, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = restore(tree({"c/d/f": b"x"}, {"a": link("c/d"), "l": link("a/../.."), "m": link("b/../../x")}), out)
    assert [each.file.name for each in done.skipped] == ["l", "m"]
    restore(tree({"c/d/f": b"x"}, {"a": link("c")}), out)
    assert not (out / "l").is_symlink()


def test_every_link_is_restored_as_it_is_recorded_on_request(
    gateway: str, tree: Callable[..., str], tmp_path: Path
) -> None:
    targets = {"a": "/etc/passwd", "d/b": "../../x", "c": "d/none/../../..", "d/e": "../c"}
    root = tree({"f": b"x"}, {name: link(target) for name, target in targets.items()})
    for name in ("new", "existing"):
        out = tmp_path / name
        if name == "existing":
            (out / "d").mkdir(parents=True)
            (out / "a").symlink_to("other")
        for _ in range(2):
            with Client(gateway) as client:
                assert client.get(root, out, links="all").skipped == []
            assert {name: str((out / name).readlink()) for name in targets} == targets
    assert (tmp_path / "new/f").read_bytes() == b"x"


def test_a_link_that_is_left_out_is_removed_as_what_the_tree_lacks(
    tree: Callable[..., str], restore: Restore, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (out / "b").mkdir(parents=True)
    (out / "a").symlink_to("/etc")
    root = tree({"f": b"x"}, {"a": link("/etc"), "b": link("/etc")})
    assert len(restore(root, out).skipped) == 2
    assert names(out) == ["a", "b", "f"]
    assert restore(root, out, delete=Deletion()).deleted == 2
    assert names(out) == ["f"]


# Repositories


def planned(gateway: str, root: str, out: Path) -> RestorePlan:
    async def run() -> RestorePlan:
        async with AsyncClient(gateway) as client:
            return await plan_restore(client, root, out)

    return asyncio.run(run())


@pytest.mark.parametrize("there", ["repository", "worktree", "upper case"])
def test_a_git_folder_that_was_there_is_changed_on_request_only(
    gateway: str, tree: Callable[..., str], restore: Restore, tmp_path: Path, there: str
) -> None:
    out = tmp_path / "out"
    name = ".GIT" if there == "upper case" else ".git"
    if there == "worktree":
        (out / "sub").mkdir(parents=True)
        (out / "sub/.git").write_bytes(b"gitdir: ../elsewhere")
        root = tree({"f": b"new", "sub/.git": b"gitdir: /evil"})
    else:
        (out / "sub" / name / "hooks").mkdir(parents=True)
        (out / "sub" / name / "config").write_bytes(b"config")
        record = {"kind": "file", "mode": 0o755}
        root = tree({"f": b"new", f"sub/{name}/hooks/post": b"evil"}, {f"sub/{name}/hooks/post": record})
    before = left_over(out)
    with pytest.raises(InvalidInput, match=r"is part of a \.git that was there.*--allow-git"):
        restore(root, out)
    assert left_over(out) == before
    with pytest.raises(InvalidInput, match="--allow-git"):
        planned(gateway, root, out)
    assert restore(root, out, allow_git=True).files == 2
    assert restore(root, out).kept == 2  # nothing of it is changed
    assert restore(tree({"f": b"other"}), out).replaced == 1


def test_a_git_folder_of_the_tree_alone_is_restored(tree: Callable[..., str], restore: Restore, tmp_path: Path) -> None:
    root = tree({".git/config": b"x", "f": b"x"})
    assert restore(root, tmp_path / "new").files == 2
    (tmp_path / "existing").mkdir()
    (tmp_path / "existing/mine").write_bytes(b"x")
    assert restore(root, tmp_path / "existing").files == 2


# Extended attributes


@pytest.mark.parametrize("existed", [False, True])
def test_extended_attributes_are_those_of_the_tree(
    tree: Callable[..., str], restore: Restore, tmp_path: Path, existed: bool
) -> None:
    out = tmp_path / "out"
    xattrs = {"user.a": b"a", "trusted.b": b"b"}
    record: dict[str, Any] = {"kind": "file", "mode": 0o444, "xattrs": xattrs}
    folder = {"kind": "folder", "mode": 0o555, "xattrs": {"user.a": b"a"}}
    root = tree({"f": b"x", "g": b"y", "d/h": b"z"}, {"f": record, "d": folder, "d/h": record})
    if existed:
        (out / "d").mkdir(parents=True)
        for path in ("f", "g"):
            (out / path).write_bytes(b"x" if path == "f" else b"y")
            os.setxattr(out / path, "user.stale", b"s")
    for _ in range(2):
        done = restore(root, out, extras=Extras(xattrs=True))
        if os.geteuid() == 0:
            (skipped,) = done.skipped
            assert skipped.file in {out / "f", out / "d/h"}
            assert "trusted.b, and those of 1 more, is restored to root only by name" in skipped.why
        users = {path: os.listxattr(out / path) for path in ("f", "g", "d", "d/h")}
        assert users == {"f": ["user.a"], "g": [], "d": ["user.a"], "d/h": ["user.a"]}
        assert modes(out, "f", "d", "d/h") == {"f": "0o444", "d": "0o555", "d/h": "0o444"}
    assert restore(root, out, extras=Extras()).kept == 3


def test_the_elements_of_lists_that_are_requested_together_count_together(
    gateway: str, client: Client, tree: Callable[..., str], tmp_path: Path
) -> None:
    levels, lists = 15, 8  # each takes several answers
    root = tree({f"f{number}": doubled(client, bytes([number]), levels) for number in range(lists)})
    settings = ClientSettings(max_entries=lists << levels - 1)

    async def get() -> None:
        async with AsyncClient(gateway, settings) as limited:
            await restore_folder(limited, root, tmp_path / "out", in_place=True)

    with pytest.raises(TooLarge, match="elements"):
        asyncio.run(get())
    assert names(tmp_path) == []


# Rights


def without_privileges(command: list[str]) -> list[str]:
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", *command]


def as_owner_without_privileges(gateway: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a command that may do what the modes of its user's files allow, also if the user is root."""
    command = without_privileges([sys.executable, "-m", "coregw", *map(str, args), "--gateway", gateway])
    return subprocess.run(command, capture_output=True, text=True, check=False)


def modes(folder: Path, *paths: str) -> dict[str, str]:
    return {path: oct(stat.S_IMODE((folder / path).stat().st_mode)) for path in paths}


RECORDS: dict[str, dict[str, Any]] = {
    "p": {"kind": "folder", "mode": 0o555},
    "p/q": {"kind": "folder", "mode": 0o300},
    "p/q/f": {"kind": "file", "mode": 0o200},
    "p/q/g": {"kind": "file", "mode": 0o444},
}
MODES = {"p": "0o555", "p/q": "0o300", "p/q/f": "0o200", "p/q/g": "0o444"}


def test_modes_that_take_rights_from_their_owner_are_no_obstacle(
    gateway: str, tree: Callable[..., str], tmp_path: Path
) -> None:
    files: dict[str, bytes | str] = {"p/q/f": b"one", "p/q/g": b"two", "p/h": b"three"}
    root, out = tree(files, RECORDS), tmp_path / "out"
    with_xattrs = tree(files, {path: {**record, "xattrs": {"user.a": b"a"}} for path, record in RECORDS.items()})

    def get(which: str = root, *options: str) -> None:
        done = as_owner_without_privileges(gateway, "get", which, out, *options)
        assert done.returncode == 0, done.stderr
        assert modes(out, *MODES) == MODES
        assert (out / "p/q/f").read_bytes() == b"one"

    for options in ([], [], ["--no-cache"], ["--xattrs"]):
        get(root, *options)
    get(with_xattrs, "--xattrs")
    assert [os.getxattr(out / path, "user.a") for path in RECORDS] == [b"a"] * 4
    (out / "p/q/g").unlink()
    (out / "p/h").unlink()
    get()
    assert (out / "p/q/g").read_bytes() == b"two"
    (out / "p/q/more/deep").mkdir(parents=True)
    (out / "p/q/more/deep/file").write_bytes(b"more")
    (out / "p/q/more/deep").chmod(0o000)
    (out / "p/q/more").chmod(0o500)
    get(root, "--delete")
    assert names(out / "p/q") == ["f", "g"]
    (out / "p/q/g").unlink()
    (out / "p/q/g").mkdir()
    (out / "p/q/g/file").write_bytes(b"x")
    (out / "p/q/g").chmod(0o500)
    get(root, "--delete")
    assert (out / "p/q/g").read_bytes() == b"two"


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_folders_have_their_modes_again_after_an_interruption(
    gateway: str, tree: Callable[..., str], tmp_path: Path, which: signal.Signals
) -> None:
    out, expected = tmp_path / "out", {"": "0o555", "a": "0o511", "a/b": "0o500"}
    (out / "a/b").mkdir(parents=True)
    for path in reversed(expected):
        (out / path).chmod(int(expected[path], 8))
    has_ended = threading.Event()

    def slow(reply: Reply) -> Reply:
        if reply.path == "/v1/cas/car":
            has_ended.wait()
        return reply

    root = tree({"a/b/f": os.urandom(200), "a/b/g": os.urandom(200)})
    with lying_gateway(slow, gateway) as url:
        command = without_privileges([sys.executable, "-m", "coregw", "get", "--gateway", url, root, str(out)])
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            while stat.S_IMODE((out / "a/b").stat().st_mode) != 0o700:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(which)
            _, said = process.communicate(timeout=60)
            has_ended.set()
    assert process.returncode == 128 + which, said
    assert modes(out, *expected) == expected


def test_folders_have_their_modes_again_also_after_an_error(
    gateway: str, tree: Callable[..., str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (out / "a/b").mkdir(parents=True)
    (out / "a/b/f").write_bytes(b"old")
    (out / "a/b").chmod(0o500)
    (out / "a").chmod(0o511)
    out.chmod(0o555)
    expected = {"": "0o555", "a": "0o511", "a/b": "0o500"}
    missing = coregw.payload_cid(os.urandom(20))
    done = as_owner_without_privileges(gateway, "get", tree({"a/b/f": b"new", "a/b/g": missing, "a/h": missing}), out)
    assert done.returncode == 1
    assert "payload_not_found" in done.stderr
    assert modes(out, *expected) == expected
    # Without recorded modes, folders keep theirs.
    done = as_owner_without_privileges(gateway, "get", tree({"a/b/f": b"new", "a/b/g": b"more", "a/h": b"h"}), out)
    assert done.returncode == 0, done.stderr
    assert modes(out, *expected) == expected
    assert left_over(out) == {"a/b/f": b"new", "a/b/g": b"more", "a/h": b"h"}
    assert as_owner_without_privileges(gateway, "get", tree({"n": b"n"}), out, "--delete").returncode == 0
    assert modes(out, "") == {"": "0o555"}
    assert names(out) == ["n"]
    done = as_owner_without_privileges(gateway, "get", tree({"n/o": b"n"}), out)
    assert "--delete replaces it" in done.stderr
    assert modes(out, "") == {"": "0o555"}
