"""`coregw.Map` as a mapping: construction, lookup, views, comparison, iteration, pickling."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from types import MappingProxyType

import pytest

import coregw
from coregw import InvalidInput, PathNotFound
from tables import rows

ONE, TWO, THREE = (coregw.payload_cid(text) for text in (b"one", b"two", b"three"))
ARCS = {"docs/readme": ONE, "docs/guide/intro": TWO, "docs": THREE, "@payload": ONE, "é/日本": TWO}


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


@rows("invalid", [5, None, b"docs", "", "/", "a//b", [], [""], ["a/b"], [1]])
def test_a_malformed_path_is_not_in_a_map(invalid: object) -> None:
    assert invalid not in coregw.Map(ARCS)


def test_get_returns_the_default_if_absent_and_refuses_a_malformed_path() -> None:
    built = coregw.Map(ARCS)
    assert built.get("docs") == built.get(["docs"], "other") == THREE
    assert built.get("nothing") is None
    assert built.get("nothing", 5) == built.get("nothing", default=5) == 5
    with pytest.raises(InvalidInput) as caught:
        built.get("a//b")
    assert caught.value.code == "invalid_path"
    with pytest.raises(TypeError, match="str or a sequence of str"):
        built[5]  # type: ignore[index]


def test_views_behave_like_those_of_a_mapping() -> None:
    built = coregw.Map(ARCS)
    keys, values, items = built.keys(), built.values(), built.items()
    assert (type(keys), type(values), type(items)) == (KeysView, ValuesView, ItemsView)
    assert list(zip(keys, values, strict=True)) == list(items)
    assert keys == ARCS.keys()
    assert keys & {"docs", "nothing"} == {"docs"}
    assert items == ARCS.items()
    assert ("docs", THREE) in items
    assert ("docs", ONE) not in items
    assert THREE in values


def test_maps_are_equal_by_root_and_to_other_mappings_by_items() -> None:
    built = coregw.Map(ARCS)
    again = coregw.Map(list(ARCS.items())[::-1])
    assert built == again
    assert hash(built) == hash(again)
    assert {built: 1}[again] == 1
    assert built != coregw.Map({**ARCS, "docs": ONE})
    assert built != coregw.Map(ARCS, suite="blake3"), "the roots differ even though the items are equal"
    for same in (ARCS, dict(built), MappingProxyType(ARCS)):
        assert built == same
        assert same == built
    for other in ({**ARCS, "docs": ONE}, {**ARCS, "more": ONE}, {"a//b": ONE, **dict(list(ARCS.items())[1:])}, {}):
        assert built != other
        assert other != built
    assert built != list(ARCS)
    assert built != 5


def test_a_map_is_immutable_and_its_repr_names_the_root() -> None:
    built = coregw.Map(ARCS)
    with pytest.raises(TypeError):
        built["docs"] = ONE  # type: ignore[index]
    with pytest.raises(TypeError):
        del built["docs"]  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        built.root = ONE  # type: ignore[misc]
    with pytest.raises(TypeError):
        reversed(built)  # type: ignore[call-overload]
    assert repr(built) == f"<coregw.Map {built.root} of 5 arcs>"


def test_a_map_matches_mapping_patterns() -> None:
    match coregw.Map(ARCS):
        case {"docs": found, **rest}:
            assert found == THREE
            assert rest == {path: cid for path, cid in ARCS.items() if path != "docs"}
        case _:
            pytest.fail("not matched as a mapping")


def test_a_pickled_or_copied_map_is_equal() -> None:
    built = coregw.Map(ARCS, suite="blake3")
    for same in (pickle.loads(pickle.dumps(built)), copy.copy(built), copy.deepcopy(built)):
        assert type(same) is coregw.Map
        assert same == built
        assert same.prove("docs") == built.prove("docs")


def test_every_form_of_the_same_arcs_gives_the_same_root() -> None:
    root = coregw.Map(ARCS).root
    segmented = {tuple(path.split("/")): coregw.Cid(cid) for path, cid in ARCS.items()}
    forms = [
        segmented,
        segmented.items(),
        [[path.split("/"), bytes(coregw.Cid(cid))] for path, cid in ARCS.items()],
        ((path, cid) for path, cid in ARCS.items()),
        MappingProxyType(ARCS),
        coregw.Map(ARCS, suite="blake3"),
        json.dumps(ARCS).encode(),
        json.dumps(ARCS, ensure_ascii=False, indent=1).encode(),
    ]
    assert [coregw.Map(form).root for form in forms] == [root] * len(forms)  # type: ignore[arg-type]


@rows(
    ("invalid", "message"),
    [
        (5, "iterable"),
        ("docs", "arc 0 is a pair"),
        (["ab"], "arc 0 is a pair"),
        ([("a", ONE, ONE)], "arc 0 is a pair"),
        ([("a", ONE), None], "arc 1 is a pair"),
        ({"a": 5}, 'arc "a": a CID is a str, bytes or a Cid, not int'),
        ({5: ONE}, "arc 0: a path is a str or a sequence of str, not int"),
        ({("a", 5): ONE}, "arc 0: .* its segment 1 is int"),
        ({b"a": ONE}, "arc 0: a path is a str or a sequence of str, not bytes"),
        (bytearray(b"{}"), "arc 0 is a pair"),
    ],
)
def test_an_arc_of_a_wrong_type_is_a_type_error_that_names_it(invalid: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        coregw.Map(invalid)  # type: ignore[arg-type]


def test_exception_raised_by_the_arcs_propagates() -> None:
    def broken() -> Iterator[tuple[str, str]]:
        yield "a", ONE
        raise LookupError("the end")

    with pytest.raises(LookupError, match="the end"):
        coregw.Map(broken())

    arcs: dict[object, str] = {}

    class Growing(Sequence[str]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: object) -> str:
            arcs[len(arcs)] = ONE
            return ["a"][index]  # type: ignore[call-overload]

        def __hash__(self) -> int:
            return 1

    arcs[Growing()] = ONE
    with pytest.raises(RuntimeError, match="changed size"):
        coregw.Map(arcs)  # type: ignore[arg-type]

    class Last(str):
        __slots__ = ()

        def __del__(self) -> None:
            others["grown"] = ONE

    class Replacing(Growing):
        def __getitem__(self, index: object) -> str:
            others[self] = ONE  # the target that is being read has no other reference
            return ["a"][index]  # type: ignore[call-overload]

        def __hash__(self) -> int:
            return 2

    others: dict[object, str] = {Replacing(): Last(ONE), "b": TWO}
    with pytest.raises(RuntimeError, match="changed size"):
        coregw.Map(others)  # type: ignore[arg-type]


def test_a_lone_surrogate_is_refused_in_a_path_and_a_cid() -> None:
    built = coregw.Map(ARCS)
    for bad in ("\ud800", ["a", "\ud800"]):
        assert bad not in built
        with pytest.raises(InvalidInput) as caught:
            built.prove(bad)
        assert caught.value.code == "invalid_path"
    with pytest.raises(InvalidInput) as caught:
        coregw.Map({"a": "\ud800"})
    assert caught.value.code == "invalid_cid"


def test_an_absent_path_is_a_key_error_with_an_error_code() -> None:
    with pytest.raises(KeyError) as caught:
        coregw.Map(ARCS)["docs/nothing"]
    assert isinstance(caught.value, PathNotFound)
    assert caught.value.code == "path_not_found"
    assert "docs/nothing" in str(caught.value)


@rows(
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
def test_invalid_arcs_are_refused_with_their_error_code(bad: object, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        coregw.Map(bad)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(InvalidInput, match="md5"):
        coregw.Map({}, suite="md5")


def test_iteration_yields_every_path_in_key_order() -> None:
    content = {f"{number % 7}/{number:05}/x": ONE for number in range(3000)}
    content |= {path.removesuffix("/x"): TWO for path in list(content)[:100]}
    built = coregw.Map(content)
    assert list(built) == in_key_order(content)
    assert list(built.values()) == [content[path] for path in built]
    paths = iter(built)
    assert iter(paths) is paths
    assert next(paths) == in_key_order(content)[0]
    assert len(list(paths)) == len(content) - 1
    assert next(paths, None) is None
