"""Copies from one gateway to another: only what differs, all of it verified, and the root last."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coregw import Cid, payload_cid
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.client.mirror import Mirrored
from coregw.client.static.export import export_static
from coregw.errors import (
    InvalidInput,
    PayloadNotFound,
    ProofError,
    RootNotFound,
    Unauthorized,
    Unavailable,
)
from coregw.store.origin import MAX_PAGE_BYTES
from gateways import Reply, honest_gateway, lying_gateway
from static_trees import Sample, python_server, sample

SETTINGS = ClientSettings(attempts=2, backoff_seconds=0.001, backoff_max_seconds=0.002)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with honest_gateway(tmp_path_factory.mktemp("source") / "data") as url:
        yield url


@pytest.fixture(scope="module")
def held(source: str, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    with Client(source, SETTINGS) as client:
        return sample(client, tmp_path_factory.mktemp("folder"))


@pytest.fixture
def destination(tmp_path: Path) -> Iterator[str]:
    with honest_gateway(tmp_path / "destination") as url:
        yield url


def copy(source: str, destination: str, root: str, **options: object) -> Mirrored:
    with Client(source, SETTINGS) as a, Client(destination, SETTINGS) as b:
        return a.mirror(root, b, **options)


def is_held(url: str, root: str) -> bool:
    with Client(url, SETTINGS) as client:
        try:
            client.scan(root, limit=1) if Cid(root).kind == "map" else client.list_size(root)
        except RootNotFound:
            return False
        return True


@contextmanager
def counted(honest: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """Pass everything through, and count the bytes of all bodies in both directions."""
    total = 0
    lock = threading.Lock()

    def count(reply: Reply) -> Reply:
        nonlocal total
        with lock:
            total += len(reply.request) + len(reply.body)
        return reply

    with lying_gateway(count, honest) as url:
        yield url, lambda: total


# --- what is copied ---------------------------------------------------------------------------------------------------


def test_everything_below_a_root_is_copied_once(source: str, held: Sample, destination: str) -> None:
    roots = (held.root, held.changed, held.folder, held.changed_folder, held.file, held.empty, held.blake3)
    first = copy(source, destination, held.root)
    assert (first.base, first.roots, first.payloads) == (None, 3, 301)
    second = copy(source, destination, held.changed, bases=[held.root])
    assert (second.base, second.roots, second.arcs, second.payloads) == (held.root, 1, 4, 0)
    assert second.received + second.sent < 5000
    for root in roots[2:]:
        copy(source, destination, root)
    with Client(source, SETTINGS) as a, Client(destination, SETTINGS) as b:
        for root in roots:
            assert b.is_complete(root)
            again = a.mirror(root, b)
            assert (again.roots, again.arcs, again.payloads, again.received) == (0, 0, 0, 0)
        for root in (held.root, held.changed, held.folder, held.changed_folder):
            assert list(b.walk(root)) == list(a.walk(root))
        for file in (held.file, held.large):
            assert list(b.contents(file)) == list(a.contents(file))
        with pytest.raises(InvalidInput, match="is a payload"):
            a.mirror(held.large, b)
        absent = Cid(bytes(Cid(held.root))[:-32] + bytes(32)).text
        with pytest.raises(RootNotFound):
            a.mirror(absent, b)
        with pytest.raises(InvalidInput, match="is a static tree"), Client(f"static+{destination}", SETTINGS) as c:
            a.mirror(held.root, c)


def test_a_copy_moves_little_more_than_the_differences(source: str, destination: str) -> None:
    """At most three times the bytes of ``/v1/diff``, counted between client and gateways, in both directions."""
    one, two = payload_cid(b"one"), payload_cid(b"two")
    arcs = {f"directory {i % 50}/file {i}": one for i in range(20_000)}
    changes = random.Random(1).sample(sorted(arcs), 200)
    with Client(source, SETTINGS) as client, counted(source) as (url, moved):
        before = client.build(arcs)
        after = client.build(arcs | dict.fromkeys(changes, two))
        with Client(url, SETTINGS) as measured:
            assert len(list(measured.diff(before, after))) == 200
        difference = moved()
    first = copy(source, destination, before, payloads=False, line="docs/main")
    assert (first.arcs, first.roots) == (20_000, 1)
    with counted(source) as (a, from_a), counted(destination) as (b, to_b):
        done = copy(a, b, after, payloads=False, bases=[before])
        assert (done.base, done.arcs) == (before, 200)
        assert done.sent + done.received <= from_a() + to_b() <= 3 * difference
    assert is_held(destination, after)


def test_without_a_base_at_the_source_equal_subtrees_are_not_sent(source: str, destination: str) -> None:
    """The source does not hold the base, so pages are compared, from the top."""
    cid = payload_cid(b"one")
    arcs = {f"directory {i % 50}/file {i}": cid for i in range(20_000)}
    with Client(source, SETTINGS) as a, Client(destination, SETTINGS) as b:
        base = b.build(arcs | {"only there": cid})
        root = a.build(arcs | {"only here": cid})
        b.create_root({"only here": cid})
    with counted(source) as (url, moved):
        done = copy(url, destination, root, bases=[base], payloads=False)
    assert (done.base, done.arcs) == (base, 2)
    assert moved() < 60_000  # the pages of one path, and not of 20,000 keys
    with Client(source, SETTINGS) as a:
        other = a.build(arcs | {"and here": cid})
    with counted(source) as (url, moved):
        done = copy(url, destination, other, payloads=False, line="another")  # without any base: all arcs are sent on
    assert (done.base, done.arcs) == (None, 20_001)
    assert moved() < 60_000


def test_a_list_is_copied_by_its_elements_that_differ(source: str, destination: str) -> None:
    first, *new = (payload_cid(b"%d" % i) for i in range(9))
    elements = [first] * 3000
    with Client(source, SETTINGS) as a, Client(destination, SETTINGS) as b:
        base = a.create_list(elements, [5] * 3000)
        longer = a.create_list([new[0], *elements[1:], *new], [7, *[5] * 2999, *[1] * 8])
        shorter = a.create_list([*elements[:1000], new[1], *elements[:999]], [5] * 2000)
        other = a.create_list(new * 200)
        maps = [a.create_root({"list": root}) for root in (base, longer)]
        settings = ClientSettings(list_changes=600)  # so that it takes several mutations
        with Client(source, settings) as c, Client(destination, settings) as d:
            assert c.mirror(base, d, payloads=False).arcs == 3000
            done = c.mirror(longer, d, payloads=False, bases=[base])
            assert (done.base, done.roots, done.arcs) == (base, 1, 9)
            assert done.sent < 3000
            done = c.mirror(shorter, d, payloads=False, bases=[longer])
            assert (done.base, done.arcs) == (longer, 1 + 1 + 1008)  # the first, the one in the middle, and the end
            done = c.mirror(other, d, payloads=False, bases=[shorter])
            assert done.arcs == 2000
        for root in (base, longer, shorter, other):
            assert b.list_elements(root) == a.list_elements(root)
        assert a.mirror(maps[0], b, payloads=False).roots == 1
        done = a.mirror(maps[1], b, payloads=False, bases=[maps[0]])
        assert (done.base, done.roots, done.arcs) == (maps[0], 1, 1)


@pytest.mark.slow
def test_a_map_without_a_base_is_continued(
    source: str, destination: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a copy has read before it is interrupted, the next one does not ask the source for."""
    monkeypatch.setattr("coregw.client.mirror._PART_SECONDS", -1)
    with Client(source, SETTINGS) as client:
        root = client.build({f"{i:06}/continued": payload_cid(b"%d" % i) for i in range(30_000)})
    builds = 0

    def counts(reply: Reply) -> Reply:
        nonlocal builds
        builds += reply.path.startswith("/v1/roots?")
        return reply

    def fails_later(reply: Reply) -> Reply:
        return reply if builds < 2 else reply.with_body(b"", 401)

    with lying_gateway(counts, destination) as to:
        with counted(source) as (url, moved), lying_gateway(fails_later, url) as failing:
            with pytest.raises(Unauthorized):
                copy(failing, to, root, payloads=False)
            assert builds == 2
            before = moved()
        with counted(source) as (url, moved):
            done = copy(url, to, root, payloads=False)
            assert (done.base, done.arcs) == (None, 30_000)
            assert moved() < 0.7 * before  # a third of the arcs, after two thirds
    assert is_held(destination, root)


