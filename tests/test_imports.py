"""Imports point one way: no cycles, and only from an upper layer to a lower one. `import coregw` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

from import_graph import Graph, cyclic_groups, edges, python_graph, rust_graph, rust_types
from tables import rows

TOP = Path(__file__).parent.parent
PACKAGE = TOP / "python" / "coregw"
CRATES = TOP / "rust"

# The modules of the package that each of its parts may import. A part is a module or folder directly in the package;
# "" is the package itself, the public surface. `_core` is the extension.
MAY_IMPORT: dict[str, set[str]] = {
    "_core": set(),
    "concurrency": set(),
    "durability": {"errors"},
    "errors": set(),
    "extras": set(),
    "heap": set(),
    "telemetry": set(),
    "text": {"errors"},
    "undecodable": {"extras"},
    "folders": {"_core", "durability", "errors", "extras", "text", "undecodable"},
    "filesystem": {"_core", "client", "errors", "extras", "folders", "text", "trust"},
    "verify": {"_core", "errors", "extras", "messages"},
    "building": {"_core", "errors", "extras", "upkeep", "verify"},
    "": {"_core", "building", "client", "errors", "extras", "folders", "trust", "verify"},
    "messages": {"_core", "errors", "extras"},
    "tlog": {"_core", "errors", "extras", "messages"},
    "trust": {"", "_core", "durability", "errors", "extras", "messages", "tlog", "undecodable"},
    "store": {"_core", "concurrency", "durability", "errors", "extras", "telemetry", "text", "undecodable"},
    "engine": {
        *("_core", "concurrency", "errors", "extras", "messages", "store", "telemetry", "tlog"),
        "undecodable",
    },
    "upkeep": {
        *("_core", "concurrency", "durability", "engine", "errors", "extras", "messages", "store", "undecodable"),
    },
    "gateway": {
        *("", "_core", "concurrency", "durability", "engine", "errors", "extras", "heap", "messages", "store"),
        *("telemetry", "text", "upkeep"),
    },
    "plants": {"_core", "errors", "extras", "gateway", "store"},
    "client": {
        *("", "_core", "concurrency", "durability", "engine", "errors", "extras", "folders", "messages"),
        *("store", "text", "tlog", "trust", "undecodable", "verify"),
    },
    "bench": {"", "client", "concurrency", "errors", "extras"},
    "cli": {
        *("bench", "building", "concurrency", "durability"),
        *("", "_core", "client", "errors", "extras", "folders", "gateway", "messages", "plants", "store", "text"),
        *("tlog", "trust", "upkeep"),
    },
    "__main__": {"cli", "extras", "heap"},
}

# The command that runs the plant store: nothing else names it.
STARTS_PLANTS = {"coregw.cli.serve_plants"}

# The crates of the workspace that each crate may depend on.
MAY_DEPEND: dict[str, set[str]] = {
    "coregw-core": {"coregw-lanes"},
    "coregw-folders": {"coregw-core", "coregw-ops"},
    "coregw-front": {"coregw-core", "coregw-ops"},
    "coregw-lanes": set(),
    "coregw-ops": {"coregw-core"},
    "coregw-python": {"coregw-core", "coregw-folders", "coregw-front", "coregw-ops"},
}

# A module is an idea, and a folder does not exist to keep a count low.
MAX_LINES_OF_MODULE = 700
# Nearly all lines are signatures and their documentation, as in `_core.pyi`; the second is made of the first.
FACADES = {"python/coregw/client/aio.py", "python/coregw/client/sync.py"}
MAX_MODULES_IN_FOLDER = 40

# May only shrink.
MAX_MODULES = 206


@cache  # and not when pytest imports this module, which each of its processes does
def package() -> Graph:
    """The imports of the package."""
    return python_graph(PACKAGE)


def part_of(module: str) -> str:
    """The part of the package that a module is in."""
    return [*module.split("."), ""][1]


def test_a_module_imports_only_what_its_part_may() -> None:
    new = {part_of(module) for module in package()} - {*MAY_IMPORT}
    assert not new, f"new parts of the package: add to MAY_IMPORT what they may import: {new}"
    imports = {
        (module, name)
        for module, name in edges(package())
        if part_of(name) not in MAY_IMPORT[part_of(module)] | {part_of(module)}
    }
    assert imports == set()


def test_only_the_command_that_runs_the_plant_store_imports_it() -> None:
    importers = {
        module for module, name in edges(package()) if part_of(name) == "plants" and part_of(module) != "plants"
    }
    assert importers == STARTS_PLANTS


@rows("crate", [*MAY_DEPEND])
def test_a_crate_depends_only_on_lower_crates(crate: str) -> None:
    manifest = tomllib.loads((CRATES / crate.removeprefix("coregw-") / "Cargo.toml").read_text("utf-8"))
    assert manifest["package"]["name"] == crate
    assert {name for name in manifest["dependencies"] if name.startswith("coregw-")} <= MAY_DEPEND[crate]


@rows("name", ["coregw", "core", "folders", "front", "ops", "python"])
def test_no_modules_import_each_other(name: str) -> None:
    assert cyclic_groups(package() if name == "coregw" else rust_graph(CRATES / name / "src")) == []


@rows("crate", ["core", "folders", "front", "ops", "python"])
def test_no_type_name_is_defined_twice_in_a_crate(crate: str) -> None:
    types = rust_types(CRATES / crate / "src")
    assert types
    assert {name: modules for name, modules in types.items() if len(modules) > 1} == {}


def sources() -> list[Path]:
    """The modules of the package and of the crates, without the extension's stub."""
    return [
        path
        for top, suffix in ((PACKAGE, "py"), (CRATES, "rs"))
        for path in top.rglob(f"*.{suffix}")
        if not {"target", "bin"} & set(path.parts)  # a fuzz target per file
    ]


