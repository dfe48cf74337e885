"""The reader of import graphs, on small packages and crates: what is an import, and which imports make a cycle."""

from __future__ import annotations

from pathlib import Path

import pytest

from import_graph import Graph, cyclic_groups, python_graph, rust_graph, rust_types
from tables import rows


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


# ------------------------------------------------------------------------------------------------------- cycles


@rows(
    ("graph", "groups"),
    [
        ({}, []),
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, [{"a", "b"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [{"a", "b", "c"}]),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}, [{"a", "b"}, {"c", "d"}]),
    ],
)
def test_a_cycle_is_found_whatever_its_length(graph: Graph, groups: list[set[str]]) -> None:
    assert cyclic_groups(graph) == groups


# ------------------------------------------------------------------------------------------------------- Python


def test_python_imports_of_every_form_are_found(tmp_path: Path) -> None:
    package = written(
        tmp_path / "pack",
        {
            "__init__.py": "from pack.low import NAME\n",
            "low.py": "import json\nNAME = 1\n",
            "native.pyi": "X: int\n",
            "sub/__init__.py": "",
            "sub/typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack import sub\n",
            "lazy/__init__.py": "if TYPE_CHECKING:\n    from pack import low\ndef __getattr__(name): ...\n",
            "sub/late.py": "def f():\n    import pack.low\n    from pack.sub import typed\nfrom pack.native import X",
        },
    )
    assert python_graph(package) == {
        "pack": {"pack.low"},
        "pack.lazy": set(),
        "pack.low": set(),
        "pack.native": set(),
        "pack.sub": set(),
        "pack.sub.typed": {"pack.sub"},
        "pack.sub.late": {"pack.low", "pack.sub.typed", "pack.native"},
    }


@pytest.mark.parametrize("line", ["import pack.a", "from pack import a", "from pack.a import NAME"])
@pytest.mark.parametrize("place", ["{}\n", "def f():\n    {}\n", "if TYPE_CHECKING:\n    {}\n"])
def test_a_python_cycle_is_found_wherever_the_import_is(tmp_path: Path, line: str, place: str) -> None:
    files = {"__init__.py": "", "a.py": "from pack import b\nNAME = 1\n", "b.py": place.format(line)}
    assert cyclic_groups(python_graph(written(tmp_path / "pack", files))) == [{"pack.a", "pack.b"}]


def test_a_relative_import_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"a\.py:1: a relative import"):
        python_graph(written(tmp_path / "pack", {"a.py": "from . import b\n", "b.py": ""}))


# --------------------------------------------------------------------------------------------------------- Rust

LIB = "pub mod a;\nmod b;\npub mod deep;\npub use b::{B, make as build};\npub struct Here;\n"
CRATE = {
    "lib.rs": LIB,
    "a.rs": "pub struct A;\npub fn f() {}\n",
    "b.rs": "pub struct B;\npub fn make() -> B { B }\n",
    "deep/mod.rs": "pub mod inner;\nmod glob;\npub use glob::*;\npub const DEEP: u8 = 1;\n",
    "deep/inner.rs": "",
    "deep/glob.rs": "pub enum Globbed {}\n",
}


@rows(
    ("code", "imported"),
    [
        ("use crate::a::A;", {"crate::a"}),
        ("use crate::a;\nfn g() { a::f() }", {"crate::a"}),
        ("use crate::a as other;\nfn g() { other::f() }", {"crate::a"}),
        ("use crate::a::{self, f};", {"crate::a"}),
        ("use crate::{a::{A, f}, b::B as Other};", {"crate::a", "crate::b"}),
        ("use super::super::a::A;", {"crate::a"}),
        ("use super::DEEP;", {"crate::deep"}),
        ("use super::*;", {"crate::deep"}),
        ("use crate::a::*;", {"crate::a"}),
        ("fn g() -> crate::a::A { crate::a::A }", {"crate::a"}),
        ("fn g(x: <crate::a::A as Trait>::Out) {}", {"crate::a"}),
        ("mod inline { use super::super::super::a::A; }", {"crate::a"}),
        ("mod inline { use crate::b; fn g() { b::make() } }", {"crate::b"}),
        ("use crate::Here;", {"crate"}),
        ("use crate::B;", {"crate::b"}),
        ("use crate::build;", {"crate::b"}),
        ("use crate::deep::Globbed;", {"crate::deep::glob"}),
        ("macro_rules! m { () => { $crate::a::f() } }", {"crate::a"}),
        ("use std::collections::BTreeMap;\nuse serde as a;\nfn g() { a::f(); BTreeMap::new() }", set()),
        ("use crate::a;", set()),
        ("// use crate::a::A;\n/* crate::a::f() */", set()),
        ('const T: &str = "crate::a::f()"; const R: &str = r#"use "crate::a::A";"#;', set()),
        ("fn g<'a>(x: &'a str) -> char { 'x' }\nconst Q: char = '\"'; fn h() { crate::a::f() }", {"crate::a"}),
        ("#[cfg(test)]\nmod tests { use crate::a::A; }", set()),
        ("#[cfg(test)]\nmod tests;\nuse crate::b::B;", {"crate::b"}),
        ("#[cfg(test)]\nfn g(x: [u8; 3]) -> A { crate::a::f() }\nuse crate::b::B;", {"crate::b"}),
    ],
)
def test_rust_imports_of_every_form_are_found_where_they_are_defined(
    tmp_path: Path, code: str, imported: set[str]
) -> None:
    graph = rust_graph(written(tmp_path, CRATE | {"deep/inner.rs": code}))
    assert graph["crate::deep::inner"] == imported


def test_a_path_through_a_child_module_imports_it(tmp_path: Path) -> None:
    graph = rust_graph(written(tmp_path, CRATE | {"lib.rs": f"{LIB}pub fn top() {{ a::f(); deep::inner::x() }}\n"}))
    assert graph["crate"] == {"crate::a", "crate::b", "crate::deep::inner"}


@pytest.mark.parametrize(
    "code", ["use crate::{b::B, a::A};", "fn g() { crate::a::f() }", "use super::a;\nfn g() { a::f() }"]
)
def test_a_rust_cycle_is_found(tmp_path: Path, code: str) -> None:
    crate = written(
        tmp_path, CRATE | {"a.rs": "use crate::B;\npub struct A;\npub fn f() {}", "b.rs": f"{code}\npub struct B;"}
    )
    assert cyclic_groups(rust_graph(crate)) == [{"crate::a", "crate::b"}]


def test_a_module_and_the_parent_that_re_exports_it_make_a_cycle(tmp_path: Path) -> None:
    crate = written(tmp_path, CRATE | {"deep/glob.rs": "use super::DEEP;\npub enum Globbed {}\n"})
    assert cyclic_groups(rust_graph(crate)) == [{"crate::deep", "crate::deep::glob"}]


def test_types_are_found_with_every_module_that_defines_them(tmp_path: Path) -> None:
    code = "trait B {\n    type A;\n}\n#[cfg(test)]\nstruct A;\nuse crate::deep::Globbed;\n"
    types = rust_types(written(tmp_path, CRATE | {"deep/inner.rs": code}))
    assert types == {
        "A": {"crate::a"},
        "B": {"crate::b", "crate::deep::inner"},
        "Globbed": {"crate::deep::glob"},
        "Here": {"crate"},
    }
