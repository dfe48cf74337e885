"""Clients that verify everything, always: `Client` (blocking) and `AsyncClient`. The gateway is not trusted.

``operations``, ``trees``, ``diffs``, ``cars`` and ``batches`` hold what is sent and checked, once for both;
``questions`` what can be asked; ``wire`` and ``transport`` how. Leaves out which roots to accept: that is the caller's
decision.
"""

from coregw.client.aio import AsyncClient
from coregw.client.cars import ExportedCar, ImportedCar
from coregw.client.diffs import Difference
from coregw.client.questions import Proven, Question
from coregw.client.settings import ClientSettings
from coregw.client.sync import Client
from coregw.client.trees import Entry, Leaf

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
    "Question",
]
