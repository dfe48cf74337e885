"""Static trees: what a client reads from files is byte for byte what a gateway answers, and nothing is trusted."""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx2
import pytest

import serving
import static_counts
from coregw import Cid, payload_cid
from coregw._core import page_links
from coregw.client import AsyncClient, Client, query
from coregw.client.static.folder import MARK
from coregw.client.static.tree import EXPLORER_TYPES, explorer_files
from coregw.client.transport.exchange import Answer, Call
from coregw.errors import (
    CoregwError,
    InvalidInput,
    ProofError,
    RecordNotFound,
    StoreDamaged,
    Unavailable,
)
from coregw.store.origin import page_path, payload_path, root_path
from gateways import Reply, lying_gateway
from static_trees import (
    SETTINGS,
    Sample,
    Trees,
    needs_nginx,
    nginx_cache,
    nginx_server,
    python_server,
    replaced,
    sample,
)
from tables import rows

SERVERS = [python_server, pytest.param(nginx_server, marks=needs_nginx)]


# --- the same answers -------------------------------------------------------------------------------------------------


def operations(s: Sample, folder: Path) -> dict[str, Callable[[Client], object]]:
    """Every operation that reads, with arguments for success and failure."""
    absent = payload_cid(b"absent")
    absent_root = Cid(bytes(Cid(s.root))[:-32] + hashlib.sha256(b"absent").digest()).text
    names = [f"directory {i % 5}/file {i}" for i in range(400)]
    queries = [
        query.resolve(s.root, "directory 1/file 1"),
        query.resolve(s.root, "nested/b/7"),
        query.resolve(s.root, "file/12"),
        query.resolve(s.root, ""),
        query.resolve(s.root, "nested/b/none"),
        query.resolve(absent_root, "a"),
        query.read_key(s.root, "@payload"),
        query.read_key(s.root, "none"),
        query.read_index(s.file, 5),
        query.read_index(s.file, 5000),
        query.read_index(s.root, 1),
        query.read_range(s.file, 100, 300),
        query.map_proof(s.blake3, "b/1"),
        query.map_proof(s.blake3, "b"),
        query.map_keys(s.root, names),
        query.scan(s.root),
        query.scan(s.root, "directory 3", "directory 3/file 503", 100),
        query.scan(s.empty),
    ]
    found: dict[str, Callable[[Client], object]] = {
        f"{number} {each.what}": partial(lambda client, each: client.query(each), each=each)
        for number, each in enumerate(queries)
    }
    return found | {
        "prove_keys": lambda client: client.prove_keys(s.root, [*names, "none"]),
        "resolve_many": lambda client: client.resolve_many(s.root, [*names, "nested/b/3", "none"]),
        "entries": lambda client: list(client.entries(s.root)),
        "walk": lambda client: list(client.walk(s.root)),
        "children": lambda client: [list(client.children(s.root, each)) for each in ("", "directory 4")],
        "locate": lambda client: client.locate(s.root, "nested/b"),
        "contents": lambda client: [*client.contents(s.file), *client.contents(s.large)],
        "list_size": lambda client: (client.list_size(s.file), client.list_elements(s.file)),
        "get_payload": lambda client: client.get_payload(s.large),
        "get identity": lambda client: client.get_payload("bafkqac3imvwgy3zao5xxe3de"),
        "get absent": lambda client: client.get_payload(absent),
        "get too large": lambda client: client.get_payload(s.large, 1000),
        "has_payloads": lambda client: client.has_payloads([s.large, absent, "bafkqaaa"]),
        "diff": lambda client: list(client.diff(s.root, s.changed)),
        "diff below": lambda client: list(client.diff(s.root, s.changed, "directory 1")),
        "diff of suites": lambda client: list(client.diff(s.root, s.blake3)),
        "diff_folders": lambda client: list(client.diff_folders(s.folder, s.changed_folder)),
        "export_car": lambda client: _car(client, s.folder, folder, payloads=True),
        "export_car without payloads": lambda client: _car(client, s.root, folder, payloads=False),
    }