def test_a_guessed_base_is_given_up_if_it_is_of_no_use(source: str, destination: str) -> None:
    cid = payload_cid(b"one")
    with Client(source, SETTINGS) as a:
        first, second = (a.build({f"{name} {i}": cid for i in range(6000)}) for name in "ab")
    copy(source, destination, first, payloads=False)
    done = copy(source, destination, second, payloads=False)
    assert (done.base, done.arcs) == (None, 6000)
    third = copy(source, destination, first, payloads=False, bases=[second])
    assert (third.roots, third.arcs) == (0, 0)


def test_a_destination_that_gives_up_looking_still_has_a_base(source: str, destination: str) -> None:
    def gives_up(reply: Reply) -> Reply:
        """Answer as for a tree that is too large to be looked through."""
        if not reply.path.endswith("/complete") or not json.loads(reply.body)["complete"]:
            return reply
        return reply.with_body(json.dumps(json.loads(reply.body) | {"complete": False}).encode())

    with Client(source, SETTINGS) as a:
        first = a.create_root({"a": a.put_payload(b"a")})
        second = a.update(first, {"b": a.put_payload(b"b")})
    with lying_gateway(gives_up, destination) as url:
        assert copy(source, url, first, line="docs/main").base is None
        assert copy(source, url, second, bases=[first]).base is None  # nothing says that all of it is there
        other = copy(source, url, second, line="docs/main")
        assert (other.base, other.arcs) == (first, 1)
    with Client(destination, SETTINGS) as b:
        assert b.is_complete(second)


