"""Published records of a scope, as the clients list them: pages joined, and pages of a lying gateway refused."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import serving
from coregw import Cid, Map
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.engine import Engine
from coregw.errors import ProofError, TooLarge, Unauthorized
from coregw.store.memory import MemoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_all_revisions_of_all_names_are_listed_over_pages() -> None:
    store = MemoryStore()
    engine = Engine(store)
    root = json.loads(await engine.create_root(b'{"arcs":{}}'))["root"]
    for name, count in (("a", 2), ("b", 1003), ("c", 1)):
        for _ in range(count):
            await engine.publications.publish("docs", name, root, None)
    expected = [("a", 1), ("a", 2), *(("b", n) for n in range(1, 1004)), ("c", 1)]
    with serving.thread(store, is_administered=True) as url:
        with Client(url) as client:
            found = list(client.history_of_scope("docs", serving.ADMIN_TOKEN))
            assert [(each.name, each.revision) for each in found] == expected
            assert list(client.history_of_scope("other", serving.ADMIN_TOKEN)) == []
            with pytest.raises(Unauthorized):
                list(client.history_of_scope("docs", "another-token"))
            assert client.has_payloads([]) == []
        async with AsyncClient(url) as other:
            assert [each async for each in other.history_of_scope("docs", serving.ADMIN_TOKEN)] == found
        with Client(url, ClientSettings(max_entries=500)) as client, pytest.raises(TooLarge):
            list(client.history_of_scope("docs", serving.ADMIN_TOKEN))


@contextmanager
def lying(answer: Callable[[str], object]) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_pages_that_never_end_are_refused() -> None:
    for answer in (
        lambda path: {"records": [], "next": "a"},
        lambda path: {"records": [record("s", "n")]} | ({"next": 1} if "history" in path else {}),
        lambda path: {"records": [1]},
    ):
        with lying(answer) as url, Client(url) as client, pytest.raises(ProofError):
            list(client.history_of_scope("s", "token"))


def test_pages_that_always_go_on_without_revisions_are_refused() -> None:
    """A listing that never repeats itself, and has nothing that a limit counts."""
    seen: list[str] = []

    def names_of_nothing(path: str) -> object:
        seen.append(path)
        if len(seen) > 100:
            return None
        return {"records": [], "next": len(seen)} if "history" in path else {"records": [], "next": "a" * len(seen)}

    def revisions_of_nothing(path: str) -> object:
        if "history" in path:
            return names_of_nothing(path)
        return {"records": [record("s", "n")]}

    def names_without_revisions(path: str) -> object:
        seen.append(path)
        if "history" in path:
            return {"records": []}
        return None if len(seen) > 100 else {"records": [record("s", "n")], "next": "a" * len(seen)}

    for answer in (names_of_nothing, revisions_of_nothing, names_without_revisions):
        seen.clear()
        with lying(answer) as url, Client(url) as client, pytest.raises(ProofError, match=r"follow|without revisions"):
            list(client.history_of_scope("s", "token"))
        assert len(seen) <= 2


def test_records_of_another_name_are_refused() -> None:
    for other in (record("production", "n"), record("s", "m")):
        with (
            lying(lambda path, other=other: {"records": [other if "history" in path else record("s", "n")]}) as url,  # type: ignore[misc]
            Client(url) as client,
            pytest.raises(ProofError, match="has a record of "),
        ):
            list(client.history_of_scope("s", "token"))


def test_roots_of_records_are_in_lower_case_base32() -> None:
    good, root = record("s", "n"), Map({}).root
    in_hex = f"f{bytes(Cid(root)).hex()}"
    for wrong in (root.upper(), in_hex, "r", ""):
        for member in ("root", "previous_root"):
            bad = good | {member: wrong}

            def answer(path: str, bad: dict[str, object] = bad) -> object:
                if path.endswith(("roots", "history")):
                    return {"records": [bad if "history" in path else good]}
                return {"status": "unsigned", "record": bad}

            with lying(answer) as url, Client(url) as client:
                with pytest.raises(ProofError):
                    list(client.history_of_scope("s", "token"))
                with pytest.raises(ProofError):
                    client.publications.get("s", "n")
    with lying(lambda path: {"status": "unsigned", "record": good}) as url, Client(url) as client:
        assert client.publications.get("s", "n").root == root


def record(scope: str, name: str) -> dict[str, object]:
    members = {"scope": scope, "name": name, "revision": 1, "previous_root": None, "frozen": False}
    return members | {"root": Map({}).root, "published_at": "2024-02-29T12:34:56Z"}