def _car(client: Client, root: str, folder: Path, *, payloads: bool) -> bytes:
    (file := folder / "a.car").unlink(missing_ok=True)
    client.export_car(root, file, payloads=payloads)
    return file.read_bytes()


@contextmanager
def recorded(client: Client) -> Iterator[list[tuple[str, str, bytes]]]:
    """Record each call of a client: path, the code of its error if any, and the body of the answer or the error."""
    calls: list[tuple[str, str, bytes]] = []
    inner = client._transport.outcome

    def outcome(call: Call) -> Answer | CoregwError:
        found = inner(call)
        if isinstance(found, CoregwError):
            calls.append((call.path, found.code, f"{type(found)} {found.message} {found.details!r}".encode()))
        else:
            calls.append((call.path, "", found.body))
        return found

    client._transport.outcome = outcome  # type: ignore[method-assign]
    yield calls


def outcome(client: Client, operation: Callable[[Client], object]) -> tuple[object, list[tuple[str, str, bytes]]]:
    with recorded(client) as calls:
        try:
            value = operation(client)
        except CoregwError as error:
            value = (type(error), error.message, error.code, error.details)
    return value, calls


@pytest.mark.parametrize("server", SERVERS)
def test_every_operation_gets_byte_for_byte_what_a_gateway_answers(
    trees: Trees, server: Callable[[Path], AbstractContextManager[str]], tmp_path: Path
) -> None:
    with server(trees.top) as url:
        for name, operation in operations(trees.sample, tmp_path).items():
            with Client(trees.gateway, SETTINGS) as gateway, Client(url, SETTINGS) as static:
                assert outcome(static, operation) == outcome(gateway, operation), name


@pytest.mark.parametrize("server", SERVERS)
def test_a_folder_is_restored_compared_and_updated(
    trees: Trees, server: Callable[[Path], AbstractContextManager[str]], tmp_path: Path
) -> None:
    s = trees.sample
    with server(trees.top) as url, Client(url, SETTINGS) as static, Client(trees.gateway, SETTINGS) as gateway:
        dest = tmp_path / "restored"
        assert static.get(s.folder, dest) == gateway.get(s.folder, tmp_path / "other")
        assert static.diff_tree(s.folder, dest).differences == []
        assert static.get(s.changed_folder, dest, delete=True, in_place=True).files == 1
        assert gateway.diff_tree(s.changed_folder, dest).differences == []
        assert static.get_payload(static.resolve(s.changed_folder, "b/c/other")) == b"changed"


def test_the_asynchronous_client_reads_a_static_tree(trees: Trees, tmp_path: Path) -> None:
    s = trees.sample
    paths = [f"directory {i % 5}/file {i}" for i in range(400)]

    async def read(url: str) -> object:
        async with AsyncClient(url, SETTINGS) as client:
            assert client.base_url == url
            (dest := tmp_path / url.partition(":")[0]).mkdir()
            return [
                await client.resolve(s.root, "nested/b/7"),
                await client.resolve_many(s.root, [*paths, "none"]),
                await client.prove_keys(s.root, [*paths, "none"]),
                await client.scan(s.root, ("directory 3",)),
                await client.query(query.read_range(s.file, 100, 300)),
                await client.get_payload(s.large),
                [each async for each in client.walk(s.root)],
                [each async for each in client.contents(s.file)],
                [each async for each in client.diff(s.root, s.changed)],
                await client.get(s.folder, dest / "restored"),
                (await client.diff_tree(s.folder, dest / "restored")).differences,
            ]

    with python_server(trees.top) as url:
        assert asyncio.run(read(url)) == asyncio.run(read(trees.gateway))


