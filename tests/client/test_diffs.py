"""Differences between two maps, over all pages; tampered pages are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import coregw
from coregw.client import AsyncClient, Client, Difference
from coregw.errors import InvalidInput, ProofError, RootNotFound
from gateways import Liar, Reply

Json = dict[str, Any]


def cid(text: str) -> str:
    return coregw.payload_cid(text.encode())


BEFORE = {f"many/{number:04}": cid("old") for number in range(2500)} | {"gone": cid("old"), "a b/#?&=+%": cid("old")}
AFTER = {path: cid("new") for path in BEFORE if path != "gone"} | {"new": cid("new"), "many": cid("new")}


def expected(below: str = "") -> list[Difference]:
    paths = [path for path in BEFORE.keys() | AFTER.keys() if f"{path}/".startswith(f"{below}/" if below else "")]
    paths.sort(key=coregw.encode_key)
    return [Difference(path.split("/"), BEFORE.get(path), AFTER.get(path)) for path in paths]


@pytest.fixture
def roots(client: Client) -> tuple[str, str]:
    return client.create_root(BEFORE), client.create_root(AFTER)


def test_every_difference_is_yielded_once_in_key_order(client: Client, roots: tuple[str, str]) -> None:
    assert list(client.diff(*roots)) == expected()
    assert len(expected()) == 2504
    assert list(client.diff(roots[0], coregw.Cid(roots[0]))) == []


@pytest.mark.parametrize("prefix", ["many", "many/0042", "gone", "a b", "a b/#?&=+%", "nothing"])
def test_only_differences_at_and_below_the_prefix_are_yielded(
    client: Client, roots: tuple[str, str], prefix: str
) -> None:
    assert list(client.diff(*roots, prefix)) == expected(prefix)
    assert list(client.diff(*roots, prefix.split("/"))) == expected(prefix)


@pytest.mark.anyio
async def test_the_asyncio_client_yields_the_same(gateway: str) -> None:
    async with AsyncClient(gateway) as client:
        roots = await client.create_root(BEFORE), await client.create_root(AFTER)
        assert [difference async for difference in client.diff(*roots)] == expected()


@pytest.mark.parametrize(
    "lie",
    [
        lambda document: document["entries"].pop(),
        lambda document: document["entries"].clear(),
        lambda document: document["entries"][0].update(before=cid("another")),
        lambda document: document.update(more=False),
        lambda document: document.update(entries=[], more=False),
        lambda document: document["proofs"].update(b=document["proofs"]["a"]),
        lambda document: document.update(surprise=1),
    ],
    ids=["last left out", "all left out", "target", "no more", "nothing", "proof", "another member"],
)
def test_a_tampered_page_is_refused(liar: Liar, roots: tuple[str, str], lie: Callable[[Json], object]) -> None:
    def tampered(reply: Reply) -> Reply:
        document = json.loads(reply.body)
        lie(document)
        return reply.with_body(json.dumps(document).encode())

    with pytest.raises(ProofError, match=f"^compare {roots[0]} with {roots[1]}: ."):
        next(liar(tampered).diff(*roots))


def test_pages_before_a_tampered_one_are_yielded(liar: Liar, roots: tuple[str, str]) -> None:
    differences = liar(lambda reply: reply.with_body(b"{}") if "after=" in reply.path else reply).diff(*roots)
    assert [next(differences) for _ in range(1000)] == expected()[:1000]
    with pytest.raises(ProofError):
        next(differences)


def test_a_valid_page_about_other_maps_is_refused(liar: Liar, client: Client, roots: tuple[str, str]) -> None:
    received: list[bytes] = []

    def remembered(reply: Reply) -> Reply:
        received.append(reply.body)
        return reply

    third = client.create_root(AFTER | {"third": cid("third")})
    next(liar(remembered).diff(*roots))
    lying = liar(lambda reply: reply.with_body(received[0]))
    for other in (roots[::-1], (roots[0], third), (third, roots[1])):
        with pytest.raises(ProofError):
            next(lying.diff(*other))


def test_a_root_that_is_not_held_is_not_found(client: Client, roots: tuple[str, str]) -> None:
    with pytest.raises(RootNotFound):
        list(client.diff(roots[0], coregw.Map({"never": cid("stored")}).root))


@pytest.mark.parametrize(
    ("b", "prefix"),
    [
        (cid("a payload"), ""),
        (coregw.List([]).root, ""),
        (coregw.Map({}, suite="blake3").root, ""),
        ("no cid", ""),
        (coregw.Map({}).root, "a//b"),
        (coregw.Map({}).root, ["\ud800"]),
    ],
)
def test_invalid_arguments_are_not_sent(liar: Liar, b: str, prefix: str) -> None:
    def lie(reply: Reply) -> Reply:
        raise AssertionError("the request was sent")

    with pytest.raises(InvalidInput):
        next(liar(lie, honest=None).diff(coregw.Map({}).root, b, prefix))
