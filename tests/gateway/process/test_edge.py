"""``coregw serve --upstream``: an edge answers as its upstream does, and with what it has while that is away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import anyio
import httpx2
import pytest

import serving
from coregw import payload_cid
from coregw.client import Client, ClientSettings
from coregw.client.query import map_keys
from coregw.client.static.export import export_static
from coregw.errors import CoregwError, InvalidInput, Unavailable
from coregw.gateway.settings import Settings
from coregw.gateway.stores import open_edge
from gateways import Reply, guarded_gateway, lying_gateway
from static_trees import Sample, python_server, sample

SETTINGS = ClientSettings(attempts=1)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def reads(s: Sample) -> list[Callable[[Client], object]]:
    return [
        lambda client: client.resolve(s.root, "nested/b/7"),
        lambda client: client.prove_key(s.root, "none"),
        lambda client: list(client.walk(s.root)),
        lambda client: list(client.diff(s.root, s.changed)),
        lambda client: [*client.contents(s.file), *client.contents(s.large)],
        lambda client: client.resolve_many(s.root, ["directory 1/file 1", "none"]),
        lambda client: client.prove_keys(s.root, ["directory 2/file 2", "none"]),
        lambda client: client.query(map_keys(s.root, ["directory 2/file 2", "none"])),  # the other form of the same
        lambda client: client.has_payloads([s.large]),
    ]


def test_an_edge_answers_as_its_upstream_does_and_while_that_is_away(stack: ExitStack, tmp_path: Path) -> None:
    upstream = stack.enter_context(serving.process(tmp_path / "upstream"))
    edge = stack.enter_context(serving.process(tmp_path / "edge", upstream=upstream.url))
    second = stack.enter_context(serving.process(tmp_path / "second", upstream=edge.url))  # an edge of an edge
    (source := tmp_path / "source").mkdir()
    with Client(upstream.url, SETTINGS) as client:
        s = sample(client, source)
        expected = [read(client) for read in reads(s)]
        absent = client.create_root({"absent": s.large})
    with Client(second.url, SETTINGS) as client:
        assert [read(client) for read in reads(s)] == expected
        client.get(s.folder, tmp_path / "restored")
        assert client.diff_tree(s.folder, tmp_path / "restored").differences == []
        for write in (
            lambda: client.create_root({"a": s.large}),
            lambda: client.put_payload(b"x"),
            lambda: client.put_payloads([b"x", b"y"]),
            lambda: client.update(s.root, {"a": s.large}),
            lambda: client.add(source, use_cache=False),
        ):
            with pytest.raises(InvalidInput, match="accepts no writes: send them to") as caught:
                write()
            assert caught.value.code == "read_only"
    assert httpx2.get(f"{edge.url}/readyz").status_code == 200
    asked = requests(tmp_path / "edge")
    upstream.end()
    for url in (edge.url, second.url):
        with Client(url, SETTINGS) as client:
            assert [read(client) for read in reads(s)[:-1]] == expected[:-1]
    assert requests(tmp_path / "edge") == asked
    for url in (edge.url, second.url):
        with Client(url, SETTINGS) as client, pytest.raises(Unavailable):
            client.resolve(absent, "absent")
    assert requests(tmp_path / "edge") > asked  # for the root that it does not have, again and again
    assert httpx2.get(f"{edge.url}/readyz").status_code == 200
    assert edge.end() == 0
    again = stack.enter_context(serving.process(tmp_path / "edge", upstream=upstream.url))
    with Client(again.url, SETTINGS) as client:
        assert [read(client) for read in reads(s)[:-1]] == expected[:-1]


def requests(data: Path) -> int:
    """How many requests an edge has sent; its metrics are complete."""
    with serving.control(data) as control:
        lines = control.get("/metrics").text.splitlines()
    values = {
        line.split()[0]: float(line.split()[1]) for line in lines if line.startswith(("coregw_edge", "coregw_up"))
    }
    assert values["coregw_edge_hits_total"] + values["coregw_edge_misses_total"] > 0
    assert values["coregw_edge_evicted_total"] == 0
    assert 0 < values["coregw_edge_bytes"] < values["coregw_edge_max_bytes"] == 10 << 30
    assert values["coregw_upstream_received_bytes_total"] > values["coregw_edge_bytes"] / 2
    return int(values["coregw_upstream_requests_total"])


def test_an_edge_with_workers_keeps_one_cache(stack: ExitStack, tmp_path: Path) -> None:
    upstream = stack.enter_context(serving.process(tmp_path / "upstream"))
    (source := tmp_path / "source").mkdir()
    with Client(upstream.url, SETTINGS) as client:
        s = sample(client, source)
        expected = [read(client) for read in reads(s)]
    edge = stack.enter_context(serving.process(tmp_path / "edge", upstream=upstream.url, workers=2))
    for _ in range(4):  # each client has connections of its own, over which the kernel distributes the workers
        with Client(edge.url, SETTINGS) as client:
            assert [read(client) for read in reads(s)] == expected
    asked = requests(tmp_path / "edge")
    upstream.end()
    for _ in range(4):
        with Client(edge.url, SETTINGS) as client:
            assert [read(client) for read in reads(s)[:-1]] == expected[:-1]
            with pytest.raises(InvalidInput, match="accepts no writes"):
                client.put_payload(b"x")
    assert requests(tmp_path / "edge") == asked


def test_an_edge_shows_its_upstream_the_headers_of_its_variables(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = stack.enter_context(serving.process(tmp_path / "upstream"))
    with Client(upstream.url, SETTINGS) as client:
        root = client.create_root({"a": (cid := client.put_payload(b"a"))})
    guarded = stack.enter_context(guarded_gateway(upstream.url, "edge"))
    environ = {"COREGW_UPSTREAM_HEADERS": "x-key: edge"}
    edge = stack.enter_context(serving.process(tmp_path / "edge", environ, upstream=guarded, upstream_writes="pass"))
    with Client(edge.url, SETTINGS) as client:
        assert client.resolve(root, "a") == cid
        assert client.create_root({"b": client.put_payload(b"b")})
    monkeypatch.setenv("COREGW_UPSTREAM_HEADERS", "no header")
    with pytest.raises(InvalidInput, match=r"headers\[0\]: expected Name: value"):
        anyio.run(open_edge, Settings(data=tmp_path / "other", upstream=guarded))


def test_an_edge_sends_whole_payloads_whatever_length_its_upstream_claims(stack: ExitStack, tmp_path: Path) -> None:
    """What an edge sends for a CID is kept by caches for a year."""
    upstream = stack.enter_context(serving.process(tmp_path / "upstream"))
    payloads = [b"short" * 100, *(bytes([letter]) * length for letter, length in ((1, 3 << 20), (2, 1_500_000)))]
    payloads.append(bytes([3]) * 1_400_000)
    with Client(upstream.url, SETTINGS) as client:
        cids = [client.put_payload(payload) for payload in payloads]
    claimed = [7]

    def claim(reply: Reply) -> Reply:
        return replace(reply, headers={"content-length": str(claimed[0])}) if reply.method == "HEAD" else reply

    lying = stack.enter_context(lying_gateway(claim, upstream.url))
    edge = stack.enter_context(serving.process(tmp_path / "edge", upstream=lying))
    for cid, payload in zip(cids[:2], payloads, strict=False):
        part = httpx2.get(f"{edge.url}/v1/cas/{cid}", headers={"Range": "bytes=1-9"})
        assert (part.status_code, part.headers["content-range"]) == (206, f"bytes 1-9/{len(payload)}")
        assert httpx2.get(f"{edge.url}/v1/cas/{cid}").content == payload
        assert httpx2.head(f"{edge.url}/v1/cas/{cid}").headers["content-length"] == str(len(payload))
    body = {"profile": "cas.get-batch/v0alpha1"}
    for claimed[0], cid in ((7, cids[2]), (1_200_000, cids[3])):
        with pytest.raises(httpx2.RemoteProtocolError):
            httpx2.post(f"{edge.url}/v1/cas/car", json=body | {"cids": [*cids[:2], cid]})
    answer = httpx2.post(f"{edge.url}/v1/cas/car", json=body | {"cids": cids}).content  # they were kept
    assert all(payload in answer for payload in payloads)


def test_an_edge_of_a_static_tree(stack: ExitStack, tmp_path: Path) -> None:
    (source := tmp_path / "source").mkdir()
    with serving.process(tmp_path / "upstream") as upstream, Client(upstream.url, SETTINGS) as client:
        s = sample(client, source)
        expected = [read(client) for read in reads(s)]
        for root in (s.root, s.changed):
            anyio.run(export_static, upstream.url, root, tmp_path / "tree")
    url = stack.enter_context(python_server(tmp_path / "tree"))
    edge = stack.enter_context(serving.process(tmp_path / "edge", upstream=url))
    with Client(edge.url, SETTINGS) as client:
        assert [read(client) for read in reads(s)] == expected
        name = payload_cid(b"payload 250")
        payload = tmp_path / "tree" / "v1" / "cas" / name
        payload.write_bytes(b"changed")
        with pytest.raises(CoregwError, match="internal") as caught:
            client.get_payload(name)
        assert type(caught.value) is CoregwError
        payload.write_bytes(b"payload 250")
        assert client.get_payload(name) == b"payload 250"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"upstream": "nonsense"}, "setting upstream: gateway address 'nonsense': expected a URL"),
        ({"upstream": "nonsense", "workers": 2}, "setting upstream: gateway address 'nonsense': expected a URL"),
        ({"upstream": "http://127.0.0.1:1", "store": "postgresql://a/b"}, "setting upstream needs a RocksDB store"),
    ],
)
def test_a_wrong_upstream_is_refused(settings: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(serving.DidNotStart, match=message), serving.process(tmp_path / "data", **settings):
        pass