def definitions(path: Path) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The classes and functions at the top level of a module."""
    body = ast.parse(path.read_text("utf-8")).body
    return [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]


def test_a_module_is_not_too_long() -> None:
    lines = {str(path.relative_to(TOP)): path.read_text("utf-8").count("\n") for path in sources()}
    assert {name for name, count in lines.items() if count > MAX_LINES_OF_MODULE} == FACADES


def test_a_folder_has_not_too_many_modules() -> None:
    sizes = Counter(str(path.parent.relative_to(TOP)) for path in sources())
    assert {folder: size for folder, size in sizes.items() if size > MAX_MODULES_IN_FOLDER} == {}


def test_the_number_of_modules_does_not_grow() -> None:
    assert len([*PACKAGE.rglob("*.py")]) == MAX_MODULES, (
        "fewer: lower MAX_MODULES; more: which one is an idea of its own?"
    )


def test_init_modules_define_nothing() -> None:
    defined = {
        ".".join(path.parent.relative_to(PACKAGE).parts)
        for path in PACKAGE.rglob("__init__.py")
        if {node.name for node in definitions(path)} - {"__getattr__", "__dir__"}
    }
    assert defined == set()


def test_no_two_public_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in definitions(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} == set()


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after `statement`."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


CLIENT_SIDE = {"click", "pycurl", "rich", "rich_click"}
SERVER_SIDE = {"granian", "litestar", "rocksdict", "uvicorn", "uvloop"}


def test_importing_coregw_loads_no_http_and_no_server_code() -> None:
    assert not loaded_by("import coregw") & (CLIENT_SIDE | SERVER_SIDE | {"asyncio", "msgspec"})


def test_a_client_loads_no_server_code() -> None:
    loaded = loaded_by("import coregw; coregw.Client; coregw.AsyncClient")
    assert "pycurl" in loaded
    assert not loaded & (SERVER_SIDE | {"click", "rich"})


def test_a_store_and_the_engine_load_no_http() -> None:
    assert not loaded_by("import coregw.engine, coregw.store.rocksdb") & (CLIENT_SIDE | {"litestar", "uvicorn"})
