"""Static trees in a bucket of a real S3 server: written by exports, checked, and read by plain HTTP."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from click.testing import CliRunner

from coregw import Cid
from coregw.cli.main import cli
from coregw.client import Client, ClientSettings
from coregw.client.static.bucket import StaticBucket
from coregw.client.static.check import CheckedTree, check_static
from coregw.client.static.export import Exported, export_static
from coregw.client.static.tree import MAX_SMALL_BYTES, NO_PAYLOADS
from coregw.errors import InvalidInput, PayloadNotFound, Unavailable
from coregw.store.buckets import Bucket as Objects
from coregw.store.origin import page_path, payload_path, root_path
from gateways import Reply, honest_gateway, lying_gateway
from servers import Bucket, bucket
from static_trees import Sample, sample

SETTINGS = ClientSettings(idle_seconds=20, backoff_seconds=0.001, backoff_max_seconds=0.002, connections=4)


@pytest.fixture(scope="module")
def s3() -> Iterator[Bucket]:
    with bucket() as running:
        yield running


@pytest.fixture(scope="module")
def held(s3: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Sample]]:
    """A gateway, and roots that it holds."""
    folder = tmp_path_factory.mktemp("bucket")
    with honest_gateway(folder / "data") as url, Client(url, SETTINGS) as client:
        (source := folder / "source").mkdir()
        yield url, sample(client, source)


def at(s3: Bucket, prefix: str) -> str:
    """The address of a tree in the bucket."""
    return s3.url.replace("?", f"/{prefix}?", 1)


def export(source: str, root: str, place: str | Path, **options: object) -> Exported:
    return asyncio.run(export_static(source, root, place, settings=SETTINGS, **options))


def check(place: str) -> CheckedTree:
    return asyncio.run(check_static(place))


def change(place: str, path: str, content: bytes | None) -> None:
    """Replace or delete an object."""
    objects = Objects(place).objects
    if content is None:
        objects.delete(path[1:])
    else:
        objects.put(path[1:], content)


def test_roots_are_exported_to_a_bucket_and_read_by_plain_http(s3: Bucket, held: tuple[str, Sample]) -> None:
    gateway, s = held
    place, url = at(s3, "docs/tree"), f"static+{s3.public}/docs/tree"
    first = export(gateway, s.root, place, name=("docs", "main"))
    again = export(gateway, s.root, place, name=("docs", "main"))
    assert (again.bytes, again.requests) == (0, 0)
    assert again.record == first.record
    changed = export(gateway, s.changed, place, name=("docs", "main"))
    assert (changed.payloads, changed.roots) == (0, 2)
    assert changed.pages <= 6 < first.pages
    folder = export(gateway, s.folder, place)
    assert folder.payloads > 0
    checked = check(place)
    assert (checked.findings, checked.records) == ([], 1)
    assert checked.pages == first.pages + changed.pages + folder.pages
    with Client(url, SETTINGS) as static, Client(gateway, SETTINGS) as client:
        assert static.published("docs", "main").revision == 2
        assert static.get_payload(s.large) == client.get_payload(s.large)
        assert static.resolve(s.root, "nested/b/7") == client.resolve(s.root, "nested/b/7")
        assert list(static.walk(s.changed)) == list(client.walk(s.changed))
        assert list(static.diff(s.root, s.changed)) == list(client.diff(s.root, s.changed))
        with pytest.raises(PayloadNotFound):  # a bucket that everybody may list says 404
            static.get_payload("bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq")
    for path in (page_path(Cid(s.root).digest), root_path(bytes(Cid(s.root))), payload_path(Cid(s.large).multihash)):
        answer = httpx2.get(f"{s3.public}/docs/tree{path}")
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"] == "application/octet-stream"
    record = httpx2.get(f"{s3.public}/docs/tree/admin/v1/scopes/docs/roots/main")
    assert record.headers["cache-control"] == "public, max-age=60"
    assert record.headers["content-type"] == "application/json"


def test_an_export_is_continued_where_it_ended(s3: Bucket, held: tuple[str, Sample], tmp_path: Path) -> None:
    gateway, s = held
    place, left = at(s3, "continued"), 0
    whole = export(gateway, s.root, tmp_path)

    def away(reply: Reply) -> Reply:
        nonlocal left
        left -= 1
        return reply if left >= 0 else reply.with_body(b"", 503)

    with lying_gateway(away, gateway) as url:
        left = whole.requests - 2
        with pytest.raises(Unavailable):
            export(url, s.root, place)
    before = check(place)
    assert before.findings == []  # no object is there before what it leads to
    assert before.payloads > 0
    done = export(gateway, s.root, place)
    assert (done.payloads, done.pages) == (whole.payloads - before.payloads, whole.pages - before.pages)
    assert check(place).findings == []


def test_payloads_can_be_left_out_of_a_bucket_and_added(s3: Bucket, held: tuple[str, Sample]) -> None:
    gateway, s = held
    place = at(s3, "pages-only")
    assert export(gateway, s.root, place, payloads=False).payloads == 0
    assert httpx2.get(f"{s3.public}/pages-only/{NO_PAYLOADS}").status_code == 200
    assert check(place).findings == []
    added = export(gateway, s.root, place)
    assert (added.pages, added.roots) == (0, 0)
    assert added.payloads > 300


def test_a_check_finds_every_change_in_a_bucket(s3: Bucket, held: tuple[str, Sample]) -> None:
    gateway, s = held
    place = at(s3, "damaged")
    export(gateway, s.root, place, name=("docs", "main"))
    paths = {
        page_path(Cid(s.root).digest): "the bytes are not the page with this digest",
        root_path(bytes(Cid(s.root))): "the bytes are not the page of this root",
        payload_path(Cid(s.large).multihash): "the bytes do not have the hash of this CID",
        "/admin/v1/scopes/docs/roots/main": "not a published record",
    }
    for path, why in paths.items():
        content = httpx2.get(f"{s3.public}/damaged{path}").content
        change(place, path, content[:20] + b"\xff" + content[21:])
        found = check(place).findings
        assert len(found) == 1, found
        assert found[0].startswith(f"{path[1:]}: {why}")
        change(place, path, content)
    for path in [*paths][:3]:
        content = httpx2.get(f"{s3.public}/damaged{path}").content
        change(place, path, None)
        assert any(f"leads to {path[1:]}, which is missing" in each for each in check(place).findings)
        change(place, path, content)
    assert check(place).findings == []


def test_nothing_small_is_read_beyond_what_it_may_have(s3: Bucket) -> None:
    place = at(s3, "huge")
    for path, size in (("/v1/pages/huge", 9 << 20), ("/v1/pages/most", MAX_SMALL_BYTES), ("/v1/pages/none", 0)):
        change(place, path, bytes(size))
    names = ["/v1/pages/huge", "/v1/pages/most", "/v1/pages/none", "/v1/pages/absent"]
    found = asyncio.run(StaticBucket(place).read(names))
    assert [None if each is None else len(each) for each in found] == [MAX_SMALL_BYTES + 1, MAX_SMALL_BYTES, 0, None]


def test_trees_of_more_names_than_one_listing_has(s3: Bucket, held: tuple[str, Sample], tmp_path: Path) -> None:
    gateway, _ = held
    place = at(s3, "many")
    with Client(gateway, SETTINGS) as client:
        cids = client.put_payloads([b"small %d" % i for i in range(1100)] + [bytes(20 << 20)])
        root = client.create_root({f"file {i}": cid for i, cid in enumerate(cids)})
        more = client.update(root, {"new": client.put_payload(b"new")})
    first = export(gateway, root, place)
    assert first.payloads == 1101  # the last one in several parts
    assert first.requests < 60
    second = export(gateway, more, place)
    assert second.payloads == 1
    assert second.pages <= 3
    assert check(place).findings == []
    with Client(f"static+{s3.public}/many", SETTINGS) as static:
        assert static.get_payload(static.resolve(more, "file 1100")) == bytes(20 << 20)


def test_commands_export_to_a_bucket_and_check_it(s3: Bucket, held: tuple[str, Sample]) -> None:
    gateway, s = held
    place = at(s3, "command")
    run = partial(CliRunner().invoke, cli, catch_exceptions=False)
    done = run(["export", s.blake3, "--static", place, "--publish", "docs/main", "--explorer", "--gateway", gateway])
    assert done.exit_code == 0, done.output
    page = httpx2.get(f"{s3.public}/command/index.html")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "300 payloads" in done.stderr
    checked = run(["export", "--static", place, "--check"])
    assert (checked.exit_code, checked.stdout) == (0, "")
    change(place, f"/v1/roots/{s.blake3}", None)
    assert run(["export", "--static", place, "--check"]).exit_code == 4


def test_a_bucket_that_does_not_answer_is_unavailable(s3: Bucket, held: tuple[str, Sample]) -> None:
    gateway, s = held
    with pytest.raises(InvalidInput, match="is not a static tree"):
        check(at(s3, "nothing-here"))
    with pytest.raises(InvalidInput, match="expected s3://"):
        export(gateway, s.root, "s3://user:secret@bucket/prefix")
    with pytest.raises(Unavailable, match="the bucket no-such-bucket failed"):
        export(gateway, s.root, s3.url.replace("coregw", "no-such-bucket", 1))


def test_what_a_first_export_writes_it_does_not_look_up(s3: Bucket) -> None:
    tree = StaticBucket(at(s3, "empty"))
    looked_up: list[str] = []
    size = tree._size

    async def counted(path: str) -> int | None:
        looked_up.append(path)
        return await size(path)

    tree._size = counted  # type: ignore[method-assign]

    async def begin() -> list[str]:
        async with tree:
            await tree.put([("/v1/pages/a", b"a")])
            return await tree.missing(["/v1/pages/a", "/v1/pages/b", "/v1/cas/c"])

    assert asyncio.run(begin()) == ["/v1/pages/b", "/v1/cas/c"]
    assert looked_up == [NO_PAYLOADS]


def test_a_process_may_end_right_after_a_call(s3: Bucket) -> None:
    code = """
import asyncio, sys
from coregw.client.static.bucket import StaticBucket
asyncio.run(StaticBucket(sys.argv[1]).put([("/v1/pages/a", b"a")]))
"""
    command = [sys.executable, "-c", code, at(s3, "ended")]
    processes = [subprocess.Popen(command) for _ in range(12)]
    assert [process.wait(60) for process in processes] == [0] * 12


class Slow(io.BytesIO):
    """A file that counts how often it is read."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        time.sleep(0.1)  # so that a busy machine cancels the call long before the end
        return super().read(size)


def test_nothing_is_written_after_a_cancelled_call(s3: Bucket) -> None:
    file = Slow(bytes(400 << 20))
    tree = StaticBucket(at(s3, "cancelled"))

    async def cancel() -> int:
        async with anyio.create_task_group() as group:
            group.start_soon(tree.put_file, "/v1/cas/long", file)
            while file.reads < 2:
                await anyio.sleep(0.001)
            group.cancel_scope.cancel()
        return file.reads

    ended = asyncio.run(cancel())
    assert ended < 50
    time.sleep(0.2)
    assert file.reads == ended
    assert asyncio.run(tree.missing(["/v1/cas/long"])) == ["/v1/cas/long"]