def test_a_static_tree_is_a_source(source: str, held: Sample, destination: str, tmp_path: Path) -> None:
    for root in (held.root, held.changed):
        asyncio.run(export_static(source, root, tmp_path / "tree"))
    with python_server(tmp_path / "tree") as url:
        assert copy(url, destination, held.root).payloads == 301
        done = copy(url, destination, held.changed)
        assert (done.base, done.arcs) == (held.root, 4)
    with Client(destination, SETTINGS) as client:
        assert client.is_complete(held.changed)


def test_a_static_tree_sends_only_the_pages_that_are_new(source: str, destination: str, tmp_path: Path) -> None:
    """More than three times the differences: a changed key costs the page of its leaf."""
    one, two = payload_cid(b"one"), payload_cid(b"two")
    arcs = {f"static {i % 50}/file {i}": one for i in range(20_000)}
    changes = random.Random(1).sample(sorted(arcs), 20)
    with Client(source, SETTINGS) as client:
        before, after = client.build(arcs), client.build(arcs | dict.fromkeys(changes, two))
    sizes = []
    for root in (before, after):
        asyncio.run(export_static(source, root, tmp_path / "tree", payloads=False))
        sizes.append(
            sum(file.stat().st_size for file in (tmp_path / "tree" / "v1" / "pages").rglob("*") if file.is_file())
        )
    with python_server(tmp_path / "tree") as url:
        copy(url, destination, before, payloads=False)
        done = copy(url, destination, after, payloads=False, bases=[before])
    assert (done.base, done.arcs) == (before, 20)
    assert done.received <= sizes[1] - sizes[0] + MAX_PAGE_BYTES  # once more the page of the root, under its own name