def test_a_static_tree_takes_no_writes(trees: Trees, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    s = trees.sample
    writes: list[Callable[[Client], object]] = [
        lambda client: client.put_payload(b"x"),
        lambda client: client.put_payloads([b"x", b"y"]),
        lambda client: client.create_root({"a": s.large}),
        lambda client: client.update(s.root, {"a": s.large}),
        lambda client: client.is_complete(s.root),
        lambda client: client.add(tmp_path, use_cache=False),
    ]
    with python_server(trees.top) as url, Client(url, SETTINGS) as client:
        for write in writes:
            with pytest.raises(InvalidInput, match="is a static tree, which is only read"):
                write(client)


def test_published_names_are_read(trees: Trees) -> None:
    s = trees.sample
    with python_server(trees.top) as url, Client(url, SETTINGS) as client:
        record = client.published("docs", "main")
        assert (record.root, record.revision, record.previous_root) == (s.changed_folder, 4, s.folder)
        assert record == trees.exported[-1].record
        with pytest.raises(RecordNotFound, match="docs/other"):
            client.published("docs", "other")
        with pytest.raises(InvalidInput):
            client.published("docs", "a/b")


def test_a_server_that_is_away_is_unavailable_and_each_object_is_requested_again() -> None:
    asked: list[str] = []

    def away(reply: Reply) -> Reply:
        asked.append(reply.path)
        return reply.with_body(b"", 503)

    root = Cid("bagiofqabciqg4naltt73g6uytssujzv3pafcy6eqdu73gnzyo2crdiygc6x2ahi").text
    with (
        lying_gateway(away) as url,
        Client(f"static+{url}", SETTINGS) as client,
        pytest.raises(Unavailable, match="503"),
    ):
        client.resolve(root, "a")
    assert asked == [f"/v1/roots/{root}"] * 4


@rows("text", ["static+ftp://a", "static+", "static+http://a?b", "gopher+http://a"])
def test_an_address_is_checked(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected a URL"):
        Client(text)


def test_credentials_are_not_shown() -> None:
    with Client("static+http://user:secret@127.0.0.1:1/tree/") as client:
        assert client.base_url == "static+http://127.0.0.1:1/tree"
    with pytest.raises(InvalidInput) as caught:
        Client("static+http://user:secret@[")
    assert "secret" not in str(caught.value)


# --- nothing is trusted -----------------------------------------------------------------------------------------------


def test_changed_objects_are_named_and_not_used(trees: Trees) -> None:
    s = trees.sample
    digest = Cid(s.root).digest
    other_page = trees.file(page_path(Cid(s.changed).digest)).read_bytes()
    payload = trees.file(payload_path(Cid(s.large).multihash))
    below = next(
        each for each in trees.file("/v1/pages").iterdir() if each.name != digest.hex() and each.stat().st_size > 4000
    )
    read: dict[Path, Callable[[Client], object]] = {
        trees.file(root_path(bytes(Cid(s.root)))): lambda client: client.resolve(s.root, "large"),
        below: lambda client: list(client.walk(s.root)) and list(client.walk(s.blake3)),
        payload: lambda client: client.get_payload(s.large),
    }
    with python_server(trees.top) as url:
        for file, operation in read.items():
            content = file.read_bytes()
            forged = [content[:20] + bytes([content[20] ^ 1]) + content[21:], content[:-1], b"", other_page]
            if file is not payload:
                forged.append(content + bytes(20_000))
            for number, each in enumerate(forged):
                with Client(url, SETTINGS) as client:
                    with replaced(file, each), pytest.raises(ProofError) as caught:
                        operation(client)
                    where = f"{url.removeprefix('static+')}/{file.relative_to(trees.top)}"
                    assert where in str(caught.value), number
                    assert operation(client)  # nothing of it was kept


@pytest.mark.parametrize("claimed", [7, 1_200_000])
def test_a_wrong_size_of_a_payload_ends_a_car(trees: Trees, tmp_path: Path, claimed: int) -> None:
    """Sizes are what the server says; a CAR has them before the bytes."""
    path = payload_path(Cid(trees.sample.large).multihash)

    def claim(reply: Reply) -> Reply:
        is_lie = (reply.method, reply.path) == ("HEAD", path)
        return replace(reply, headers={"content-length": str(claimed)}) if is_lie else reply

    with Client(trees.gateway, SETTINGS) as client:
        root = client.create_root({"large": trees.sample.large})
    settings = replace(SETTINGS, attempts=1)
    with lying_gateway(claim, trees.gateway) as url, Client(f"static+{url}", settings) as client:
        with pytest.raises(StoreDamaged):
            client.export_car(root, tmp_path / "a.car", payloads=True)
        assert not (tmp_path / "a.car").exists()


def test_a_missing_page_is_named(trees: Trees) -> None:
    s = trees.sample
    digest = Cid(s.root).digest
    [links] = page_links([(digest, trees.file(page_path(digest)).read_bytes())])
    assert links is not None
    missing = page_path(links.pages[0])
    with python_server(trees.top) as url, Client(url, SETTINGS) as client, replaced(trees.file(missing), None):
        with pytest.raises(StoreDamaged) as caught:
            list(client.walk(s.root))
        assert f"{url}: page {links.pages[0].hex()} of {s.root} is missing" in str(caught.value)


@needs_nginx
def test_nginx_lets_caches_keep_objects_and_no_errors(trees: Trees) -> None:
    with nginx_server(trees.top) as url:
        plain = url.removeprefix("static+")
        for path in (root_path(bytes(Cid(trees.sample.root))), payload_path(Cid(trees.sample.large).multihash)):
            answer = httpx2.get(plain + path)
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert answer.headers["content-type"] == "application/octet-stream"
        record = httpx2.get(f"{plain}/admin/v1/scopes/docs/roots/main")
        assert (record.headers["cache-control"], record.headers["content-type"]) == (
            "public, max-age=60",
            "application/json",
        )
        for path in (page_path(bytes(32)), f"/{MARK}", "/v1/pages/", "/"):
            refused = httpx2.get(plain + path)
            assert refused.status_code in (403, 404)
            assert "cache-control" not in refused.headers
        assert httpx2.post(plain + page_path(bytes(32))).status_code == 403


@needs_nginx
def test_nginx_serves_the_explorer(tmp_path: Path) -> None:
    files = dict(explorer_files())
    for path, content in files.items():
        (tmp_path / path[1:]).write_bytes(content)
    files["/"] = files.pop("/index.html")
    with nginx_server(tmp_path) as url:
        for path, content in files.items():
            page = httpx2.get(url.removeprefix("static+") + path)
            assert (page.status_code, page.content) == (200, content)
            expected = EXPLORER_TYPES["/index.html" if path == "/" else path]
            assert page.headers["content-type"].partition(";")[0] == expected.partition(";")[0]
            assert page.headers["cache-control"] == "no-cache"


# --- a cache of a gateway ---------------------------------------------------------------------------------------------


@needs_nginx
def test_readers_of_a_cache_need_no_gateway(tmp_path: Path) -> None:
    """What one reader has read through the cache, absences included, another gets and verifies without the gateway."""
    (source := tmp_path / "source").mkdir()
    with serving.process(tmp_path / "data") as gateway, nginx_cache(tmp_path / "nginx", gateway.url) as plain:
        with Client(gateway.url, SETTINGS) as client:
            s = sample(client, source)
            unread = client.put_payload(b"never read before")
            empty = client.put_payload(b"")
        url = f"static+{plain}"

        def read(dest: Path) -> list[object]:
            with Client(url, SETTINGS) as reader:
                return [
                    reader.get(s.changed_folder, dest),
                    reader.diff_tree(s.changed_folder, dest).differences,
                    reader.resolve(s.root, "nested/b/7"),
                    reader.prove_key(s.root, "none"),
                    list(reader.entries(s.blake3)),
                    reader.get_payload(s.large),
                    reader.get_payload(empty),
                ]

        first = read(tmp_path / "first")
        assert first[1:4:2] == [[], None]
        assert gateway.end(signal.SIGKILL) == -signal.SIGKILL
        assert read(tmp_path / "second") == first
        with Client(url, SETTINGS) as reader, pytest.raises(Unavailable):
            reader.get_payload(unread)


@needs_nginx
def test_a_cache_answers_as_the_gateway_and_keeps_what_is_immutable(tmp_path: Path) -> None:
    data, later = bytes(range(256)) * 10_000, b"stored later"
    with serving.process(tmp_path / "data") as gateway, nginx_cache(tmp_path / "nginx", gateway.url) as url:
        with Client(gateway.url, SETTINGS) as client:
            large, empty = client.put_payload(data), client.put_payload(b"")
            root = client.create_root({"a": large})
        kept: list[tuple[str, dict[str, str], int]] = [
            (f"/v1/cas/{large}", {"range": "bytes=5-9"}, 206),  # the first request of it
            (f"/v1/cas/{large}", {}, 200),
            (f"/v1/cas/{large}", {"range": "bytes=0-1,5-9"}, 200),
            (f"/v1/cas/{large}", {"range": f"bytes={len(data)}-"}, 416),
            (f"/v1/cas/{large}", {"if-none-match": f'"{large}"'}, 304),
            (f"/v1/cas/{empty}", {}, 200),
            (f"/ipfs/{large}?format=raw", {}, 200),
            (f"/v1/roots/{root}", {}, 200),
            (f"/v1/resolve/{root}?path=a", {}, 200),
            (f"/v1/map-proof/{root}?path=none", {}, 200),
            (f"/v1/scan/{root}", {}, 200),
            (f"/v1/read/{root}?path=none", {}, 404),  # proven
        ]
        lost = [f"/v1/resolve/{root}?path=none", f"/v1/cas/{payload_cid(later)}", f"/v1/roots/{root}/car"]

        def ask(base: str, path: str, headers: dict[str, str]) -> tuple[object, ...]:
            answer = httpx2.get(base + path, headers=headers)
            names = ("etag", "cache-control", "content-type", "content-range", "vary")
            return answer.status_code, answer.content, [answer.headers.get(name) for name in names]

        expected = [ask(gateway.url, path, headers) for path, headers, _ in kept]
        assert [status for status, *_ in expected] == [status for *_, status in kept]
        for (path, headers, status), wanted in zip(kept, expected, strict=True):
            if status == 416:  # nginx has a page of its own
                assert ask(url, path, headers)[0] == 416
            else:
                assert ask(url, path, headers) == wanted, path
        assert [httpx2.get(url + path).status_code for path in lost] == [404, 404, 200]
        assert httpx2.post(f"{url}/v1/cas", content=later).status_code == 201
        assert httpx2.get(url + lost[1]).content == later  # its absence was not kept
        assert httpx2.post(f"{url}/v1/cas/has", json={"profile": "cas.has-batch/v0alpha1", "cids": [large]}).is_success
        gateway.end(signal.SIGKILL)
        for path, headers, status in kept:
            answer = httpx2.get(url + path, headers=headers)
            assert (answer.status_code, answer.headers["x-cache-status"].partition(",")[0]) == (status, "HIT"), path
        assert [httpx2.get(url + path).status_code for path in lost] == [502, 200, 502]


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_no_operation_costs_more_than_the_documentation_says() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "distribution.md").read_text("utf-8")
    rows = page.split(f"{static_counts.HEAD}\n|---|---|---|---|---|\n")[1].split("\n\n")[0].splitlines()
    cells = [row[2:-2].replace(",", "").replace("1000 files", "60 files").split(" | ") for row in rows]
    documented = {name: [int(each) for each in numbers] for name, *numbers in cells}
    measured, kept = static_counts.measure(40_000, 60)
    assert kept.mean <= 1
    assert kept.most <= 2  # a page of the middle that none of the 500 keys was below
    assert [row.operation.replace(",", "") for row in measured] == [*documented]
    for row in measured:  # of a smaller map and folder than the documented ones, whose pages have other sizes
        most = documented[row.operation.replace(",", "")]
        assert all(here <= 2 * there + 2 for here, there in zip(row[1:], most, strict=True)), row
