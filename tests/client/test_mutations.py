"""Changes through a gateway: the new root is derived here, and a receipt that lies is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import coregw
from coregw.client import AsyncClient, Client
from coregw.errors import Conflict, InvalidInput, PathNotFound, ProofError, RootNotFound
from coregw.messages import Change, Delta, Endpoint
from gateways import Liar, Told

Json = dict[str, Any]


def cid(text: str) -> str:
    return coregw.payload_cid(text.encode())


ARCS = {f"docs/{number:03}": cid(f"old {number}") for number in range(300)} | {"readme": cid("readme")}
AFTER = (ARCS | {"docs/007": cid("new"), "a/b": cid("added")}) | {}
del AFTER["readme"]


def test_an_update_gives_the_root_that_the_arcs_have(client: Client) -> None:
    base = client.create_root(ARCS)
    new = client.update(base, {"docs/007": cid("new"), "a/b": cid("added"), "docs/008": cid("old 8")}, ["readme"])
    assert new == coregw.Map(AFTER).root
    assert client.resolve(new, "a/b") == cid("added")
    assert client.prove_key(new, "readme") is None
    assert client.resolve(base, "readme") == cid("readme"), "the old root stays as it is"


def test_an_update_that_changes_nothing_is_the_same_root(client: Client) -> None:
    base = client.create_root(ARCS)
    assert client.update(base, {"readme": cid("readme")}) == base
    assert client.update(base, {}) == base


def test_what_is_not_there_is_not_removed(client: Client) -> None:
    base = client.create_root(ARCS)
    with pytest.raises(PathNotFound, match=r"nowhere.*proven absent"):
        client.update(base, {"a": cid("a")}, ["nowhere"])


def test_a_path_is_changed_once(client: Client) -> None:
    base = client.create_root(ARCS)
    with pytest.raises(InvalidInput, match="docs/007: named twice"):
        client.update(base, {"docs/007": cid("new")}, [["docs", "007"]])


def test_deltas_of_maps_and_lists_are_proven(client: Client) -> None:
    base = client.create_root(ARCS)
    chunks = [Change(index=i, after=Endpoint(target=cid(str(i)), size=10)) for i in range(3)]
    chunked = coregw.List([cid(str(i)) for i in range(3)], [10, 10, 10]).root
    bind = Change(path="file", after=Endpoint(target=chunked))
    deltas = [Delta(kind="list", changes=chunks), Delta(kind="map", object=base, changes=[bind])]
    receipt = client.mutate(base, deltas)
    assert [delta.result for delta in receipt.deltas] == [chunked, coregw.Map(ARCS | {"file": chunked}).root]
    assert receipt.new_root == receipt.deltas[-1].result
    assert receipt.arc_count == 4


def test_a_change_that_does_not_fit_changes_nothing(client: Client) -> None:
    base = client.create_root(ARCS)
    wrong = Change(path="readme", before=Endpoint(target=cid("other")))
    with pytest.raises(Conflict, match="readme"):
        client.mutate(base, [Delta(kind="map", changes=[wrong])])
    with pytest.raises(RootNotFound):
        client.mutate(coregw.Map({"only": cid("here")}).root, [Delta(kind="map", changes=[wrong])])


@pytest.mark.anyio
async def test_the_asyncio_client_derives_the_same(gateway: str) -> None:
    async with AsyncClient(gateway) as client:
        base = await client.create_root(ARCS)
        new = await client.update(base, {"docs/007": cid("new"), "a/b": cid("added")}, ["readme"])
        assert new == coregw.Map(AFTER).root
        added = Delta(kind="map", changes=[Change(path="x", after=Endpoint(target=cid("x")))])
        assert (await client.mutate(new, [added])).new_root == coregw.Map(AFTER | {"x": cid("x")}).root


@pytest.mark.parametrize(
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
def test_a_receipt_that_lies_is_refused(client: Client, gateway: str, liar: Liar, lie: Callable[[Json], None]) -> None:
    base = client.create_root(ARCS)

    def told(answer: Told) -> Told:
        if "/mutations" not in answer.path:
            return answer
        receipt = json.loads(answer.body)
        lie(receipt)
        return answer.saying(json.dumps(receipt).encode())

    with pytest.raises(ProofError, match=f"change {base}"):
        liar(told, honest=gateway).update(base, {"docs/007": cid("new")})


def test_another_change_than_was_asked_for_is_refused(client: Client, gateway: str, liar: Liar) -> None:
    base = client.create_root(ARCS)
    other = client.mutate(base, [Delta(kind="map", changes=[Change(path="x", after=Endpoint(target=cid("x")))])])

    def told(answer: Told) -> Told:
        return answer.saying(json.dumps(forged).encode()) if "/mutations" in answer.path else answer

    forged = {
        "base_root": base,
        "new_root": other.new_root,
        "delta_count": 1,
        "arc_count": 1,
        "deltas": [{"object": d.object, "result": d.result, "proof": d.proof} for d in other.deltas],
    }
    with pytest.raises(ProofError):
        liar(told, honest=gateway).update(base, {"docs/007": cid("new")})
