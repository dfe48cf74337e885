"""Clients that verify every answer: `Client` (blocking) and `AsyncClient`. The gateway need not be trusted.

``query`` holds the queries with their verifiers, ``operations`` what both clients send and check, ``exchange`` and
``transport`` the HTTP side, ``folders`` whole folders. Which roots to trust is the caller's decision.
"""

from coregw.extras import missing_extra

try:
    from coregw.client.aio import AsyncClient
    from coregw.client.operations.car import ExportedCar, ImportedCar
    from coregw.client.operations.diff import Difference
    from coregw.client.operations.tree import Entry, Leaf
    from coregw.client.query import Proven, Query
    from coregw.client.settings import ClientSettings
    from coregw.client.sync import Client
except ModuleNotFoundError as error:
    raise missing_extra(error, "coregw.client", "client") from error

__all__ = [
    "AsyncClient",
    "Client",
    "ClientSettings",
    "Difference",
    "Entry",
    "ExportedCar",
    "ImportedCar",
    "Leaf",
    "Proven",
    "Query",
]
