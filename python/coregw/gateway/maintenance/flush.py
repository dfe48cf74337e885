"""Flushing the memtables, so that everything is in SST files and the next start replays no log."""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, post

from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.replies import Reply
from coregw.gateway.http.requests import query_parameters
from coregw.gateway.maintenance.context import Management
from coregw.messages import Message
from coregw.messages.progress import Progress, ProgressCallback

__all__ = ["Flushed", "handlers"]


class Flushed(Message, frozen=True, kw_only=True):
    """The result of ``POST /admin/v1/maintenance/flush``."""

    flushed: bool = True


@post(
    "/flush",
    opt={
        DESCRIPTION: Description(
            "Flushes the memtables, so that the next start replays no log.", result=Flushed, codes=("unauthorized",)
        )
    },
)
async def flush(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/flush``. The body is ignored."""
    query_parameters(request.scope)
    management = Management.of(request)
    store = management.store

    async def run(report: ProgressCallback) -> Flushed:
        report(Progress(step="flushing the memtables"))
        await store.flush()
        return Flushed()

    return management.operations.stream(request.scope, "flush", run)


handlers: Final = (flush,)
