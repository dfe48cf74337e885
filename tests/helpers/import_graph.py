"""Import graphs of a Python package and of a Rust crate, read from their sources.

A node is a module, which is a file; an edge goes to the module that defines the imported name, so that a name taken
through a re-export counts as taken from where it is defined. Imports inside functions and for type checking count.

``python tests/helpers/import_graph.py`` writes the drawing of the package's imports into docs/architecture.md.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path

Graph = dict[str, set[str]]
"""The modules that each module imports."""


def cyclic_groups(graph: Graph) -> list[set[str]]:
    """The largest groups of modules that all import each other, directly or through others. O(modules x edges)."""
    reachable = {module: _reachable(graph, module) for module in graph}
    groups: list[set[str]] = []
    for module in sorted(graph):
        group = {other for other in reachable[module] if module in reachable.get(other, set())}
        if group and group not in groups:
            groups.append(group)
    return groups


def edges(graph: Graph) -> set[tuple[str, str]]:
    """All pairs of a module and one that it imports."""
    return {(module, imported) for module, all_imported in graph.items() for imported in all_imported}


def _reachable(graph: Graph, start: str) -> set[str]:
    """The modules that importing `start` leads to; `start` itself only if that is by a cycle."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for imported in graph.get(waiting.pop(), set()) - found:
            found.add(imported)
            waiting.append(imported)
    return found


def drawing(package: str, graph: Graph) -> str:
    """Draw the imports between the parts of a package, from those that nothing imports down to the foundations.

    A part is a module or folder directly in the package. Imports that a part has through another one are left out, and
    the foundations, which import no other part, are the last line.
    """
    imported: Graph = {}
    for source, target in edges(graph):
        one, other = (module.removeprefix(package).strip(".").partition(".")[0] for module in (source, target))
        if one and one != other:
            imported.setdefault(one, set()).add(other)
    foundations = {part for parts in imported.values() for part in parts if part and part not in imported}
    above = {part: parts - foundations - {""} for part, parts in imported.items()}
    height: dict[str, int] = {}
    for part in TopologicalSorter(above).static_order():
        height[part] = 1 + max((height[below] for below in above[part]), default=0)
    width = max(map(len, above))
    lines = []
    for part in sorted(above, key=lambda part: (-height[part], part)):
        shown = above[part] - {far for near in above[part] for far in _reachable(above, near)}
        lines.append(f"  {part:<{width}}  ──►  {'  '.join(sorted(shown)) or '…'}")
    return "\n".join([*lines, f"  {'…':<{width}}  ──►  {'  '.join(sorted(foundations))}", ""])


# -------------------------------------------------------------------------------------------------------- Python


def python_graph(package: Path) -> Graph:
    """The imports between the modules of a package, by dotted name; extension modules with a stub are nodes too."""
    files = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    known = set(files)
    return {module: _python_imports(path, known) - {module} for module, path in files.items()}


def _python_imports(path: Path, known: set[str]) -> set[str]:
    """The modules that one imports, for types too; not what the ``__getattr__`` of a package loads on first use."""
    tree = ast.parse(path.read_text("utf-8"))
    if any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body):
        tree.body = [node for node in tree.body if not _is_for_types(node)]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in known else base)
    return found & known


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


# ---------------------------------------------------------------------------------------------------------- Rust
#
# A parser of `mod`, `use` and paths is enough: a module that is named nowhere in a file is not imported by it.

