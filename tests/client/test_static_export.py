"""Exports of static trees: what they write, what they trust, how they continue, and the check of a tree."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coregw import Cid, payload_cid
from coregw.client import Client
from coregw.client.static.export import export_static
from coregw.client.static.folder import MARK, StaticFolder
from coregw.errors import (
    InvalidInput,
    PayloadNotFound,
    RootNotFound,
    Unavailable,
    UpstreamDamaged,
)
from coregw.store.origin import root_path
from gateways import Reply, lying_gateway
from static_trees import SETTINGS, Trees, check, export, python_server, replaced


def test_an_export_from_a_lying_source_keeps_nothing_of_it(trees: Trees, tmp_path: Path) -> None:
    s = trees.sample

    def forged(path: str) -> Callable[[Reply], Reply]:
        def lie(reply: Reply) -> Reply:
            if not reply.path.startswith(path) or reply.status != 200:
                return reply
            at = len(reply.body) // 2
            return reply.with_body(reply.body[:at] + bytes([reply.body[at] ^ 1]) + reply.body[at + 1 :])

        return lie

    for path in ("/v1/roots/", "/v1/pages", "/v1/cas/"):
        folder = tmp_path / path.replace("/", "_")
        with lying_gateway(forged(path), trees.gateway) as url:
            with pytest.raises(UpstreamDamaged, match=rf"{url}{path}") as caught:
                export(url, s.root, folder)
            assert "nothing of it is used" in str(caught.value)
        found = check(folder)
        assert found.roots == 0
        assert [each for each in found.findings if not each.startswith(MARK)] == []
        assert export(trees.gateway, s.root, folder).roots == 3
        assert check(folder).findings == []


def test_the_next_export_writes_what_is_new(trees: Trees, tmp_path: Path) -> None:
    first, second = trees.exported[:2]
    assert (first.roots, second.roots) == (3, 2)  # with the list and the nested map; with the empty map
    assert second.payloads == 0
    assert second.pages <= 6 < first.pages
    assert second.requests <= 10
    again = export(trees.gateway, trees.sample.root, trees.top)
    assert (again.requests, again.bytes) == (0, 0)
    copied = export(trees.gateway, trees.sample.root, tmp_path)
    with python_server(trees.top) as url:
        assert export(url, trees.sample.root, tmp_path / "copy").bytes == copied.bytes  # from a static tree
    assert files(tmp_path / "copy") == {name: each for name, each in files(tmp_path).items() if "copy" not in name}


def files(top: Path) -> dict[str, bytes]:
    return {str(each.relative_to(top)): each.read_bytes() for each in top.rglob("*") if each.is_file()}


def test_an_interrupted_export_is_continued(trees: Trees, tmp_path: Path) -> None:
    s, left = trees.sample, 0

    def away(reply: Reply) -> Reply:
        nonlocal left
        left -= 1
        return reply if left >= 0 else reply.with_body(b"", 503)

    whole = trees.exported[0]
    with lying_gateway(away, trees.gateway) as url:
        left = whole.requests - 2
        with pytest.raises(Unavailable):
            export(url, s.root, tmp_path)
    assert (tmp_path / MARK).exists()
    assert not (tmp_path / root_path(bytes(Cid(s.root)))[1:]).exists()
    (tmp_path / "v1" / "cas" / ".coregw-0123456789abcdef.partial").write_bytes(b"unfinished")
    damaged = max((tmp_path / "v1" / "cas").iterdir())
    damaged.write_bytes(b"lost by a power cut")
    done = export(trees.gateway, s.root, tmp_path)
    assert 0 < done.payloads < whole.payloads - 20
    assert check(tmp_path).findings == []
    assert not (tmp_path / MARK).exists()


def test_payloads_can_be_left_out_and_added(trees: Trees, tmp_path: Path) -> None:
    s = trees.sample
    assert export(trees.gateway, s.root, tmp_path, payloads=False).payloads == 0
    assert check(tmp_path).findings == []
    with python_server(tmp_path) as url, Client(url, SETTINGS) as client:
        assert client.resolve(s.root, "large") == s.large
        with pytest.raises(PayloadNotFound):
            client.get_payload(s.large)
    added = export(trees.gateway, s.root, tmp_path)
    assert (added.pages, added.roots, added.payloads) == (0, 0, trees.exported[0].payloads)


def test_what_is_not_held_is_an_error(trees: Trees, tmp_path: Path) -> None:
    absent = payload_cid(b"not held")
    with Client(trees.gateway, SETTINGS) as client:
        root = client.create_root({"a": absent})
        nested = client.create_root({"a": Cid(bytes(Cid(root))[:-32] + bytes(32)).text})
    with pytest.raises(PayloadNotFound, match=absent):
        export(trees.gateway, root, tmp_path)
    with pytest.raises(RootNotFound, match="does not hold the root"):
        export(trees.gateway, nested, tmp_path)
    with pytest.raises(InvalidInput, match="is a payload"):
        export(trees.gateway, absent, tmp_path)
    for scope, name in (("..", "a"), ("a", ".."), ("a", "b/c"), ("", "a")):
        with pytest.raises(InvalidInput, match="expected 1 to 128"):
            export(trees.gateway, root, tmp_path, payloads=False, name=(scope, name))

    async def export_twice() -> None:
        async with StaticFolder(tmp_path):
            await export_static(trees.gateway, root, tmp_path)

    with pytest.raises(InvalidInput, match="another export"):
        asyncio.run(export_twice())


def test_a_check_finds_every_change(trees: Trees, tmp_path: Path) -> None:
    s = trees.sample
    export(trees.gateway, s.root, tmp_path, name=("docs", "main"))
    whole = check(tmp_path)
    assert (whole.roots, whole.records, whole.findings) == (3, 1, [])
    record = tmp_path / "admin" / "v1" / "scopes" / "docs" / "roots" / "main"
    for file in [record, *[each for each in tmp_path.rglob("*") if each.is_file()][::17]]:
        name = str(file.relative_to(tmp_path))
        content = file.read_bytes()
        with replaced(file, content[:20] + b"\xff" + content[21:]):
            assert any(each.startswith(name) for each in check(tmp_path).findings), name
    for folder in ("v1/pages", "v1/cas", "v1/roots"):
        some = min((tmp_path / folder).iterdir())
        with replaced(some, None):
            assert any(f"leads to {folder}/{some.name}" in each for each in check(tmp_path).findings)
        (stray := tmp_path / folder / "stray").write_bytes(b"stray")
        assert any(each.startswith(f"{folder}/stray") for each in check(tmp_path).findings)
        stray.unlink()
    with pytest.raises(InvalidInput, match="not a static tree"):
        check(tmp_path / "v1")


def test_nothing_small_is_read_beyond_what_it_may_have(trees: Trees, tmp_path: Path) -> None:
    """A file of 1 TiB would not fit into memory; a device has no end, and a pipe no writer."""
    s = trees.sample
    export(trees.gateway, s.root, tmp_path, name=("docs", "main"))
    roots = tmp_path / "admin" / "v1" / "scopes" / "docs" / "roots"
    huge = [tmp_path / "v1" / "pages" / ("ab" * 32), tmp_path / root_path(bytes(Cid(s.blake3)))[1:], roots / "huge"]
    for path in huge:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    found = check(tmp_path).findings
    assert len(found) == 3
    assert {each.partition(":")[0] for each in found} == {str(path.relative_to(tmp_path)) for path in huge}

    async def read(path: Path) -> tuple[int, int]:
        tree = StaticFolder(tmp_path)
        name = f"/{path.relative_to(tmp_path)}"
        [content] = await tree.read([name])
        return len(content or b""), sum([len(chunk) async for chunk in tree.chunks(name)])

    huge[0].unlink()
    huge[0].symlink_to("/dev/zero")
    os.mkfifo(pipe := roots / "pipe")
    for path in (huge[0], pipe):
        assert asyncio.run(read(path)) == (0, 0)
    assert any(each.startswith(f"v1/pages/{huge[0].name}: the bytes") for each in check(tmp_path).findings)
