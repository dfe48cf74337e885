"""`coregw.Map` compared with a plain dict: proofs, listings, changes, and refused arguments."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coregw
from coregw import Change, Conflict, InvalidInput, ProofError
from tables import rows

ONE, TWO, THREE = (coregw.payload_cid(text) for text in (b"one", b"two", b"three"))
ARCS = {"docs/readme": ONE, "docs/guide/intro": TWO, "docs": THREE, "@payload": ONE, "é/日本": TWO}

segment = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=4)
path = st.lists(segment, min_size=1, max_size=4).map("/".join)
target = st.sampled_from([ONE, TWO, THREE])
arcs = st.dictionaries(path, target, max_size=40)
suite = st.sampled_from(["sha2-256", "blake3"])


def in_key_order(paths: Mapping[str, str]) -> list[str]:
    return sorted(paths, key=coregw.encode_key)


@given(arcs, suite, st.randoms(use_true_random=False))
def test_the_root_does_not_depend_on_the_order_of_arcs(content: dict[str, str], name: str, random: object) -> None:
    pairs = list(content.items())
    random.shuffle(pairs)  # type: ignore[attr-defined]
    assert coregw.Map(pairs, suite=name).root == coregw.Map(content, suite=name).root


@given(arcs, st.lists(path, max_size=5), suite)
def test_every_path_has_an_inclusion_or_absence_proof(content: dict[str, str], others: list[str], name: str) -> None:
    built = coregw.Map(content, suite=name)
    paths = [*content, *others]
    proofs = built.prove_many(paths)
    assert proofs == [built.prove(text) for text in paths]
    assert [coregw.verify_key(built.root, text, proof) for text, proof in zip(paths, proofs, strict=True)] == [
        content.get(text) for text in paths
    ]
    assert coregw.verify_key_many(built.root, list(zip(paths, proofs, strict=True))) == [content.get(t) for t in paths]


@settings(max_examples=25)
@given(arcs.filter(bool), st.data())
def test_a_modified_proof_is_refused(content: dict[str, str], data: st.DataObject) -> None:
    built = coregw.Map(content)
    text = data.draw(st.sampled_from(sorted(content)))
    proof = built.prove(text)
    for bit in range(8 * len(proof)):
        forged = bytearray(proof)
        forged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProofError):
            coregw.verify_key(built.root, text, bytes(forged))
    for length in range(len(proof)):
        with pytest.raises(ProofError):
            coregw.verify_key(built.root, text, proof[:length])
    with pytest.raises(ProofError):
        coregw.verify_key(built.root, text, proof + b"\0")


@given(arcs, st.lists(segment, max_size=2), st.integers(1, 6))
def test_the_pages_of_a_listing_contain_every_entry_below_the_prefix(
    content: dict[str, str], prefix: list[str], limit: int
) -> None:
    built = coregw.Map(content)
    below = [
        (text.split("/"), content[text]) for text in in_key_order(content) if text.split("/")[: len(prefix)] == prefix
    ]
    found: list[tuple[list[str], str]] = []
    after = None
    while True:
        page = built.scan(prefix, after, limit)
        assert coregw.verify_scan(built.root, prefix, after, limit, page.proof) == page
        found += page.entries
        if not page.more:
            break
        after = page.entries[-1][0]
    assert found == below


@given(arcs, arcs, suite)
def test_changes_give_the_new_map_and_a_valid_transition_proof(
    old: dict[str, str], new: dict[str, str], name: str
) -> None:
    changes = [Change(text, old.get(text), new.get(text)) for text in {**old, **new} if old.get(text) != new.get(text)]
    start = coregw.Map(old, suite=name)
    if not changes:
        return
    applied = start.apply(changes)
    assert applied.tree.root == coregw.Map(new, suite=name).root
    assert dict(applied.tree) == new  # type: ignore[arg-type]
    assert coregw.verify_changes(start.root, changes, applied.proof) == applied.tree.root


@rows(
    ("change", "code"),
    [
        (Change("docs", None, TWO), "before_mismatch"),
        (Change("docs", TWO, ONE), "before_mismatch"),
        (Change("nothing", ONE, None), "before_mismatch"),
        (Change("docs", THREE, THREE), "invalid_change"),
    ],
)
def test_an_inconsistent_change_is_a_conflict(change: Change, code: str) -> None:
    with pytest.raises(Conflict) as caught:
        coregw.Map(ARCS).apply([change])
    assert caught.value.code == code
    assert str(change.coordinate) in str(caught.value)


def test_a_path_of_two_thousand_segments_is_proven_and_listed() -> None:
    deep = "/".join(["a"] * 2000)
    content = {"/".join(["a"] * count): ONE for count in range(1, 2001)}
    built = coregw.Map(content)
    assert coregw.verify_key(built.root, deep, built.prove(deep)) == ONE
    assert [entry[0] for entry in built.scan([], None, 1000).entries] == [["a"] * count for count in range(1, 1001)]


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
def test_an_empty_map_has_proofs_and_can_grow(suite: str) -> None:
    built = coregw.Map({}, suite=suite)
    assert (len(built), list(built), bool(built), built == {}) == (0, [], False, True)
    assert coregw.verify_key(built.root, "a", built.prove("a")) is None
    assert built.scan() == coregw.verify_scan(built.root, (), None, 1000, built.scan().proof)
    applied = built.apply([Change("a", None, ONE)])
    assert applied.tree == {"a": ONE}
    assert applied.tree.apply([Change("a", ONE, None)]).tree == built


def test_one_proof_of_many_paths_gives_their_targets_in_the_order_asked() -> None:
    content = {f"docs/{number}": coregw.payload_cid(b"%d" % number) for number in range(300)}
    built = coregw.Map(content)
    paths = ["docs/7", "nothing", ["docs", "250"], "docs", ("docs", "0")]
    proof = built.prove_keys(paths)
    assert proof == built.prove_keys(iter(reversed(paths)))
    expected = [content["docs/7"], None, content["docs/250"], None, content["docs/0"]]
    assert coregw.verify_keys(built.root, paths, proof) == expected
    assert coregw.verify_keys(built.root, reversed(paths), proof) == expected[::-1]
    assert built.prove_keys(["docs/7"]) == built.prove("docs/7")
    assert len(proof) < sum(len(single) for single in built.prove_many(paths))


@rows(
    ("paths", "place"),
    [
        ([], "keys"),
        (["a", "b", ["a"]], r"keys\[2\]"),
        (["a", "/"], "path 1"),
        ([str(n) for n in range(10_001)], "10001"),
    ],
)
def test_malformed_paths_of_a_multiproof_are_refused(paths: list[str], place: str) -> None:
    built = coregw.Map({"a": coregw.payload_cid(b"")})
    for call in (built.prove_keys, lambda paths: coregw.verify_keys(built.root, paths, b"")):
        with pytest.raises(coregw.InvalidInput, match=place):
            call(paths)
    with pytest.raises(TypeError):
        built.prove_keys("abc")


def test_a_multiproof_proves_neither_fewer_nor_more_nor_other_keys() -> None:
    built = coregw.Map({f"docs/{number}": coregw.payload_cid(b"%d" % number) for number in range(300)})
    paths = [f"docs/{number}" for number in range(0, 300, 30)]
    proof = built.prove_keys(paths)
    for other in (paths[1:], [*paths, "docs/1"], [*paths[1:], "docs/15"]):
        with pytest.raises(coregw.ProofError):
            coregw.verify_keys(built.root, other, proof)
    with pytest.raises(coregw.ProofError):
        coregw.verify_keys(built.root, paths, built.prove_many(paths)[0])


def test_prove_many_gives_the_proof_of_each_path() -> None:
    content = {f"{number}": ONE for number in range(300)}
    built = coregw.Map(content)
    paths = [f"{number}" for number in range(250, 550)]
    assert built.prove_many(paths) == built.prove_many(iter(paths)) == [built.prove(path) for path in paths]  # type: ignore[arg-type]
    assert built.prove_many([]) == []
    with pytest.raises(TypeError, match="not one path"):
        built.prove_many("abc")
    with pytest.raises(InvalidInput, match="path 1: "):
        built.prove_many(["a", "b/"])
    with pytest.raises(TypeError, match="path 0: "):
        built.prove_many([5])  # type: ignore[list-item]


def test_a_window_takes_paths_in_both_forms_and_an_empty_prefix() -> None:
    built = coregw.Map(ARCS)
    assert built.scan() == built.scan("") == built.scan(()) == built.scan([], None, 1000)
    assert built.scan("docs", "docs/readme") == built.scan(["docs"], ("docs", "readme"))
    assert [segments for segments, _ in built.scan("docs", limit=2).entries] == [["docs"], ["docs", "guide", "intro"]]


@rows(
    ("window", "error", "message"),
    [
        (("docs", "@payload"), InvalidInput, "after"),
        (("docs//", None), InvalidInput, "prefix: segment"),
        (("docs", ""), InvalidInput, "after: empty path"),
        (("docs", None, 0), InvalidInput, "limit"),
        (("docs", None, -1), InvalidInput, "limit"),
        (("docs", None, 1 << 53), InvalidInput, "limit"),
        (("docs", None, True), TypeError, "limit is an int, not bool"),
        (("docs", None, 1.5), TypeError, "limit is an int, not float"),
        ((5,), TypeError, "prefix: a path is a str"),
        ((b"",), TypeError, "prefix: a path is a str"),
        (({"docs"},), TypeError, "prefix: a path is a str"),
        (("docs", 5), TypeError, "after: a path is a str"),
    ],
)
def test_a_malformed_window_is_refused(window: tuple[object, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        coregw.Map(ARCS).scan(*window)  # type: ignore[arg-type]


@rows(
    ("changes", "error", "message"),
    [
        ([], InvalidInput, "at least one is required"),
        (None, TypeError, "iterable"),
        (["docs"], TypeError, "change 0: a Change is expected, not str"),
        ([("docs", ONE)], TypeError, "change 0: a Change is expected"),
        ([Change("docs", THREE, ONE), Change(5, None, ONE)], TypeError, "change 1: a path is a str"),
        ([Change("docs/", None, ONE)], InvalidInput, "change 0: .*empty segment"),
        ([Change("docs", THREE, "no cid")], InvalidInput, "change 0: after: "),
        ([Change("docs", 5, ONE)], TypeError, "change 0: before: a CID is a str"),  # type: ignore[arg-type]
        ([Change("docs", THREE, ONE, 1)], InvalidInput, "change 0: a change of a map has no size"),
        ([Change("docs", THREE, ONE), Change(["docs"], THREE, TWO)], Conflict, "docs.*twice"),
        ([Change("new", None, None)], Conflict, "new.*the same"),
    ],
)
def test_a_malformed_change_is_refused_with_its_place(changes: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        coregw.Map(ARCS).apply(changes)  # type: ignore[arg-type]


def test_apply_leaves_the_old_map_unchanged() -> None:
    built = coregw.Map(ARCS)
    applied = built.apply([Change("docs", THREE, None), ("new", None, ONE, None)])  # type: ignore[list-item]
    assert dict(built) == ARCS
    assert isinstance(applied.tree, coregw.Map)
    assert applied.tree == {**{path: cid for path, cid in ARCS.items() if path != "docs"}, "new": ONE}
    tree, proof = applied
    assert (tree, proof) == (applied.tree, applied.proof)
