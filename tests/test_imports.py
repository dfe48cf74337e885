"""Imports point one way, and `import coregw` loads no HTTP or server code (architecture: the house)."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "python" / "coregw"

# What each part may import of the others. A part is a module or a folder directly in the package; the package
# itself ("") is the public surface. `_core` is the extension.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "verify": {"_core", "errors", "messages"},
    "": {"_core", "client", "errors", "verify"},
    "messages": {"_core", "errors"},
    "store": {"errors"},
    "engine": {"_core", "errors", "messages", "store"},
    "gateway": {
        "",
        "_core",
        "engine",
        "errors",
        "messages",
        "store",
    },
    # A service of its own on the gateway's sockets, limits and store; the gateway knows nothing of it, so what serves
    # both on one port (coregw.plants.service) stands here, and `coregw serve` starts it.
    "plants": {"_core", "engine", "errors", "gateway"},
    "client": {"", "_core", "errors", "messages", "verify"},
    "cli": {"", "_core", "client", "errors", "gateway", "messages", "plants"},
    "demo": {"", "_core", "client", "errors", "messages"},
    "__main__": {"cli"},
}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("coregw", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def part_of(module: str) -> str:
    return [*module.split("."), ""][1]


def imports_of(path: Path, known: set[str]) -> set[str]:
    """The modules of the package that a file imports anywhere, in functions and for typing too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in known or full == "coregw._core" else base)
    return {name for name in found if name.split(".")[0] == "coregw"}


MODULES = modules()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_part_may(module: str) -> None:
    part = part_of(module)
    assert part in MAY_IMPORT, f"{part!r} is a new part of the house: say in MAY_IMPORT what it may import"
    wrong = {
        name for name in imports_of(MODULES[module], set(MODULES)) if part_of(name) not in MAY_IMPORT[part] | {part}
    }
    assert not wrong


def test_only_the_engine_brings_a_store_and_the_core_together() -> None:
    both = [
        module
        for module, path in MODULES.items()
        if {"store", "_core"} <= {part_of(name) for name in imports_of(path, set(MODULES))}
    ]
    assert set(both) <= {"coregw.engine"} | {name for name in both if name.startswith("coregw.engine.")}


def test_no_import_goes_round_in_a_circle() -> None:
    known = set(MODULES)
    graph = {module: imports_of(path, known) - {module, "coregw"} for module, path in MODULES.items()}
    graph.pop("coregw", None)  # it gathers names of all the others, some of them on first use
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after `statement`."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


CLIENT_SIDE = {"click", "httpcore2", "httpx", "httpx2", "rich", "rich_click"}
SERVER_SIDE = {"granian", "litestar", "rocksdict", "uvicorn", "uvloop"}


def test_importing_coregw_loads_no_http_and_no_server_code() -> None:
    assert not loaded_by("import coregw") & (CLIENT_SIDE | SERVER_SIDE | {"asyncio", "msgspec"})


def test_a_client_loads_no_server_code() -> None:
    loaded = loaded_by("import coregw; coregw.Client; coregw.AsyncClient")
    assert "httpx2" in loaded
    assert not loaded & (SERVER_SIDE | {"click", "rich"})


def test_a_store_and_the_engine_load_no_http() -> None:
    assert not loaded_by("import coregw.engine, coregw.store.rocksdb") & (CLIENT_SIDE | {"litestar", "uvicorn"})
