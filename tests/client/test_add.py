"""Surveys of folders and adding them: regular files with UTF-8 names are added, the rest is reported."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from pathlib import Path

import anyio
import pytest

import coregw
from coregw.client import AsyncClient, Client
from coregw.client.folders.add import Added, AddProgress, add_folder, add_path
from coregw.concurrency import for_each
from coregw.errors import InvalidInput, ProofError, Unavailable
from coregw.folders.caches import UploadCache
from coregw.folders.tree import Recorded, survey
from gateways import Reply, honest_gateway, lying_gateway
from slow_targets import slow_target

pytestmark = pytest.mark.anyio

CHUNK_BYTES = 256 << 10
BIG = random.Random(1).randbytes(CHUNK_BYTES)  # the largest file that is one payload


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def add(gateway: str, folder: Path, suite: str = "sha2-256") -> Added:
    async with AsyncClient(gateway) as client:
        return await add_folder(client, survey(folder), suite)


async def test_files_become_payloads_or_measured_lists(gateway: str, tmp_path: Path) -> None:
    contents = {"empty": b"", "small": b"s", "exact": BIG, "over": BIG + b"1", "large": BIG * 3 + b"end", "same": b"s"}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link").symlink_to("small")
    added = await add(gateway, tmp_path)
    kinds = {path: coregw.Cid(target).kind for path, target in added.arcs.items()}
    assert kinds == {"empty": "cas", "small": "cas", "same": "cas", "exact": "cas", "over": "list", "large": "list"}
    assert added.root == coregw.hash_tree(tmp_path)
    assert added.arcs["small"] == coregw.payload_cid(b"s")
    assert added.arcs["large"] == slow_target(contents["large"], "sha2-256")
    assert (added.lists, added.bytes) == (2, sum(map(len, contents.values())))
    assert added.skipped == []
    with Client(gateway) as client:
        for name, data in contents.items():
            assert b"".join(client.contents(client.resolve(added.root, name))) == data


async def test_the_suite_applies_to_the_map_and_its_lists(gateway: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(BIG + b"1")
    added = await add(gateway, tmp_path, "blake3")
    assert coregw.Cid(added.root).suite == coregw.Cid(added.arcs["large"]).suite == "blake3"


async def test_a_folder_without_files_has_a_root(gateway: str, tmp_path: Path) -> None:
    assert (await add(gateway, tmp_path)).root == coregw.Map({}).root
    async with AsyncClient(gateway) as client:
        top_alone = await add_folder(client, survey(tmp_path), recorded=Recorded("whole"))
        assert top_alone.root == coregw.hash_tree(tmp_path, attributes="whole")
        assert await client.is_complete(top_alone.root)
    (tmp_path / "empty").mkdir()
    assert (await add(gateway, tmp_path)).root == coregw.hash_tree(tmp_path)


async def test_a_file_that_changes_after_it_was_read_is_added_as_it_was(gateway: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = BIG + os.urandom(8)
    path.write_bytes(before)

    def change(reply: Reply) -> Reply:
        if reply.path.startswith("/v1/cas"):
            path.write_bytes(os.urandom(8))
        return reply

    with lying_gateway(change, gateway) as url:
        added = await add(url, tmp_path)
    assert added.arcs == {"file": slow_target(before, "sha2-256")}
    with Client(gateway) as client:
        assert b"".join(client.contents(added.arcs["file"])) == before


async def test_files_that_the_gateway_has_lost_are_read_again_as_they_are_now(
    gateway: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr("coregw.folders.caches.RACY_NANOSECONDS", -(10**12))
    datas = {name: os.urandom(100) for name in ("lost", "changed", "gone", "kept")} | {"list": os.urandom(300_000)}
    for name, data in datas.items():
        (tmp_path / name).write_bytes(data)

    async def add_with_cache(url: str) -> Added:
        async with AsyncClient(url) as client:
            return await add_folder(client, survey(tmp_path), cache=UploadCache.of(tmp_path, "test"))

    with honest_gateway(tmp_path_factory.mktemp("other") / "data") as other:
        await add_with_cache(other)
    with Client(gateway) as client:
        client.put_payload(datas["kept"])
    asked = False

    def change(reply: Reply) -> Reply:
        nonlocal asked
        if reply.path == "/v1/cas/has" and not asked:
            asked = True
            (tmp_path / "changed").write_bytes(b"changed")
            (tmp_path / "gone").unlink()
        return reply

    with lying_gateway(change, gateway) as url:
        added = await add_with_cache(url)
    assert added.folder.files_read == 4
    assert added.skipped == [(tmp_path / "gone", "no such file or directory")]
    assert added.sent == 300_000 + 100 + len(b"changed")
    with Client(gateway) as client:
        assert client.is_complete(added.root)
        for name in ("list", "lost", "kept"):
            assert b"".join(client.contents(client.resolve(added.root, name))) == datas[name]
        assert client.resolve(added.root, "changed") == coregw.payload_cid(b"changed")
    assert added.root == (await add_with_cache(gateway)).root


async def test_a_growing_file_is_added_as_it_was_when_it_was_read(gateway: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(BIG + b"start")

    def grow(reply: Reply) -> Reply:
        with path.open("ab") as log:
            log.write(b"a line\n")
        return reply

    with lying_gateway(grow, gateway) as url:
        added = await add(url, tmp_path)
    assert added.arcs == {"log": slow_target(BIG + b"start", "sha2-256")}


@pytest.mark.parametrize("recorded", [Recorded("none"), Recorded("exec"), Recorded(xattrs=True)], ids=str)
async def test_an_unchanged_folder_costs_one_question_and_a_changed_file_few_requests(
    gateway: str,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    recorded: Recorded,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    marker = os.urandom(8).hex()
    for number in range(20):
        (tmp_path / str(number)).write_text(f"{marker} {number}")
    (tmp_path / "large").write_bytes(BIG + marker.encode())
    (tmp_path / "6").chmod(0o700)
    requests: list[str] = []

    def note(reply: Reply) -> Reply:
        path = reply.path.partition("?")[0]
        requests.append("/".join(part for part in path.split("/") if not part.startswith("bag")))
        return reply

    async def add_with_cache(url: str, recorded: Recorded = recorded) -> Added:
        requests.clear()
        async with AsyncClient(url) as client:
            cache = UploadCache.of(tmp_path, "test")
            return await add_folder(client, survey(tmp_path), cache=cache, recorded=recorded)

    complete, mutate = "/v1/roots/complete", "/v1/roots/mutations"
    with lying_gateway(note, gateway) as url:
        first = await add_with_cache(url)
        maps = ["/v1/roots"] * (1 if recorded.attributes == "none" else 2)
        assert requests == [complete, "/v1/cas/has", "/v1/car", "/v1/car", *maps]
        assert (await add_with_cache(url)).root == first.root
        assert requests == [complete]
        (tmp_path / "3").write_text(f"changed {marker}")
        (tmp_path / "4").unlink()
        (tmp_path / "large").write_bytes(BIG + b"another end" + marker.encode())
        changed = await add_with_cache(url)
        assert requests == [complete, complete, "/v1/cas/has", "/v1/car", "/v1/car", mutate]
        assert changed.sent <= len(f"changed {marker}") + CHUNK_BYTES // 4  # the last chunk of the large file
        assert changed.root == coregw.hash_tree(tmp_path, attributes=recorded.attributes, xattrs=recorded.xattrs)
        assert (await add_with_cache(url)).root == changed.root
        assert requests == [complete]
        (tmp_path / "5").chmod(0o700)
        again = await add_with_cache(url)
        # The large file is read again, and asked about, if it is as young as the cache.
        others = [request for request in requests if request != "/v1/cas/has"]
        assert others == [complete] + [complete, mutate] * (again.root != changed.root)
        assert (again.root == changed.root) == (recorded.attributes == "none")
        other = await add_with_cache(url, Recorded("no-times"))  # after a root that records something else
        assert other.root == coregw.hash_tree(tmp_path, attributes="no-times")
        assert (await add_with_cache(url)).root == again.root
        assert requests == [complete]
    with Client(gateway) as client:
        assert client.is_complete(changed.root)
        assert not client.is_complete(coregw.Map({marker: changed.root, "absent": coregw.payload_cid(b"?")}).root)


@pytest.mark.parametrize("recorded", [Recorded("none"), Recorded("exec"), Recorded("whole"), Recorded()], ids=str)
async def test_the_roots_of_few_changes_of_many_files_are_derived_from_proofs(
    gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Recorded
) -> None:
    monkeypatch.setattr("coregw.client.folders.add._MIN_PROVEN_FILES", 0)
    requests: list[str] = []

    def note(reply: Reply) -> Reply:
        requests.append(reply.path.partition("?")[0].rpartition("/")[2])
        return reply

    async def add(url: str) -> Added:
        requests.clear()
        async with AsyncClient(url) as client:
            return await add_folder(client, survey(tmp_path), cache=UploadCache.of(tmp_path, "test"), recorded=recorded)

    def changes() -> None:
        (tmp_path / "3").write_text("changed")
        (tmp_path / "4").unlink()
        (tmp_path / "large").write_bytes(BIG + b"another end")

    def links() -> None:
        (tmp_path / "folder" / "empty").mkdir(parents=True)
        (tmp_path / "5").chmod(0o700)
        (tmp_path / "link").symlink_to("x" * 300)  # its record is a payload

    def removals() -> None:
        shutil.rmtree(tmp_path / "folder")
        (tmp_path / "link").unlink()

    def emptying() -> None:
        for path in tmp_path.iterdir():
            path.unlink()

    (tmp_path / "large").write_bytes(BIG)
    for number in range(20):
        (tmp_path / str(number)).write_text(f"number {number}")
    (tmp_path / "7").chmod(0o700)
    with lying_gateway(note, gateway) as url:
        last = await add(url)
        for change in (changes, links, removals, emptying):
            change()
            added = await add(url)
            assert added.root == coregw.hash_tree(tmp_path, attributes=recorded.attributes), change
            assert requests[0] == "complete", change
            assert requests.count("mutations") in ((0,) if added.root == last.root else (1, 2)), change
            assert "roots" not in requests, "the maps are not sent again"
            with Client(gateway) as client:
                assert client.is_complete(added.root)
            last = added


@pytest.mark.parametrize("least", [0, 1 << 30], ids=["proven", "derived"])
async def test_a_folder_that_is_added_without_attributes_after_it_had_some_is_one_change(
    gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr("coregw.client.folders.add._MIN_PROVEN_FILES", least)
    requests: list[str] = []

    def note(reply: Reply) -> Reply:
        requests.append(reply.path.rpartition("/")[2])
        return reply

    (tmp_path / "file").write_bytes(os.urandom(8))
    with lying_gateway(note, gateway) as url:
        for level in ("all", "none"):
            requests.clear()
            async with AsyncClient(url) as client:
                cache = UploadCache.of(tmp_path, "test")
                added = await add_folder(client, survey(tmp_path), cache=cache, recorded=Recorded(level))
    assert added.root == coregw.hash_tree(tmp_path, attributes="none")
    assert [each for each in requests if each not in ("complete", "has")] == ["mutations"]


@pytest.mark.parametrize("least", [0, 1 << 30], ids=["proven", "derived"])
async def test_if_the_last_root_expires_meanwhile_it_is_asked_which_payloads_are_held(
    gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr("coregw.client.folders.add._MIN_PROVEN_FILES", least)
    asked: list[bytes] = []

    def expired(reply: Reply) -> Reply:
        if reply.path.startswith("/v1/cas/has"):
            asked.append(reply.request)
        if not reply.path.endswith("/mutations"):
            return reply
        return reply.with_body(b'{"error": "root_not_found", "message": "it has expired"}', 404)

    kept = f"kept {os.urandom(8).hex()}".encode()
    (tmp_path / "kept").write_bytes(kept)
    (tmp_path / "changed").write_text("before")
    with lying_gateway(expired, gateway) as url:
        for text in ("before", "after"):
            (tmp_path / "changed").write_text(text)
            asked.clear()
            async with AsyncClient(url) as client:
                added = await add_folder(client, survey(tmp_path), cache=UploadCache.of(tmp_path, "test"))
    assert added.root == coregw.hash_tree(tmp_path, attributes="all")
    assert any(bytes(coregw.Cid(coregw.payload_cid(kept))) in request for request in asked)


@pytest.mark.parametrize("first", [True, False, None])
async def test_whether_the_last_root_is_complete_is_asked_before_the_survey_and_again_after_it(
    gateway: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    first: bool | None,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    events: list[str] = []
    is_first = False

    class NotingClient(AsyncClient):
        async def is_complete(self, root: coregw.CidLike) -> bool:
            nonlocal is_first
            events.append(f"asked {root}")
            was_first, is_first = is_first, False
            await asyncio.sleep(0.2)
            if was_first and first is None:
                raise Unavailable("the first question is not answered")
            found = await super().is_complete(root) and (first is not False or not was_first)
            events.append("answered")
            return found

    async def add() -> Added:
        async with NotingClient(gateway) as client:
            progress = AddProgress(surveyed=lambda found: events.append(f"{found.files} files"))
            return await add_path(
                client,
                tmp_path,
                suite="sha2-256",
                recorded=Recorded(),
                exclude=(),
                gitignore=False,
                use_cache=True,
                progress=progress,
            )

    (tmp_path / "file").write_bytes(os.urandom(8))
    root = (await add()).root
    assert [event for event in events if event.startswith("asked")] == [f"asked {root}"], "it has no last root"
    events.clear()
    is_first = True
    if first is None:
        with pytest.raises(Unavailable, match="the first question"):
            await add()
    else:
        assert (await add()).root == root
    question, surveyed, answer = f"asked {root}", "1 files", "answered"
    expected = {
        True: [question, surveyed, answer, question, answer],
        False: [question, surveyed, answer],  # and the files are found to be held one by one
        None: [question, surveyed],
    }
    assert events == expected[first]


async def test_a_question_ends_with_a_survey_that_fails(
    gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked: list[str] = []

    class SilentClient(AsyncClient):
        async def is_complete(self, root: coregw.CidLike) -> bool:
            asked.append(str(root))
            return await asyncio.Future()

    folder = tmp_path / "folder"
    folder.mkdir()
    async with AsyncClient(gateway) as client:
        added = await client.add(folder)
    folder.rmdir()
    async with SilentClient(gateway) as client:
        with pytest.raises(FileNotFoundError):
            await client.add(folder)
    assert asked == [added.root]


async def test_a_root_that_does_not_follow_from_few_changes_is_refused(
    gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coregw.client.folders.add._MIN_PROVEN_FILES", 0)
    other = coregw.Map({"a": coregw.payload_cid(b"other")}).root

    def lie(reply: Reply) -> Reply:
        if not reply.path.endswith("/mutations"):
            return reply
        receipt = json.loads(reply.body)
        receipt["new_root"] = receipt["deltas"][-1]["result"] = other
        return reply.with_body(json.dumps(receipt).encode())

    (tmp_path / "file").write_text("before")
    with lying_gateway(lie, gateway) as url:
        async with AsyncClient(url) as client:
            for text in ("before", "after"):
                (tmp_path / "file").write_text(text)
                adding = add_folder(client, survey(tmp_path), cache=UploadCache.of(tmp_path, "test"))
                if text == "before":
                    await adding
                else:
                    with pytest.raises(ProofError):
                        await adding


async def test_cancelling_ends_the_threads_that_read(gateway: str, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 1 << 40)  # hours of work, and no space on the disk

    def readers() -> int:
        names = (task / "comm" for task in Path("/proc/self/task").iterdir())
        return sum(name.read_text() == "coregw-read\n" for name in names if name.exists())

    with anyio.move_on_after(0.3) as scope:
        await add(gateway, tmp_path)
    assert scope.cancelled_caught
    with anyio.fail_after(60):
        while readers():
            await anyio.sleep(0.01)


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
    gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large").write_bytes(BIG + b"1")
    (tmp_path / "small").write_bytes(b"s")
    counts: list[int] = []
    with Client(gateway) as blocking:
        client = AsyncClient(gateway)
        added = await client.add(tmp_path, suite="blake3", progress=counts.append)
        assert sum(counts) == added.bytes == CHUNK_BYTES + 2
        again = blocking.add(tmp_path, suite="blake3", use_cache=False)
        assert (again.root, again.sent) == (added.root, 0)
        assert added.root == coregw.hash_tree(tmp_path, "blake3")
        (tmp_path / ".gitignore").write_text("*.log")
        (tmp_path / "run.log").write_bytes(b"log")
        (tmp_path / "small").chmod(0o700)
        os.setxattr(tmp_path / "small", "user.note", b"a" * 200)
        for options in (
            {"attributes": "none"},
            {"attributes": "exec", "exclude": ["large"]},
            {"attributes": "no-times", "owner": True, "gitignore": True},
            {"xattrs": True, "exclude": ["*.log", "!run.log"]},
        ):
            root = coregw.hash_tree(tmp_path, **options)
            assert root == blocking.add(tmp_path, **options).root == (await client.add(tmp_path, **options)).root
            assert blocking.is_complete(root)
        for wrong in ({"attributes": "some"}, {"attributes": "exec", "owner": True}):
            with pytest.raises(InvalidInput, match="attributes"):
                blocking.add(tmp_path, **wrong)
        with pytest.raises(FileNotFoundError):
            blocking.add(tmp_path / "nothing")
        await client.aclose()
