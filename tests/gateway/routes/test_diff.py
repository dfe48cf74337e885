"""Diffs of two maps: complete, paged and proven, byte for byte those of a second implementation."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import pytest

import coregw
import diff_model
from coregw.engine import Engine, EngineLimits
from coregw.errors import InvalidInput, ProofError, StoreDamaged
from coregw.messages import decode
from coregw.messages.query import DiffResult
from coregw.store import Table
from coregw.store.memory import MemoryStore
from tables import rows

Ask = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]
Json = dict[str, Any]
Forge = Callable[[Json], object]

CIDS = [coregw.payload_cid(bytes([number])) for number in range(3)]
BEFORE = {f"docs/{i:03}": CIDS[0] for i in range(100)} | {"docs": CIDS[0], "gone": CIDS[0], "same/x": CIDS[1]}
AFTER = BEFORE | {"docs/007": CIDS[1], "docs": CIDS[1], "docs/new/deep": CIDS[2], "docs\0": CIDS[2]}
AFTER.pop("gone")
AFTER.pop("docs/050")


def expected(below: str = "") -> list[tuple[list[str], str | None, str | None]]:
    """Return the differences of BEFORE and AFTER at and below a path, in key order."""
    paths = [p for p in BEFORE.keys() | AFTER.keys() if not below or p == below or p.startswith(f"{below}/")]
    paths = [path for path in sorted(paths, key=coregw.encode_key) if BEFORE.get(path) != AFTER.get(path)]
    return [(path.split("/"), BEFORE.get(path), AFTER.get(path)) for path in paths]


@pytest.fixture(scope="module")
def roots(ask: Ask) -> tuple[str, str]:
    a, b = (ask("/v1/roots", {"arcs": arcs}).json()["root"] for arcs in (BEFORE, AFTER))
    return a, b


@pytest.fixture(scope="module")
def named(ask: Ask, roots: tuple[str, str], tree: dict[str, str]) -> dict[str, str]:
    """Return a held map, and roots that cannot be compared with it."""
    return {
        "A": roots[0],
        "payload": tree["leaf"],
        "list": tree["list"],
        "blake3": ask("/v1/roots", {"arcs": BEFORE, "suite": "blake3"}).json()["root"],
        "elsewhere": coregw.Map({"never": CIDS[0], "stored": CIDS[0]}).root,
    }


def diff(client: httpx2.Client, a: str, b: str, **parameters: object) -> httpx2.Response:
    return client.get(f"/v1/roots/{a}/diff/{b}", params={name: str(value) for name, value in parameters.items()})


def test_all_differences_are_found_and_proven(client: httpx2.Client, roots: tuple[str, str]) -> None:
    answer = diff(client, *roots)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    found = coregw.verify_diff(*roots, answer.content)
    assert found == coregw.Diff(expected(), False)
    assert len(found.entries) == 6
    assert coregw.verify_diff(*roots, decode(answer.content, DiffResult)) == found
    back = coregw.verify_diff(roots[1], roots[0], diff(client, roots[1], roots[0]).content)
    assert back.entries == [(segments, after, before) for segments, before, after in expected()]


def test_diff_of_a_map_with_itself_is_empty(client: httpx2.Client, roots: tuple[str, str]) -> None:
    answer = diff(client, roots[0], roots[0])
    assert coregw.verify_diff(roots[0], roots[0], answer.content) == coregw.Diff([], False)
    assert len(answer.content) < 500


@rows("limit", [1, 2, 5, 6, 7, 1000])
@rows("prefix", ["", "docs", "docs/new", "docs/007", "gone", "nowhere"])
def test_pages_together_are_the_whole_diff(
    client: httpx2.Client, roots: tuple[str, str], prefix: str, limit: int
) -> None:
    found: list[tuple[list[str], str | None, str | None]] = []
    more = True
    while more:
        cursor = {"after": "/".join(found[-1][0])} if found else {}
        answer = diff(client, *roots, prefix=prefix, limit=limit, **cursor)
        page = coregw.verify_diff(*roots, answer.content, prefix, cursor.get("after"), limit)
        assert len(page.entries) == limit or not page.more
        found += page.entries
        more = page.more
    assert found == expected(prefix)


def test_empty_maps_can_be_compared(ask: Ask, client: httpx2.Client, roots: tuple[str, str]) -> None:
    empty = ask("/v1/roots", {"arcs": {}}).json()["root"]
    grown = coregw.verify_diff(empty, roots[0], diff(client, empty, roots[0]).content)
    assert [(segments, after) for segments, _, after in grown.entries] == coregw.Map(BEFORE).scan().entries
    assert {before for _, before, _ in grown.entries} == {None}
    assert coregw.verify_diff(empty, empty, diff(client, empty, empty).content) == coregw.Diff([], False)


def test_the_longest_paths_fit_in_a_url(ask: Ask, client: httpx2.Client) -> None:
    longest = "\1" * 4096
    a, b = (ask("/v1/roots", {"arcs": {longest: cid, "x": CIDS[0]}}).json()["root"] for cid in CIDS[:2])
    answer = diff(client, a, b, prefix=longest)
    assert coregw.verify_diff(a, b, answer.content, longest).entries == [([longest], CIDS[0], CIDS[1])]
    answer = diff(client, a, b, prefix=longest, after=longest)
    assert coregw.verify_diff(a, b, answer.content, longest, longest).entries == []


def test_a_small_change_of_a_large_map_has_a_small_proof(ask: Ask, client: httpx2.Client) -> None:
    arcs = {f"{i % 97}/{i}": CIDS[0] for i in range(20_000)}
    base = ask("/v1/roots", {"arcs": arcs}).json()["root"]
    change = {"path": "13/13", "before": {"target": CIDS[0]}, "after": {"target": CIDS[1]}}
    mutation = {"deltas": [{"kind": "map", "changes": [change]}]}
    new = ask(f"/v1/roots/{base}/mutations", mutation).json()["new_root"]
    answer = diff(client, base, new)
    assert coregw.verify_diff(base, new, answer.content).entries == [(["13", "13"], CIDS[0], CIDS[1])]
    assert len(answer.content) < 8_000


@rows("seed", range(40))
def test_diff_equals_a_second_implementation_byte_for_byte(ask: Ask, client: httpx2.Client, seed: int) -> None:
    chance = random.Random(seed)

    def path() -> str:
        return "/".join(chance.choice(["a", "b", "a\0", "aa", "\1", "é"]) for _ in range(chance.randint(1, 3)))

    a = {path(): chance.choice(CIDS) for _ in range(chance.choice([0, 2, 20, 60]))}
    b = a | {path(): chance.choice(CIDS) for _ in range(chance.choice([1, 3, 10]))}
    for gone in chance.sample(sorted(b), len(b) // 8):
        b.pop(gone)
    roots = [ask("/v1/roots", {"arcs": arcs}).json()["root"] for arcs in (a, b)]
    for _ in range(8):
        prefix = path() if chance.random() < 0.6 else ""
        inside = f"{prefix}/{path()}" if prefix else path()
        after = {"after": inside} if chance.random() < 0.5 else {}
        limit = chance.choice([1, 2, 3, 1000])
        answer = diff(client, *roots, prefix=prefix, limit=limit, **after).json()
        cursor = after["after"].split("/") if after else None
        assert answer == diff_model.answer(a, b, prefix.split("/") if prefix else [], cursor, limit)


def _flip(place: str) -> Forge:
    def forge(document: Json) -> None:
        proof = bytearray(base64.b64decode(document["proofs"][place]))
        proof[-1] ^= 1
        document["proofs"][place] = base64.b64encode(proof).decode()

    return forge


def _exchange(document: Json) -> None:
    proofs = document["proofs"]
    proofs["a"], proofs["b"] = proofs["b"], proofs["a"]


FORGERIES: dict[str, Forge] = {
    "last left out": lambda document: document["entries"].pop(),
    "first left out": lambda document: document["entries"].pop(0),
    "all left out": lambda document: document["entries"].clear(),
    "an entry twice": lambda document: document["entries"].append(document["entries"][-1]),
    "one too many": lambda document: document["entries"].append({"segments": ["zzz"], "after": CIDS[0]}),
    "another order": lambda document: document["entries"].reverse(),
    "another target": lambda document: document["entries"][0].update(after=CIDS[2]),
    "a removal told as a change": lambda document: document["entries"][-1].update(after=CIDS[2]),
    "an absent target as null": lambda document: document["entries"][-1].update(after=None),
    "more": lambda document: document.update(more=True),
    "a bit of a": _flip("a"),
    "a bit of b": _flip("b"),
    "proofs exchanged": _exchange,
    "the first map twice": lambda document: document["proofs"].update(b=document["proofs"]["a"]),
    "no second proof": lambda document: document["proofs"].pop("b"),
    "no base64": lambda document: document["proofs"].update(a="?"),
    "a member more": lambda document: document.update(note="trust me"),
}


@rows("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_diff_is_refused(client: httpx2.Client, roots: tuple[str, str], forge: Forge) -> None:
    document = diff(client, *roots).json()
    forge(document)
    with pytest.raises(ProofError):
        coregw.verify_diff(*roots, json.dumps(document))


def test_truncated_page_that_claims_to_be_complete_is_refused(client: httpx2.Client, roots: tuple[str, str]) -> None:
    document = diff(client, *roots, limit=2).json()
    assert document["more"] is True
    document["more"] = False
    with pytest.raises(ProofError):
        coregw.verify_diff(*roots, json.dumps(document), limit=2)


@rows("asked", [{}, {"limit": 3}, {"limit": 2, "prefix": "gone"}, {"limit": 2, "after": "docs"}])
def test_result_of_another_diff_request_is_refused(
    client: httpx2.Client, roots: tuple[str, str], asked: dict[str, Any]
) -> None:
    answer = diff(client, *roots, limit=2).content
    assert coregw.verify_diff(*roots, answer, limit=2).more
    with pytest.raises(ProofError):
        coregw.verify_diff(*roots, answer, **asked)


def test_proof_with_unneeded_nodes_is_refused(client: httpx2.Client, roots: tuple[str, str]) -> None:
    document = diff(client, *roots, limit=1).json()
    document["proofs"] = diff(client, *roots).json()["proofs"]
    with pytest.raises(ProofError, match="more than the query needs"):
        coregw.verify_diff(*roots, json.dumps(document), limit=1)


@rows(
    ("a", "b", "status", "code"),
    [
        ("bogus", "A", 400, "invalid_cid"),
        ("A", "bogus", 400, "invalid_cid"),
        ("payload", "A", 400, "kind_mismatch"),
        ("A", "list", 400, "kind_mismatch"),
        ("A", "blake3", 400, "kind_mismatch"),
        ("elsewhere", "A", 404, "root_not_found"),
        ("A", "elsewhere", 404, "root_not_found"),
    ],
)
def test_both_roots_must_be_held_maps_of_one_suite(
    client: httpx2.Client, expect_refusal: Refusal, named: dict[str, str], a: str, b: str, status: int, code: str
) -> None:
    message = expect_refusal(diff(client, named.get(a, a), named.get(b, b)), status, code)
    if status == 404:
        assert named["elsewhere"] in message


@rows(
    ("query", "code", "words"),
    [
        ("prefix=/docs", "invalid_path", "prefix: segment 0: empty segment"),
        ("prefix=docs/&after=docs/x", "invalid_path", "prefix: segment 1: empty segment"),
        ("prefix=a//b&after=a//b", "invalid_path", "prefix: segment 1: empty segment"),
        ("prefix=" + "a" * 4097, "invalid_path", "prefix: the path has 4097 bytes"),
        ("after=", "invalid_path", "after: empty path"),
        ("prefix=&after=", "invalid_path", "after: empty path"),
        ("prefix=docs&after=docs/", "invalid_path", "after: segment 1: empty segment"),
        ("prefix=docs&after=gone", "invalid_path", "after: the path is neither the prefix nor below it"),
        ("limit=0", "invalid_request", "limit"),
        ("limit=1001", "invalid_request", "limit"),
        ("limit=", "invalid_request", "limit"),
        ("limit=-1", "invalid_request", "limit"),
        ("limit=01", "invalid_request", "limit"),
        ("limit=%D9%A1", "invalid_request", "limit"),
        ("limit=1&limit=1", "invalid_request", "limit"),
        ("prefix=%ff", "invalid_request", "UTF-8"),
        ("depth=1", "invalid_request", "depth"),
    ],
)
def test_malformed_diff_parameters_are_named(
    client: httpx2.Client, expect_refusal: Refusal, roots: tuple[str, str], query: str, code: str, words: str
) -> None:
    assert words in expect_refusal(client.get(f"/v1/roots/{roots[0]}/diff/{roots[1]}?{query}"), 400, code)


def test_diff_allows_only_get(client: httpx2.Client, expect_refusal: Refusal, roots: tuple[str, str]) -> None:
    answer = client.post(f"/v1/roots/{roots[0]}/diff/{roots[1]}")
    expect_refusal(answer, 405, "method_not_allowed")


def test_verifier_refuses_malformed_diff_requests(client: httpx2.Client, roots: tuple[str, str]) -> None:
    answer = diff(client, *roots).content
    wrong: list[tuple[str, str, Json]] = [
        (roots[0], CIDS[0], {}),
        (roots[0], coregw.Map(AFTER, suite="blake3").root, {}),
        (*roots, {"limit": 0}),
        (*roots, {"prefix": "a//b"}),
        (*roots, {"prefix": "docs", "after": "gone"}),
    ]
    for a, b, more in wrong:
        with pytest.raises(InvalidInput):
            coregw.verify_diff(a, b, answer, **more)


class CountingStore(MemoryStore):
    """A store that counts the pages read, and loses all of them on demand."""

    reads = 0
    lost = False

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        rows = await super().get(table, keys)
        if table is not Table.PAGES:
            return rows
        self.reads += len(keys)
        return [None] * len(keys) if self.lost else rows


async def _stored(store: MemoryStore) -> tuple[str, str]:
    engine = Engine(store)
    arcs = {f"{i % 97}/{i}": CIDS[0] for i in range(20_000)}
    base = json.loads(await engine.create_root(json.dumps({"arcs": arcs}).encode()))["root"]
    change = {"path": "13/13", "before": {"target": CIDS[0]}, "after": {"target": CIDS[1]}}
    receipt = await engine.mutate(base, json.dumps({"deltas": [{"kind": "map", "changes": [change]}]}).encode())
    return base, json.loads(receipt)["new_root"]


@pytest.mark.anyio
@pytest.mark.parametrize("budget", [1, 4096])
async def test_diff_reads_pages_in_proportion_to_the_difference(budget: int) -> None:
    store = CountingStore()
    a, b = await _stored(store)
    store.reads = 0
    # With next to no cache, and in turns of one node: what was fetched is kept for the query all the same.
    answer = await Engine(store, EngineLimits(cache_bytes=1, node_budget=budget)).diff(a, b, "", None, 1000)
    assert coregw.verify_diff(a, b, answer).entries == [(["13", "13"], CIDS[0], CIDS[1])]
    assert store.reads <= 10
    store.reads = 0
    await Engine(store).diff(a, a, "", None, 1000)
    assert store.reads <= 2


@pytest.mark.anyio
async def test_diff_with_a_missing_page_reports_a_damaged_store() -> None:
    store = CountingStore()
    a, b = await _stored(store)
    store.lost = True
    with pytest.raises(StoreDamaged, match="missing"):
        await Engine(store).diff(a, b, "", None, 1000)
