"""CAR files: an export is a valid CARv1, and a root that was imported gives the same answers."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

import serving
from car_files import TYPE, block, cid, frames, header, split
from car_support import EMPTY, MAP, RAW, build, export, kept, post, put, take
from coregw import Cid, payload_cid
from coregw._core import payload_matches
from coregw.errors import StorageFull
from coregw.store import Table
from coregw.store.memory import MemoryStore
from tables import rows

Ask = Callable[..., httpx2.Response]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """Another gateway with another store."""
    data = tmp_path_factory.mktemp("other") / "data"
    with serving.process(data) as running, httpx2.Client(base_url=running.url, timeout=60) as session:
        yield session


def test_an_export_has_the_root_first_and_every_node_and_payload_under_its_hash(client: httpx2.Client) -> None:
    root = build(client, 20, "anatomy")
    answer = client.get(f"/v1/roots/{root}/car?payloads=true")
    assert answer.headers["content-type"] == "application/vnd.ipld.car; version=1"
    assert answer.headers["content-disposition"] == f'attachment; filename="{root}.car"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"
    assert "etag" not in answer.headers
    first, *blocks = frames(answer.content)
    assert first == header(bytes(Cid(root)))
    named = [split(frame) for frame in blocks]
    assert named[0][0] == bytes(Cid(root))
    assert all(name[-32:] == hashlib.sha256(data).digest() for name, data in named)
    assert sorted(data for name, data in named if name[1] == RAW) == sorted(f"anatomy {i}".encode() for i in range(20))
    assert len(named) == 20 + 20 + 19
    bare = export(client, root, payloads=False)
    assert frames(bare) == [first, *(frame for frame in blocks if split(frame)[0][1] != RAW)]
    assert client.get(f"/v1/roots/{root}/car").content == bare


def test_an_export_continues_after_a_block(client: httpx2.Client) -> None:
    nested = build(client, 12, "continued")
    arcs = {f"docs/{i}": put(client, f"continued {i}".encode()) for i in range(30)}
    root = post(client, "/v1/roots", {"arcs": {**arcs, "nested": nested}}).json()["root"]
    for payloads in ("true", "false"):
        asked = {"payloads": payloads}
        first, *blocks = frames(client.get(f"/v1/roots/{root}/car", params=asked).content)
        for at, each in enumerate(blocks):
            asked |= {"after": Cid(split(each)[0]).text, "occurrence": str(blocks[: at + 1].count(each))}
            rest = client.get(f"/v1/roots/{root}/car", params=asked)
            assert rest.content == b"".join([first, *blocks[at + 1 :]])
    unknown = payload_cid(b"in no block")
    for after, code in ((unknown, "invalid_request"), ("x", "invalid_cid")):
        answer = client.get(f"/v1/roots/{root}/car", params={"after": after})
        assert (answer.status_code, answer.json()["error"]) == (400, code)
    for occurrence in ("0", "-1", "x", "", "1e1", "4294967296", "9" * 5000):
        answer = client.get(f"/v1/roots/{root}/car", params={"after": root, "occurrence": occurrence})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    answer = client.get(f"/v1/roots/{root}/car", params={"occurrence": "2"})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert "'occurrence' needs 'after'" in answer.json()["message"]


def test_head_has_the_headers_of_get_and_no_body(client: httpx2.Client) -> None:
    root = build(client, 1, "head")
    told, got = client.head(f"/v1/roots/{root}/car"), client.get(f"/v1/roots/{root}/car")
    assert (told.status_code, told.content) == (200, b"")
    for name in ("content-type", "content-disposition", "cache-control"):
        assert told.headers[name] == got.headers[name]
    assert "content-length" not in told.headers
    assert client.head(f"/v1/roots/{Cid(cid(MAP, b'?')).text}/car").status_code == 404


@rows("suite", ["sha2-256", "blake3"])
@rows("count", [0, 1, 2, 300])
def test_an_imported_export_gives_the_same_roots_and_answers(
    client: httpx2.Client, other: httpx2.Client, suite: str, count: int
) -> None:
    root = build(client, count, f"round trip {suite} {count}", suite)
    car = export(client, root)
    assert other.head(f"/v1/roots/{root}/car").status_code == 404
    taken = take(other, car)
    assert (taken.status_code, taken.json()) == (
        201,
        {"roots": [root], "blocks": len(frames(car)) - 1, "bytes": len(car)},
    )
    assert export(other, root) == car
    for i in range(0, count, 37):
        asked = {"profile": "core.resolve/v0alpha1", "root": root, "segments": ["docs", str(i)]}
        answer = post(client, "/v1/resolve", asked)
        assert post(other, "/v1/resolve", asked).json() == answer.json()
        payload = other.get(f"/v1/cas/{answer.json()['target']}")
        assert payload.content == f"round trip {suite} {count} {i}".encode()
    listing = {"profile": "core.scan/v0alpha1", "root": root, "prefix": []}
    assert post(other, "/v1/scan", listing).json() == post(client, "/v1/scan", listing).json()
    assert take(other, car, is_spooled=True).json() == taken.json()
    assert export(other, root) == car


@rows("is_spooled", [False, True])
@rows("no_root", [(), (b"\x01\x55\0\0",)])
def test_a_car_of_payloads_alone_names_no_root(
    client: httpx2.Client, no_root: tuple[bytes, ...], is_spooled: bool
) -> None:
    marker = f"alone {len(no_root)} {is_spooled} ".encode()
    datas = [marker + bytes(size) for size in (0, 1, 100, (1 << 20) - len(marker), 1 << 20, 3 << 20)]
    car = header(*no_root) + b"".join(block(cid(RAW, data), data) for data in [*datas, datas[0]])
    answer = take(client, car, is_spooled=is_spooled)
    assert (answer.status_code, answer.json()) == (201, {"roots": [], "blocks": len(datas) + 1, "bytes": len(car)})
    assert [client.get(f"/v1/cas/{Cid(cid(RAW, data)).text}").content for data in datas] == datas


def test_a_car_in_memory_with_many_blocks_is_spooled(client: httpx2.Client) -> None:
    car = header() + b"".join(block(cid(RAW, data), data) for data in (b"%d" % (i % 1000) for i in range(70_000)))
    assert take(client, car).json() == {"roots": [], "blocks": 70_000, "bytes": len(car)}


def test_an_imported_root_can_be_mutated_like_the_original(client: httpx2.Client, other: httpx2.Client) -> None:
    root = build(client, 500, "changed")
    take(other, export(client, root))
    leaf = put(client, b"new")
    change = {"path": "docs/250/more", "after": {"target": leaf}}
    body = {"deltas": [{"kind": "map", "changes": [change]}], "prove": True}
    receipts = [post(each, f"/v1/roots/{root}/mutations", body).json() for each in (client, other)]
    assert receipts[0] == receipts[1]


def test_export_includes_held_nested_roots_and_omits_others(
    client: httpx2.Client, other: httpx2.Client, tree: dict[str, str]
) -> None:
    unheld = Cid(cid(MAP, b"not held")).text
    root = post(client, "/v1/roots", {"arcs": {"a/b": tree["root"], "c": unheld, "d": tree["list"]}}).json()["root"]
    car = export(client, root)
    names = [split(frame)[0] for frame in frames(car)[1:]]
    for nested in (tree["root"], tree["nested"], tree["list"]):
        assert names.count(bytes(Cid(nested))) == 1
    assert take(other, car).json()["roots"] == [root]
    for segments in (["a", "b", "docs", "inner"], ["a", "b", "list", "3"], ["d", "4"]):
        asked = {"profile": "core.resolve/v0alpha1", "root": root, "segments": segments}
        answer = post(other, "/v1/resolve", asked)
        assert answer.status_code == 200
        assert answer.json() == post(client, "/v1/resolve", asked).json()
    held = {"profile": "core.scan/v0alpha1", "root": tree["nested"], "prefix": []}
    assert post(other, "/v1/scan", held).status_code == 200
    assert other.head(f"/v1/roots/{unheld}/car").status_code == 404


def test_export_omits_payloads_that_are_not_held(client: httpx2.Client) -> None:
    here, gone = put(client, b"here"), Cid(cid(RAW, b"never stored")).text
    root = post(client, "/v1/roots", {"arcs": {"a": gone, "b": here, "c": here}}).json()["root"]
    names = [split(frame)[0] for frame in frames(export(client, root))[1:]]
    assert names.count(bytes(Cid(here))) == 1
    assert bytes(Cid(gone)) not in names


def test_large_and_empty_payloads_and_other_hash_functions_are_transferred(
    client: httpx2.Client, other: httpx2.Client, tmp_path: Path
) -> None:
    large = random.Random(7).randbytes((3 << 20) + 17)
    cids = [put(client, large), put(client, b""), client.post("/v1/cas?hash=blake3", content=large).json()["cid"]]
    root = post(client, "/v1/roots", {"arcs": {str(i): each for i, each in enumerate(cids)}}).json()["root"]
    sha512 = b"\x01\x55\x13\x40" + hashlib.sha512(b"by another function").digest()
    car = export(client, root) + block(sha512, b"by another function")
    assert take(other, car).status_code == 201
    assert [other.get(f"/v1/cas/{each}").content for each in cids] == [large, b"", large]
    assert other.get(f"/v1/cas/{Cid(sha512).text}").content == b"by another function"


def test_blocks_may_be_in_any_order_and_repeated(client: httpx2.Client, other: httpx2.Client) -> None:
    root = build(client, 200, "any order")
    first, *blocks = frames(export(client, root))
    random.Random(1).shuffle(blocks)
    car = b"".join([first, *blocks, *blocks[:30]])
    assert take(other, car).json() == {"roots": [root], "blocks": len(blocks) + 30, "bytes": len(car)}
    assert export(other, root) == export(client, root)


def test_an_aborted_upload_stores_nothing_and_frees_its_place(client: httpx2.Client) -> None:
    store = MemoryStore()
    car = export(client, build(client, 50, "left"))
    with serving.thread(store, cars_at_once=1) as url, httpx2.Client(base_url=url, timeout=60) as session:
        with serving.connect(url) as leaving:
            head = "POST /v1/car HTTP/1.1\r\nHost: x\r\nContent-Type: application/vnd.ipld.car\r\n"
            leaving.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % (len(car) + 1) + car)
        while (answer := take(session, header(EMPTY) + block(EMPTY, b"\0"))).status_code == 503:
            pass  # until the gateway has noticed that the client is gone
        assert answer.status_code == 201
        assert kept(store) == (1, 1, 0)


def test_another_media_type_is_refused_with_415(client: httpx2.Client, expect_refusal: Callable[..., str]) -> None:
    car = header(EMPTY) + block(EMPTY, b"\0")
    for given in ("", "application/octet-stream", "application/vnd.ipld.car; version=3", "application/vnd.ipld.raw"):
        answer = client.post("/v1/car", content=car, headers={"content-type": given} if given else {})
        assert (given or "no Content-Type") in expect_refusal(answer, 415, "unsupported_media_type")
    block_type = client.get("/ipfs/bafkqaaa?format=car").headers["content-type"]
    assert block_type == "application/vnd.ipld.car; version=1; order=dfs; dups=n"
    for given in ("application/vnd.ipld.car", "Application/vnd.ipld.CAR;version=1", block_type):
        assert client.post("/v1/car", content=car, headers={"content-type": given}).status_code == 201
    coded = client.post("/v1/car", content=car, headers=TYPE | {"content-encoding": "gzip"})
    expect_refusal(coded, 415, "unsupported_media_type")


def test_an_export_of_anything_but_a_held_root_is_refused(
    client: httpx2.Client, expect_refusal: Callable[..., str]
) -> None:
    held = build(client, 1, "refusals")
    for path, status, code in [
        (f"{Cid(cid(MAP, b'?')).text}/car", 404, "root_not_found"),
        (f"{Cid(cid(RAW, b'?')).text}/car", 400, "kind_mismatch"),
        ("nonsense/car", 400, "invalid_cid"),
        (f"{held}/car?payloads=yes", 400, "invalid_request"),
        (f"{held}/car?format=car", 400, "invalid_request"),
    ]:
        expect_refusal(client.get(f"/v1/roots/{path}"), status, code)


def test_a_failure_while_streaming_closes_the_connection() -> None:
    store = MemoryStore()
    with serving.thread(store) as url, httpx2.Client(base_url=url, timeout=60) as session:
        arcs = {f"docs/{i}": Cid(cid(RAW, b"%d" % i)).text for i in range(20_000)}
        root = post(session, "/v1/roots", {"arcs": arcs}).json()["root"]
        whole = export(session, root, payloads=False)
        last = frames(whole)[-1]
        gone = [digest for digest, page in store._tables[Table.PAGES].items() if split(last)[1][-36:] in page]
        for digest in gone:
            del store._tables[Table.PAGES][digest]
        with serving.connect(url) as connection:
            connection.sendall(f"GET /v1/roots/{root}/car HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            heard = serving.everything(connection)
        assert heard.startswith(b"HTTP/1.1 200 ")
        assert not heard.endswith(b"0\r\n\r\n")
        assert 10_000 < len(heard) < len(whole)


def test_slow_imports_keep_no_place_from_others() -> None:
    with ExitStack() as stack:
        url = stack.enter_context(serving.thread(MemoryStore(), cars_at_once=1))
        session = stack.enter_context(httpx2.Client(base_url=url, timeout=60))
        slow = [stack.enter_context(serving.connect(url)) for _ in range(3)]
        for connection in slow:
            connection.sendall(
                b"POST /v1/car HTTP/1.1\r\nHost: x\r\nContent-Type: application/vnd.ipld.car\r\n"
                b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\x3d\r\n"
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 100 ")  # it is being received
        for _ in range(3):
            assert take(session, header(EMPTY) + block(EMPTY, b"\0")).status_code == 201
        for connection in slow:
            connection.sendall(b"1\r\n\x00\r\n0\r\n\r\n")
            assert b" 400 " in connection.recv(1000).split(b"\r\n")[0]


def test_a_stalled_export_loses_its_place_to_another(caplog: pytest.LogCaptureFixture) -> None:
    with serving.thread(MemoryStore(), car_exports=1) as url, httpx2.Client(base_url=url, timeout=60) as session:
        arcs = {f"{i}" * 50: payload_cid(b"") for i in range(100_000)}
        root = session.post("/v1/roots", json={"arcs": arcs}).json()["root"]
        path = f"/v1/roots/{root}/car"
        with serving.connect(url) as slow:
            slow.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert slow.recv(9) == b"HTTP/1.1 "
            while (answer := session.get(path)).status_code == 503:  # until it has been stalled for some time
                assert answer.json()["error"] == "unavailable"
            assert answer.status_code == 200
            assert not serving.everything(slow).endswith(b"0\r\n\r\n")
        assert session.get(path).status_code == 200
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_an_import_that_cannot_be_spooled_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, expect_refusal: Callable[..., str]
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(24, "Too many open files")

    with serving.thread(MemoryStore()) as url, httpx2.Client(base_url=url, timeout=60) as session:
        monkeypatch.setattr("coregw.engine.cars.tempfile.TemporaryFile", refuse)
        expect_refusal(take(session, header(EMPTY) + block(EMPTY, b"\0"), is_spooled=True), 503, "unavailable")
        monkeypatch.undo()
        assert take(session, header(EMPTY) + block(EMPTY, b"\0")).status_code == 201


class FullStore(MemoryStore):
    """A store that can be full, and records the order of writes."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.log: list[str] = []

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        has_roots = bool(rows.get(Table.ROOTS))
        self.log.append("roots" if has_roots else "pages")
        if self.full:
            raise StorageFull("no room")
        if has_roots:
            assert None not in await self.stat_payloads(self.expected)
        return await super().put(rows, durable, requires, since)

    expected: Sequence[bytes] = ()


