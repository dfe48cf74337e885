"""New maps and lists: the root is computed locally and compared with the gateway's."""

from __future__ import annotations

import dataclasses
import json

import pytest

import coregw
from coregw.client import Client, ClientSettings
from coregw.errors import InvalidInput, ProofError, RootNotFound
from gateways import Liar, Reply
from tables import rows


def cid(number: int) -> str:
    return coregw.payload_cid(b"%d" % number)


@rows("suite", ["sha2-256", "blake3"])
@rows("count", [0, 1, 500])
def test_a_map_is_stored_under_the_locally_computed_root(client: Client, count: int, suite: str) -> None:
    arcs = {f"a/{number}": cid(number) for number in range(count)}
    root = client.create_root(arcs, suite)
    assert root == coregw.Map(arcs, suite).root
    assert {"/".join(leaf.segments): leaf.target for leaf in client.entries(root)} == arcs


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
def test_a_map_of_any_iterable_is_stored_under_the_locally_computed_root(client: Client, suite: str) -> None:
    arcs = {f"a/{number * 7919 % 3000}": cid(number) for number in range(3000)}
    root = client.build(iter(arcs.items()), suite)
    assert root == coregw.Map(arcs, suite).root == client.build(arcs, suite)
    assert client.resolve(root, ["a", "77"]) == arcs["a/77"]
    with pytest.raises(InvalidInput, match='the path "a" occurs twice'):
        client.build([("a", cid(1)), (["a"], cid(1))])
    with pytest.raises(InvalidInput, match='arc "b"'):
        client.build([("a", cid(1)), ("b", "x")])


def test_another_root_than_that_of_the_streamed_arcs_is_refused(liar: Liar) -> None:
    client = liar(lambda reply: reply.with_body(json.dumps({"root": coregw.Map({}).root}).encode()))
    with pytest.raises(ProofError, match="was computed here"):
        client.build({"a": cid(1)})


def test_cids_are_accepted_as_text_bytes_and_objects(client: Client) -> None:
    forms = {"text": cid(1), "binary": bytes(coregw.Cid(cid(1))), "value": coregw.Cid(cid(1))}
    assert client.create_root(forms) == coregw.Map(dict.fromkeys(forms, cid(1))).root
    assert client.create_list(list(forms.values())) == coregw.List([cid(1)] * 3).root


@rows("suite", ["sha2-256", "blake3"])
@rows("count", [0, 1, 2, 7, 8, 50])
def test_a_list_created_in_several_mutations_has_the_locally_computed_root(
    gateway: str, count: int, suite: str
) -> None:
    elements, sizes = [cid(number) for number in range(count)], [number + 1 for number in range(count)]
    with Client(gateway, ClientSettings(list_changes=7)) as client:
        root = client.create_list(elements, sizes, suite=suite)
        assert root == coregw.List(elements, sizes, suite).root
        assert client.read_range(root, 0).segments == elements


def test_a_list_without_sizes_counts_its_elements(client: Client) -> None:
    assert client.list_size(client.create_list([cid(1), cid(2)])) == 2


def test_a_list_takes_its_suite_from_the_base(client: Client) -> None:
    base = client.create_root({}, "blake3")
    assert client.create_list([cid(1)], base=base) == coregw.List([cid(1)], suite="blake3").root


def test_a_list_can_start_from_a_base_with_content(client: Client) -> None:
    base = client.create_root({"a": cid(1)})
    assert client.create_list([cid(1)], [5], base=base) == coregw.List([cid(1)], [5]).root


def test_a_base_that_is_not_a_map_is_refused(client: Client) -> None:
    for base in (cid(1), coregw.List([cid(1)]).root):
        with pytest.raises(InvalidInput, match="not a map root"):
            client.create_list([cid(2)], base=base)


def test_a_base_that_is_not_held_is_refused(client: Client) -> None:
    with pytest.raises(RootNotFound):
        client.create_list([cid(2)], base=coregw.Map({"not": cid(1), "stored": cid(2)}).root)


@rows("sizes", [[1], [1, 2, 3], [0, 1], [2**53, 1], [-1, 1]])
def test_invalid_sizes_are_refused(client: Client, sizes: list[int]) -> None:
    with pytest.raises(InvalidInput):
        client.create_list([cid(1), cid(2)], sizes)


@rows("path", ["", "a//b", "/", "a/", "x" * 4097, "\ud800"])
def test_invalid_paths_are_refused(client: Client, path: str) -> None:
    with pytest.raises(InvalidInput):
        client.create_root({path: cid(1)})


def test_an_unknown_suite_is_refused(client: Client) -> None:
    with pytest.raises(InvalidInput):
        client.create_root({}, "md5")


@rows(
    "root",
    [coregw.Map({"another": cid(1)}).root, coregw.List([cid(1)]).root, cid(1), "no cid", ""],
    ids=["another map", "a list", "a payload", "no cid", "nothing"],
)
def test_a_root_other_than_the_computed_one_is_refused(liar: Liar, root: str) -> None:
    lying = liar(lambda reply: reply.with_body(json.dumps({"root": root}).encode()))
    with pytest.raises(ProofError, match=r"computed here"):
        lying.create_root({"a": cid(1)})


@rows(
    "new_root",
    [coregw.List([cid(1)]).root, coregw.Map({"a": cid(1)}).root, cid(1), "../../../healthz", ""],
    ids=["another list", "a map", "a payload", "a way out", "nothing"],
)
@rows("at", [1, 2], ids=["first mutation", "last mutation"])
def test_a_list_root_other_than_the_computed_one_is_refused(liar: Liar, new_root: str, at: int) -> None:
    mutations: list[str] = []

    def lie(reply: Reply) -> Reply:
        if not reply.path.endswith("/mutations"):
            return reply
        mutations.append(reply.path)
        if len(mutations) != at:
            return reply
        receipt = json.loads(reply.body)
        receipt["new_root"] = new_root
        return dataclasses.replace(reply, body=json.dumps(receipt).encode())

    with pytest.raises((ProofError, RootNotFound)):
        liar(lie, ClientSettings(list_changes=2)).create_list([cid(1), cid(2), cid(3)])
    assert not any(".." in path for path in mutations)
