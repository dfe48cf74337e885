"""Surveys of folders and adding them: regular files with UTF-8 names are added, the rest is reported."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import coregw
from coregw.client import AsyncClient, Client
from coregw.client.folders.add import Added, add_folder
from coregw.client.folders.parallel import for_each
from coregw.errors import InvalidInput, ProofError
from coregw.folders.stat_cache import StatCache
from coregw.folders.survey import CHUNK_BYTES, Source, survey
from gateways import Reply, lying_gateway

pytestmark = pytest.mark.anyio

BIG = bytes(range(256)) * (CHUNK_BYTES // 256)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def add(gateway: str, folder: Path, suite: str = "sha2-256") -> Added:
    async with AsyncClient(gateway) as client:
        return await add_folder(client, survey(folder), suite)


def test_a_survey_finds_all_regular_files_with_their_paths(tmp_path: Path) -> None:
    for path in ("a", "b/c", "b/d/e", "@payload", "ü/ñ 😀"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "empty" / "emptier").mkdir(parents=True)
    found = survey(tmp_path)
    assert sorted(source.path for source in found.sources) == ["@payload", "a", "b/c", "b/d/e", "ü/ñ 😀"]
    assert found.skipped == []
    assert found.total_bytes == sum(len(path.encode()) for path in ("a", "b/c", "b/d/e", "@payload", "ü/ñ 😀"))


def test_symbolic_links_and_special_files_are_skipped_and_reported(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").write_text("x")
    (tmp_path / "to-file").symlink_to("real")
    (tmp_path / "to-folder").symlink_to("folder")
    (tmp_path / "to-nothing").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    found = survey(tmp_path)
    assert sorted(source.path for source in found.sources) == ["folder/inside", "real"]
    assert {skipped.file.name: skipped.why for skipped in found.skipped} == {
        "to-file": "a symbolic link",
        "to-folder": "a symbolic link",
        "to-nothing": "a symbolic link",
        "loop": "a symbolic link",
        "pipe": "not a regular file",
    }


def test_a_name_that_is_not_utf_8_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9", "wb"):  # noqa: PTH123 - pathlib has no such names
        pass
    with pytest.raises(InvalidInput, match=r"caf\\xe9: the name is not UTF-8"):
        survey(tmp_path)


def test_a_path_longer_than_the_protocol_allows_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    folder = tmp_path
    while len(os.fsencode(folder.relative_to(tmp_path))) < 3842:  # with the name below, more than 4,096
        folder /= "d" * 100
    folder.mkdir(parents=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:  # by descriptor, as the whole path is longer than the system allows in a call
        os.close(os.open("ü" * 127, os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    finally:
        os.close(descriptor)
    with pytest.raises(InvalidInput, match="the path is longer than 4096 bytes"):
        survey(tmp_path)


def test_the_path_of_a_single_file_is_its_name(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("x")
    assert survey(tmp_path / "one").sources == [Source(tmp_path / "one", "one", 1)]


def test_a_symbolic_link_given_as_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert [source.path for source in survey(tmp_path / "link").sources] == ["file"]


def test_a_symbolic_link_given_as_the_file_is_followed_and_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"content")
    (tmp_path / "link").symlink_to("real")
    (source,) = survey(tmp_path / "link").sources
    assert source.path == "link"
    assert source.file == (tmp_path / "real").resolve()


def test_surveying_a_missing_path_or_a_special_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        survey(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="neither"):
        survey(tmp_path / "pipe")


def test_unreadable_folders_are_skipped_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").mkdir()
    real_scandir = os.scandir

    def deny_listing(path: Path) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "secret":  # root may read everything, whatever the modes are
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real_scandir(path)

    monkeypatch.setattr(os, "scandir", deny_listing)
    found = survey(tmp_path)
    assert [(skipped.file.name, skipped.why) for skipped in found.skipped] == [("secret", "permission denied")]
    with pytest.raises(PermissionError):
        survey(tmp_path / "secret")


async def test_files_become_payloads_or_measured_lists(gateway: str, tmp_path: Path) -> None:
    contents = {"empty": b"", "small": b"s", "exact": BIG, "over": BIG + b"1", "large": BIG * 3 + b"end", "same": b"s"}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link").symlink_to("small")
    added = await add(gateway, tmp_path)
    kinds = {path: coregw.Cid(target).kind for path, target in added.arcs.items()}
    assert kinds == {"empty": "cas", "small": "cas", "same": "cas", "exact": "cas", "over": "list", "large": "list"}
    assert added.root == coregw.Map(added.arcs).root
    assert added.arcs["small"] == coregw.payload_cid(b"s")
    chunks = [coregw.payload_cid(BIG)] * 3 + [coregw.payload_cid(b"end")]
    assert added.arcs["large"] == coregw.List(chunks, [CHUNK_BYTES] * 3 + [3]).root
    assert (added.lists, added.bytes) == (2, sum(map(len, contents.values())))
    assert [skipped.file.name for skipped in added.skipped] == ["link"]
    with Client(gateway) as client:
        for name, data in contents.items():
            assert b"".join(client.contents(client.resolve(added.root, name))) == data


async def test_the_suite_applies_to_the_map_and_its_lists(gateway: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(BIG + b"1")
    added = await add(gateway, tmp_path, "blake3")
    assert coregw.Cid(added.root).suite == coregw.Cid(added.arcs["large"]).suite == "blake3"


async def test_a_folder_without_files_becomes_the_empty_map(gateway: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (await add(gateway, tmp_path)).root == coregw.Map({}).root


async def test_a_file_that_changes_once_is_read_again(gateway: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(BIG + b"before")
    uploads = 0

    def change(reply: Reply) -> Reply:
        nonlocal uploads
        if reply.path.startswith("/v1/cas"):
            uploads += 1
            if uploads == 1:
                path.write_bytes(b"after")
        return reply

    with lying_gateway(change, gateway) as url:
        added = await add(url, tmp_path)
    assert added.arcs == {"file": coregw.payload_cid(b"after")}


async def test_a_file_that_keeps_changing_is_skipped_and_the_others_are_added(gateway: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(8))
    (tmp_path / "other").write_bytes(b"other")

    def change(reply: Reply) -> Reply:
        if reply.path.startswith("/v1/cas"):
            path.write_bytes(os.urandom(8))
        return reply

    with lying_gateway(change, gateway) as url:
        added = await add(url, tmp_path)
    assert added.arcs == {"other": coregw.payload_cid(b"other")}
    assert added.skipped == [(path, "kept changing while it was sent")]


async def test_a_growing_file_is_added_as_it_was_when_it_was_read(gateway: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(BIG + b"start")

    def grow(reply: Reply) -> Reply:
        with path.open("ab") as log:
            log.write(b"a line\n")
        return reply

    with lying_gateway(grow, gateway) as url:
        added = await add(url, tmp_path)
    chunks = [coregw.payload_cid(BIG), coregw.payload_cid(b"start")]
    assert added.arcs == {"log": coregw.List(chunks, [CHUNK_BYTES, 5]).root}


async def test_nothing_that_was_acknowledged_is_sent_again_after_an_interruption(
    gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datas = [f"{number} {tmp_path}".encode() * 500 for number in range(40)]
    for number, data in enumerate(datas):
        (tmp_path / str(number)).write_bytes(data)
    (tmp_path / "again").write_bytes(datas[0])
    monkeypatch.setattr("coregw.client.folders.add.CAR_BYTES", sum(map(len, datas)) // 20)
    taken: list[int] = []

    def interrupt(reply: Reply) -> Reply:
        if reply.path == "/v1/car" and reply.status == 201:
            if len(taken) == 3:
                return reply.with_body(b'{"error":"invalid_request","message":"enough"}', 400)
            taken.append(json.loads(reply.body)["blocks"])
        return reply

    with lying_gateway(interrupt, gateway) as url, pytest.raises(InvalidInput, match="enough"):
        await add(url, tmp_path)
    added = await add(gateway, tmp_path)
    assert 0 < added.sent <= sum(map(len, sorted(datas, key=len)[sum(taken) :]))
    assert (await add(gateway, tmp_path)).sent == 0
    with Client(gateway) as client:
        assert [client.get_payload(added.arcs[str(number)]) for number in range(40)] == datas


async def test_an_unchanged_folder_costs_one_question_and_a_changed_file_few_requests(
    gateway: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    marker = os.urandom(8).hex()
    for number in range(20):
        (tmp_path / str(number)).write_text(f"{marker} {number}")
    (tmp_path / "large").write_bytes(BIG + marker.encode())
    requests: list[str] = []

    def note(reply: Reply) -> Reply:
        requests.append("/".join(part for part in reply.path.split("/") if not part.startswith("bag")))
        return reply

    async def add_with_cache(url: str) -> Added:
        requests.clear()
        async with AsyncClient(url) as client:
            return await add_folder(client, survey(tmp_path), cache=StatCache.of(tmp_path, "test"))

    complete, mutate = "/v1/roots/complete", "/v1/roots/mutations"
    with lying_gateway(note, gateway) as url:
        first = await add_with_cache(url)
        assert requests == [complete, "/v1/cas/batch", "/v1/car", "/v1/car", "/v1/roots"]
        assert (await add_with_cache(url)).root == first.root
        assert requests == [complete]
        (tmp_path / "3").write_text("changed")
        (tmp_path / "4").unlink()
        (tmp_path / "large").write_bytes(BIG + b"another end")
        changed = await add_with_cache(url)
        assert requests == [complete, complete, "/v1/cas/batch", "/v1/car", "/v1/car", mutate]
        assert changed.sent <= len("changed") + len("another end")
        assert changed.root == coregw.hash_tree(tmp_path)
        assert (await add_with_cache(url)).root == changed.root
        assert requests == [complete]
    with Client(gateway) as client:
        assert client.is_complete(changed.root)
        assert not client.is_complete(coregw.Map({marker: changed.root, "absent": coregw.payload_cid(b"?")}).root)


@pytest.mark.parametrize("body", [b'{"roots":[],"blocks":1,"bytes":7}', b"{}", b""])
async def test_an_answer_that_acknowledges_something_else_is_refused(gateway: str, tmp_path: Path, body: bytes) -> None:
    (tmp_path / "file").write_bytes(os.urandom(100))
    with (
        lying_gateway(lambda reply: reply.with_body(body) if reply.path == "/v1/car" else reply, gateway) as url,
        pytest.raises(ProofError, match="send 1 payloads"),
    ):
        await add(url, tmp_path)


async def test_a_file_deleted_after_the_survey_is_skipped_and_reported(gateway: str, tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"x")
    (tmp_path / "gone").write_bytes(b"x")
    found = survey(tmp_path)
    (tmp_path / "gone").unlink()
    async with AsyncClient(gateway) as client:
        added = await add_folder(client, found)
    assert list(added.arcs) == ["here"]
    assert [(skipped.file.name, skipped.why) for skipped in added.skipped] == [("gone", "no such file or directory")]


async def test_for_each_of_no_items_does_nothing() -> None:
    async def work(item: object) -> None:
        raise AssertionError(item)

    await for_each([], work, 4)


async def test_both_clients_add_what_the_command_adds(
    gateway: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    (tmp_path / "large").write_bytes(BIG + b"1")
    (tmp_path / "small").write_bytes(b"s")
    counts: list[int] = []
    async with AsyncClient(gateway) as client:
        added = await client.add(tmp_path, suite="blake3", progress=counts.append)
    assert sum(counts) == added.bytes == CHUNK_BYTES + 2
    with Client(gateway) as blocking:
        again = blocking.add(tmp_path, suite="blake3", use_cache=False)
        assert (again.root, again.sent) == (added.root, 0)
        assert added.root == coregw.hash_tree(tmp_path, "blake3")
        with pytest.raises(FileNotFoundError):
            blocking.add(tmp_path / "nothing")
