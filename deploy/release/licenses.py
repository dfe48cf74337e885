"""Writes ``licenses.txt``: the licences of what wheels contain beside coregw's own code.

These are the crates that the extension links, and the packages that the explorer's script is bundled from. The viewer
of the documentation page has its licences beside it, in the package.
"""

from __future__ import annotations

import json
import subprocess
import textwrap
import tomllib
from pathlib import Path

TOP = Path(__file__).parent.parent.parent
OUTPUT = Path(__file__).with_name("licenses.txt")
_NAMES = ("license", "licence", "copying", "notice", "unlicense")
_LINE = "=" * 80


def crates() -> dict[str, Path]:
    """The crates that the extension links on any platform, as ``name version``, with the folders of their sources."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    known = json.loads(subprocess.run(command, cwd=TOP, capture_output=True, check=True).stdout)
    packages = {package["id"]: package for package in known["packages"]}
    nodes = {node["id"]: node for node in known["resolve"]["nodes"]}
    waiting = [key for key, package in packages.items() if package["name"] == "coregw-python"]
    found: set[str] = set()
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            linked = (each for each in nodes[key]["deps"] if any(kind["kind"] is None for kind in each["dep_kinds"]))
            waiting += [each["pkg"] for each in linked]
    others = (packages[key] for key in found if packages[key]["source"] is not None)
    return {f"{each['name']} {each['version']}": Path(each["manifest_path"]).parent for each in others}


def bundled() -> dict[str, Path]:
    """The npm packages that the explorer is bundled from, as ``name version``, with their folders."""
    dependencies = json.loads((TOP / "js" / "package.json").read_text("utf-8"))["dependencies"]
    return {f"{name} {version}": TOP / "js" / "node_modules" / name for name, version in dependencies.items()}


def texts(folder: Path) -> list[str]:
    """The texts of the licences and notices in a folder; without any, what the package says of them itself."""
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and file.name.lower().startswith(_NAMES)]
    if not files:
        package = tomllib.loads((folder / "Cargo.toml").read_text("utf-8"))["package"]
        author = ", ".join(package.get("authors", [])) or package["repository"]
        return [f"{package['license']}, by {author} (the package has no text of it)"]
    return [file.read_text("utf-8", errors="replace").strip() for file in files]


def main() -> None:
    """Write the file."""
    named: dict[str, tuple[str, list[str]]] = {}
    for name, folder in sorted({**crates(), **bundled()}.items()):
        for text in texts(folder):  # many are the same but for line breaks
            named.setdefault("".join(text.split()), (text, []))[1].append(name)
    parts = [
        f"{_LINE}\n{textwrap.fill(', '.join(names), 80, break_on_hyphens=False)}\n{_LINE}\n\n{text}\n"
        for text, names in named.values()
    ]
    OUTPUT.write_text("Licences of what wheels of coregw contain beside its own code.\n\n" + "\n".join(parts), "utf-8")


if __name__ == "__main__":
    main()
