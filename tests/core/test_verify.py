"""Verifiers of proofs: their arguments, the details of a refusal, and that only a valid proof is accepted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coregw
from coregw import Change, Cid, Conflict, InvalidInput, ProofError
from tables import rows

CID, OTHER = coregw.payload_cid(b"one"), coregw.payload_cid(b"two")
MAP = coregw.Map({f"docs/{number}": CID for number in range(50)})
LIST = coregw.List([CID] * 50, sizes=range(1, 51))

VERIFIERS: dict[str, tuple[str, bytes, Callable[[Any, bytes], object]]] = {
    "key": (MAP.root, MAP.prove("docs/7"), lambda root, proof: coregw.verify_key(root, "docs/7", proof)),
    "key_many": (
        MAP.root,
        MAP.prove("docs/7"),
        lambda root, proof: coregw.verify_key_many(root, [("docs/7", proof)]),
    ),
    "scan": (
        MAP.root,
        MAP.scan("docs", limit=5).proof,
        lambda root, proof: coregw.verify_scan(root, "docs", None, 5, proof),
    ),
    "map changes": (
        MAP.root,
        MAP.apply([Change("docs/7", CID, OTHER)]).proof,
        lambda root, proof: coregw.verify_changes(root, [Change("docs/7", CID, OTHER)], proof),
    ),
    "index": (LIST.root, LIST.prove(7), lambda root, proof: coregw.verify_index(root, 7, proof)),
    "range": (LIST.root, LIST.prove_range(7, 90), lambda root, proof: coregw.verify_range(root, 7, 90, proof)),
    "list changes": (
        LIST.root,
        LIST.apply([Change(7, CID, OTHER)]).proof,
        lambda root, proof: coregw.verify_changes(root, [Change(7, CID, OTHER)], proof),
    ),
}
each = pytest.mark.parametrize("name", VERIFIERS)


@each
def test_a_root_may_be_given_in_every_form_of_a_cid(name: str) -> None:
    root, proof, verify = VERIFIERS[name]
    proven = verify(root, proof)
    assert verify(Cid(root), proof) == verify(bytes(Cid(root)), proof) == proven


@each
def test_a_root_of_another_kind_is_refused_before_the_proof_is_read(name: str) -> None:
    root, _, verify = VERIFIERS[name]
    others = [CID] if "changes" in name else [CID, LIST.root if root == MAP.root else MAP.root]
    for other in others:
        with pytest.raises(InvalidInput) as caught:
            verify(other, b"")
        assert caught.value.code == "kind_mismatch"
    with pytest.raises(InvalidInput) as caught:
        verify("no cid", b"")
    assert caught.value.code == "invalid_cid"
    with pytest.raises(TypeError, match="a CID is a str, bytes or a Cid"):
        verify(None, b"")


@each
@given(st.binary(max_size=200))
def test_random_bytes_are_not_a_proof(name: str, proof: bytes) -> None:
    root, _, verify = VERIFIERS[name]
    with pytest.raises(ProofError) as caught:
        verify(root, proof)
    assert caught.value.code == "invalid_proof"
    assert caught.value.check
    assert caught.value.step is None


@each
def test_every_flipped_bit_and_every_truncation_is_refused(name: str) -> None:
    root, proof, verify = VERIFIERS[name]
    for bit in range(8 * len(proof)):
        forged = bytearray(proof)
        forged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProofError):
            verify(root, bytes(forged))
    for other in [proof[:length] for length in range(len(proof))] + [proof + b"\0", b"\0" + proof]:
        with pytest.raises(ProofError):
            verify(root, other)


@each
def test_a_proof_of_another_tree_does_not_have_the_root_digest(name: str) -> None:
    root, proof, verify = VERIFIERS[name]
    tree = coregw.Map({"docs/7": CID}) if root == MAP.root else coregw.List([CID] * 8)
    with pytest.raises(ProofError, match="digest"):
        verify(tree.root, proof)


@each
def test_a_proof_longer_than_the_limit_is_refused(name: str) -> None:
    root, _, verify = VERIFIERS[name]
    limit = 2_892_588 if name in {"key", "key_many", "index"} else 16 << 20
    with pytest.raises(ProofError, match="limit"):
        verify(root, bytes(limit + 1))


@each
@rows("proof", [None, "proof", 5, [1], ()])
def test_a_proof_of_another_type_than_bytes_is_a_type_error(name: str, proof: object) -> None:
    root, _, verify = VERIFIERS[name]
    with pytest.raises(TypeError):
        verify(root, proof)  # type: ignore[arg-type]


def test_a_proof_error_names_the_check_and_the_byte() -> None:
    proof = MAP.prove("docs/7")
    with pytest.raises(ProofError) as caught:
        coregw.verify_key(MAP.root, "docs/7", proof + b"\0")
    assert caught.value.offset == len(proof)
    assert "follow" in caught.value.check
    assert caught.value.check in str(caught.value)
    with pytest.raises(ProofError, match="more than the query needs"):
        coregw.verify_key(MAP.root, "docs/8", proof)
    with pytest.raises(ProofError, match="needs a node") as caught:
        coregw.verify_key(MAP.root, "docs/0", proof)
    assert caught.value.offset is None
    with pytest.raises(ProofError, match="more than the query needs"):
        coregw.verify_key(MAP.root, "docs/7", MAP.scan("docs", limit=50).proof)


def test_a_malformed_path_is_refused() -> None:
    proof = MAP.prove("docs/7")
    for path, error in (("docs//7", InvalidInput), ([], InvalidInput), (b"docs/7", TypeError), (7, TypeError)):
        with pytest.raises(error):
            coregw.verify_key(MAP.root, path, proof)  # type: ignore[arg-type]


@rows("number", [-1, 1 << 53, 1 << 64, True, 7.0, "7"])
def test_an_invalid_index_bound_or_limit_is_refused(number: object) -> None:
    error = InvalidInput if type(number) is int else TypeError
    with pytest.raises(error, match="index"):
        coregw.verify_index(LIST.root, number, b"")  # type: ignore[arg-type]
    with pytest.raises(error, match="start"):
        coregw.verify_range(LIST.root, number, None, b"")  # type: ignore[arg-type]
    with pytest.raises(error, match="end"):
        coregw.verify_range(LIST.root, 0, number, b"")  # type: ignore[arg-type]
    with pytest.raises(error, match="limit"):
        coregw.verify_scan(MAP.root, (), None, number, b"")  # type: ignore[arg-type]


def test_verify_changes_refuses_inconsistent_and_malformed_changes() -> None:
    proof = MAP.apply([Change("docs/7", CID, OTHER)]).proof
    with pytest.raises(ProofError, match="do not fit"):
        coregw.verify_changes(MAP.root, [Change("docs/7", OTHER, CID)], proof)
    with pytest.raises(Conflict, match="are the same"):
        coregw.verify_changes(MAP.root, [Change("docs/7", CID, CID)], proof)
    with pytest.raises(InvalidInput, match="at least one is required"):
        coregw.verify_changes(MAP.root, [], proof)
    with pytest.raises(TypeError, match="change 0"):
        coregw.verify_changes(LIST.root, [Change("docs/7", CID, OTHER)], proof)


def test_changes_may_come_in_any_order() -> None:
    changes = [Change(f"docs/{number}", CID, OTHER) for number in (9, 3, 41)] + [Change("a", None, CID)]
    applied = MAP.apply(changes)
    assert coregw.verify_changes(MAP.root, changes[::-1], applied.proof) == applied.tree.root
    assert MAP.apply(changes[::-1]) == applied


BIG = coregw.Map({f"users/{number:05}": CID for number in range(2000)})
PATHS = [f"users/{number:05}" for number in range(1000, 3000)]
ITEMS = list(zip(PATHS, BIG.prove_many(PATHS), strict=True))


def test_verify_key_many_gives_the_result_of_each_proof() -> None:
    expected = [coregw.verify_key(BIG.root, path, proof) for path, proof in ITEMS]
    assert expected == [CID] * 1000 + [None] * 1000
    assert coregw.verify_key_many(BIG.root, ITEMS) == expected
    assert coregw.verify_key_many(BIG.root, iter(ITEMS)) == expected  # type: ignore[arg-type]
    for count in (0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129):
        assert coregw.verify_key_many(BIG.root, ITEMS[950 : 950 + count]) == expected[950 : 950 + count]


def test_verify_key_many_copies_a_buffer_that_an_iterator_fills_again() -> None:
    buffer = bytearray()

    def refilled() -> Iterator[tuple[str, bytearray]]:
        for path, proof in ITEMS:
            buffer[:] = proof
            yield path, buffer

    expected = [CID] * 1000 + [None] * 1000
    assert coregw.verify_key_many(BIG.root, refilled()) == expected  # type: ignore[arg-type]
    copies = [(path, bytearray(proof)) for path, proof in ITEMS]
    assert coregw.verify_key_many(BIG.root, copies) == expected
    with pytest.raises(TypeError, match="item 1 is a tuple"):
        coregw.verify_key_many(BIG.root, iter([ITEMS[0], ("users", 1)]))  # type: ignore[arg-type, list-item]


@rows("place", [0, 1, 500, 1999])
def test_the_first_invalid_proof_among_many_is_named(place: int) -> None:
    items = list(ITEMS)
    items[place] = (items[place][0], items[place][1][:-1])
    if place < 1999:
        items[1999] = (items[1999][0], b"")
    with pytest.raises(ProofError, match=f"item {place}: ") as caught:
        coregw.verify_key_many(BIG.root, items)
    assert caught.value.offset is not None


@rows(
    ("item", "error"),
    [
        (("a//b", b""), InvalidInput),
        ((5, b""), TypeError),
        (("a", "proof"), TypeError),
        (("a",), TypeError),
        (("a", b"", b""), TypeError),
        (["a", b""], TypeError),
        ("ab", TypeError),
    ],
)
def test_a_malformed_item_is_named(item: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="item 1"):
        coregw.verify_key_many(BIG.root, [ITEMS[0], item])  # type: ignore[list-item]


@rows("after", [None, 5, "\ud800", ["a", 5], ["a/b"]])
@rows("count", [4, 2000])
def test_the_first_malformed_path_is_named_before_all_other_errors(after: object, count: int) -> None:
    items: list[tuple[object, bytes]] = list(ITEMS[:count])
    items[0] = (items[0][0], b"no proof")
    items[1] = ("a//b", b"")
    items[2] = ("c//d", b"")
    if after is not None:
        items[3] = (after, b"")
    with pytest.raises(InvalidInput, match=r"^item 1: .*empty segment") as caught:
        coregw.verify_key_many(BIG.root, items)  # type: ignore[arg-type]
    assert caught.value.code == "invalid_path"


@pytest.mark.parametrize(("malformed", "named"), [(700, 700), (1600, 1500)])
def test_errors_of_many_items_have_an_order_wherever_they_are_read(malformed: int, named: int) -> None:
    items: list[tuple[object, bytes]] = list(ITEMS)
    items[0] = (items[0][0], b"no proof")
    items[1500] = (5, b"")
    items[malformed] = ("a//b", b"")
    with pytest.raises(InvalidInput if named == malformed else TypeError, match=f"^item {named}: "):
        coregw.verify_key_many(BIG.root, items)  # type: ignore[arg-type]


def test_threads_may_prove_and_verify_at_once() -> None:
    def work(number: int) -> bool:
        path, proof = ITEMS[number]
        again = BIG.prove(path)
        return again == proof and coregw.verify_key(BIG.root, path, again) == BIG.get(path)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(0, 2000, 7)))


@rows(
    "work",
    [
        lambda: coregw.Map(dict.fromkeys(PATHS, CID)),
        lambda: BIG.prove_many(PATHS),
        lambda: coregw.verify_key_many(BIG.root, ITEMS),
        lambda: BIG.scan(limit=2000),
        lambda: coregw.payload_cid(bytes(4 << 20)),
        lambda: coregw.List([CID] * 20_000),
    ],
    ids=["build a map", "prove_many", "verify_key_many", "scan", "payload_cid", "build a list"],
)
def test_the_gil_is_released_during_long_work(work: Callable[[], object]) -> None:
    # With so long an interval a thread runs only if another one releases the GIL: `work` must have done so.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        assert any(another_thread_runs_during(work) for _ in range(100))
    finally:
        sys.setswitchinterval(before)


def another_thread_runs_during(work: Callable[[], object]) -> bool:
    started, go = threading.Lock(), threading.Lock()
    runs: list[int] = []

    def wait() -> None:
        started.release()
        with go:
            runs.append(1)

    started.acquire()
    go.acquire()
    thread = threading.Thread(target=wait)
    thread.start()
    started.acquire()  # until the thread waits for `go`
    go.release()
    work()
    during = bool(runs)
    thread.join()
    return during


def test_results_are_named_tuples() -> None:
    element = coregw.verify_index(LIST.root, 7, LIST.prove(7))
    assert isinstance(element, coregw.Element)
    assert isinstance(element, tuple)
    assert element == (CID, 8, 50) == (element.target, element.size, element.length)
    assert element._replace(size=9) == (CID, 9, 50)
    assert repr(element) == f"Element(target={CID!r}, size=8, length=50)"
    assert isinstance(coregw.verify_range(LIST.root, 7, 90, LIST.prove_range(7, 90)), coregw.Range)
    page = MAP.scan("docs", limit=1)
    assert isinstance(page, coregw.Scan)
    assert page.entries == [(["docs", "0"], CID)]
    assert isinstance(MAP.apply([Change("a", None, CID)]), coregw.Applied)
    assert Change("a", None, CID) == Change("a", None, CID, None) == ("a", None, CID, None)
    assert Change(coordinate="a", before=None, after=CID, size=None).coordinate == "a"
    with pytest.raises(TypeError):
        Change("a")  # type: ignore[call-arg]
