"""What comments and docstrings name exists: modules, and what is in them."""

from __future__ import annotations

import builtins
import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from import_graph import python_graph

TOP = Path(__file__).parent.parent
PACKAGE = TOP / "python" / "coregw"

DOTTED = re.compile(r"(?<!`)(`{1,2})([a-z_]\w*(?:\.\w+)+)\1(?!`)")
SINGLE = re.compile(r"(?<!`)`([A-Za-z_]\w*)(?:\(\))?`(?!`)")


def source_of(module: str) -> Path:
    """The file of a module."""
    folder = PACKAGE.parent.joinpath(*module.split("."))
    for path in (folder / "__init__.py", folder.with_suffix(".py")):
        if path.exists():
            return path
    return folder.with_suffix(".pyi")  # the extension's stub


def split(path: Path) -> tuple[set[str], list[tuple[int, str]]]:
    """The words of a module's code, and its comments and docstrings with their lines."""
    words: set[str] = set()
    texts: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and '"""' in token.string[:4]):
            texts.append((token.start[0], token.string))
        else:
            words.update(re.findall(r"\w+", token.string))
    return words, texts


@cache  # and not when pytest imports this module, which each of its processes does
def sources() -> dict[str, tuple[set[str], list[tuple[int, str]]]]:
    """What `split` finds in each module."""
    return {module: split(source_of(module)) for module in (*python_graph(PACKAGE), "coregw._core")}


@cache
def words() -> set[str]:
    """The words of the package's code."""
    return {word for found, _ in sources().values() for word in found}


@cache
def rust_code() -> dict[Path, str]:
    """The Rust files without their comments."""
    return {
        path: re.sub(r"//.*", "", path.read_text("utf-8"))
        for path in (TOP / "rust").rglob("*.rs")
        if "target" not in path.parts
    }


@cache
def known() -> set[str]:
    """The words of all code."""
    return words() | {word for code in rust_code().values() for word in re.findall(r"\w+", code)}


RUST_COMMENT = re.compile(r"(?:^|\s)//[/!]?(.*)$", re.MULTILINE)
RUST_NAME = re.compile(r"(?<!`)`&?([A-Za-z_]\w*(?:(?:::|\.)\w+)*)(?:\(\))?!?`(?!`)")


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or leads to words in the code of one; the module may be named by its end."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        end = ".".join(parts[:length])
        for module in sources():
            is_named = module == end or (parts[0] != "coregw" and module.endswith(f".{end}"))
            if is_named and {*parts[length : length + 1]} <= sources()[module][0] and {*parts[length + 1 :]} <= words():
                return True
    return False


def unknown() -> Iterator[str]:
    """Each name that does not exist, with its place."""
    parts_of_modules = {part for module in sources() for part in module.split(".")}
    for module, (_, texts) in sources().items():
        for line, text in texts:
            for found in DOTTED.finditer(text):
                first = found[2].partition(".")[0]
                is_file = found[2].endswith((".json", ".exe"))
                if first in parts_of_modules and not is_file and not exists(found[2]):
                    yield f"{module}:{line}: {found[2]}"
            for found in SINGLE.finditer(text):
                word = found[1]
                bare = word.lower().removeprefix("coregw_")  # of a variable of the environment, or a function in SQL
                is_known = {word, bare} & known() or hasattr(builtins, word) or keyword.iskeyword(word)
                if not is_known and word not in FOREIGN:
                    yield f"{module}:{line}: {word}"


@cache
def code_of(place: str) -> list[str]:
    """The code of a module, of a crate, or around a type; none of what a library has."""
    name = place.removeprefix("coregw_")
    defines = re.compile(rf"\b(?:enum|impl|mod|struct|trait|type|for) (?:\w+::)*{place}\b")
    return [
        code
        for path, code in rust_code().items()
        if name in {path.stem, *path.relative_to(TOP).parts} or (place in code and defines.search(code))
    ]


def has_name(place: str, name: str) -> bool:
    """Whether the code of a module, crate or type has a name; of what a library has, nothing is known."""
    found = code_of(place)
    return not found or any(re.search(rf"\b{name}\b", code) for code in found)


def unknown_in_rust() -> Iterator[str]:
    """Each name in a comment of the Rust crates that does not exist, with its place."""
    for path in rust_code():
        text = path.read_text("utf-8")
        for comment in RUST_COMMENT.finditer(text):
            for found in RUST_NAME.finditer(comment[1]):
                parts = re.split(r"::|\.", found[1])
                is_known = all(
                    word in known() or word in FOREIGN or word.isdigit() or hasattr(builtins, word) for word in parts
                )
                if "::" in found[1] and parts[-2] not in {"Self", "crate", "super"}:
                    is_known = is_known and has_name(*parts[-2:])
                if not is_known:
                    line = text.count("\n", 0, comment.start(1)) + 1
                    yield f"{path.relative_to(TOP)}:{line}: {found[1]}"


FOREIGN = {"__length_hint__", "on_header", "pthread_mutex_t", "sha256rnds2", "vprord", "vpternlog"}
"""What a comment names of a library, of CPython or of a processor, where code does not."""


def test_comments_and_docstrings_name_what_exists() -> None:
    assert [*unknown()] == []


def test_comments_in_rust_name_what_exists() -> None:
    assert [*unknown_in_rust()] == []
