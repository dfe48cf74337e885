"""Clients that verify every answer: `Client` (blocking) and `AsyncClient`. The gateway need not be trusted.

``query`` holds the queries with their verifiers, ``operations`` what both clients send and check, ``exchange`` and
``transport`` the HTTP side, ``folders`` whole folders. Which roots to trust is the caller's decision.

The names are imported on first use, so that a blocking client loads no asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from coregw.extras import missing_extra

try:
    import msgspec  # noqa: F401 - what every client needs, so that a missing extra is reported at once
    import pycurl  # noqa: F401
except ModuleNotFoundError as error:
    raise missing_extra(error, "coregw.client", "client") from error

if TYPE_CHECKING:
    from coregw.client.aio import AsyncClient
    from coregw.client.cars.export import ExportedCar
    from coregw.client.connection import ConnectionOptions
    from coregw.client.folders.compare import ComparedFolder
    from coregw.client.folders.restore import Restored
    from coregw.client.opened.asynchronous import AsyncFile
    from coregw.client.opened.blocking import File
    from coregw.client.operations.car import ImportedCar
    from coregw.client.operations.diff import Difference
    from coregw.client.operations.tree import Entry, Leaf
    from coregw.client.query import Proven, Query
    from coregw.client.settings import ClientSettings
    from coregw.client.sync import Client

__all__ = [
    "AsyncClient",
    "AsyncFile",
    "Client",
    "ClientSettings",
    "ComparedFolder",
    "ConnectionOptions",
    "Difference",
    "Entry",
    "ExportedCar",
    "File",
    "ImportedCar",
    "Leaf",
    "Proven",
    "Query",
    "Restored",
]

_MODULES = {
    "AsyncClient": "aio",
    "AsyncFile": "opened.asynchronous",
    "Client": "sync",
    "ClientSettings": "settings",
    "ComparedFolder": "folders.compare",
    "ConnectionOptions": "connection",
    "Difference": "operations.diff",
    "Entry": "operations.tree",
    "ExportedCar": "cars.export",
    "File": "opened.blocking",
    "ImportedCar": "operations.car",
    "Leaf": "operations.tree",
    "Proven": "query",
    "Query": "query",
    "Restored": "folders.restore",
}


def __getattr__(name: str) -> object:
    """Import a name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
