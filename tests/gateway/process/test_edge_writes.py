"""Edges that pass writes on, and published names at an edge: fresh, stale, and absent."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import httpx2
import pytest

import serving
from coregw import Map, payload_cid
from coregw.client import Client, ClientSettings
from coregw.client.static.export import export_static
from coregw.errors import Conflict, RootNotFound, Unavailable
from coregw.messages import Change, Delta, Endpoint
from gateways import lying_gateway
from static_trees import python_server, sample

SETTINGS = ClientSettings(attempts=1)
UPSTREAM_TOKEN = "the-token-of-the-upstream"
RECORDS = "/admin/v1/scopes/docs/roots"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_what_the_upstream_has_acknowledged_is_acknowledged(stack: ExitStack, tmp_path: Path) -> None:
    (source := tmp_path / "source").mkdir()
    upstream = stack.enter_context(serving.process(tmp_path / "upstream"))
    settings = {"upstream": upstream.url, "upstream_writes": "pass"}
    edge = stack.enter_context(serving.process(tmp_path / "edge", **settings))
    workers = stack.enter_context(serving.process(tmp_path / "workers", **settings, workers=2))
    direct = stack.enter_context(Client(upstream.url, SETTINGS))
    client = stack.enter_context(Client(edge.url, SETTINGS))
    s = sample(client, source)  # every way to write: payloads, batches, builds, lists, mutations, CARs
    for root in (s.root, s.changed, s.folder, s.changed_folder, s.blake3):
        assert direct.is_complete(root)
        assert client.is_complete(root)
    assert list(client.walk(s.changed_folder)) == list(direct.walk(s.changed_folder))
    large = bytes(range(256)) * 9000
    assert client.put_payload(large) == payload_cid(large)
    assert b"".join(direct.contents(payload_cid(large))) == large
    car = tmp_path / "a.car"
    with Client(workers.url, SETTINGS) as other:
        own = other.create_root({"a": other.put_payload(b"a")})
        other.export_car(own, car, payloads=True)
    assert client.import_car(car).roots == [own]
    answer = httpx2.post(f"{edge.url}/v1/cas", content=b"hello")
    assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/cas/{payload_cid(b'hello')}")

    endpoint = Endpoint(target=s.file)
    removal, addition = Change(path="new", before=endpoint), Change(path="new", after=endpoint)
    absent = Map({"absent": s.large}).root
    same: list[Callable[[Client], object]] = [
        lambda c: c.mutate(s.root, [Delta(kind="map", changes=[removal])]),
        lambda c: c.mutate(absent, [Delta(kind="map", changes=[addition])]),
    ]
    for write, kind in zip(same, (Conflict, RootNotFound), strict=True):
        found = []
        for each in (direct, client):
            with pytest.raises(kind) as caught:
                write(each)
            found.append((type(caught.value), caught.value.code))
        assert found[0] == found[1]
    for url in (upstream.url, edge.url):
        refused = httpx2.post(f"{url}/v1/cas?codec=none", content=b"x")
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_codec")
        refused = httpx2.post(f"{url}/v1/roots", json={"arcs": {"": "x"}})
        assert (refused.status_code, refused.json()["error"]) in {(400, "invalid_path"), (400, "invalid_cid")}
        refused = httpx2.post(f"{url}/v1/roots/x%2F..%2Fy/complete")
        assert refused.status_code in (400, 404)
    upstream.end()
    for write in (lambda: client.put_payload(b"x"), lambda: client.has_payloads([s.large]), lambda: client.build({})):
        with pytest.raises(Unavailable):
            write()
    assert list(client.walk(s.changed_folder))  # what it has is read


def test_names_are_read_through_and_published(stack: ExitStack, tmp_path: Path) -> None:
    upstream = stack.enter_context(serving.process(tmp_path / "upstream", {"GATEWAY_ADMIN_TOKEN": UPSTREAM_TOKEN}))
    tokens = serving.ADMIN | {"GATEWAY_UPSTREAM_TOKEN": UPSTREAM_TOKEN}
    common = {"upstream": upstream.url, "upstream_name_seconds": 0.2}
    edge = stack.enter_context(serving.process(tmp_path / "edge", tokens, **common, upstream_writes="pass"))
    reading = stack.enter_context(serving.process(tmp_path / "reading", tokens, **common))
    wrong = stack.enter_context(serving.process(tmp_path / "wrong", serving.ADMIN, **common))
    a, b, c, d = (
        stack.enter_context(httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}))
        for url, token in (
            (upstream.url, UPSTREAM_TOKEN),
            (edge.url, serving.ADMIN_TOKEN),
            (reading.url, serving.ADMIN_TOKEN),
            (wrong.url, serving.ADMIN_TOKEN),
        )
    )
    with Client(edge.url, SETTINGS) as client:
        roots = [client.create_root({str(i): payload_cid(b"a")}) for i in range(2)]
    assert httpx2.get(f"{edge.url}{RECORDS}/main").status_code == 401  # the edge's own token
    assert httpx2.get(f"{edge.url}{RECORDS}/main", headers=a.headers).status_code == 401
    assert b.get(f"{RECORDS}/main").json()["error"] == "record_not_found"
    published = b.post(RECORDS, json={"name": "main", "root": roots[0], "expected_revision": 0})
    assert (published.status_code, published.json()["revision"]) == (200, 1)
    again = b.post(RECORDS, json={"name": "main", "root": roots[0], "expected_revision": 0})
    assert (again.status_code, again.json()["error"], again.json()["details"]) == (
        409,
        "revision_mismatch",
        {"revision": 1},
    )
    for each in (b, c):
        answer = each.get(f"{RECORDS}/main")
        assert answer.json() == a.get(f"{RECORDS}/main").json()
        assert answer.headers["age"] == "0"
        assert answer.headers["cache-status"] == "coregw-edge; hit; ttl=0"
        assert answer.headers["cache-control"] == "no-store"
        for path in (RECORDS, f"{RECORDS}/main/history", f"{RECORDS}?limit=1"):
            assert each.get(path).json() == a.get(path).json()
    refused = c.post(RECORDS, json={"name": "main", "root": roots[1]})
    assert (refused.status_code, refused.json()["error"]) == (403, "read_only")
    without = d.get(f"{RECORDS}/main")
    assert (without.status_code, without.json()["error"]) == (503, "unavailable")
    assert "GATEWAY_UPSTREAM_TOKEN" in without.json()["message"]
    a.post(RECORDS, json={"name": "main", "root": roots[1]})
    for _ in range(1000):
        if b.get(f"{RECORDS}/main").json()["revision"] == 2:
            break
    assert b.get(f"{RECORDS}/main").json()["root"] == roots[1]
    upstream.end()
    for _ in range(1000):
        answer = b.get(f"{RECORDS}/main")
        if "away" in answer.headers["cache-status"]:
            break
    assert answer.json()["root"] == roots[1]
    assert answer.headers["cache-status"].startswith("coregw-edge; hit; ttl=-")
    assert b.get(f"{RECORDS}/other").status_code == 503
    for killed, data, root, workers in ((edge, "edge", roots[1], 1), (reading, "reading", roots[0], 2)):
        killed.end(signal.SIGKILL)  # what was served is served after a restart, with its age
        with serving.process(tmp_path / data, tokens, **common, workers=workers) as again:
            answer = httpx2.get(f"{again.url}{RECORDS}/main", headers=b.headers)
            assert (answer.status_code, answer.json()["root"]) == (200, root)
            assert answer.headers["cache-status"].startswith("coregw-edge; hit; ttl=-")
            assert httpx2.get(f"{again.url}{RECORDS}/other", headers=b.headers).status_code == 503
    elsewhere = {**common, "upstream": wrong.url}
    with serving.process(tmp_path / "edge", tokens, **elsewhere) as other:  # what another upstream said is not known
        assert httpx2.get(f"{other.url}{RECORDS}/main", headers=b.headers).status_code == 503


def test_a_record_of_the_upstream_is_not_kept_unless_its_roots_are_cids(stack: ExitStack, tmp_path: Path) -> None:
    record = {"scope": "docs", "name": "main", "root": Map({}).root, "revision": 1, "previous_root": None}
    record |= {"published_at": "2026-01-01T00:00:00Z", "frozen": False}
    said = [record]
    upstream = stack.enter_context(lying_gateway(lambda reply: reply.with_body(json.dumps(said[0]).encode())))
    edge = stack.enter_context(
        serving.process(tmp_path / "edge", serving.ADMIN, upstream=upstream, upstream_name_seconds=0.001)
    )
    with httpx2.Client(base_url=edge.url, headers={"Authorization": f"Bearer {serving.ADMIN_TOKEN}"}) as client:
        for lie in ({"root": "x" * 1_000_000}, {"root": ""}, {"previous_root": "no CID"}, {"name": "x" * 1_000_000}):
            said[0] = record | lie
            refused = client.get(f"{RECORDS}/main")
            assert refused.status_code >= 500
            assert len(refused.content) < 1000
        said[0] = record
        assert client.get(f"{RECORDS}/main").json()["root"] == record["root"]


def test_names_of_a_static_tree_are_read(stack: ExitStack, tmp_path: Path) -> None:
    with serving.process(tmp_path / "upstream") as upstream, Client(upstream.url, SETTINGS) as client:
        root = client.create_root({"a": client.put_payload(b"a")})

        async def export() -> None:
            await export_static(upstream.url, root, tmp_path / "tree", name=("docs", "main"))

        anyio.run(export)
    url = stack.enter_context(python_server(tmp_path / "tree"))
    edge = stack.enter_context(serving.process(tmp_path / "edge", serving.ADMIN, upstream=url))
    answer = httpx2.get(f"{edge.url}{RECORDS}/main", headers={"Authorization": f"Bearer {serving.ADMIN_TOKEN}"})
    assert (answer.json()["root"], answer.headers["age"]) == (root, "0")
    with pytest.raises(serving.DidNotStart, match="needs a gateway as upstream"):
        stack.enter_context(serving.process(tmp_path / "other", upstream=url, upstream_writes="pass"))
