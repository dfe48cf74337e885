"""Batches of resolves: many paths of one root in one request."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import pytest

import coregw
import serving
from coregw.engine import Engine, EngineLimits
from coregw.errors import StoreDamaged
from coregw.messages.payloads import MAX_BATCH_PATHS
from coregw.store import Table
from coregw.store.memory import MemoryStore
from tables import rows

Ask = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]
Cid = Callable[..., str]

RESOLVE = "/v1/resolve/batch"


def alone(root: str, path: Sequence[str]) -> dict[str, Any]:
    return {"profile": "core.resolve/v0alpha1", "root": root, "segments": list(path)}


def test_each_batch_outcome_equals_a_single_resolve(ask: Ask, tree: dict[str, str]) -> None:
    paths: list[list[str]] = [
        ["docs", "readme"],
        [],
        ["docs", "inner"],
        ["no", "such"],
        ["docs"],
        ["list", "3"],
        ["list", "7"],
        ["docs", "readme"],
        ["docs", "deep", "er"],
        ["@payload"],
        ["docs", "readme", "further"],
    ]
    outcomes = ask(RESOLVE, {"root": tree["root"], "paths": paths}).json()["results"]
    assert len(outcomes) == len(paths)
    for path, outcome in zip(paths, outcomes, strict=True):
        answer = ask("/v1/resolve", alone(tree["root"], path))
        if answer.status_code == 200:
            assert outcome == {"result": answer.json()}
            coregw.verify_resolve(json.dumps(alone(tree["root"], path)), json.dumps(outcome["result"]))
        else:
            assert outcome == {"error": answer.json()}
    assert sum("error" in outcome for outcome in outcomes) == 3


def test_1000_paths_of_a_large_map_are_proven(ask: Ask, cid_of: Cid) -> None:
    arcs = {f"{i * 2654435761 % 2**32:08x}/{i}": cid_of(str(i).encode()) for i in range(20_000)}
    root = ask("/v1/roots", {"arcs": arcs}).json()["root"]
    assert MAX_BATCH_PATHS == 1000
    paths = [path.split("/") for path in list(arcs)[::20]]
    answer = ask(RESOLVE, {"root": root, "paths": paths})
    assert answer.status_code == 200
    for path, outcome in zip(paths, answer.json()["results"], strict=True):
        target = coregw.verify_resolve(json.dumps(alone(root, path)), json.dumps(outcome["result"]))
        assert target == arcs["/".join(path)]


def test_a_batch_resolves_at_most_1000_paths(ask: Ask, expect_refusal: Refusal, tree: dict[str, str]) -> None:
    assert len(ask(RESOLVE, {"root": tree["root"], "paths": [["docs"]] * 1000}).json()["results"]) == 1000
    answer = ask(RESOLVE, {"root": tree["root"], "paths": [["docs"]] * 1001})
    assert "1000" in expect_refusal(answer, 413, "too_large")


def test_an_empty_batch_has_no_results(ask: Ask, tree: dict[str, str]) -> None:
    assert ask(RESOLVE, {"root": tree["root"], "paths": []}).json() == {"results": []}


@rows("bad", [[""], ["a", ""], ["a/b"], ["a" * 4097]])
def test_one_bad_path_names_its_index(ask: Ask, expect_refusal: Refusal, tree: dict[str, str], bad: list[str]) -> None:
    answer = ask(RESOLVE, {"root": tree["root"], "paths": [["docs"], ["list"], bad]})
    assert "paths[2]" in expect_refusal(answer, 400, "invalid_path")
    assert answer.json()["details"] == {"index": 2}


def test_malformed_paths_of_a_batch_are_refused(ask: Ask, expect_refusal: Refusal, tree: dict[str, str]) -> None:
    for paths in ("docs", ["docs"], [[1]], [["docs"], None], {"0": []}):
        expect_refusal(ask(RESOLVE, {"root": tree["root"], "paths": paths}), 400, "invalid_request")
    body = {"root": tree["root"], "paths": [], "profile": "core.resolve/v0alpha1"}
    expect_refusal(ask(RESOLVE, body), 400, "invalid_request")


def test_invalid_root_fails_the_whole_batch(ask: Ask, expect_refusal: Refusal, tree: dict[str, str]) -> None:
    expect_refusal(ask(RESOLVE, {"root": "x", "paths": []}), 400, "invalid_cid")
    expect_refusal(ask(RESOLVE, {"root": tree["leaf"], "paths": [["a"]]}), 400, "kind_mismatch")
    assert ask(RESOLVE, {"root": tree["leaf"], "paths": [[]]}).json()["results"][0]["result"]["target"] == tree["leaf"]


def test_unheld_root_fails_every_path_but_the_empty_one(ask: Ask, cid_of: Cid) -> None:
    root = coregw.Map({"never": cid_of(b"stored, this")}).root
    outcomes = ask(RESOLVE, {"root": root, "paths": [["never"], [], ["x"]]}).json()["results"]
    assert [outcome.get("error", {}).get("error") for outcome in outcomes] == ["root_not_found", None, "root_not_found"]
    assert outcomes[1]["result"]["target"] == root


def test_batch_response_past_its_limit_is_refused() -> None:
    with serving.thread(MemoryStore(), batch_answer_bytes=2000) as url:
        root = httpx2.post(f"{url}/v1/roots", json={"arcs": {"a": coregw.payload_cid(b"a")}}).json()["root"]
        body = {"root": root, "paths": [["a"]] * 2}
        assert httpx2.post(url + RESOLVE, json=body).status_code == 200
        answer = httpx2.post(url + RESOLVE, json=body | {"paths": [["a"]] * 20})
        assert (answer.status_code, answer.json()["error"]) == (413, "too_large")


def test_a_request_that_visits_too_many_nodes_is_refused_whatever_its_route(
    cid_of: Cid, expect_refusal: Refusal
) -> None:
    with serving.thread(MemoryStore(), max_nodes=2000) as url:

        def ask(route: str, body: object) -> httpx2.Response:
            return httpx2.post(url + route, json=body)

        arcs = {"/".join("a" * count): cid_of(b"%d" % count) for count in range(1, 200)}
        root = ask("/v1/roots", {"arcs": arcs}).json()["root"]
        empty = ask("/v1/roots", {"arcs": {}}).json()["root"]
        short, long = ["a"] * 3, ["a"] * 150
        outcomes = ask(RESOLVE, {"root": root, "paths": [long] * 5}).json()["results"]
        assert [outcome["result"]["target"] for outcome in outcomes] == [arcs["/".join(long)]] * 5
        assert len(ask(RESOLVE, {"root": root, "paths": [short] * 20}).json()["results"]) == 20
        change = {"path": "b", "after": {"target": cid_of(b"b")}}
        refused = [
            ask(RESOLVE, {"root": root, "paths": [long] * 50}),
            ask(RESOLVE, {"root": root, "paths": [[*long, "b"]]}),
            ask("/v1/resolve", alone(root, [*long, "b"])),
            ask(
                "/v1/map-proof",
                {"profile": "core.map-proof/v0alpha1", "root": root, "keys": [[f"{i}"] for i in range(1000)]},
            ),
            ask("/v1/scan", {"profile": "core.scan/v0alpha1", "root": root, "prefix": [], "limit": 199}),
            httpx2.get(f"{url}/v1/roots/{root}/diff/{empty}"),
        ]
        for answer in refused:
            assert "2000 tree nodes" in expect_refusal(answer, 413, "too_large")
        ask(f"/v1/roots/{root}/mutations", {"deltas": [{"kind": "map", "changes": [change]}]}).raise_for_status()


# --- how a batch reads the store --------------------------------------------------------------------------------------


class Counting(MemoryStore):
    """A store that records what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.page_reads: list[list[bytes]] = []
        self.root_reads: list[list[bytes]] = []

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        (self.page_reads if table is Table.PAGES else self.root_reads).append(list(keys))
        return await super().get(table, keys)