def test_root_records_are_stored_last_and_never_in_a_full_store(
    client: httpx2.Client, expect_refusal: Callable[..., str]
) -> None:
    arcs = {f"docs/{i}": Cid(cid(RAW, b"%d" % i)).text for i in range(40_000)}
    root = post(client, "/v1/roots", {"arcs": arcs | {"here": put(client, b"here")}}).json()["root"]
    car = export(client, root)
    store = FullStore()
    store.expected = [cid(RAW, b"here")[2:]]
    with serving.thread(store) as url, httpx2.Client(base_url=url, timeout=60) as session:
        store.full = True
        expect_refusal(take(session, car), 507, "storage_full")
        assert store.log == ["pages"]
        assert session.head(f"/v1/roots/{root}/car").status_code == 404
        store.full, store.log = False, []
        assert take(session, car).status_code == 201
        assert store.log[0] == "pages"
        assert store.log.count("roots") == 1
        assert export(session, root) == car


def test_cars_of_others_are_taken(client: httpx2.Client) -> None:
    """Roots that are payloads, several roots, a CIDv0, and a CARv2 with an index, spooled or not."""
    folder, leaf = b"\x0a\x02\x08\x01", b"a leaf of another DAG"
    v0, raw = cid(0x70, folder), cid(RAW, leaf)
    first = header(v0, raw) + block(v0[2:], folder) + block(raw, leaf)
    begin = 51 + 9
    offsets = b"".join(each.to_bytes(8, "little") for each in (begin, len(first), begin + len(first)))
    second = b"\x0a\xa1\x67version\x02" + bytes(16) + offsets + bytes(9) + first + b"an index"
    roots = [Cid(v0).text, Cid(raw).text]
    for car in (first, second):
        for is_spooled in (False, True):
            answer = take(client, car, is_spooled=is_spooled)
            assert (answer.status_code, answer.json()) == (201, {"roots": roots, "blocks": 2, "bytes": len(car)})
    named = client.post("/v1/car", content=second, headers={"content-type": "application/vnd.ipld.car; version=2"})
    assert named.status_code == 201
    for version, car in ((2, first), (1, second)):
        kind = {"content-type": f"application/vnd.ipld.car; version={version}"}
        for body in (car, iter([car])):  # in memory and spooled
            other = client.post("/v1/car", content=body, headers=kind)
            assert (other.status_code, other.json()["error"]) == (415, "unsupported_media_type")
            assert f"version={version}" in other.json()["message"]
    assert client.get(f"/ipfs/{roots[0]}?format=raw").content == folder
    assert client.get(f"/v1/cas/{roots[1]}").content == leaf


@rows("name", ["sha2-512", "sha3-256", "blake2b-256", "blake3", "identity"])
def test_payloads_are_stored_under_every_hash_function(client: httpx2.Client, name: str) -> None:
    for data in (name.encode(), bytes(100_000)) if name != "identity" else (b"identity",):
        stored = client.post("/v1/cas", params={"hash": name, "codec": "dag-cbor"}, content=data).json()["cid"]
        assert (Cid(stored).hash_name, payload_cid(data, "dag-cbor", name)) == (name, stored)
        assert payload_matches(stored, client.get(f"/v1/cas/{stored}").content)
