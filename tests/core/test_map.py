"""`coregw.Map` against a plain dict: the mapping it is, the proofs it gives, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coregw
from coregw import Change, Conflict, InvalidInput, PathNotFound, ProofError

ONE, TWO, THREE = (coregw.payload_cid(text) for text in (b"one", b"two", b"three"))
ARCS = {"docs/readme": ONE, "docs/guide/intro": TWO, "docs": THREE, "@payload": ONE, "é/日本": TWO}

segment = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=4)
path = st.lists(segment, min_size=1, max_size=4).map("/".join)
target = st.sampled_from([ONE, TWO, THREE])
arcs = st.dictionaries(path, target, max_size=40)
suite = st.sampled_from(["sha2-256", "blake3"])


def in_key_order(paths: Mapping[str, str]) -> list[str]:
    return sorted(paths, key=coregw.encode_key)


def test_a_map_is_a_mapping_in_key_order() -> None:
    built = coregw.Map(ARCS)
    assert isinstance(built, Mapping)
    assert list(built) == in_key_order(ARCS)
    assert dict(built) == ARCS
    assert list(built.items()) == [(text, ARCS[text]) for text in built]
    assert built["docs/readme"] == built[["docs", "readme"]] == ONE
    assert built.get("nothing") is None
    assert "docs/guide" not in built
    assert "docs/guide/intro" in built


@pytest.mark.parametrize("odd", [5, None, b"docs", "", "/", "a//b", [], [""], ["a/b"], [1]])
def test_what_is_no_path_is_not_in_a_map(odd: object) -> None:
    assert odd not in coregw.Map(ARCS)


def test_a_missing_key_is_a_key_error_with_the_protocols_code() -> None:
    with pytest.raises(KeyError) as caught:
        coregw.Map(ARCS)["docs/nothing"]
    assert isinstance(caught.value, PathNotFound)
    assert caught.value.code == "path_not_found"
    assert "docs/nothing" in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"a//b": ONE}, "invalid_path"),
        ({"": ONE}, "invalid_path"),
        ({"/a": ONE}, "invalid_path"),
        ({"a" * 4097: ONE}, "invalid_path"),
        ({"a": "no cid"}, "invalid_cid"),
        ({"a": ONE + "a"}, "invalid_cid"),
        ([(["a"], ONE), ("a", TWO)], "invalid_request"),
        (b'{"a": "%s", "\\u0061": "%s"}' % (ONE.encode(), ONE.encode()), "invalid_request"),
        (b"[]", "invalid_request"),
        (b"{", "invalid_request"),
    ],
)
def test_bad_arcs_are_refused_by_name(bad: object, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        coregw.Map(bad)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(InvalidInput, match="md5"):
        coregw.Map({}, suite="md5")


@given(arcs, suite, st.randoms(use_true_random=False))
def test_the_root_does_not_depend_on_the_order(content: dict[str, str], name: str, random: object) -> None:
    pairs = list(content.items())
    random.shuffle(pairs)  # type: ignore[attr-defined]
    assert coregw.Map(pairs, suite=name).root == coregw.Map(content, suite=name).root


@given(arcs, st.lists(path, max_size=5), suite)
def test_every_key_and_every_absence_has_a_proof(content: dict[str, str], others: list[str], name: str) -> None:
    built = coregw.Map(content, suite=name)
    asked = [*content, *others]
    proofs = built.prove_many(asked)
    assert proofs == [built.prove(text) for text in asked]
    assert [coregw.verify_key(built.root, text, proof) for text, proof in zip(asked, proofs, strict=True)] == [
        content.get(text) for text in asked
    ]
    assert coregw.verify_key_many(built.root, list(zip(asked, proofs, strict=True))) == [content.get(t) for t in asked]


@settings(max_examples=25)
@given(arcs.filter(bool), st.data())
def test_no_changed_proof_is_accepted(content: dict[str, str], data: st.DataObject) -> None:
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
def test_pages_of_a_listing_join_to_all_that_is_below_a_prefix(
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
def test_changes_lead_from_one_content_to_another_with_a_proof(
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


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (Change("docs", None, TWO), "before_mismatch"),
        (Change("docs", TWO, ONE), "before_mismatch"),
        (Change("nothing", ONE, None), "before_mismatch"),
        (Change("docs", THREE, THREE), "invalid_change"),
    ],
)
def test_a_change_that_does_not_fit_is_a_conflict(change: Change, code: str) -> None:
    with pytest.raises(Conflict) as caught:
        coregw.Map(ARCS).apply([change])
    assert caught.value.code == code
    assert str(change.coordinate) in str(caught.value)


def test_a_path_of_two_thousand_segments_works() -> None:
    deep = "/".join(["a"] * 2000)
    content = {"/".join(["a"] * count): ONE for count in range(1, 2001)}
    built = coregw.Map(content)
    assert coregw.verify_key(built.root, deep, built.prove(deep)) == ONE
    assert [entry[0] for entry in built.scan([], None, 1000).entries] == [["a"] * count for count in range(1, 1001)]
