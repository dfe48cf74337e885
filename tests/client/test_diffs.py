"""Differences between two maps, over all pages; tampered pages are refused."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import coregw
from coregw import _core
from coregw.client import AsyncClient, Client, Difference
from coregw.errors import InvalidInput, ProofError, RootNotFound
from gateways import Liar, Reply
from tables import rows

Json = dict[str, Any]


def cid(text: str) -> str:
    return coregw.payload_cid(text.encode())


BEFORE = {f"many/{number:04}": cid("old") for number in range(2500)} | {"gone": cid("old"), "a b/#?&=+%": cid("old")}
AFTER = {path: cid("new") for path in BEFORE if path != "gone"} | {"new": cid("new"), "many": cid("new")}


def expected(below: str = "") -> list[Difference]:
    paths = [path for path in BEFORE.keys() | AFTER.keys() if f"{path}/".startswith(f"{below}/" if below else "")]
    paths.sort(key=coregw.encode_key)
    return [Difference(path.split("/"), BEFORE.get(path), AFTER.get(path)) for path in paths]


@pytest.fixture
def roots(client: Client) -> tuple[str, str]:
    return client.create_root(BEFORE), client.create_root(AFTER)


def test_every_difference_is_yielded_once_in_key_order(client: Client, roots: tuple[str, str]) -> None:
    assert list(client.diff(*roots)) == expected()
    assert len(expected()) == 2504
    assert list(client.diff(roots[0], coregw.Cid(roots[0]))) == []


@rows("prefix", ["many", "many/0042", "gone", "a b", "a b/#?&=+%", "nothing"])
def test_only_differences_at_and_below_the_prefix_are_yielded(
    client: Client, roots: tuple[str, str], prefix: str
) -> None:
    assert list(client.diff(*roots, prefix)) == expected(prefix)
    assert list(client.diff(*roots, prefix.split("/"))) == expected(prefix)


@pytest.mark.anyio
async def test_the_asyncio_client_yields_the_same(gateway: str) -> None:
    async with AsyncClient(gateway) as client:
        roots = await client.create_root(BEFORE), await client.create_root(AFTER)
        assert [difference async for difference in client.diff(*roots)] == expected()


@rows(
    "lie",
    [
        lambda document: document["entries"].pop(),
        lambda document: document["entries"].clear(),
        lambda document: document["entries"][0].update(before=cid("another")),
        lambda document: document.update(more=False),
        lambda document: document.update(entries=[], more=False),
        lambda document: document["proofs"].update(b=document["proofs"]["a"]),
        lambda document: document.update(surprise=1),
    ],
    ids=["last left out", "all left out", "target", "no more", "nothing", "proof", "another member"],
)
def test_a_tampered_page_is_refused(liar: Liar, roots: tuple[str, str], lie: Callable[[Json], object]) -> None:
    def tampered(reply: Reply) -> Reply:
        document = json.loads(reply.body)
        lie(document)
        return reply.with_body(json.dumps(document).encode())

    with pytest.raises(ProofError, match=f"^compare {roots[0]} with {roots[1]}: ."):
        next(liar(tampered).diff(*roots))


def test_pages_before_a_tampered_one_are_yielded(liar: Liar, roots: tuple[str, str]) -> None:
    differences = liar(lambda reply: reply.with_body(b"{}") if "after=" in reply.path else reply).diff(*roots)
    assert [next(differences) for _ in range(1000)] == expected()[:1000]
    with pytest.raises(ProofError):
        next(differences)


def test_a_valid_page_about_other_maps_is_refused(liar: Liar, client: Client, roots: tuple[str, str]) -> None:
    received: list[bytes] = []

    def remembered(reply: Reply) -> Reply:
        received.append(reply.body)
        return reply

    third = client.create_root(AFTER | {"third": cid("third")})
    next(liar(remembered).diff(*roots))
    lying = liar(lambda reply: reply.with_body(received[0]))
    for other in (roots[::-1], (roots[0], third), (third, roots[1])):
        with pytest.raises(ProofError):
            next(lying.diff(*other))


def test_a_root_that_is_not_held_is_not_found(client: Client, roots: tuple[str, str]) -> None:
    with pytest.raises(RootNotFound):
        list(client.diff(roots[0], coregw.Map({"never": cid("stored")}).root))


@rows(
    ("b", "prefix"),
    [
        (cid("a payload"), ""),
        (coregw.List([]).root, ""),
        (coregw.Map({}, suite="blake3").root, ""),
        ("no cid", ""),
        (coregw.Map({}).root, "a//b"),
        (coregw.Map({}).root, ["\ud800"]),
    ],
)
def test_invalid_arguments_are_not_sent(liar: Liar, b: str, prefix: str) -> None:
    def lie(reply: Reply) -> Reply:
        raise AssertionError("the request was sent")

    with pytest.raises(InvalidInput):
        next(liar(lie, honest=None).diff(coregw.Map({}).root, b, prefix))


def paths(differences: list[Any]) -> list[str]:
    return ["/".join(each.segments) for each in differences]


def test_a_folder_has_no_difference_from_maps_and_lists_of_the_same_bytes(client: Client, tmp_path: Path) -> None:
    data = os.urandom(600_000)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(b"f")
    (tmp_path / "big").write_bytes(data)
    chunks = [data[:100_000], data[100_000:]]
    listed = client.create_list(client.put_payloads(chunks), map(len, chunks))
    nested = client.create_root({"file": client.put_payload(b"f")})
    assert client.diff_tree(client.create_root({"big": listed, "sub": nested}), tmp_path).differences == []
    whole = client.create_root({"big": coregw.payload_cid(data), "sub": nested})
    assert client.diff_tree(whole, tmp_path).differences == []
    (tmp_path / "big").write_bytes(data[1:] + b"?")
    (tmp_path / "sub" / "file").unlink()
    (changed, gone) = client.diff_tree(client.create_root({"big": listed, "sub": nested}), tmp_path).differences
    assert (changed.before, changed.ranges) == (listed, (((0, 600_000), (0, 600_000)),))
    assert (gone.segments, gone.kinds) == (("sub", "file"), ("file", None))
    with pytest.raises(InvalidInput, match="not a map root"):
        client.diff_tree(listed, tmp_path)


@pytest.mark.anyio
async def test_attributes_that_one_folder_lacks_are_differences(gateway: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_bytes(b"f")
    async with AsyncClient(gateway) as client:
        plain = await client.create_root({"file": coregw.payload_cid(b"f")})
        root = (await client.add(tmp_path, use_cache=False)).root
        forth = [each async for each in client.diff_folders(plain, root)]
        back = [each async for each in client.diff_folders(root, plain)]
        assert [each.kinds for each in forth] == [("file", "file"), (None, "link")]
        assert [change.name for change in forth[0].attributes] == ["mode", "mtime_ns", "size"]
        assert [each.kinds for each in back] == [each.kinds[::-1] for each in forth]
        assert (await client.diff_tree(plain, tmp_path, as_added=True)).differences == []
        (other,) = (await client.diff_tree(plain, tmp_path)).differences
        assert (other.segments, other.kinds) == (("link",), (None, "link"))
        compared = await client.diff_tree(plain, tmp_path, attributes="exec")
        assert (paths(compared.differences), compared.recorded.attributes) == (["link"], "exec")
        # Not a folder's map: the reserved path is bound to a payload, which is a target like any other.
        odd = await client.create_root({".coregw/attributes": cid("x"), "file": coregw.payload_cid(b"f")})
        assert paths([each async for each in client.diff_folders(plain, odd)]) == [".coregw/attributes"]


def test_a_folder_is_not_compared_with_a_tampered_listing(liar: Liar, roots: tuple[str, str], tmp_path: Path) -> None:
    def lie(reply: Reply) -> Reply:
        return reply.with_body(reply.body.replace(b"/", b"?").replace(b"many", b"more"))

    with pytest.raises(ProofError):
        liar(lie).diff_tree(roots[0], tmp_path)
    with pytest.raises(ProofError):
        list(liar(lie).diff_folders(*roots))


@pytest.mark.anyio
@pytest.mark.parametrize("work", ["hash_survey", "files_match"])
async def test_a_comparison_can_be_cancelled_while_it_reads_a_file(
    gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    (tmp_path / "endless").touch()
    os.truncate(tmp_path / "endless", 1 << 40)  # hours of work, and no space on the disk
    has_ended = threading.Event()
    real = getattr(_core, work)

    def noted(*args: object) -> object:
        try:
            return real(*args)
        finally:
            has_ended.set()

    monkeypatch.setattr(_core, work, noted)
    async with AsyncClient(gateway) as client:
        if work == "files_match":  # which compares a file that is cut in another way
            monkeypatch.setattr(_core, "hash_survey", claims_another_target(tmp_path))
            listed = await client.create_list([cid("all of it")], [1 << 40])
        root = await client.create_root({} if work == "hash_survey" else {"endless": listed})
        with anyio.move_on_after(0.3) as scope:
            await client.diff_tree(root, tmp_path)
        assert scope.cancelled_caught
        assert await anyio.to_thread.run_sync(has_ended.wait, 60)


def claims_another_target(folder: Path) -> Callable[..., _core.HashedFolder]:
    """A `hash_survey` that takes every file for an empty one of the same size."""
    found = _core.survey(folder)
    known = {place: (coregw.payload_cid(b""), entry.size) for place, entry in enumerate(found)}
    hashed = _core.hash_survey(found, known=known)
    return lambda *args: hashed