async def _forest(engine: Engine) -> tuple[str, list[list[str]]]:
    """A map of maps, and a path to each of their leaves' neighbours."""
    leaf = coregw.payload_cid(b"leaf")
    nested = [
        json.loads(await engine.create_root(json.dumps({"arcs": {f"{i}/{j:05}": leaf for j in range(3000)}}).encode()))[
            "root"
        ]
        for i in range(4)
    ]
    root = json.loads(
        await engine.create_root(json.dumps({"arcs": {f"map{i}": cid for i, cid in enumerate(nested)}}).encode())
    )["root"]
    return root, [[f"map{i}", str(i), f"{j:05}"] for i in range(4) for j in range(0, 3000, 60)]


@pytest.mark.anyio
@pytest.mark.parametrize("cache_bytes", [64 << 20, 0], ids=["cached", "nothing is cached"])
async def test_batch_reads_the_store_once_per_level_of_depth(cache_bytes: int) -> None:
    store = Counting()
    root, paths = await _forest(Engine(store))
    store.page_reads.clear()
    store.root_reads.clear()
    engine = Engine(store, EngineLimits(cache_bytes=cache_bytes, node_budget=100))
    body = json.dumps({"root": root, "paths": paths}).encode()
    outcomes = json.loads(await engine.resolve_batch(body))["results"]
    for path, outcome in zip(paths, outcomes, strict=True):
        coregw.verify_resolve(json.dumps(alone(root, path)), json.dumps(outcome["result"]))
    assert [len(roots) for roots in store.root_reads] == [1, 4]
    assert len(store.page_reads) <= 5
    assert all(len(set(pages)) == len(pages) for pages in store.page_reads)
    if cache_bytes:
        fetched = list(itertools.chain(*store.page_reads))
        assert len(fetched) <= len(set(fetched)) + 1  # one that is read early may be wanted before it is in the cache
        store.page_reads.clear()
        assert json.loads(await engine.resolve_batch(body))["results"] == outcomes
        assert store.page_reads == []


@pytest.mark.anyio
async def test_missing_page_fails_the_whole_batch() -> None:
    class Forgetful(Counting):
        async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
            rows = await super().get(table, keys)
            return [None] * len(keys) if table is Table.PAGES else rows

    store = Forgetful()
    root, paths = await _forest(Engine(store))
    with pytest.raises(StoreDamaged, match="missing"):
        await Engine(store).resolve_batch(json.dumps({"root": root, "paths": paths}).encode())
