"""The application alone answers as `coregw serve` does: on stock uvicorn, and called by Litestar's test client."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import httpx2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from litestar import Litestar
from litestar.concurrency import set_asyncio_executor
from litestar.testing import TestClient

import coregw
import serving
from coregw.engine import Engine
from coregw.errors import InvalidInput, Unavailable
from coregw.gateway import create_app
from coregw.gateway.access import AccessToken
from coregw.gateway.app import create_app_over
from coregw.gateway.context import Gateway
from coregw.gateway.limits.machine import Limits
from coregw.gateway.metrics import request_samples
from coregw.gateway.settings import Settings
from coregw.store.memory import MemoryStore
from coregw.store.rocksdb import open_store
from tables import rows

ADMIN = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}
JSON = {"content-type": "application/json"}
LIMIT = Limits.of(Settings()).json_body_bytes
HERE = "http://127.0.0.1"
"""The host that the test client names; its own is one that a gateway on loopback refuses."""

LARGE = bytes(range(256)) * (9 << 10)
"""2.25 MiB: streamed, in chunks."""
LEAF = coregw.payload_cid(b"a leaf")
LARGE_CID = coregw.payload_cid(LARGE)
ABSENT = coregw.payload_cid(b"stored by no test")
TREE = coregw.Map({"docs/readme": LEAF, "docs/large": LARGE_CID, "z": LEAF})
ROOT = TREE.root
ANSWER_OF_ITS_OWN = frozenset({"date", "server", "connection", "transfer-encoding"})
"""Headers that servers add; how a body is framed is their business as well."""

Answer = tuple[int, list[tuple[str, str]], bytes]
Ask = Callable[..., Answer]


class Sent(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""


def query(name: str, **members: object) -> bytes:
    return json.dumps({"profile": f"core.{name}/v0alpha1", "root": ROOT} | members).encode()


def asking(client: Any, base: str) -> Ask:  # noqa: ANN401 - httpx2's, or that of httpx which Litestar's is made of
    """Return a function that sends a request, and returns status, headers and bytes."""

    def ask(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        named = {"accept": "*/*", "accept-encoding": "identity"} | dict(headers)
        answer = client.request(method, base + path, headers=named, content=body, follow_redirects=False)
        kept = [(name, value) for name, value in answer.headers.multi_items() if name not in ANSWER_OF_ITS_OWN]
        return answer.status_code, sorted(kept), answer.content

    stored = (
        Sent("POST", "/v1/cas", body=b"a leaf"),
        Sent("POST", "/v1/cas", body=LARGE),
        Sent("POST", "/v1/roots", JSON, json.dumps({"arcs": dict(TREE.items())}).encode()),
        Sent("POST", "/admin/v1/scopes/docs/roots", JSON | ADMIN, json.dumps({"name": "n", "root": ROOT}).encode()),
    )
    assert [ask(*each)[0] for each in stored] == [201, 201, 201, 200]
    return ask


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """A gateway that `coregw serve` runs."""
    data = tmp_path_factory.mktemp("served") / "data"
    with (
        serving.process(data, serving.ADMIN) as running,
        httpx2.Client(timeout=60) as client,
    ):
        yield asking(client, running.url)


def uvicorn_of(data: Path, **variables: str) -> tuple[subprocess.Popen[str], str]:
    """Start uvicorn, as its own command does it, on the factory of the package; return it with its address."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COREGW_")}
    command = [sys.executable, "-m", "uvicorn", "--factory", "coregw.gateway:create_app", "--port", "0"]
    environ = inherited | {"COREGW_DATA": str(data)} | variables
    popen = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    assert popen.stderr is not None
    said = ""
    for line in popen.stderr:
        said += line
        if found := re.search(r"running on (http://\S+)", line):
            return popen, found[1]
    popen.communicate()
    raise AssertionError(said)


@pytest.fixture(scope="module")
def on_uvicorn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """A gateway on stock uvicorn."""
    data = tmp_path_factory.mktemp("uvicorn") / "data"
    popen, url = uvicorn_of(data, **serving.ADMIN)
    with popen, httpx2.Client(timeout=60) as client:
        yield asking(client, url)
        popen.send_signal(signal.SIGTERM)
        _, said = popen.communicate(timeout=60)
    assert "Application shutdown complete" in said
    asyncio.run(_reopen(data))


