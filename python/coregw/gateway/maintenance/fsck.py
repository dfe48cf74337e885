"""Checking the whole store while the gateway runs."""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, post

from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.replies import Reply
from coregw.gateway.http.requests import query_parameters
from coregw.gateway.maintenance.context import Management
from coregw.gateway.stores import shared_variables
from coregw.messages import decode
from coregw.messages.maintenance import CheckRequest
from coregw.messages.progress import ProgressCallback
from coregw.upkeep.integrity.findings import CheckResult
from coregw.upkeep.integrity.process import check_in_process

__all__ = ["handlers"]

_MAX_BODY_BYTES: Final = 64 << 10


@post(
    "/fsck",
    opt={
        DESCRIPTION: Description(
            "Checks the whole store, and names everything that is damaged.",
            request=CheckRequest,
            is_body_required=False,
            result=CheckResult,
            codes=("unauthorized", "too_large"),
        )
    },
)
async def fsck(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/fsck``. Without a body, it reads as fast as it can."""
    query_parameters(request.scope)
    management = Management.of(request)
    async with management.gateway.bodies.whole(request.scope, request.receive, _MAX_BODY_BYTES) as body:
        asked = decode(body, CheckRequest) if body else CheckRequest()
    settings = management.gateway.settings
    data = settings.data if settings.is_shared else management.store.path

    async def run(report: ProgressCallback) -> CheckResult:
        return await check_in_process(data, asked.bytes_per_second, report, shared_variables(settings))

    return management.operations.stream(request.scope, "fsck", run)


handlers: Final = (fsck,)
