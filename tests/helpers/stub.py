"""The docstrings of ``_core.pyi``: those of the extension, copied. Run this file to update them.

The stub is written by hand, types and all, but for its docstrings, so that editors show what `help` shows.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType

STUB = Path(__file__).parent.parent.parent / "python" / "coregw" / "_core.pyi"


def documented(stub: str, extension: ModuleType) -> str:
    """The text of a stub with the docstrings of the extension."""
    lines = stub.splitlines()
    blocks: list[tuple[int, int, list[str]]] = []
    seen: set[str] = set()
    for node in ast.parse(stub).body:
        if isinstance(node, ast.FunctionDef):
            blocks.append(_function(node, lines, getattr(extension, node.name), seen, node.name))
        elif isinstance(node, ast.ClassDef):
            blocks += _class(node, lines, getattr(extension, node.name), seen)
    for start, end, block in reversed(blocks):
        lines[start:end] = block
    return "\n".join(lines) + "\n"


Block = tuple[int, int, list[str]]
"""Lines to replace, from and to (exclusive), and those that come instead."""


def _class(node: ast.ClassDef, lines: list[str], owner: type, seen: set[str]) -> list[Block]:
    first = node.body[0]
    if _is_docstring(first):
        blocks = [(first.lineno - 1, first.end_lineno or 0, _docstring(owner, 4))]
    else:
        blocks = [(node.lineno, node.lineno, [*_docstring(owner, 4), ""])]
    for item, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(item, ast.FunctionDef):
            blocks.append(_function(item, lines, getattr(owner, item.name), seen, f"{node.name}.{item.name}"))
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            end = (following.end_lineno or 0) if following and _is_docstring(following) else item.lineno
            blocks.append((item.lineno, end, _docstring(getattr(owner, item.target.id), 4)))
    return blocks


def _function(node: ast.FunctionDef, lines: list[str], value: object, seen: set[str], name: str) -> Block:
    body = node.body[0]
    if _is_docstring(body):
        header = lines[node.lineno - 1 : body.lineno - 1]
    else:
        header = [*lines[node.lineno - 1 : body.lineno - 1], lines[body.lineno - 1][: body.col_offset].rstrip()]
    # The names of magic methods say what they do; an overload is documented where it is declared first.
    docstring = [] if node.name.startswith("__") or name in seen else _docstring(value, node.col_offset + 4)
    seen.add(name)
    if not docstring:
        header[-1] += " ..."
    return node.lineno - 1, node.end_lineno or 0, header + docstring


def _docstring(value: object, indent: int) -> list[str]:
    text = inspect.getdoc(value) or ""
    lines = (('r"""' if "\\" in text else '"""') + text).splitlines()
    if len(lines) == 1:
        lines[0] += '"""'
    else:
        lines.append('"""')
    return [" " * indent + line if line else "" for line in lines]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


if __name__ == "__main__":
    from coregw import _core

    STUB.write_text(documented(STUB.read_text("utf-8"), _core), "utf-8")
