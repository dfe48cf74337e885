"""Restoring what the store has lost, from files that ``coregw heal`` has put into the data directory."""

from __future__ import annotations

import re
from typing import Any, Final

from litestar import Request, post

from coregw.errors import InvalidInput
from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.replies import Reply
from coregw.gateway.maintenance.context import Management
from coregw.messages import Message, decode
from coregw.messages.progress import ProgressCallback
from coregw.upkeep.integrity.files import HEALING
from coregw.upkeep.integrity.heal import Restored, restore

__all__ = ["HealRequest", "handlers"]

_MAX_BODY_BYTES: Final = 1 << 10
_NAME: Final = re.compile(re.escape(HEALING) + "[A-Za-z0-9_-]{1,64}")


class HealRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /admin/v1/maintenance/heal``: the name of a directory in the data directory."""

    directory: str


@post(
    "/heal",
    opt={
        DESCRIPTION: Description(
            "Restores what the store has lost, from files that `coregw heal` has put into the data directory.",
            request=HealRequest,
            result=Restored,
            codes=("unauthorized", "too_large", "unsupported_media_type", "storage_full"),
        )
    },
)
async def heal(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/heal``. Everything is checked against its CID."""
    management = Management.of(request)
    async with management.gateway.json_body(request.scope, request.receive, _MAX_BODY_BYTES) as body:
        name = decode(body, HealRequest).directory
    directory = management.gateway.settings.data / name
    if _NAME.fullmatch(name) is None or not directory.is_dir():
        raise InvalidInput(f"directory: {name!r:.100} is not a directory that `coregw heal` has made")

    async def run(report: ProgressCallback) -> Restored:
        return await restore(management.gateway.engine, directory, report)

    return management.operations.stream(request.scope, "heal", run)


handlers: Final = (heal,)