_TOKEN = re.compile(
    r"""
    //[^\n]* | /\*.*?\*/                              # comments
    | b?r(?P<hashes>\#*)".*?"(?P=hashes)              # raw strings
    | b?"(?:\\.|[^"\\])*"                             # strings
    | b?'(?:\\[^']+|[^\\'])' | '\w+                   # characters, lifetimes
    | (?P<token>\w+|::|\S)
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = set("{[("), set("}])")
_DEFINES = {"const", "enum", "fn", "macro_rules", "static", "struct", "trait", "type", "union"}
_TYPES = {"enum", "struct", "trait", "type", "union"}

Names = tuple[str, ...]
"""A path: names that ``::`` joins."""


@dataclass
class _Module:
    """What one source file declares and names."""

    children: list[str] = field(default_factory=list)
    defined: dict[str, str] = field(default_factory=dict)
    """The keyword that defines each name, such as ``struct``."""
    aliases: dict[str, Names] = field(default_factory=dict)
    """What a ``use`` gives a name to, from the crate's root."""
    exported: set[str] = field(default_factory=set)
    """The aliases that other modules see."""
    exported_whole: list[Names] = field(default_factory=list)
    """The modules all of whose names other modules see here (``pub use x::*``)."""
    used: set[Names] = field(default_factory=set)
    mentioned: set[Names] = field(default_factory=set)
    """The paths of its ``use`` items, and those elsewhere in its code; from the crate's root."""


def rust_graph(source: Path) -> Graph:
    """The imports between the modules of a crate (``src``), as in ``crate::tree::map``, without its unit tests."""
    modules = _rust_modules(source)
    graph = {}
    for name, module in modules.items():
        # `use crate::tree;` alone takes nothing from `tree`: the paths that start with its name here do.
        paths = module.mentioned | {path for path in module.used if path not in modules}
        found = {_defining(modules, path) for path in paths}
        graph["::".join(name)] = {"::".join(other) for other in found if other != name}
    return graph


def rust_types(source: Path) -> dict[str, set[str]]:
    """The modules of a crate (``src``) that define a type or trait of each name, without its unit tests."""
    found: dict[str, set[str]] = {}
    for name, module in _rust_modules(source).items():
        for each in (each for each, keyword in module.defined.items() if keyword in _TYPES):
            found.setdefault(each, set()).add("::".join(name))
    return found


def _rust_modules(source: Path) -> dict[Names, _Module]:
    modules: dict[Names, _Module] = {}
    waiting: list[tuple[Names, Path]] = [(("crate",), source / "lib.rs")]
    while waiting:
        name, path = waiting.pop()
        module = modules[name] = _read(name, path.read_text("utf-8"))
        folder = path.parent if path.name in {"lib.rs", "mod.rs"} else path.with_suffix("")
        for child in module.children:
            file = folder / f"{child}.rs"
            waiting.append(((*name, child), file if file.exists() else folder / child / "mod.rs"))
    return modules


def _defining(modules: dict[Names, _Module], path: Names) -> Names:
    """The module that defines what a path from the crate's root names."""
    depth = max(n for n in range(1, len(path) + 1) if path[:n] in modules)
    name, rest = path[:depth], path[depth:]
    module = modules[name]
    if not rest or rest[0] in module.defined:
        return name
    if rest[0] in module.exported:
        return _defining(modules, (*module.aliases[rest[0]], *rest[1:]))
    for origin in module.exported_whole:
        if rest[0] in modules[origin].defined.keys() | modules[origin].exported:
            return _defining(modules, (*origin, *rest))
    return name


def _read(name: Names, text: str) -> _Module:
    module = _Module()
    tokens = _without_tests([match["token"] for match in _TOKEN.finditer(text) if match["token"]])
    inline: list[tuple[str, int]] = []  # the inline modules around a token, with the depth of their braces
    mentions: list[tuple[Names, Names]] = []
    depth = place = 0
    while place < len(tokens):
        token, following = tokens[place], tokens[place + 1 : place + 2]
        here = (*name, *(inner for inner, _ in inline))
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
            if inline and inline[-1][1] == depth:
                inline.pop()
        elif token == "mod" and tokens[place + 2] == ";":
            module.children.append(tokens[place + 1])
        elif token == "mod" and tokens[place + 2] == "{":
            inline.append((tokens[place + 1], depth))
        elif token in _DEFINES and depth == 0 and tokens[place + 1] != "(":  # `union` is a method's name, too
            module.defined[tokens[place + (2 if token == "macro_rules" else 1)]] = token
        elif token == "use":
            end = tokens.index(";", place)
            is_public = tokens[place - 1] in {"pub", ")"}  # `pub`, `pub(crate)`
            for path, alias in _use_tree(tokens[place + 1 : end]):
                _note_use(module, here, path, alias, is_public=is_public)
            place = end
        elif following == ["::"]:
            path = (token,)
            while tokens[place + 1 : place + 2] == ["::"]:
                path = (*path, tokens[place + 2])
                place += 2
            mentions.append((here, path))
        place += 1
    found = {_absolute(module, here, path) for here, path in mentions}
    module.mentioned |= {path for path in found if path is not None}
    return module


def _note_use(module: _Module, here: Names, path: Names, alias: str, *, is_public: bool) -> None:
    full = _absolute(module, here, path)
    if full is None:
        return
    if alias == "*":
        module.mentioned.add(full)
        if is_public:
            module.exported_whole.append(full)
        return
    module.used.add(full)
    module.aliases[alias] = full
    if is_public:
        module.exported.add(alias)


def _absolute(module: _Module, here: Names, path: Names) -> Names | None:
    """A path in the module `here` as one from the crate's root; None if it starts in another crate or at an item."""
    path = path[:-1] if path[-1] == "*" else path
    first, rest = path[0], path[1:]
    if first == "crate":
        return path
    if first in {"self", "super"}:
        base = here
        while path[:1] == ("super",):
            base, path = base[:-1], path[1:]
        return (*base, *(path[1:] if path[:1] == ("self",) else path))
    if first in module.aliases:
        return (*module.aliases[first], *rest)
    return (*here, *path) if first in module.children else None


def _use_tree(tokens: list[str], prefix: Names = ()) -> list[tuple[Names, str]]:
    """The paths that a ``use`` names, each with the name that it gets in this module."""
    path = list(prefix)
    for place, token in enumerate(tokens):
        if token == "{":
            return [found for part in _split(tokens[place + 1 : -1]) for found in _use_tree(part, tuple(path))]
        if token == "as":
            return [(tuple(path), tokens[place + 1])]
        if token != "::" and not (token == "self" and path):
            path.append(token)
    return [(tuple(path), path[-1])] if tokens else []


def _split(tokens: list[str]) -> list[list[str]]:
    """The parts between the outermost commas."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in _OPEN) - (token in _CLOSE)
        if token == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _without_tests(tokens: list[str]) -> list[str]:
    """The tokens without the items under ``#[cfg(test)]``."""
    marker = ["#", "[", "cfg", "(", "test", ")", "]"]
    kept: list[str] = []
    place = 0
    while place < len(tokens):
        if tokens[place : place + len(marker)] != marker:
            kept.append(tokens[place])
            place += 1
            continue
        place += len(marker)
        depth = 0
        while not (depth == 0 and tokens[place] == ";"):
            depth += (tokens[place] in _OPEN) - (tokens[place] in _CLOSE)
            if depth == 0 and tokens[place] == "}":
                break
            place += 1
        place += 1
    return kept


if __name__ == "__main__":
    top = Path(__file__).parent.parent.parent
    page = top / "docs" / "architecture.md"
    drawn = drawing("coregw", python_graph(top / "python" / "coregw"))
    shown = re.compile(r"(?<=^```\n)  __main__ .*?(?=^```$)", re.MULTILINE | re.DOTALL)
    page.write_text(shown.sub(drawn, page.read_text("utf-8")), "utf-8")
