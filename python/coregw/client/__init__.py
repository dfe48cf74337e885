"""Clients that verify every answer: `Client` (blocking) and `AsyncClient`. The gateway need not be trusted.

``query`` holds the queries with their verifiers, ``operations`` what both clients send and check, ``transport`` the
HTTP side, ``folders`` whole folders. Which roots to trust is the caller's decision.

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
    from coregw.client.aio import AsyncClient, AsyncPublications
    from coregw.client.folders.add import Added
    from coregw.client.folders.compare import ComparedFolder
    from coregw.client.folders.restore import Links, Restored
    from coregw.client.mirror import Mirrored, MirroredName
    from coregw.client.open_files import AsyncFile, File
    from coregw.client.operations.car_export import ExportedCar
    from coregw.client.operations.car_import import ImportedCar
    from coregw.client.operations.diff import Difference
    from coregw.client.operations.tree import Entry, Leaf
    from coregw.client.query import Proven, Query
    from coregw.client.settings import ClientSettings, ConnectionOptions
    from coregw.client.sync import Client, Publications
    from coregw.folders.compare import FolderDifference
    from coregw.folders.tree import Level
    from coregw.messages.management import PublishedRecord

__all__ = [
    "Added",
    "AsyncClient",
    "AsyncFile",
    "AsyncPublications",
    "Client",
    "ClientSettings",
    "ComparedFolder",
    "ConnectionOptions",
    "Difference",
    "Entry",
    "ExportedCar",
    "File",
    "FolderDifference",
    "ImportedCar",
    "Leaf",
    "Level",
    "Links",
    "Mirrored",
    "MirroredName",
    "Proven",
    "Publications",
    "PublishedRecord",
    "Query",
    "Restored",
]

_MODULES = {
    "Added": ".folders.add",
    "AsyncClient": ".aio",
    "AsyncFile": ".open_files",
    "AsyncPublications": ".aio",
    "Client": ".sync",
    "ClientSettings": ".settings",
    "ComparedFolder": ".folders.compare",
    "ConnectionOptions": ".settings",
    "Difference": ".operations.diff",
    "Entry": ".operations.tree",
    "ExportedCar": ".operations.car_export",
    "File": ".open_files",
    "FolderDifference": "..folders.compare",
    "ImportedCar": ".operations.car_import",
    "Leaf": ".operations.tree",
    "Level": "..folders.tree",
    "Links": ".folders.restore",
    "Mirrored": ".mirror",
    "MirroredName": ".mirror",
    "Proven": ".query",
    "Publications": ".sync",
    "PublishedRecord": "..messages.management",
    "Query": ".query",
    "Restored": ".folders.restore",
}


def __getattr__(name: str) -> object:
    """Import a name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name], __name__), name)
    globals()[name] = value
    return value
