"""The HTTP gateway: routes over an engine, and the server that runs them.

`coregw.gateway.server` runs it, `coregw.gateway.app` composes it, `coregw.gateway.settings` configures it. `create_app`
returns it for any ASGI server. Importing this package imports no web framework; its modules do.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from coregw.extras import missing_extra

if TYPE_CHECKING:
    from coregw.gateway.app import create_app

__all__ = ["create_app"]

if find_spec("litestar") is None:
    raise missing_extra(ModuleNotFoundError(name="litestar"), "coregw.gateway", "server")

_MODULES: Final = {"create_app": ".app"}


def __getattr__(name: str) -> object:
    """Import a name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name], __name__), name)
    globals()[name] = value
    return value