def test_the_asyncio_client_copies_too_and_long_answers_are_streamed(
    source: str, held: Sample, destination: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("mirror._ANSWER_BYTES", "operations.payloads._MEMORY_BYTES"):
        monkeypatch.setattr(f"coregw.client.{limit}", 50_000)
    moved: list[int] = []

    async def run() -> Mirrored:
        async with AsyncClient(source, SETTINGS) as a, AsyncClient(destination, SETTINGS) as b:
            return await a.mirror(held.folder, b, progress=moved.append)

    assert asyncio.run(run()).root == held.folder
    assert sum(moved) > 700_000
    with Client(destination, SETTINGS) as client:
        assert client.is_complete(held.folder)


# --- what is not copied -----------------------------------------------------------------------------------------------


def test_no_answer_is_much_longer_than_those_before(
    source: str, destination: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short payloads first, so that the sizes of the long ones are not expected."""
    monkeypatch.setattr("coregw.client.mirror._ANSWER_BYTES", 10_000)
    sizes = [10] * 70 + [50_000] * 30 + [200_000]
    payloads = [number.to_bytes(2) + bytes(size) for number, size in enumerate(sizes)]
    with Client(source, SETTINGS) as client:
        root = client.create_root({f"{number:03}": cid for number, cid in enumerate(client.put_payloads(payloads))})
    sent: list[int] = []

    def note(reply: Reply) -> Reply:
        if reply.path == "/v1/car":
            sent.append(len(reply.request))
        return reply

    with lying_gateway(note, destination) as url:
        assert copy(source, url, root).payloads == len(payloads)
    assert max(sent) < 201_000
    assert sum(each > 82_000 for each in sent) == 1  # a payload that is longer by itself


def tampered(path: str) -> Callable[[Reply], Reply]:
    """Change one byte in the second half of every answer of a route."""

    def lie(reply: Reply) -> Reply:
        if not reply.path.startswith(path) or reply.status != 200 or not reply.body:
            return reply
        at = len(reply.body) * 2 // 3
        return reply.with_body(reply.body[:at] + bytes([reply.body[at] ^ 1]) + reply.body[at + 1 :])

    return lie


def diff_of_nothing(reply: Reply) -> Reply:
    if "/diff/" not in reply.path or reply.status != 200:
        return reply
    body = json.loads(reply.body)
    return reply.with_body(json.dumps(body | {"entries": []}).encode())


def another_payload(reply: Reply) -> Reply:
    """Answer with a payload that was not requested."""
    if reply.path != "/v1/cas/car":
        return reply
    from coregw._core import block_head, payload_car_header

    other = b"not requested"
    return reply.with_body(payload_car_header() + block_head(payload_cid(other), len(other)) + other)


def truncated(reply: Reply) -> Reply:
    return reply.with_body(reply.body[:-3]) if reply.path == "/v1/cas/car" else reply


@pytest.mark.parametrize(
    ("lie", "name", "base"),
    [
        (tampered("/v1/cas/car"), "folder", None),
        (tampered("/v1/pages"), "root", None),
        (tampered("/v1/roots"), "folder", None),
        (another_payload, "folder", None),
        (truncated, "folder", None),
        (diff_of_nothing, "changed_folder", "folder"),
        (lambda reply: tampered("/")(reply) if "/diff/" in reply.path else reply, "changed_folder", "folder"),
    ],
)
def test_a_lying_source_is_named_and_nothing_of_it_is_kept(
    source: str, held: Sample, tmp_path: Path, lie: Callable[[Reply], Reply], name: str, base: str | None
) -> None:
    root, bases = getattr(held, name), [] if base is None else [getattr(held, base)]
    with honest_gateway(tmp_path / "b") as destination, lying_gateway(lie, source) as url:
        for each in bases:
            copy(source, destination, each)
        with pytest.raises(ProofError) as caught:
            copy(url, destination, root, bases=bases)
        assert url in str(caught.value)
        assert not is_held(destination, root)
        with Client(destination, SETTINGS) as client:
            assert client.has_payloads([payload_cid(b"not requested")]) == [False]
        assert copy(source, destination, root).root == root


def test_a_root_is_not_stored_without_its_payloads(source: str, destination: str) -> None:
    absent = payload_cid(b"nobody has this")
    with Client(source, SETTINGS) as client:
        nested = client.create_root({"a": absent})
        root = client.create_root({"nested": nested, "b": client.put_payload(b"there")})
    with pytest.raises(PayloadNotFound, match=f"does not hold the payload {absent}"):
        copy(source, destination, root)
    assert not is_held(destination, root)
    assert not is_held(destination, nested)
    assert copy(source, destination, root, payloads=False).roots == 2
    with Client(destination, SETTINGS) as client:
        assert client.resolve(root, "nested/a") == absent


def test_an_interrupted_copy_is_continued(source: str, destination: str) -> None:
    """The source goes away after some payloads; the next copy does not send these again."""
    with Client(source, SETTINGS) as client:
        cids = client.put_payloads([b"%d " % i * 1000 for i in range(400)])
        nested = client.create_root({"a": cids[0]})
        root = client.create_root({str(i): cid for i, cid in enumerate([*cids, nested])})
    answered: list[str] = []

    def away(reply: Reply) -> Reply:
        if reply.path == "/v1/cas/car":
            answered.append(reply.path)
        return reply.with_body(b"", 503) if len(answered) > 1 else reply

    with lying_gateway(away, source) as url, pytest.raises(Unavailable):
        copy(url, destination, root)
    assert not is_held(destination, root)
    with Client(destination, SETTINGS) as client:
        there = sum(client.has_payloads(cids))
        assert 0 < there < 400
        done = copy(source, destination, root)
        assert (done.payloads, done.roots) == (400 - there, 2)
        assert client.is_complete(root)


# --- published names --------------------------------------------------------------------------------------------------
