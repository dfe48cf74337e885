"""Context of the maintenance routes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast

from coregw.errors import Unavailable
from coregw.gateway.context import Gateway
from coregw.gateway.maintenance.operations import Operations
from coregw.gateway.metrics.gathering import WorkerReports
from coregw.gateway.metrics.samples import Source
from coregw.store.collection import CollectableStore
from coregw.store.rocksdb import RocksStore

if TYPE_CHECKING:
    from litestar import Request

__all__ = ["Management"]


@dataclass(frozen=True, slots=True)
class Management:
    """The management of one store, in the process that owns it.

    Attributes:
        gateway: The engine over the store, the settings of the whole gateway, and the reader of request bodies.
        operations: The long operations in progress.
        addresses: Where the management server listens.
        urls: Where clients are served, once they are.
        sources: The sources of the metrics of this process.
        workers: The metrics of the worker processes.
        started: When it started, in seconds of `time.monotonic`.
    """

    gateway: Gateway
    operations: Operations = field(default_factory=Operations)
    addresses: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    workers: WorkerReports = field(default_factory=WorkerReports)
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, request: Request[Any, Any, Any]) -> Self:
        """Return the management to which Litestar's request was sent."""
        return cast("Self", request.app.state["management"])

    @property
    def store(self) -> RocksStore:
        """The RocksDB store.

        Raises:
            Unavailable: If the gateway has a store of another kind.
        """
        store = self.gateway.engine.store
        if not isinstance(store, RocksStore):
            raise Unavailable("this gateway's store is not in RocksDB, and has no such maintenance")
        return store

    @property
    def collectable(self) -> CollectableStore:
        """The store, if its garbage can be collected, and all of it listed.

        Raises:
            Unavailable: If another process owns it.
        """
        store = self.gateway.engine.store
        if not isinstance(store, CollectableStore):
            raise Unavailable("this gateway's store is maintained by the process that owns it")
        return store