async def _reopen(data: Path) -> None:
    """Open and close the store: nobody else has it open."""
    store = await open_store(data)
    try:
        assert await store.healthy()
    finally:
        await store.close()


@pytest.fixture(scope="module")
def called() -> Iterator[Ask]:
    """A gateway in this process, without a server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATEWAY_ADMIN_TOKEN", serving.ADMIN_TOKEN)
        app = create_app(MemoryStore(), Settings())
    with TestClient(app, base_url=HERE) as client:
        yield asking(client, HERE)


RESOLVE = query("resolve", segments=["docs", "readme"])
HAS = json.dumps({"profile": "cas.has-batch/v0alpha1", "cids": [LEAF, ABSENT]}).encode()
GET = json.dumps({"profile": "cas.get-batch/v0alpha1", "cids": [LARGE_CID, ABSENT, "bafkqaaa", LEAF, LEAF]}).encode()
CAR_IGNORES = {"accept": "text/plain", "range": "bytes=0-1", "if-none-match": "*"}
BATCH = {"root": ROOT, "paths": [["docs", "readme"], ["none"]]}
PAGE = coregw.Cid(ROOT).digest.hex()
PAGES = json.dumps({"profile": "pages.get-batch/v0alpha1", "pages": [PAGE, "0" * 64]}).encode()
PAYLOAD = f"/v1/cas/{LEAF}"
BY_URL = f"/v1/resolve/{ROOT}?path=docs/readme"
RECORD = "/admin/v1/scopes/docs/roots/n"
REQUESTS = {
    "resolve": (200, Sent("POST", "/v1/resolve", JSON, RESOLVE)),
    "resolve, absent": (404, Sent("POST", "/v1/resolve", JSON, query("resolve", segments=["none"]))),
    "resolve, no JSON": (400, Sent("POST", "/v1/resolve", JSON, b"{")),
    "resolve, too large": (413, Sent("POST", "/v1/resolve", JSON, b" " * (LIMIT + 1))),
    "resolve, as text": (415, Sent("POST", "/v1/resolve", {"content-type": "text/plain"}, RESOLVE)),
    "resolve, compressed": (415, Sent("POST", "/v1/resolve", JSON | {"content-encoding": "gzip"}, RESOLVE)),
    "resolve, a parameter": (400, Sent("POST", "/v1/resolve?a=b", JSON, RESOLVE)),
    "resolve, another spelling": (200, Sent("POST", "//v1/%72esolve/", JSON, RESOLVE)),
    "resolve by URL": (200, Sent("GET", BY_URL)),
    "HEAD of a resolve by URL": (200, Sent("HEAD", BY_URL)),
    "resolve by URL, not a CID": (400, Sent("GET", "/v1/resolve/x?path=a")),
    "resolve by URL, not the ETag": (412, Sent("GET", BY_URL, {"if-match": '"x"'})),
    "resolve by URL, known": (304, Sent("GET", BY_URL, {"if-none-match": "*"})),
    "batch": (200, Sent("POST", "/v1/resolve/batch", JSON, json.dumps(BATCH).encode())),
    "read": (200, Sent("POST", "/v1/read", JSON, query("read", query={"kind": "map_key", "segments": ["z"]}))),
    "read, absent, by URL": (404, Sent("GET", f"/v1/read/{ROOT}?path=none")),
    "HEAD of a read, absent, by URL": (404, Sent("HEAD", f"/v1/read/{ROOT}?path=none")),
    "map-proof": (200, Sent("POST", "/v1/map-proof", JSON, query("map-proof", key=["z"]))),
    "map-proof, bare": (
        200,
        Sent("POST", "/v1/map-proof", JSON | {"accept": "application/octet-stream"}, query("map-proof", key=["z"])),
    ),
    "scan": (200, Sent("POST", "/v1/scan", JSON, query("scan", prefix=[]))),
    "scan by URL": (200, Sent("GET", f"/v1/scan/{ROOT}?prefix=docs&limit=1")),
    "verify, malformed": (400, Sent("POST", "/v1/verify/resolve", JSON, b"{}")),
    "verify, another method": (405, Sent("GET", "/v1/verify/read/")),
    "payload": (200, Sent("GET", PAYLOAD)),
    "payload, large": (200, Sent("GET", f"/v1/cas/{LARGE_CID}")),
    "HEAD of a payload": (200, Sent("HEAD", f"/v1/cas/{LARGE_CID}")),
    "payload, range": (206, Sent("GET", f"/v1/cas/{LARGE_CID}", {"range": "bytes=1000-1999999"})),
    "payload, short range": (206, Sent("GET", PAYLOAD, {"range": "bytes=-2"})),
    "payload, HEAD of a range": (200, Sent("HEAD", PAYLOAD, {"range": "bytes=-2"})),
    "payload, no such range": (416, Sent("GET", PAYLOAD, {"range": "bytes=100-"})),
    "payload, known": (304, Sent("GET", PAYLOAD, {"if-none-match": f'"{LEAF}"'})),
    "payload, HEAD, known": (304, Sent("HEAD", PAYLOAD, {"if-none-match": f'"{LEAF}"'})),
    "payload, changed": (412, Sent("GET", PAYLOAD, {"if-match": '"x"'})),
    "payload, absent": (404, Sent("GET", f"/v1/cas/{ABSENT}")),
    "HEAD of a payload, absent": (404, Sent("HEAD", f"/v1/cas/{ABSENT}")),
    "payload, not a CID": (400, Sent("GET", "/v1/cas/hello")),
    "payloads, held": (200, Sent("POST", "/v1/cas/has", JSON, HAS)),
    "payloads, held, binary": (200, Sent("POST", "/v1/cas/has", body=bytes(coregw.Cid(LEAF)))),
    "payloads, a form": (415, Sent("POST", "/v1/cas", {"content-type": "multipart/form-data; boundary=x"}, b"--x")),
    "root": (200, Sent("GET", f"/v1/roots/{ROOT}")),
    "HEAD of a root": (200, Sent("HEAD", f"/v1/roots/{ROOT}")),
    "root, a payload": (400, Sent("GET", f"/v1/roots/{LEAF}")),
    "page": (200, Sent("GET", f"/v1/pages/{PAGE}")),
    "HEAD of a page": (200, Sent("HEAD", f"/v1/pages/{PAGE}")),
    "page, absent": (404, Sent("GET", f"/v1/pages/{'0' * 64}")),
    "page, malformed": (400, Sent("GET", "/v1/pages/x")),
    "payloads": (200, Sent("POST", "/v1/cas/car", JSON, GET)),
    "payloads, a range, another type": (200, Sent("POST", "/v1/cas/car", JSON | CAR_IGNORES, GET)),
    "payloads, another method": (405, Sent("HEAD", "/v1/cas/car")),
    "payloads, a root": (400, Sent("POST", "/v1/cas/car", JSON, GET.replace(LEAF.encode(), ROOT.encode()))),
    "payloads, another profile": (400, Sent("POST", "/v1/cas/car", JSON, HAS)),
    "payloads, a parameter": (400, Sent("POST", "/v1/cas/car?a=b", JSON, GET)),
    "payloads, as text": (415, Sent("POST", "/v1/cas/car", {"content-type": "text/plain"}, GET)),
    "pages": (200, Sent("POST", "/v1/pages/car", JSON, PAGES)),
    "pages, malformed": (400, Sent("POST", "/v1/pages/car", JSON, PAGES.replace(b"0" * 64, b"0" * 63))),
    "pages, another profile": (400, Sent("POST", "/v1/pages/car", JSON, GET)),
    "pages, without them": (400, Sent("POST", "/v1/pages/car", JSON, b'{"profile":"pages.get-batch/v0alpha1"}')),
    "pages, another method": (405, Sent("GET", "/v1/pages/car")),
    "CAR": (200, Sent("GET", f"/v1/roots/{ROOT}/car?payloads=true")),
    "HEAD of a CAR": (200, Sent("HEAD", f"/v1/roots/{ROOT}/car")),
    "diff": (200, Sent("GET", f"/v1/roots/{ROOT}/diff/{ROOT}")),
    "complete": (200, Sent("POST", f"/v1/roots/{ROOT}/complete")),
    "block": (200, Sent("GET", f"/ipfs/{LEAF}?format=raw")),
    "block, a path": (400, Sent("GET", f"/ipfs/{LEAF}/a/b")),
    "publication, absent": (404, Sent("GET", "/v1/publications/docs/none")),
    "record, its revision": (304, Sent("GET", RECORD, ADMIN | {"if-none-match": '"1"'})),
    "no record": (404, Sent("GET", f"{RECORD}one", ADMIN)),
    "no token": (401, Sent("GET", RECORD)),
    "no token, no route": (401, Sent("GET", "//admin/nothing")),
    "no token, another method": (401, Sent("DELETE", RECORD)),
    "no token, OPTIONS": (401, Sent("OPTIONS", RECORD)),
    "administration, no route": (404, Sent("GET", "/admin/nothing", ADMIN)),
    "no route": (404, Sent("GET", "/nothing")),
    "HEAD, no route": (404, Sent("HEAD", "/nothing")),
    "no route, segments": (404, Sent("GET", "/v1/cas/a%2Fb")),
    "another method": (405, Sent("PUT", "/v1/cas")),
    "another method, parameter": (405, Sent("POST", PAYLOAD)),
    "HEAD, another method": (405, Sent("HEAD", "/v1/cas/has")),
    "OPTIONS": (204, Sent("OPTIONS", "/v1/resolve")),
    "OPTIONS, parameter": (204, Sent("OPTIONS", PAYLOAD)),
    "another host": (421, Sent("GET", PAYLOAD, {"host": "rebound.example.org"})),
    "HEAD, another host": (421, Sent("HEAD", PAYLOAD, {"host": "rebound.example.org"})),
    "another origin": (403, Sent("POST", "/v1/cas", {"origin": "https://example.org"}, b"x")),
    "another site": (403, Sent("POST", "/v1/cas", {"sec-fetch-site": "cross-site"}, b"x")),
    "healthy": (200, Sent("GET", "/healthz")),
    "ready": (200, Sent("HEAD", "/readyz/")),
    "document": (200, Sent("GET", "/openapi.json")),
    "explorer": (200, Sent("GET", "/")),
    "about": (200, Sent("GET", "/", {"accept": "application/json"})),
    "viewer": (200, Sent("GET", "/docs")),
    "viewer, with a slash": (308, Sent("GET", "/docs/")),
    "file, compressed": (200, Sent("HEAD", "/docs/start.js", {"accept-encoding": "gzip"})),
}


@rows("name", list(REQUESTS))
def test_every_server_of_the_application_sends_the_same(served: Ask, on_uvicorn: Ask, called: Ask, name: str) -> None:
    status, sent = REQUESTS[name]
    expected = served(*sent)
    assert (expected[0], on_uvicorn(*sent)) == (status, expected)
    assert called(*sent) == expected


def test_a_known_etag_is_304_by_all_servers(served: Ask, on_uvicorn: Ask, called: Ask) -> None:
    etag = dict(served("GET", BY_URL, {}, b"")[1])["etag"]
    for ask in (served, on_uvicorn, called):
        status, headers, body = ask("GET", BY_URL, {"if-none-match": etag}, b"")
        assert (status, dict(headers)["etag"], body) == (304, etag, b"")


BY_NAME = ("resolve", "read", "map-proof", "scan", "cas", "pages", "roots")
NAMES = [
    LEAF,
    LARGE_CID,
    ABSENT,
    ROOT,
    PAGE,
    "bafkqaaa",
    "x",
    "",
    "has",
    "car",
    "%62" + LEAF[1:],
    LEAF.upper(),
    "a%2Fb",
]
QUERIES = [
    *("path=docs/readme", "path=", "path=docs", "path=%zz", "path=%ff", "path=a+b", "path=a//b", "path=none", "a=b"),
    *(
        "index=0",
        "index=-1",
        "start=0&end=2",
        "end=1",
        "prefix=docs",
        "prefix=none",
        "after=docs",
        "limit=1",
        "limit=0",
    ),
]
HEADERS = [
    *(("range", value) for value in ("bytes=0-1", "bytes=-2", "bytes=5-2", "bytes=0-0,2-3", "items=0-1", "bytes=99-")),
    *(("if-none-match", value) for value in ("*", f'W/"{LEAF}"', f'"a", "{LEAF}"', "x")),
    *(("if-match", value) for value in ("*", f'"{LEAF}"', f'W/"{LEAF}"', "")),
    *(("if-range", value) for value in (f'"{LEAF}"', 'W/"x"')),
    *(("accept", value) for value in ("application/octet-stream", "application/json;q=0.1, */*", "*/*;q=0", "")),
    *(("content-type", value) for value in ("", "text/plain", "application/json; charset=utf-8", "multipart/mixed")),
    *(("content-encoding", value) for value in ("gzip", "identity")),
    *(("host", value) for value in ("localhost:1", "[::1]", "rebound.example.org")),
    *(("sec-fetch-site", value) for value in ("none", "cross-site")),
]
BODIES = [
    *(
        b"",
        b"{",
        b"\xff",
        b"null",
        b"{}",
        b'{"a":1}',
        RESOLVE + b" ",
        RESOLVE.replace(b'"profile"', b'"root"'),
        HAS,
        GET,
        PAGES,
    ),
    *(RESOLVE, RESOLVE.replace(b"core.", b"malt."), RESOLVE.replace(ROOT.encode(), ABSENT.encode())),
    *(query("resolve", segments=[]), query("resolve", segments=[""]), query("resolve", segments=["docs", "none"])),
    *(query("read", query={"kind": "map_key", "segments": ["none"]}), query("read", query={"kind": "list_index"})),
    *(query("map-proof", keys=[["z"], ["none"]]), query("scan", prefix=["docs"], limit=1), json.dumps(BATCH).encode()),
    *(bytes(coregw.Cid(LEAF)) * 2, bytes(coregw.Cid(LEAF)) + b"\0"),
]


@st.composite
def hot_requests(draw: st.DrawFn) -> Sent:
    """Requests for the paths of hot reads, most of them not quite right."""
    of_body = draw(st.booleans())
    path = draw(
        st.sampled_from(["resolve/batch", "cas/has", "verify/resolve", "verify/read", "cas/car", "pages/car", *BY_NAME])
    )
    path = f"/v1/{path}" if of_body else f"/v1/{draw(st.sampled_from(BY_NAME))}/{draw(st.sampled_from(NAMES))}"
    asked = "&".join(draw(st.lists(st.sampled_from(QUERIES), max_size=1 if of_body else 2)))
    headers = dict(draw(st.lists(st.sampled_from(HEADERS), max_size=3)))
    method = "POST" if of_body else draw(st.sampled_from(["GET", "GET", "HEAD", "POST", "OPTIONS", "DELETE"]))
    body = draw(st.sampled_from(BODIES)) if method == "POST" else b""
    return Sent(method, f"{path}?{asked}" if asked else path, (JSON if of_body else {}) | headers, body)


@given(hot_requests())
@example(Sent("GET", f"/v1/cas/{LARGE_CID}", {"range": "bytes=5-1048580", "if-range": f'"{LARGE_CID}"'}))
@settings(max_examples=300)
def test_hot_reads_are_answered_alike_without_the_front(served: Ask, called: Ask, sent: Sent) -> None:
    assert called(*sent) == served(*sent)


@pytest.mark.parametrize("allowed", ["*", "https://app.example.org"])
def test_headers_for_web_pages_are_those_of_the_application(allowed: str) -> None:
    app = create_app(MemoryStore(), Settings(allow_origin=allowed))
    with TestClient(app, base_url=HERE) as client:
        for answer in (
            client.get("/v1/cas/bafkqaaa"),
            client.get("/nothing"),
            client.put("/v1/cas"),
            client.options("/v1/cas", headers={"origin": "https://app.example.org"}),
            client.post("/v1/resolve", content=b"{"),
        ):
            assert answer.headers["access-control-allow-origin"] == allowed
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        written = client.post("/v1/cas", content=b"x", headers={"origin": "https://app.example.org"})
        assert written.status_code == 201
        stranger = client.post("/v1/cas", content=b"x", headers={"origin": "https://example.org"})
        assert stranger.status_code == (201 if allowed == "*" else 403)


def test_the_application_owns_the_store_while_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COREGW_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GATEWAY_WRITE_TOKEN", "a-token")
    app = create_app()
    assert isinstance(app, Litestar)
    writer = {"authorization": "Bearer a-token"}
    for _ in range(2):  # it may start again
        with TestClient(app, base_url=HERE) as client:
            assert client.post("/v1/cas", content=b"x").status_code == 401
            assert client.post("/v1/cas", content=b"x", headers=writer).status_code == 201
            with pytest.raises(Unavailable):
                asyncio.run(_reopen(tmp_path / "data"))
            assert client.get(f"/v1/cas/{coregw.payload_cid(b'x')}").content == b"x"
        asyncio.run(_reopen(tmp_path / "data"))


class Threads(ThreadPoolExecutor):
    """Litestar's threads for synchronous code, which are counted."""

    calls = 0

    def submit(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the class's
        self.calls += 1
        return super().submit(*arguments, **named)


def test_no_request_runs_in_a_thread_of_litestar() -> None:
    """It took half of the time of a short request."""
    app = create_app(MemoryStore(), Settings())
    with Threads() as threads:
        set_asyncio_executor(threads)
        try:
            with TestClient(app, base_url=HERE) as client:
                statuses = [client.post("/v1/cas", content=b"x").status_code, client.get("/healthz").status_code]
                statuses += [client.get("/v1/cas/bafkqaaa").status_code, client.get("/nothing").status_code]
        finally:
            set_asyncio_executor(None)
    assert (statuses, threads.calls) == ([201, 200, 200, 404], 0)


@pytest.mark.anyio
@pytest.mark.parametrize("root_path", ["", "/below", "/a/b"])
async def test_below_another_path_the_same_requests_need_a_token(root_path: str) -> None:
    """A server, or an application that this one is mounted in, may put a path before all of its own."""
    engine = Engine(MemoryStore())
    token = AccessToken("GATEWAY_ADMIN_TOKEN", serving.ADMIN_TOKEN)
    app: Any = create_app_over(Gateway.over(engine, Settings(allow_origin="*")), token)
    transport = httpx2.ASGITransport(app, root_path=root_path)
    async with httpx2.AsyncClient(transport=transport, base_url=HERE) as client:
        for path in ("/healthz", "//healthz/"):
            assert (await client.get(HERE + root_path + path)).status_code == 200
        for path in (RECORD, f"/{RECORD}/", "/admin", "/admin/nothing"):
            answer = await client.get(HERE + root_path + path)
            assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (401, False)
        for path in (f"/x{root_path}{RECORD}", f"{root_path}/x{root_path}{RECORD}"):
            assert (await client.get(HERE + path)).status_code == 404
        assert (await client.get(HERE + root_path + RECORD, headers=ADMIN)).status_code == 404
        role = (await client.post(f"{HERE}{root_path}/v1/verify/read")).headers["x-core-verification-role"]
        assert role == "diagnostic"
    await engine.close()


def test_requests_are_logged_with_their_ids_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(MemoryStore(), Settings(access_log=True))
    before = requests_counted()
    with caplog.at_level(logging.INFO, "coregw.access"), TestClient(app, base_url=HERE) as client:
        stored = client.post("/v1/cas", content=b"x", headers={"x-request-id": "mine"})
        missing = client.get(f"{HERE}//nothing", headers={"x-request-id": "not sane"})
        stranger = client.get("/healthz", headers={"host": "rebound.example.org"})
    assert (stored.headers["x-request-id"], len(missing.headers["x-request-id"])) == ("mine", 16)
    logged = [record.__dict__["fields"] for record in caplog.records if record.name == "coregw.access"]
    assert [(each["method"], each["path"], each["status"]) for each in logged] == [
        ("POST", "/v1/cas", 201),
        ("GET", "//nothing", 404),
        ("GET", "/healthz", 421),
    ]
    assert [each["bytes"] for each in logged] == [len(each.content) for each in (stored, missing, stranger)]
    assert requests_counted() - before == Counter(
        {("POST", "/v1/cas", "201"): 1, ("GET", "none", "404"): 1, ("GET", "none", "421"): 1}
    )


def requests_counted() -> Counter[tuple[str, ...]]:
    """How many requests this process has answered, by method, route and status."""
    name = "coregw_requests_total"
    return Counter({each.labels: int(cast("float", each.value)) for each in request_samples() if each.name == name})


def test_malformed_settings_are_refused_before_the_application_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COREGW_HOSTS", "not a name")
    with pytest.raises(InvalidInput):
        create_app()


def test_a_store_that_is_not_one_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(AssertionError, match="is not a coregw store"):
        uvicorn_of(tmp_path)
