"""The client's operations, one module a route: what to send, and what to verify in the answer.

Sans-I/O, shared by `Client` and `AsyncClient`: an operation is a generator (see ``steps``) that yields calls and is
sent their answers. It returns only values that are proven or that were recomputed here. The modules are imported on
first use, so that a short command loads only what it calls.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coregw.client.operations import (
        car_export,
        car_import,
        diff,
        lookup,
        mutate,
        payloads,
        publications,
        roots,
        tree,
    )

__all__ = [
    "car_export",
    "car_import",
    "diff",
    "lookup",
    "mutate",
    "payloads",
    "publications",
    "roots",
    "tree",
]


def __getattr__(name: str) -> ModuleType:
    """Import a module of operations on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
