"""Checking the whole store while the gateway runs: on request, and slowly all the time (the scrub)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from litestar import Request, post

from coregw.errors import CoregwError
from coregw.failures import RepeatedFailure
from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.replies import Reply
from coregw.gateway.http.requests import query_parameters
from coregw.gateway.maintenance.context import Management
from coregw.gateway.maintenance.operations import Operation, Report
from coregw.gateway.stores import shared_variables
from coregw.upkeep.integrity.findings import CheckResult
from coregw.upkeep.integrity.process import check_in_process

__all__ = ["handlers", "scrub"]

logger = logging.getLogger("coregw.scrub")

_PAUSE_SECONDS: Final = 60.0
"""The time between two rounds of the scrub."""


@post(
    "/fsck",
    opt={
        DESCRIPTION: Description(
            "Checks the whole store, and names everything that is damaged.", result=CheckResult, codes=("unauthorized",)
        )
    },
)
async def fsck(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/fsck``. The body is ignored."""
    query_parameters(request.scope)
    management = Management.of(request)
    return management.operations.stream(request.scope, "fsck", _checking(management, None))


async def scrub(management: Management) -> None:
    """Check the store again and again until cancelled, and log each finding once."""
    rate = management.gateway.settings.scrub_bytes_per_second
    known: set[str] = set()
    failed = RepeatedFailure(logger, "the store was not scrubbed", "the store is scrubbed again", logging.ERROR)
    while True:
        try:
            found = cast("CheckResult", await management.operations.run("scrub", _checking(management, rate)))
        except CoregwError as error:
            failed.occurs(error)
        except Exception:
            logger.exception("the scrub failed")
        else:
            failed.ends()
            lines = set(found.lines())
            for line in sorted(lines - known):
                logger.error("scrub: %s", line)
            if known and not lines:
                logger.warning("scrub: what was damaged is sound again")
            known = lines
        await asyncio.sleep(_PAUSE_SECONDS)


def _checking(management: Management, rate: int | None) -> Operation:
    settings = management.gateway.settings
    data = settings.data if settings.is_shared else management.store.path

    async def run(report: Report) -> CheckResult:
        return await check_in_process(data, rate, report, shared_variables(settings))

    return run


handlers: Final = (fsck,)
