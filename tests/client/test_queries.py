"""Resolve, read, map proof and scan: returned values are proven, and every tampered answer is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

import coregw
from coregw.client import Client, query
from coregw.errors import IndexNotFound, InvalidInput, PathNotFound, ProofError, RootNotFound, UnprovenAbsence
from gateways import Liar, Reply
from tables import rows

Json = dict[str, Any]
Change = Callable[[Json], object]
Request = Callable[[Client, str, str], object]


def cid(text: str) -> str:
    return coregw.payload_cid(text.encode())


ARCS = {f"docs/{name}": cid(name) for name in ("readme", "guide", "faq")} | {"src/main": cid("main"), "lone": cid("1")}
ELEMENTS = [cid(str(number)) for number in range(10)]
SIZES = [number + 1 for number in range(10)]


@pytest.fixture
def root(client: Client) -> str:
    return client.create_root(ARCS)


@pytest.fixture
def listed(client: Client) -> str:
    return client.create_list(ELEMENTS, SIZES)


def changed(change: Change) -> Callable[[Reply], Reply]:
    """Return a lie that changes the JSON of a successful reply."""

    def lie(reply: Reply) -> Reply:
        document = json.loads(reply.body)
        change(document)
        return reply.with_body(json.dumps(document).encode())

    return lie


def flip(document: Json) -> None:
    step = document["prooflist"]["steps"][0]
    proof = bytearray(base64.b64decode(step["proof"]))
    proof[-1] ^= 1
    step["proof"] = base64.b64encode(proof).decode()


def swap(document: Json) -> None:
    document["target"] = cid("another")
    document["prooflist"]["steps"][-1]["target"] = {"/": cid("another")}


def test_present_keys_and_elements_are_returned(client: Client, root: str, listed: str) -> None:
    for path, target in ARCS.items():
        assert client.resolve(root, path) == target
        assert client.resolve(root, path.split("/")) == target
        assert client.read_key(root, path) == target
        assert client.prove_key(root, path) == target
    assert client.resolve(root, "") == root
    assert client.resolve(listed, "3") == ELEMENTS[3]
    assert [client.read_index(listed, number) for number in range(10)] == ELEMENTS
    part = client.read_range(listed, 3, 7)
    assert (part.segments, part.sizes, part.offset, part.total_size) == (ELEMENTS[2:4], SIZES[2:4], 3, 55)
    assert client.read_range(listed, 0).segments == ELEMENTS
    assert client.read_range(listed, 55).segments == []


def test_absent_keys_and_indexes_are_proven_absent(client: Client, root: str, listed: str) -> None:
    assert client.prove_key(root, "docs") is None
    with pytest.raises(PathNotFound, match="proven absent"):
        client.read_key(root, "docs")
    with pytest.raises(IndexNotFound, match="10 elements"):
        client.read_index(listed, 10)
    with pytest.raises(UnprovenAbsence):
        client.resolve(root, "docs")
    with pytest.raises(RootNotFound):
        client.resolve(coregw.Map({"never": cid("stored")}).root, "never")


def test_a_saved_absence_proof_verifies_again(client: Client, root: str) -> None:
    proven = client.query(query.read_key(root, "docs/missing"))
    assert proven.value.present is False
    assert coregw.verify_read(proven.request, proven.result).present is False


def test_a_scan_returns_entries_in_key_order_without_gaps(client: Client, root: str) -> None:
    page = client.scan(root, "docs", limit=2)
    assert [segments for segments, _ in page.entries] == [["docs", "faq"], ["docs", "guide"]]
    assert page.more
    rest = client.scan(root, "docs", after=["docs", "guide"])
    assert [segments for segments, _ in rest.entries] == [["docs", "readme"]]
    assert not rest.more


@rows("lie", [flip, swap], ids=["one bit of the proof", "another target"])
@rows(
    "request_from",
    [
        lambda client, root, listed: client.resolve(root, "docs/readme"),
        lambda client, root, listed: client.read_key(root, "docs/readme"),
        lambda client, root, listed: client.read_index(listed, 4),
        lambda client, root, listed: client.read_range(listed, 2, 9),
        lambda client, root, listed: client.prove_key(root, "docs/readme"),
    ],
    ids=["resolve", "read key", "read index", "read range", "map proof"],
)
def test_a_tampered_answer_is_refused(liar: Liar, root: str, listed: str, request_from: Request, lie: Change) -> None:
    with pytest.raises(ProofError):
        request_from(liar(changed(lie)), root, listed)


@rows(
    "lie",
    [
        flip,
        lambda document: document["entries"].pop(),
        lambda document: document["entries"].pop(0),
        lambda document: document["entries"].reverse(),
        lambda document: document["entries"][0].update(target=cid("another")),
        lambda document: document["entries"].append({"segments": ["docs", "zzz"], "target": cid("zzz")}),
        lambda document: document.update(more=True),
        lambda document: document.update(surprise=1),
    ],
    ids=["proof", "last left out", "first left out", "order", "target", "one too many", "more", "another member"],
)
def test_a_tampered_scan_is_refused(liar: Liar, root: str, lie: Change) -> None:
    with pytest.raises(ProofError):
        liar(changed(lie)).scan(root, "docs")


def test_a_range_with_a_missing_element_is_refused(liar: Liar, listed: str) -> None:
    with pytest.raises(ProofError):
        liar(changed(lambda document: document["range_segments"].pop())).read_range(listed, 0, 20)


def test_a_valid_answer_to_another_query_is_refused(liar: Liar, client: Client, root: str) -> None:
    other = client.query(query.resolve(root, "src/main")).result
    with pytest.raises(ProofError):
        liar(lambda reply: reply.with_body(other)).resolve(root, "docs/readme")


def test_a_valid_answer_for_another_root_is_refused(liar: Liar, client: Client, root: str) -> None:
    another = client.create_root(ARCS | {"docs/readme": cid("newer")})
    answer = client.query(query.resolve(another, "docs/readme")).result
    with pytest.raises(ProofError):
        liar(lambda reply: reply.with_body(answer)).resolve(root, "docs/readme")


@rows(
    "body",
    [
        b'{"error": "path_not_found", "message": "gone"}',
        b'{"error": "path_not_found", "message": "gone", "details": null}',
        b'{"error": "path_not_found", "message": "gone", "details": {}}',
        b'{"error": "path_not_found", "message": "gone", "details": {"prooflist": {}}}',
    ],
)
def test_an_absence_without_a_proof_is_refused(liar: Liar, root: str, listed: str, body: bytes) -> None:
    lying = liar(lambda reply: reply.with_body(body, 404))
    with pytest.raises(ProofError):
        lying.read_key(root, "docs/readme")
    with pytest.raises(ProofError):
        lying.read_index(listed, 3)


def test_an_absence_proof_of_another_key_is_refused(liar: Liar, client: Client, root: str) -> None:
    absent = client.query(query.read_key(root, "docs/missing")).result
    body = b'{"error": "path_not_found", "message": "gone", "details": %s}' % absent
    with pytest.raises(ProofError):
        liar(lambda reply: reply.with_body(body, 404)).read_key(root, "docs/readme")


def test_an_inclusion_proof_presented_as_absence_is_refused(liar: Liar, client: Client, root: str) -> None:
    present = json.loads(client.query(query.read_key(root, "docs/readme")).result)
    details = json.dumps({"prooflist": present["prooflist"]}).encode()
    body = b'{"error": "path_not_found", "message": "gone", "details": %s}' % details
    with pytest.raises(ProofError):
        liar(lambda reply: reply.with_body(body, 404)).read_key(root, "docs/readme")


@rows("answer", [b"", b"{}", b"null", b"[" * 100_000, b"\xff", b'{"profile": "x"}'])
def test_a_malformed_answer_is_refused(liar: Liar, root: str, answer: bytes) -> None:
    with pytest.raises(ProofError):
        liar(lambda reply: reply.with_body(answer)).resolve(root, "docs/readme")


def test_a_proof_error_names_the_query(liar: Liar, root: str) -> None:
    with pytest.raises(ProofError, match=f"^resolve 'docs/readme' in {root}: ."):
        liar(changed(flip)).resolve(root, "docs/readme")


@rows("path", ["a//b", "/a", "a/", ["a/b"], ["\ud800"], [""], "x" * 5000])
def test_an_invalid_path_is_not_sent(liar: Liar, root: str, path: str | list[str]) -> None:
    def lie(reply: Reply) -> Reply:
        raise AssertionError("the request was sent")

    with pytest.raises(InvalidInput) as refused:
        liar(lie, honest=None).resolve(root, path)
    assert str(refused.value).startswith(f"{path!r:.200}: ")


@rows("bad", ["", "no cid", "../../healthz", b"\x01", "bafkqaaaa"])
def test_an_invalid_cid_is_not_sent(liar: Liar, bad: str | bytes) -> None:
    def lie(reply: Reply) -> Reply:
        raise AssertionError("the request was sent")

    lying = liar(lie, honest=None)
    for request in (
        lambda: lying.resolve(bad, "a"),
        lambda: lying.get_payload(bad),
        lambda: lying.scan(bad),
        lambda: lying.create_root({"a": bad}),
        lambda: lying.create_list([bad]),
        lambda: lying.create_list([], base=bad),
    ):
        with pytest.raises(InvalidInput):
            request()


@pytest.mark.parametrize("index", [-1, 2**53, 2**70])
def test_an_index_outside_the_protocols_integers_is_refused(client: Client, listed: str, index: int) -> None:
    with pytest.raises(InvalidInput):
        client.read_index(listed, index)
