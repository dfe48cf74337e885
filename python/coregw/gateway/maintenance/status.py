"""Status of the gateway: its processes, its store, and the long operations in progress."""

from __future__ import annotations

import os
import time
from typing import Any, Final
from uuid import UUID

from litestar import Request, route

from coregw._core import __version__
from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.replies import Reply, json_reply
from coregw.gateway.http.requests import query_parameters
from coregw.gateway.maintenance.context import Management
from coregw.gateway.maintenance.operations import RunningOperation
from coregw.messages import Message, encode
from coregw.text import display_name

__all__ = ["Status", "handlers"]


class Status(Message, frozen=True, kw_only=True):
    """The answer to ``GET /admin/v1/maintenance/status``.

    Attributes:
        version: The version of coregw.
        pid: The process that owns the store.
        seconds: How long it has been running.
        data: The data directory.
        store: Which store it is; null if that is not known.
        incarnation: Which incarnation of it: each restore and each copy begins another one.
        workers: The configured number of processes that serve requests.
        healthy: Whether the store can be read and written.
        urls: Where clients are served; empty until they are.
        addresses: Where the management server listens.
        operations: The long operations in progress.
    """

    version: str
    pid: int
    seconds: float
    data: str
    store: UUID | None
    incarnation: UUID | None
    workers: int
    healthy: bool
    urls: list[str]
    addresses: list[str]
    operations: list[RunningOperation]


@route(
    "/status",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: Description(
            "Version, processes, addresses, and the long operations in progress.",
            answer=Status,
            codes=("unauthorized",),
        )
    },
)
async def status(request: Request[Any, Any, Any]) -> Reply:
    """``GET`` and ``HEAD /admin/v1/maintenance/status``."""
    query_parameters(request.scope)
    management = Management.of(request)
    settings = management.gateway.settings
    identity = getattr(management.gateway.engine.store, "identity", None)
    answer = Status(
        version=__version__,
        pid=os.getpid(),
        seconds=round(time.monotonic() - management.started, 3),
        data=display_name(settings.data.absolute()),
        store=None if identity is None else identity.store,
        incarnation=None if identity is None else identity.incarnation,
        workers=settings.workers,
        healthy=await management.gateway.engine.healthy(),
        urls=management.urls,
        addresses=management.addresses,
        operations=management.operations.running(),
    )
    return json_reply(encode(answer), headers={"Cache-Control": "no-store"})


handlers: Final = (status,)
