"""Mutations: the new root is derived locally, and a tampered receipt is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import coregw
from coregw.client import AsyncClient, Client
from coregw.errors import Conflict, InvalidInput, PathNotFound, ProofError, RootNotFound
from coregw.messages import Change, Delta, Endpoint
from gateways import Liar, Reply
from tables import rows

Json = dict[str, Any]


def cid(text: str) -> str:
    return coregw.payload_cid(text.encode())


ARCS = {f"docs/{number:03}": cid(f"old {number}") for number in range(300)} | {"readme": cid("readme")}
AFTER = (ARCS | {"docs/007": cid("new"), "a/b": cid("added")}) | {}
del AFTER["readme"]


def test_an_update_returns_the_root_of_the_resulting_map(client: Client) -> None:
    base = client.create_root(ARCS)
    new = client.update(base, {"docs/007": cid("new"), "a/b": cid("added"), "docs/008": cid("old 8")}, ["readme"])
    assert new == coregw.Map(AFTER).root
    assert client.resolve(new, "a/b") == cid("added")
    assert client.prove_key(new, "readme") is None
    assert client.resolve(base, "readme") == cid("readme"), "the old root stays as it is"


def test_an_update_without_effect_returns_the_same_root(client: Client) -> None:
    base = client.create_root(ARCS)
    assert client.update(base, {"readme": cid("readme")}) == base
    assert client.update(base, {}) == base


def test_removing_an_absent_path_is_an_error(client: Client) -> None:
    base = client.create_root(ARCS)
    with pytest.raises(PathNotFound, match=r"nowhere.*proven absent"):
        client.update(base, {"a": cid("a")}, ["nowhere"])


def test_a_path_named_twice_is_an_error(client: Client) -> None:
    base = client.create_root(ARCS)
    with pytest.raises(InvalidInput, match="docs/007: named twice"):
        client.update(base, {"docs/007": cid("new")}, [["docs", "007"]])


def test_the_receipt_of_map_and_list_deltas_is_proven(client: Client) -> None:
    base = client.create_root(ARCS)
    chunks = [Change(index=i, after=Endpoint(target=cid(str(i)), size=10)) for i in range(3)]
    chunked = coregw.List([cid(str(i)) for i in range(3)], [10, 10, 10]).root
    bind = Change(path="file", after=Endpoint(target=chunked))
    deltas = [Delta(kind="list", changes=chunks), Delta(kind="map", object=base, changes=[bind])]
    receipt = client.mutate(base, deltas)
    assert [delta.result for delta in receipt.deltas] == [chunked, coregw.Map(ARCS | {"file": chunked}).root]
    assert receipt.new_root == receipt.deltas[-1].result
    assert receipt.arc_count == 4


def test_a_change_that_contradicts_the_current_content_is_a_conflict(client: Client) -> None:
    base = client.create_root(ARCS)
    wrong = Change(path="readme", before=Endpoint(target=cid("other")))
    with pytest.raises(Conflict, match="readme"):
        client.mutate(base, [Delta(kind="map", changes=[wrong])])
    with pytest.raises(RootNotFound):
        client.mutate(coregw.Map({"only": cid("here")}).root, [Delta(kind="map", changes=[wrong])])


@pytest.mark.anyio
async def test_the_asyncio_client_returns_the_same(gateway: str) -> None:
    async with AsyncClient(gateway) as client:
        base = await client.create_root(ARCS)
        new = await client.update(base, {"docs/007": cid("new"), "a/b": cid("added")}, ["readme"])
        assert new == coregw.Map(AFTER).root
        added = Delta(kind="map", changes=[Change(path="x", after=Endpoint(target=cid("x")))])
        assert (await client.mutate(new, [added])).new_root == coregw.Map(AFTER | {"x": cid("x")}).root


@rows(
    "lie",
    [
        lambda receipt: receipt.update(new_root=coregw.Map({"mine": cid("mine")}).root),
        lambda receipt: receipt["deltas"][0].update(result=coregw.Map({}).root),
        lambda receipt: receipt["deltas"][0].pop("proof"),
        lambda receipt: receipt["deltas"].clear(),
        lambda receipt: receipt.update(arc_count=2),
        lambda receipt: receipt.update(base_root=coregw.Map({}).root),
    ],
    ids=["another root", "another result", "no proof", "no deltas", "another count", "another base"],
)
def test_a_tampered_receipt_is_refused(client: Client, gateway: str, liar: Liar, lie: Callable[[Json], None]) -> None:
    base = client.create_root(ARCS)

    def tampered(reply: Reply) -> Reply:
        if "/mutations" not in reply.path:
            return reply
        receipt = json.loads(reply.body)
        lie(receipt)
        return reply.with_body(json.dumps(receipt).encode())

    with pytest.raises(ProofError, match=f"change {base}"):
        liar(tampered, honest=gateway).update(base, {"docs/007": cid("new")})


def test_a_valid_receipt_for_another_change_is_refused(client: Client, gateway: str, liar: Liar) -> None:
    base = client.create_root(ARCS)
    other = client.mutate(base, [Delta(kind="map", changes=[Change(path="x", after=Endpoint(target=cid("x")))])])

    def tampered(reply: Reply) -> Reply:
        return reply.with_body(json.dumps(forged).encode()) if "/mutations" in reply.path else reply

    forged = {
        "base_root": base,
        "new_root": other.new_root,
        "delta_count": 1,
        "arc_count": 1,
        "deltas": [{"object": d.object, "result": d.result, "proof": d.proof} for d in other.deltas],
    }
    with pytest.raises(ProofError):
        liar(tampered, honest=gateway).update(base, {"docs/007": cid("new")})
