"""Restoring a folder: identical to the original, or refused with nothing left behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import coregw
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.client.folders.names import check_segments
from coregw.client.folders.restore import Restored, restore_folder
from coregw.errors import InvalidInput, PayloadNotFound, ProofError, TooLarge
from gateways import lying_gateway, names


def cid(text: str) -> str:
    return coregw.payload_cid(text.encode())


def restore(gateway: str, root: str, destination: Path) -> Restored:
    async def run() -> Restored:
        async with AsyncClient(gateway) as client:
            return await restore_folder(client, root, destination)

    return asyncio.run(run())


@pytest.fixture
def stored(client: Client) -> str:
    """The CID of a payload that the gateway holds."""
    return client.put_payload(b"content")


def test_nested_maps_become_folders(gateway: str, client: Client, stored: str, tmp_path: Path) -> None:
    inner = client.create_root({"in/file": stored})
    root = client.create_root({"top": stored, "sub/map": inner, "@payload": stored})
    assert restore(gateway, root, tmp_path / "out") == Restored(3, 21)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"out/top", "out/sub/map/in/file", "out/@payload"}
    assert names(tmp_path) == ["out"]


def test_an_empty_map_becomes_an_empty_folder(gateway: str, client: Client, tmp_path: Path) -> None:
    assert restore(gateway, client.create_root({}), tmp_path / "out") == Restored(0, 0)
    assert names(tmp_path / "out") == []


def test_an_empty_folder_is_filled_in_place(gateway: str, client: Client, stored: str, tmp_path: Path) -> None:
    before = tmp_path.stat().st_ino
    restore(gateway, client.create_root({"a/b": stored, "c": stored}), tmp_path)
    assert names(tmp_path) == ["a", "c"]
    assert tmp_path.stat().st_ino == before


def test_a_folder_that_could_not_be_filled_stays_empty(
    gateway: str, client: Client, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if target.name == "c":
            raise OSError(28, "No space left on device", str(target))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="No space left"):
        restore(gateway, client.create_root({"a/b": stored, "b": stored, "c": stored, "d": stored}), tmp_path)
    assert names(tmp_path) == []


HOSTILE = {
    "dot dot": {"a/../../evil": "can't be a file name"},
    "dot": {"./evil": "can't be a file name"},
    "only dot dot": {"..": "can't be a file name"},
    "nul": {"a\0b": "can't be a file name"},
    "file and folder": {"a": "it is both a file and a folder", "a/b": ""},
    "file above folders": {"a/b": "it is both a file and a folder", "a/b/c/d": ""},
}


@pytest.mark.parametrize("arcs", HOSTILE.values(), ids=HOSTILE)
def test_paths_that_cannot_be_files_are_refused_and_named(
    gateway: str, client: Client, stored: str, tmp_path: Path, arcs: dict[str, str]
) -> None:
    root = client.create_root(dict.fromkeys(arcs, stored) | {"fine": stored})
    [(path, why)] = [(path, why) for path, why in arcs.items() if why]
    with pytest.raises(InvalidInput) as refused:
        restore(gateway, root, tmp_path / "out")
    assert why in str(refused.value)
    assert str(refused.value).startswith(path.replace("\0", "\\x00"))
    assert names(tmp_path) == []


def test_a_path_in_two_nested_maps_is_refused(gateway: str, client: Client, stored: str, tmp_path: Path) -> None:
    root = client.create_root({"a": client.create_root({"b": stored}), "a/b": stored})
    with pytest.raises(InvalidInput, match="a/b: something of this name exists, perhaps another path of the tree"):
        restore(gateway, root, tmp_path / "out")
    assert names(tmp_path) == []
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(InvalidInput, match="a/b: the tree has this path twice"):
        restore(gateway, root, tmp_path)
    assert names(tmp_path) == ["mine"]


def test_a_nested_map_below_a_file_is_refused(gateway: str, client: Client, stored: str, tmp_path: Path) -> None:
    root = client.create_root({"a": client.create_root({"b/c": stored}), "a/b": stored})
    with pytest.raises(InvalidInput, match=r"a/b(/c)?: (something of this name exists|is not a folder)"):
        restore(gateway, root, tmp_path / "out")
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(InvalidInput, match="a/b: it is both a file and a folder"):
        restore(gateway, root, tmp_path)
    assert names(tmp_path) == ["mine"]


@pytest.mark.parametrize("mark", ["\\", ":"])
def test_a_platforms_second_path_separator_is_refused(monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    check_segments([f"a{mark}b"])
    monkeypatch.setattr("coregw.client.folders.names._MARKS", frozenset("\0/\\:"))  # as on Windows
    with pytest.raises(InvalidInput, match="can't be a file name"):
        check_segments([f"a{mark}b"])


@pytest.mark.parametrize("what", ["file", "link to a file", "link to nothing"])
def test_a_destination_that_is_not_a_folder_is_not_touched(
    gateway: str, client: Client, stored: str, tmp_path: Path, what: str
) -> None:
    out = tmp_path / "out"
    (tmp_path / "mine").write_text("mine")
    if what == "file":
        out.write_text("mine")
    else:
        out.symlink_to("mine" if what == "link to a file" else "nowhere")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(InvalidInput, match="out: "):
        restore(gateway, client.create_root({"a": stored}), out)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_destination_without_a_parent_folder_is_refused(
    gateway: str, client: Client, stored: str, tmp_path: Path
) -> None:
    root = client.create_root({"a": stored})
    with pytest.raises(InvalidInput, match=r"missing: no such folder$"):
        restore(gateway, root, tmp_path / "missing" / "out")
    assert names(tmp_path) == []


@pytest.mark.parametrize("path", ["in/" + "x" * 300, "x" * 300 + "/in"], ids=["file", "folder"])
def test_name_too_long_for_the_file_system_is_refused_and_named(
    gateway: str, client: Client, stored: str, tmp_path: Path, path: str
) -> None:
    root = client.create_root({path: stored})
    with pytest.raises(InvalidInput, match=rf"^{path.removesuffix('/in')}: file name too long$"):
        restore(gateway, root, tmp_path / "out")
    assert names(tmp_path) == []


def test_a_cid_other_than_a_map_root_is_refused(gateway: str, client: Client, stored: str, tmp_path: Path) -> None:
    for root in (stored, client.create_list([stored])):
        with pytest.raises(InvalidInput, match="not a map root"):
            restore(gateway, root, tmp_path / "out")
    assert names(tmp_path) == []


@pytest.mark.parametrize("existed", [False, True], ids=["new", "empty"])
def test_a_failed_restore_leaves_nothing_behind(
    gateway: str, client: Client, stored: str, tmp_path: Path, existed: bool
) -> None:
    root = client.create_root({f"a/{number}": stored for number in range(20)} | {"b": cid("not stored")})
    if existed:
        (tmp_path / "out").mkdir()
    with pytest.raises(PayloadNotFound):
        restore(gateway, root, tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["out"] * existed


@pytest.mark.parametrize("early", [3, 1_100], ids=["on the first page", "on a later page"])
def test_attributes_are_found_wherever_they_are_listed(
    gateway: str, client: Client, stored: str, tmp_path: Path, early: int
) -> None:
    paths = [f"!{number:04}" for number in range(early)] + [f"z{number:04}" for number in range(1_100)]  # before, after
    record = coregw.encode_attributes("file", size=7, mode=0o640)[0]
    records = client.create_root(dict.fromkeys(paths, record))
    root = client.create_root(dict.fromkeys(paths, stored) | {".coregw/attributes": records})
    assert restore(gateway, root, tmp_path / "out") == Restored(len(paths), 7 * len(paths))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()}
    assert modes == dict.fromkeys(paths, 0o640)


def test_a_tree_with_too_many_entries_is_refused(gateway: str, client: Client, stored: str, tmp_path: Path) -> None:
    paths = [f"z{number}" for number in range(20)]
    records = client.create_root(dict.fromkeys(paths, coregw.encode_attributes("file", size=7)[0]))
    root = client.create_root(dict.fromkeys(paths, stored) | {".coregw/attributes": records})

    async def run(limit: int) -> Restored:
        async with AsyncClient(gateway, ClientSettings(max_entries=limit)) as limited:
            return await restore_folder(limited, root, tmp_path / "out")

    with pytest.raises(TooLarge, match="more than 40 entries"):  # both maps count
        asyncio.run(run(40))
    assert names(tmp_path) == []
    assert asyncio.run(run(41)).files == 20
    assert ClientSettings().max_entries > 2 * 1_000_000  # so by default a million files can be added and be got


def test_a_tampered_answer_leaves_nothing_behind(gateway: str, client: Client, stored: str, tmp_path: Path) -> None:
    root = client.create_root({"a/b": stored})
    for lied_about in ("/v1/cas", "/v1/scan"):
        with lying_gateway(
            lambda reply, at=lied_about: reply.with_body(reply.body[:-1]) if reply.path.startswith(at) else reply,
            gateway,
        ) as url:
            with pytest.raises(ProofError):
                restore(url, root, tmp_path / "out")
            assert names(tmp_path) == []


def test_modes_follow_the_umask(gateway: str, client: Client, stored: str, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        restore(gateway, client.create_root({"a/b": stored}), tmp_path / "out")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out").rglob("*")}
    assert modes == {"a": 0o750, "b": 0o640}
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o750
